//! Events on their way through the node: many at a time, as fast as they go through, or one at a time.
//!
//! Every event that goes in comes out, exactly once: whatever else happens ends the measurement.

use std::time::{Duration, Instant};

use latent_bridge::EventBus as _;
use latent_core::NewRecord;

use super::super::event::{self, PayloadSize};
use super::super::figure::Slice;
use super::super::measure::interrupted;
use super::super::plan::{BATCH_EVENTS, Plan};
use super::super::store::stored_anew;
use super::node::{IN, came_out};
use super::watched::{Sighting, Sightings};
use crate::error::CliError;
use crate::node::InProcessNode;
use crate::stop::StopSignal;

/// Different keys, so that many events of a partition can run at the same time.
const KEYS: u64 = 4_096;
/// Events that went in and did not come out yet, at most: then there is always work, and little is left when the time is over.
const BACKLOG_EVENTS: u64 = 1_024;
/// Between two looks at how far the node is.
const LOOK: Duration = Duration::from_micros(500);
/// How long a node may do nothing before that is a failure.
const STALL: Duration = Duration::from_secs(30);

/// A node and the events that went in.
pub(super) struct Passage<'n> {
    pub(super) node: &'n InProcessNode,
    pub(super) stop: &'n StopSignal,
    sent: u64,
}

/// The times of one event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crossing {
    sent_at: Instant,
    sighting: Sighting,
    settled_at: Instant,
}

impl Crossing {
    /// From the durable append to the first thing that the function does.
    pub(super) fn wake_up(&self) -> Duration {
        self.sighting.asked_at.duration_since(self.sighting.appended_at)
    }

    /// From its publication until what it led to is durable.
    pub(super) fn until_out(&self) -> Duration {
        self.sighting.stored_at.duration_since(self.sent_at)
    }

    /// From its publication until it is settled for good.
    pub(super) fn until_settled(&self) -> Duration {
        self.settled_at.duration_since(self.sent_at)
    }
}

impl<'n> Passage<'n> {
    pub(super) fn through(node: &'n InProcessNode, stop: &'n StopSignal) -> Self {
        Self { node, stop, sent: 0 }
    }

    /// As many as go through, published in batches; the time ends when the last one is settled.
    pub(super) fn many(&mut self, plan: &Plan) -> Result<Slice, CliError> {
        let records = self.records(plan.batches_max * BATCH_EVENTS)?;
        let (before, started) = (self.sent, Instant::now());
        for batch in records.chunks(BATCH_EVENTS) {
            if started.elapsed() >= plan.slice {
                break;
            }
            self.wait_for(self.sent.saturating_sub(BACKLOG_EVENTS), || std::thread::sleep(LOOK))?;
            for result in self.node.log().publish_batch(IN, batch) {
                stored_anew(result)?;
                self.sent += 1;
            }
        }
        self.wait_for(self.sent, || std::thread::sleep(LOOK))?;
        let elapsed = started.elapsed();
        self.check()?;
        Ok(Slice { units: self.sent - before, elapsed, latencies: Vec::new() })
    }

    /// One event at a time, each on a node that has nothing else to do.
    pub(super) fn one_by_one(&mut self, plan: &Plan, sightings: &Sightings, of: fn(&Crossing) -> Duration) -> Result<Slice, CliError> {
        let records = self.records(plan.singles_max)?;
        let (started, mut latencies) = (Instant::now(), Vec::new());
        for record in &records {
            if started.elapsed() >= plan.slice {
                break;
            }
            latencies.push(of(&self.cross(record, sightings)?));
        }
        self.check()?;
        Ok(Slice { units: latencies.len() as u64, elapsed: started.elapsed(), latencies })
    }

    fn cross(&mut self, record: &NewRecord, sightings: &Sightings) -> Result<Crossing, CliError> {
        let sent_at = Instant::now();
        stored_anew(self.node.log().publish_record(IN, record))?;
        self.sent += 1;
        let sighting = sightings.take(STALL).ok_or_else(|| self.stalled())?;
        self.wait_for(self.sent, std::thread::yield_now)?;
        Ok(Crossing { sent_at, sighting, settled_at: Instant::now() })
    }

    /// Waits until so many events are settled.
    fn wait_for(&self, settled: u64, pause: impl Fn()) -> Result<(), CliError> {
        let (mut known, mut since) = (0, Instant::now());
        loop {
            let now = self.node.settled();
            if now >= settled {
                return Ok(());
            }
            if now != known {
                (known, since) = (now, Instant::now());
            } else if since.elapsed() >= STALL {
                return Err(self.stalled());
            }
            interrupted(self.stop)?;
            pause();
        }
    }

    /// That every event went through, by one activation, and came out once.
    fn check(&self) -> Result<(), CliError> {
        let (totals, came_out) = (self.node.totals(), came_out(self.node)?);
        if (totals.success, totals.settled, came_out) == (self.sent, self.sent, self.sent) {
            return Ok(());
        }
        let reason = format!("{} went in, {came_out} came out: {totals:?}", self.sent);
        Err(CliError::Bench { doing: "sending events through a node".to_owned(), reason })
    }

    fn stalled(&self) -> CliError {
        let reason = format!("after {} events nothing happened for {} s: {:?}", self.sent, STALL.as_secs(), self.node.totals());
        CliError::Bench { doing: "sending events through a node".to_owned(), reason }
    }

    fn records(&self, count: usize) -> Result<Vec<NewRecord>, CliError> {
        let record = |number: u64| event::record_under(&format!("acme/order-{:04}", number % KEYS), PayloadSize::Small, number);
        (self.sent..).take(count).map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_an_event_are_taken_from_its_publication_but_a_wake_up_from_its_append() {
        let sent_at = Instant::now();
        let after = |micros| sent_at + Duration::from_micros(micros);
        let sighting = Sighting { appended_at: after(100), asked_at: after(130), stored_at: after(250) };
        let crossing = Crossing { sent_at, sighting, settled_at: after(360) };
        let times = [crossing.wake_up(), crossing.until_out(), crossing.until_settled()];
        assert_eq!(times.map(|time| time.as_micros()), [30, 250, 360]);
    }
}
