//! The rows of `latent bench publish`: what each one compares, and with which target.

use bytes::Bytes;
use clap::ValueEnum;

use super::super::figure::{Latency, Slice};
use super::super::measure::{Pair, Session};
use super::super::row::{Row, RowSpec, Target as Wanted, Unit};
use super::broken;
use super::idle::Idle;
use super::ours::OurPublisher;
use super::raw::RawLoop;
use super::target::Target;
use crate::error::CliError;

/// Publications at once.
pub(super) const TOGETHER: u32 = 64;
/// Connections of a tenant: what the pools have by default.
const CONNECTIONS: usize = latent_capabilities::limits::POOL_CONNECTIONS_PER_TENANT.default_usize();
/// What 16 idle mappings may take.
const IDLE_BYTES: f64 = 131_072.0;
const SMALL_BYTES: usize = 256;
const LARGE_BYTES: usize = 8_192;

const BY_HAND: &str = "publish and wait by hand, one connection";
const BY_HAND_TOGETHER: &str = "by hand on 8 connections, one in flight on each";

/// A row of the table of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum RowId {
    /// Memory of what is installed and idle; first, while the allocator has nothing free that would hide it
    #[value(name = "Q-13")]
    Idle,
    /// From a function to its receipt, one at a time
    #[value(name = "Q-10")]
    Singles,
    /// 64 publications at once
    #[value(name = "Q-11")]
    Together,
}

/// Where finished rows go.
type Report<'r> = &'r mut dyn FnMut(&Row) -> Result<(), CliError>;

impl RowId {
    /// Measures every case of a row.
    pub(super) fn measure(self, session: &mut Session, target: &Target, report: Report<'_>) -> Result<(), CliError> {
        match self {
            Self::Singles => singles(session, target, report),
            Self::Together => together(session, target, report),
            Self::Idle => idle(session, target, report),
        }
    }
}

fn singles(session: &mut Session, target: &Target, report: Report<'_>) -> Result<(), CliError> {
    let publications = session.plan.publications;
    let ours = OurPublisher::start(target, &session.scratch.folder("singles")?)?;
    let raw = RawLoop::connect(target, 1)?;
    #[cfg(feature = "bench-peers")]
    let peer = super::peer::Peer::connect(target)?;
    let cases = [
        (SMALL_BYTES, ["256 B", "256 B, 99th percentile", "256 B, to async-nats"]),
        (LARGE_BYTES, ["8 KiB", "8 KiB, 99th percentile", "8 KiB, to async-nats"]),
    ];
    for (bytes, [rate, high, to_peer]) in cases {
        let payload = payload(bytes);
        let row = |case, unit, reference_name, target| RowSpec { id: "Q-10", case, unit, reference_name, target };
        let ours_slice = || ours.singles(&payload, publications);
        let raw_slice = || raw.slice(&payload, publications);
        let spec = row(rate, Unit::PerSecond, BY_HAND, Wanted::AtLeast(0.9));
        report(&session.row(spec, Pair { ours: Box::new(ours_slice), reference: Box::new(raw_slice) })?)?;
        let spec = row(high, Unit::MicrosEach, BY_HAND, Wanted::AtMost(1.25));
        let one = |slice: Slice| slice.narrowed_to(Latency::high);
        report(&session.row(spec, Pair { ours: Box::new(|| ours_slice().map(one)), reference: Box::new(|| raw_slice().map(one)) })?)?;
        #[cfg(feature = "bench-peers")]
        {
            let spec = row(to_peer, Unit::PerSecond, "async-nats, publish and wait", Wanted::AtLeast(1.0));
            let pair = Pair { ours: Box::new(ours_slice), reference: Box::new(|| peer.slice(&payload, publications)) };
            report(&session.row(spec, pair)?)?;
        }
        #[cfg(not(feature = "bench-peers"))]
        let _ = to_peer;
    }
    Ok(())
}

fn together(session: &mut Session, target: &Target, report: Report<'_>) -> Result<(), CliError> {
    // At least one for each of those that publish at once.
    let publications = session.plan.publications.max(TOGETHER) * 4;
    let ours = OurPublisher::start(target, &session.scratch.folder("together")?)?;
    let raw = RawLoop::connect(target, CONNECTIONS)?;
    let (payload, mut ids) = (payload(SMALL_BYTES), Ids::new()?);
    let spec = RowSpec {
        id: "Q-11",
        case: "64 at once, 256 B",
        unit: Unit::PerSecond,
        reference_name: BY_HAND_TOGETHER,
        target: Wanted::AtLeast(0.8),
    };
    let pair = Pair {
        ours: Box::new(|| ours.together(&payload, publications, &mut ids)),
        reference: Box::new(|| raw.slice(&payload, publications)),
    };
    report(&session.row(spec, pair)?)
}

fn idle(session: &mut Session, target: &Target, report: Report<'_>) -> Result<(), CliError> {
    let mut idle = Idle::prepare(target, &session.scratch.folder("idle")?)?;
    let spec = RowSpec {
        id: "Q-13",
        case: "16 mappings, idle",
        unit: Unit::BytesEach,
        reference_name: "128 KiB for a provider with 16 mappings",
        target: Wanted::AtMost(1.0),
    };
    report(&session.figures(spec, || idle.bytes_each(), || Ok(IDLE_BYTES))?)
}

/// Bytes without a pattern; nothing on the way looks at them.
fn payload(bytes: usize) -> Bytes {
    (0_u32..).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).take(bytes).collect()
}

/// Message ids that no other run gives, as long as those of a function's publications.
pub(super) struct Ids {
    prefix: String,
    next: u64,
}

impl Ids {
    pub(super) fn new() -> Result<Self, CliError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| broken("choosing ids", &error))?;
        Ok(Self { prefix: format!("lsf-{:032x}", u128::from_be_bytes(random)), next: 0 })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn take(&mut self, count: u32) -> Vec<String> {
        let first = self.next;
        self.next += u64::from(count);
        (first..self.next).map(|number| format!("{}{number:032x}", self.prefix)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_new_in_each_run_and_as_long_as_a_functions() {
        let (mut one, mut other) = (Ids::new().unwrap(), Ids::new().unwrap());
        let ids = [one.take(2), one.take(1), other.take(2)].concat();
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!((ids.len(), different.len()), (5, 5));
        assert!(ids.iter().all(|id| id.len() == "lsf-".len() + 64));
        assert_eq!(payload(300).len(), 300);
    }
}
