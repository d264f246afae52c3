//! What never runs again is kept whole in the dead-letter topic, once, and remembered as condemned until it is settled.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::{
    ActivationId, Attributes, ComponentDigest, DeadLetter, MediaType, NewRecord, Offset, Partition, Place, Replay, StoredRecord,
    TerminationReason, TopicName, Uid, UnixMillis, Verdict,
};
use latent_node::delivery::{Settlement, Source, SourceError};
use latent_topics::{DeadLetters, StartAt, TopicSource};

use crate::store::{Bench, clock, key};

const DEAD: &str = "other";

fn parking(bench: &Bench, binding: &str) -> (TopicSource, u32) {
    let (source, unit) = bench.source_of(binding, StartAt::Earliest);
    let bus = Arc::clone(&bench.bus) as Arc<dyn EventBus>;
    (source.with_dead_letters(DeadLetters::new(bus, key(binding, "in").binding, TopicName::parse(DEAD).unwrap())), unit)
}

fn verdict(detail: &str) -> Verdict {
    let last = (ActivationId::from_random([3; 16]), ComponentDigest::of(b"component"));
    Verdict::new(TerminationReason::Rejected, 2, Some(last), detail)
}

fn letters(bus: &EmbeddedBroker) -> Vec<StoredRecord> {
    bus.submit_fetch(DEAD, Partition(0), Offset(0), 100).wait().unwrap()
}

fn segment_of(directory: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(directory.join("topics/in")).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.extension().is_some_and(|of| of == "seg")).unwrap()
}

#[test]
fn a_dead_letter_is_the_event_as_it_was_with_what_happened_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    let attributes = Attributes::parse(vec![("X-Kind".to_owned(), "a b".to_owned())]).unwrap();
    let payload = Bytes::from(vec![0xff; 524_288]);
    let uid = Uid::parse("order-7").unwrap();
    let record = NewRecord::new(Some(uid.clone()), "käse", MediaType::json(), attributes, payload).unwrap();
    bench.bus.publish_record("in", &record).unwrap();
    let (mut source, _) = parking(&bench, "b");
    let stored_at = source.begin(Offset(0), 1).wait().unwrap().stored_at;
    source.park(Offset(0), &verdict("no such order")).wait().unwrap();
    let [stored] = &letters(&bench.bus)[..] else { panic!("one letter") };
    let record_of_letter = &stored.record;
    assert!(record_of_letter.same_content(&record), "{record_of_letter:?}");
    let letter = DeadLetter::read(&record_of_letter.attributes).unwrap();
    assert_eq!(letter.letter_uid().unwrap(), record_of_letter.uid);
    assert_eq!((letter.binding.as_str(), letter.place.to_string().as_str()), ("b", "in/0/0"));
    assert_eq!((letter.uid, letter.stored_at, letter.verdict), (Some(uid), Some(stored_at), verdict("no such order")));
}

#[test]
fn parking_twice_stores_once_whatever_was_learned_meanwhile_and_bindings_do_not_collide() {
    let directory = tempfile::tempdir().unwrap();
    {
        let bench = Bench::open(directory.path());
        bench.publish(1);
        let (mut source, _) = parking(&bench, "b");
        source.park(Offset(0), &verdict("first")).wait().unwrap();
        source.park(Offset(0), &verdict("second")).wait().unwrap();
    }
    let bench = Bench::open(directory.path());
    parking(&bench, "b").0.park(Offset(0), &verdict("third")).wait().unwrap();
    parking(&bench, "other-binding").0.park(Offset(0), &verdict("")).wait().unwrap();
    let letters = letters(&bench.bus);
    let details: Vec<_> =
        letters.iter().map(|stored| DeadLetter::read(&stored.record.attributes).unwrap().verdict.detail().to_owned()).collect();
    assert_eq!(details, ["first", ""]);
}

#[test]
fn where_the_uid_of_a_letter_belongs_to_another_event_it_is_parked_once_under_one_of_its_own() {
    let (earlier, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // The letter of another event at the same place, as when the topic was begun anew.
    let taken = {
        let bench = Bench::open(earlier.path());
        bench.publish(1);
        parking(&bench, "b").0.park(Offset(0), &verdict("of another event")).wait().unwrap();
        letters(&bench.bus).remove(0).record
    };
    let bench = Bench::open(directory.path());
    let taken = NewRecord::new(Some(taken.uid), &taken.key, taken.media_type, Attributes::default(), Bytes::from_static(b"other")).unwrap();
    bench.bus.publish_record(DEAD, &taken).unwrap();
    bench.publish(1);
    let (mut source, _) = parking(&bench, "b");
    source.park(Offset(0), &verdict("first")).wait().unwrap();
    source.park(Offset(0), &verdict("second")).wait().unwrap();
    let read = |stored: &StoredRecord| DeadLetter::read(&stored.record.attributes).map(|letter| letter.verdict.detail().to_owned());
    assert_eq!(letters(&bench.bus).iter().map(read).collect::<Vec<_>>(), [None, Some("first".to_owned())]);
}

#[test]
fn the_letter_of_a_replay_keeps_where_and_when_the_event_was_first() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    let uid = Uid::parse("order-7").unwrap();
    let record = NewRecord::new(Some(uid), "k", MediaType::json(), Attributes::default(), Bytes::from_static(b"{}")).unwrap();
    bench.bus.publish_record("in", &record).unwrap();
    let (mut source, _) = parking(&bench, "b");
    source.park(Offset(0), &verdict("no")).wait().unwrap();
    let mut firsts = Vec::new();
    for number in [1, 2] {
        let stored = letters(&bench.bus).pop().unwrap();
        let letter = DeadLetter::read(&stored.record.attributes).unwrap();
        assert_eq!(letter.replay_number(), number - 1);
        let place = Place { topic: TopicName::parse(DEAD).unwrap(), partition: stored.partition, offset: stored.offset };
        let first = letter.first().unwrap();
        firsts.push(first.clone());
        let replay = Replay::of(first, place, number);
        let attributes = replay.write(stored.record.attributes).unwrap();
        let uid = Some(replay.replay_uid().unwrap());
        let record = NewRecord::new(uid, &stored.record.key, stored.record.media_type, attributes, stored.record.payload).unwrap();
        bench.bus.publish_record("in", &record).unwrap();
        source.park(Offset(number.into()), &verdict("no again")).wait().unwrap();
    }
    let last = DeadLetter::read(&letters(&bench.bus).pop().unwrap().record.attributes).unwrap();
    assert_eq!((last.place.to_string().as_str(), last.uid.as_ref().unwrap().as_str()), ("in/0/2", "order-7#2"));
    assert_eq!((last.first().as_ref(), firsts[0].place.to_string().as_str()), (firsts.first(), "in/0/0"));
    assert_eq!(firsts[0], firsts[1]);
}

#[test]
fn a_damaged_event_is_parked_with_the_bytes_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    bench.publish(2);
    let segment = segment_of(directory.path());
    let mut content = std::fs::read(&segment).unwrap();
    let at = content.windows(7).position(|bytes| bytes == b"event 0").unwrap();
    content[at] ^= 1;
    std::fs::write(&segment, content).unwrap();
    let (mut source, _) = parking(&bench, "b");
    assert!(matches!(source.begin(Offset(0), 1).wait(), Err(SourceError::Undecodable)));
    source.park(Offset(0), &Verdict::new(TerminationReason::Undecodable, 0, None, "")).wait().unwrap();
    let [stored] = &letters(&bench.bus)[..] else { panic!("one letter") };
    assert_eq!((&stored.record.payload[..], stored.record.key.as_str()), (&b"dvent 0"[..], "k0"));
    let letter = DeadLetter::read(&stored.record.attributes).unwrap();
    assert_eq!((letter.verdict.reason, letter.uid, letter.stored_at), (TerminationReason::Undecodable, None, None));
}

#[test]
fn an_event_whose_frame_is_lost_is_parked_without_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    bench.publish(2);
    let segment = segment_of(directory.path());
    let mut content = std::fs::read(&segment).unwrap();
    let at = content.windows(7).position(|bytes| bytes == b"event 0").unwrap();
    // The frame's own header, which lies before uid, key and media type.
    content[at - 140..at].fill(0);
    std::fs::write(&segment, content).unwrap();
    let (mut source, _) = parking(&bench, "b");
    source.park(Offset(0), &Verdict::new(TerminationReason::Undecodable, 0, None, "")).wait().unwrap();
    let [stored] = &letters(&bench.bus)[..] else { panic!("one letter") };
    assert_eq!((stored.record.payload.len(), stored.record.key.as_str()), (0, ""));
}

#[test]
fn an_event_that_expired_cannot_be_parked_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::open(directory.path());
    bench.publish(2);
    bench.bus.maintain(UnixMillis(u64::MAX)).unwrap();
    bench.publish(1);
    let parked = parking(&bench, "b").0.park(Offset(1), &verdict("")).wait();
    assert_eq!(parked, Err(SourceError::Expired { first: Offset(2) }));
    assert!(letters(&bench.bus).is_empty());
}

#[test]
fn a_verdict_is_remembered_until_its_event_is_settled_and_through_compaction() {
    let directory = tempfile::tempdir().unwrap();
    {
        let bench = Bench::open(directory.path());
        bench.publish(2);
        let (mut source, _) = parking(&bench, "b");
        for offset in [0, 1] {
            source.begin(Offset(offset), 1).wait().unwrap();
            source.condemn(Offset(offset), &verdict("no")).wait().unwrap();
        }
        source.settle(Offset(0), Settlement::Terminated(TerminationReason::Rejected)).wait().unwrap();
        // Enough to have the log compacted.
        for attempts in 1..=30_000 {
            let noted = source.postpone(Offset(1), latent_node::delivery::Postponement { attempts, not_before: UnixMillis(0) });
            if attempts % 1_000 == 0 {
                noted.wait().unwrap();
            }
        }
    }
    let bench = Bench::open(directory.path());
    let (_, unit) = bench.source(StartAt::Earliest);
    assert_eq!(bench.store.remembered(unit, &clock(), 1_000).verdicts, [(Offset(1), verdict("no"))]);
}

#[test]
fn a_forgotten_binding_starts_anew_and_others_go_on() {
    let directory = tempfile::tempdir().unwrap();
    {
        let bench = Bench::open(directory.path());
        bench.publish(2);
        for binding in ["b", "kept"] {
            let (mut source, _) = bench.source_of(binding, StartAt::Earliest);
            source.settle(Offset(0), Settlement::Acknowledged).wait().unwrap();
        }
        let forgotten = bench.store.forget(&key("b", "in").binding).unwrap();
        assert_eq!(forgotten, Some((TopicName::parse("in").unwrap(), 1)));
        assert_eq!(bench.store.forget(&key("b", "in").binding).unwrap(), None);
    }
    let bench = Bench::open(directory.path());
    assert_eq!(bench.store.bindings().iter().map(|(binding, _)| binding.as_str()).collect::<Vec<_>>(), ["kept"]);
    let floor = |binding| {
        let (_, unit) = bench.source_of(binding, StartAt::Earliest);
        bench.store.remembered(unit, &clock(), 1_000).settled.floor()
    };
    assert_eq!((floor("b"), floor("kept")), (Offset(0), Offset(1)));
    // It may come back with another topic.
    assert!(bench.store.forget(&key("b", "in").binding).unwrap().is_some());
    assert!(bench.store.declare(&[(key("b", "other"), StartAt::Earliest, Offset(0))]).is_ok());
}
