//! Many events in one request, in their order. Pure but for the bus it is given.
//!
//! On a broker what was handed over ahead of the answers may overtake what came before it: after an outage the client sends on what it had
//! not sent yet, although the connection took what it had; a new leader of a stream stores what comes although the old one lost what was
//! under way. So an event is handed over only when the one before it of its key is answered, and nothing behind one that failed for now.

use std::collections::BTreeSet;

use latent_bridge::{BusError, EventBus, PublishResult};
use latent_core::NewRecord;

use super::protocol::{Answer, Fault, NewEvent, Published};
use crate::engine::Engine;
use crate::limits;

/// Publishes events in order, together. What comes behind a failure that may pass is not tried: it must not overtake.
pub(super) fn publish(bus: &dyn EventBus, engine: Engine, topic: &str, events: Vec<NewEvent>) -> Answer {
    if let Err(error) = limits::PUBLISH_BATCH_RECORDS.check((events.len() as u64).max(limits::PUBLISH_BATCH_RECORDS.min)) {
        return Answer::Fault(Fault::refused("out-of-range", error.to_string()));
    }
    let (mut records, mut refused) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
    for event in events {
        match event.into_record() {
            Ok(record) => {
                records.push(record);
                refused.push(None);
            }
            Err(error) => refused.push(Some(error)),
        }
    }
    let results = match engine {
        // One thread writes them in their order, and what comes behind a failure is refused.
        Engine::Embedded => bus.publish_batch(topic, &records),
        Engine::Nats => publish_runs(bus, topic, &records),
    };
    let mut results = results.into_iter();
    let missing = || Err(BusError::Backend("the log gave no answer to this event".to_owned()));
    let result = |refused: Option<BusError>| refused.map_or_else(|| results.next().unwrap_or_else(missing), Err);
    Answer::Published(refused.into_iter().map(result).map(published).collect())
}

fn published(result: PublishResult) -> Published {
    match result {
        Ok(ack) => Published::Stored(ack.into()),
        Err(error) => Published::Fault(Fault::from(&error).bounded()),
    }
}

/// One run after the other, until one has a failure that may pass.
fn publish_runs(bus: &dyn EventBus, topic: &str, records: &[NewRecord]) -> Vec<PublishResult> {
    let mut results = Vec::with_capacity(records.len());
    let mut rest = records;
    while !rest.is_empty() {
        let (run, behind) = rest.split_at(run_length(rest));
        let answers = bus.publish_batch(topic, run);
        let failed = answers.iter().find_map(|answer| answer.as_ref().err().filter(|error| may_pass(error)).map(behind_it));
        results.extend(answers);
        if let Some(failed) = failed {
            results.resize(records.len(), Err(failed));
            break;
        }
        rest = behind;
    }
    results
}

/// Records at the beginning that have keys of their own: of those none can overtake another one of its key.
fn run_length(records: &[NewRecord]) -> usize {
    let mut keys = BTreeSet::new();
    records.iter().take_while(|record| keys.insert(record.key())).count()
}

/// A damaged record that has the event's uid is that event's trouble and does not pass by waiting.
const fn may_pass(error: &BusError) -> bool {
    !error.is_permanent() && !matches!(error, BusError::Unreadable { .. })
}

fn behind_it(failed: &BusError) -> BusError {
    match failed {
        BusError::Busy { limit } => BusError::Busy { limit },
        _ => BusError::NotSent { reason: "an event before it was not stored, and it must not overtake that one".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use latent_bridge::{AppendWatcher, MaintenanceReport, PublishAck, RecordHead};
    use latent_core::{Attributes, MediaType, Offset, Partition, StoredRecord, Ticket, Uid, UncertainCause, UnixMillis};

    use super::super::protocol::Payload;
    use super::*;

    /// A log that fails once, at its second record.
    struct FailingOnce {
        offered: Mutex<Vec<String>>,
        failure: BusError,
    }

    impl EventBus for FailingOnce {
        fn submit_record(&self, topic: &str, record: NewRecord) -> Ticket<PublishResult> {
            let mut offered = self.offered.lock().unwrap();
            let uid = record.uid.map(|uid| uid.as_str().to_owned()).unwrap_or_default();
            offered.push(uid.clone());
            Ticket::ready(match offered.len() {
                2 => Err(self.failure.clone()),
                count => Ok(PublishAck { topic: topic.to_owned(), partition: 0, offset: count as u64, uid, duplicate: false }),
            })
        }

        fn submit_fetch(&self, _: &str, _: Partition, _: Offset, _: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
            Ticket::ready(Ok(Vec::new()))
        }

        fn submit_heads(&self, _: &str, _: Partition, _: Offset, _: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
            Ticket::ready(Ok(Vec::new()))
        }

        fn submit_find(&self, _: &str, _: &str, _: &Uid) -> Ticket<Result<Option<PublishAck>, BusError>> {
            Ticket::ready(Ok(None))
        }

        fn partitions(&self, _: &str) -> Result<u32, BusError> {
            Ok(1)
        }

        fn topics(&self) -> Vec<String> {
            Vec::new()
        }

        fn bounds(&self, _: &str, _: Partition) -> Result<(Offset, Offset), BusError> {
            Ok((Offset(0), Offset(0)))
        }

        fn watch_appends(&self, _: Arc<dyn AppendWatcher>) {}

        fn maintain(&self, _: UnixMillis) -> Result<MaintenanceReport, BusError> {
            Ok(MaintenanceReport::default())
        }
    }

    fn record(key: &str) -> NewRecord {
        NewRecord::new(None, key, MediaType::json(), Attributes::default(), "1".into()).unwrap()
    }

    #[test]
    fn a_run_ends_before_a_key_comes_again() {
        let length = |keys: &[&str]| run_length(&keys.iter().map(|key| record(key)).collect::<Vec<_>>());
        assert_eq!([length(&[]), length(&["", ""]), length(&["a", "b", "a", "c"]), length(&["a", "b", "c"])], [0, 1, 2, 3]);
    }

    #[test]
    fn what_holds_up_the_others_is_what_may_pass() {
        let uncertain = BusError::Uncertain { uid: Uid::parse("u").unwrap(), cause: UncertainCause::Deadline };
        let rejected = |permanent| BusError::Rejected { rule: String::new(), permanent };
        let cases = [
            (uncertain, true),
            (BusError::NotSent { reason: String::new() }, true),
            (BusError::Busy { limit: "x" }, true),
            (rejected(false), true),
            (rejected(true), false),
            (BusError::Unreadable { topic: String::new(), partition: 0, offset: 1 }, false),
        ];
        for (error, expected) in cases {
            assert_eq!(may_pass(&error), expected, "{error:?}");
        }
        assert_eq!(behind_it(&BusError::Busy { limit: "x" }), BusError::Busy { limit: "x" }, "who waits for a busy log tries it again");
    }

    #[test]
    fn nothing_overtakes_an_event_that_failed_for_now() {
        let uncertain = BusError::Uncertain { uid: Uid::parse("b").unwrap(), cause: UncertainCause::Deadline };
        for engine in [Engine::Embedded, Engine::Nats] {
            for (failure, kinds) in
                [(BusError::Busy { limit: "x" }, ["busy"; 3]), (uncertain.clone(), ["uncertain", "not-sent", "not-sent"])]
            {
                let bus = FailingOnce { offered: Mutex::default(), failure };
                let event = |uid: &str| NewEvent {
                    uid: Some(uid.to_owned()),
                    key: "k".to_owned(),
                    media_type: "a/b".to_owned(),
                    attributes: Vec::new(),
                    payload: Payload(uid.to_owned().into()),
                };
                let Answer::Published(results) = publish(&bus, engine, "t", ["a", "b", "c", "d"].map(event).to_vec()) else {
                    panic!("not published")
                };
                let told: Vec<_> = results
                    .iter()
                    .filter_map(|result| if let Published::Fault(fault) = result { Some(fault.kind.as_str()) } else { None })
                    .collect();
                assert_eq!(told, kinds, "{engine:?}");
                assert_eq!(*bus.offered.lock().unwrap(), ["a", "b"], "the later ones were not even offered");
            }
        }
    }
}
