//! What is timed: one bounded slice of each kind of work, ours and by hand. Material is made before the time begins.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use latent_bridge::{EmbeddedBroker, EventBus as _};
use latent_core::{NewRecord, Offset, Partition, Uid};

use super::event::{self, PayloadSize};
use super::figure::Slice;
use super::log_failed;
use super::plan::{BATCH_EVENTS, PAGE_EVENTS, PUBLISHERS, Plan};
use super::raw::RawLog;
use super::store::{Place, Store, TOPIC, publish_all, stored_anew};
use crate::error::CliError;

/// Calls `act` for one item after the other until the time is up, with the time of each call.
fn one_by_one<T>(items: &[T], time: Duration, mut act: impl FnMut(&T) -> Result<(), CliError>) -> Result<Slice, CliError> {
    let started = Instant::now();
    let mut latencies = Vec::with_capacity(items.len());
    let mut now = started;
    for item in items {
        if now.duration_since(started) >= time {
            break;
        }
        act(item)?;
        let done = Instant::now();
        latencies.push(done.duration_since(now));
        now = done;
    }
    Ok(Slice { units: latencies.len() as u64, elapsed: now.duration_since(started), latencies })
}

/// So many events for each call.
fn of_groups(slice: Slice, events: usize) -> Slice {
    Slice { units: slice.units * events as u64, ..slice }
}

/// Nobody asks for the time of each call.
fn without_latencies(slice: Slice) -> Slice {
    Slice { latencies: Vec::new(), ..slice }
}

/// One publisher, one event at a time.
pub(super) fn singles(store: &mut Store, plan: &Plan) -> Result<Slice, CliError> {
    let records = records(store, plan.singles_max)?;
    one_by_one(&records, plan.slice, |record| stored_anew(store.broker.publish_record(TOPIC, record)))
}

/// The same by hand.
pub(super) fn raw_singles(raw: &mut RawLog, first: &mut u64, plan: &Plan) -> Result<Slice, CliError> {
    let bodies = raw_bodies(raw, first, plan.singles_max)?;
    one_by_one(&bodies, plan.slice, |body| raw.commit(std::iter::once(body.as_slice())))
}

/// One publisher, a batch at a time.
pub(super) fn batches(store: &mut Store, plan: &Plan) -> Result<Slice, CliError> {
    let records = records(store, plan.batches_max * BATCH_EVENTS)?;
    let batches: Vec<_> = records.chunks(BATCH_EVENTS).collect();
    let slice = one_by_one(&batches, plan.slice, |batch| publish_all(&store.broker, batch))?;
    Ok(without_latencies(of_groups(slice, BATCH_EVENTS)))
}

/// The same by hand.
pub(super) fn raw_batches(raw: &mut RawLog, first: &mut u64, plan: &Plan) -> Result<Slice, CliError> {
    let bodies = raw_bodies(raw, first, plan.batches_max * BATCH_EVENTS)?;
    raw_groups(raw, &bodies, BATCH_EVENTS, plan).map(without_latencies)
}

/// Groups of sixteen by hand: what sixteen publishers could share at best. Each of them would wait for a whole group.
pub(super) fn raw_publishers(raw: &mut RawLog, first: &mut u64, plan: &Plan) -> Result<Slice, CliError> {
    let bodies = raw_bodies(raw, first, PUBLISHERS * plan.publisher_events_max)?;
    raw_groups(raw, &bodies, PUBLISHERS, plan)
}

fn raw_groups(raw: &mut RawLog, bodies: &[Vec<u8>], group: usize, plan: &Plan) -> Result<Slice, CliError> {
    let groups: Vec<_> = bodies.chunks_exact(group).collect();
    let slice = one_by_one(&groups, plan.slice, |group| raw.commit(group.iter().map(Vec::as_slice)))?;
    Ok(of_groups(slice, group))
}

/// Sixteen publishers, each with one event at a time. The time ends when the last one has its last answer.
pub(super) fn publishers(store: &mut Store, plan: &Plan) -> Result<Slice, CliError> {
    let records = records(store, PUBLISHERS * plan.publisher_events_max)?;
    let shares: Vec<_> = records.chunks(plan.publisher_events_max.max(1)).collect();
    let (broker, barrier) = (&store.broker, &Barrier::new(shares.len() + 1));
    let publish = |share: &[NewRecord]| {
        barrier.wait();
        one_by_one(share, plan.slice, |record| stored_anew(broker.publish_record(TOPIC, record)))
    };
    let publish = &publish;
    std::thread::scope(|scope| {
        let threads: Vec<_> = shares.into_iter().map(|share| scope.spawn(move || publish(share))).collect();
        barrier.wait();
        let started = Instant::now();
        let mut all = Slice::default();
        for thread in threads {
            let slice = thread
                .join()
                .map_err(|_| CliError::Bench { doing: "publishing".to_owned(), reason: "a publisher panicked".to_owned() })??;
            all.units += slice.units;
            all.latencies.extend(slice.latencies);
        }
        all.elapsed = started.elapsed();
        Ok(all)
    })
}

/// Everything in order, decoded, partition after partition.
pub(super) fn fetch_all(store: &Store) -> Result<Slice, CliError> {
    let started = Instant::now();
    let mut units = 0;
    for partition in 0..store.partitions {
        let mut offset = 0;
        loop {
            let page = fetch_page(&store.broker, partition, offset)?;
            let Some(last) = page.last() else { break };
            (offset, units) = (last.offset + 1, units + page.len() as u64);
        }
    }
    Ok(Slice { units, elapsed: started.elapsed(), latencies: Vec::new() })
}

/// The same by hand: frames with their checksums, and each payload parsed.
pub(super) fn raw_read(raw: &RawLog) -> Result<Slice, CliError> {
    let started = Instant::now();
    let units = raw.read_decoded(PAGE_EVENTS)?;
    Ok(Slice { units, elapsed: started.elapsed(), latencies: Vec::new() })
}

/// Pages here and there, spread evenly over the log.
pub(super) fn fetch_spread(store: &Store, plan: &Plan) -> Result<Slice, CliError> {
    let mut starts = Vec::with_capacity(plan.pages);
    for (page, partition) in (0..plan.pages as u64).zip((0..store.partitions).cycle()) {
        let (first, next) = store.broker.bounds(TOPIC, Partition(partition)).map_err(log_failed("asking where a partition ends"))?;
        let starts_there = next.0.saturating_sub(first.0).saturating_sub(PAGE_EVENTS as u64);
        starts.push((partition, first.0 + starts_there * page / (plan.pages as u64)));
    }
    let started = Instant::now();
    let mut units = 0;
    for (partition, offset) in starts {
        units += fetch_page(&store.broker, partition, offset)?.len() as u64;
    }
    Ok(Slice { units, elapsed: started.elapsed(), latencies: Vec::new() })
}

fn fetch_page(broker: &EmbeddedBroker, partition: u32, offset: u64) -> Result<Vec<latent_bridge::StoredEvent>, CliError> {
    broker.fetch(TOPIC, partition, offset, PAGE_EVENTS).map(black_box).map_err(log_failed("fetching a page"))
}

/// Look-ups by uid, of events all over the log.
pub(super) fn finds(store: &Store, plan: &Plan) -> Result<Slice, CliError> {
    let wanted = scattered(&store.places, plan.lookups);
    let wanted = wanted.map(|place| Uid::parse(&event::uid(place.number)).map(|uid| (event::key(place.number), uid, place)));
    let wanted: Vec<_> = wanted.collect::<Result<_, _>>().map_err(|error| missing(&error.to_string()))?;
    let slice = one_by_one(&wanted, Duration::MAX, |(key, uid, place)| {
        let found = store.broker.submit_find(TOPIC, key, uid).wait().map_err(log_failed("finding by uid"))?;
        let found = found.filter(|found| (found.partition, found.offset) == (place.partition, place.offset));
        found.map(drop).ok_or_else(|| missing("an event is not found by its uid"))
    })?;
    Ok(without_latencies(slice))
}

/// The same events by their offsets, one at a time.
pub(super) fn fetches_by_offset(store: &Store, plan: &Plan) -> Result<Slice, CliError> {
    let wanted: Vec<_> = scattered(&store.places, plan.lookups).collect();
    let slice = one_by_one(&wanted, Duration::MAX, |place| {
        let page = store.broker.submit_fetch(TOPIC, Partition(place.partition), Offset(place.offset), 1).wait();
        let page = page.map_err(log_failed("fetching one event"))?;
        if page.first().is_some_and(|stored| stored.offset.0 == place.offset) {
            Ok(())
        } else {
            Err(missing("an event is not at its offset"))
        }
    })?;
    Ok(without_latencies(slice))
}

/// The places over and over, in an order without a pattern.
fn scattered(places: &[Place], count: usize) -> impl Iterator<Item = Place> + '_ {
    // A stride that shares no factor with a power of two or ten comes to every place.
    let at = move |step: usize| step.wrapping_mul(7_919) % places.len().max(1);
    (0..count).filter_map(move |step| places.get(at(step)).copied())
}

fn missing(reason: &str) -> CliError {
    CliError::Bench { doing: "looking for what was stored".to_owned(), reason: reason.to_owned() }
}

fn records(store: &mut Store, count: usize) -> Result<Vec<NewRecord>, CliError> {
    let size = store.size;
    store.take(count as u64).map(|number| event::record(size, number)).collect()
}

fn raw_bodies(raw: &mut RawLog, first: &mut u64, count: usize) -> Result<Vec<Vec<u8>>, CliError> {
    let bodies: Vec<_> = (*first..).take(count).map(|number| event::body(PayloadSize::Small, number)).collect::<Result<_, _>>()?;
    *first += count as u64;
    raw.prepare(bodies.iter().map(Vec::as_slice))?;
    Ok(bodies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_with_its_items_or_its_time() {
        let items = [1, 2, 3];
        let all = one_by_one(&items, Duration::MAX, |_| Ok(())).unwrap();
        assert_eq!((all.units, all.latencies.len()), (3, 3));
        let none = one_by_one(&items, Duration::ZERO, |_| Ok(())).unwrap();
        assert_eq!((none.units, none.latencies.len()), (0, 0));
        assert!(one_by_one(&items, Duration::MAX, |_| Err(missing("it"))).is_err());
    }

    #[test]
    fn scattered_places_come_to_every_place_and_not_in_order() {
        let places: Vec<_> = (0..500).map(|number| Place { number, partition: 0, offset: number }).collect();
        let numbers: Vec<_> = scattered(&places, 500).map(|place| place.number).collect();
        assert!(!numbers.is_sorted());
        let mut sorted = numbers;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..500));
        assert_eq!(scattered(&[], 5).count(), 0);
    }
}
