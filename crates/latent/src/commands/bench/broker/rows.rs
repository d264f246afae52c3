//! The rows: what each one compares, and with which target.

use latent_bridge::nats_bus::NatsOptions;

use super::super::figure::{Latency, Slice};
use super::super::log_failed;
use super::super::measure::{Pair, Session};
use super::super::plan::{BATCH_EVENTS, PAGE_EVENTS};
use super::super::row::{Row, RowSpec, Target, Unit};
use super::ours::{Topic, by_hand};
use super::peer::Peer;
use crate::error::CliError;

const LARGE: &str = "bench.large";
const SMALL: &str = "bench.small";
const BATCHES: &str = "bench.batches";
const HAND_STREAM: &str = "BENCH_BY_HAND";
const HAND_SUBJECT: &str = "bench-by-hand";
const HOUR_SECONDS: u64 = 3_600;

/// Streams with events in them, and the loops by hand.
pub(super) struct Bench {
    peer: Peer,
    large: Topic,
    small: Topic,
    batches: Topic,
    count: u64,
}

fn stream_of(topic: &str) -> String {
    format!("av_{}", topic.replace('.', "_"))
}

impl Bench {
    /// Makes and fills the streams.
    pub(super) fn prepare(session: &Session) -> Result<Self, CliError> {
        let url = std::env::var("AV_NATS_URL").map_err(|_| CliError::Usage {
            what: "there is no broker to measure on".to_owned(),
            why: "AV_NATS_URL is not set".to_owned(),
            next: "run `cargo xtask bench broker`, or set AV_NATS_URL and its companions".to_owned(),
        })?;
        let options = NatsOptions::from_environment(&url).map_err(log_failed("reading the environment"))?;
        let peer = Peer::connect(&options)?;
        let ours = [LARGE, SMALL, BATCHES].map(stream_of);
        if let Some(there) = ours.iter().map(String::as_str).chain([HAND_STREAM]).find(|stream| peer.has(stream)) {
            return Err(CliError::Usage {
                what: format!("the broker has a stream {there}"),
                why: "this command makes it, and removes nothing".to_owned(),
                next: "delete it, or use another broker".to_owned(),
            });
        }
        peer.create(HAND_STREAM, HAND_SUBJECT, HOUR_SECONDS)?;
        let count = session.plan.records;
        let (mut large, mut small) = (Topic::create(&options, LARGE)?, Topic::create(&options, SMALL)?);
        large.fill(count)?;
        small.fill(count / 10)?;
        Ok(Self { peer, large, small, batches: Topic::create(&options, BATCHES)?, count })
    }

    /// Measures everything.
    pub(super) fn measure(&mut self, session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
        self.publishing(session, report)?;
        self.replaying(session, report)?;
        self.finding(session, report)?;
        self.growing(session, report)
    }

    fn publishing(&mut self, session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
        let count = session.plan.batches_max;
        let spec = RowSpec {
            id: "Q-30",
            case: "batches of 256",
            unit: Unit::PerSecond,
            reference_name: "async-nats by hand, 256 handed over and then waited for",
            target: Target::AtLeast(0.9),
        };
        let (peer, topic) = (&self.peer, std::cell::RefCell::new(&mut self.batches));
        let material =
            |count: usize| -> Result<Vec<_>, CliError> { (0..count).map(|_| topic.borrow_mut().records(BATCH_EVENTS as u64)).collect() };
        let mut sent = 0;
        let ours = || {
            let batches = material(count)?;
            topic.borrow().batches(&batches)
        };
        let reference = || {
            let batches = material(count)?;
            let messages = batches.iter().map(|batch| {
                sent += batch.len() as u64;
                by_hand(batch, sent)
            });
            peer.batches(HAND_STREAM, HAND_SUBJECT, messages.collect())
        };
        report(&session.row(spec, Pair { ours: Box::new(ours), reference: Box::new(reference) })?)
    }

    fn replaying(&self, session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
        let spec = RowSpec {
            id: "Q-30",
            case: "replay of everything",
            unit: Unit::PerSecond,
            reference_name: "async-nats by hand, one pull consumer, each event parsed",
            target: Target::AtLeast(0.9),
        };
        let stream = stream_of(LARGE);
        let pair = Pair { ours: Box::new(|| self.large.replay()), reference: Box::new(|| self.peer.read(&stream, self.count, false)) };
        report(&session.row(spec, pair)?)
    }

    fn finding(&self, session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
        let (lookups, stream) = (session.plan.lookups, stream_of(LARGE));
        let spec = RowSpec {
            id: "Q-31",
            case: "find by uid, cold",
            unit: Unit::PerSecond,
            reference_name: "async-nats by hand, headers of the whole partition",
            // 1.2 times the time.
            target: Target::AtLeast(1.0 / 1.2),
        };
        let pair =
            Pair { ours: Box::new(|| self.large.find_cold(self.count)), reference: Box::new(|| self.peer.read(&stream, self.count, true)) };
        report(&session.row(spec, pair)?)?;

        // The first one reads the partition.
        self.large.finds(&[self.count - 1])?;
        let spec = RowSpec {
            id: "Q-31",
            case: "find by uid, warm, median",
            unit: Unit::MicrosEach,
            reference_name: "one round trip by hand (direct get)",
            target: Target::AtMost(5.0),
        };
        let numbers = spread(self.count, lookups);
        let sequences: Vec<_> = numbers.iter().map(|number| number + 1).collect();
        let one = |slice: Slice| slice.narrowed_to(|latency: &Latency| latency.median());
        let pair = Pair {
            ours: Box::new(|| self.large.finds(&numbers).map(one)),
            reference: Box::new(|| self.peer.gets(&stream, sequences.clone()).map(one)),
        };
        report(&session.row(spec, pair)?)
    }

    /// The same work on the large stream and on the small one.
    fn growing(&self, session: &mut Session, report: &mut dyn FnMut(&Row) -> Result<(), CliError>) -> Result<(), CliError> {
        let small_count = self.count / 10;
        let row = |case| RowSpec {
            id: "Q-40",
            case,
            unit: Unit::MicrosEach,
            reference_name: "itself on a tenth of the records",
            target: Target::AtMost(1.1),
        };
        let pair = Pair { ours: Box::new(|| self.large.replay()), reference: Box::new(|| self.small.replay()) };
        report(&session.row(row("replay on a broker, each event"), pair)?)?;

        let pages = session.plan.pages;
        let offsets = |count: u64| -> Vec<u64> { spread(count / 2, pages).iter().map(|number| count / 4 + number + 1).collect() };
        let (of_large, of_small) = (offsets(self.count), offsets(small_count));
        let pair = Pair {
            ours: Box::new(|| self.large.pages(&of_large, PAGE_EVENTS)),
            reference: Box::new(|| self.small.pages(&of_small, PAGE_EVENTS)),
        };
        report(&session.row(row("fetch from the middle on a broker, each event"), pair)?)?;

        self.small.finds(&[small_count - 1])?;
        let lookups = session.plan.lookups;
        let (of_large, of_small) = (spread(self.count, lookups), spread(small_count, lookups));
        let pair = Pair { ours: Box::new(|| self.large.finds(&of_large)), reference: Box::new(|| self.small.finds(&of_small)) };
        report(&session.row(row("find by uid on a broker, warm"), pair)?)?;

        let pair = Pair { ours: Box::new(|| self.large.find_cold(self.count)), reference: Box::new(|| self.small.find_cold(small_count)) };
        report(&session.row(row("find by uid on a broker, cold, each event read"), pair)?)
    }
}

/// So many numbers below `end`, evenly and in an order that no cache helps.
fn spread(end: u64, count: usize) -> Vec<u64> {
    const STEP: u64 = 2_654_435_761;
    (0..count as u64).map(|n| n.wrapping_mul(STEP) % end.max(1)).collect()
}
