use latent_bridge::{BridgeManifest, EmbeddedBroker};
use latent_core::{Attributes, BindingId, MediaType, Offset, Partition, TerminationReason, TopicName, Uid, UnixMillis, Verdict};
use tempfile::TempDir;

use super::*;

const MANIFEST: &str = "manifest_version: 1\nname: demo\ntopics: [{ name: in, partitions: 1 }, { name: dead, partitions: 1 }, { name: gone, partitions: 1 }]\n";

struct Log {
    bus: EmbeddedBroker,
    _temp: TempDir,
}

fn place(topic: &str, offset: u64) -> Place {
    Place { topic: TopicName::parse(topic).unwrap(), partition: Partition(0), offset: Offset(offset) }
}

fn first(uid: &str) -> FirstPublication {
    FirstPublication { place: place("in", 0), uid: Uid::parse(uid).unwrap(), stored_at: UnixMillis(1) }
}

impl Log {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let bus = EmbeddedBroker::provision(&temp.path().join("data"), &BridgeManifest::from_yaml(MANIFEST).unwrap()).unwrap();
        Self { bus, _temp: temp }
    }

    fn store(&self, topic: &str, uid: &str, attributes: Attributes) -> PublishAck {
        let media_type = MediaType::parse("text/plain").unwrap();
        let record = NewRecord::new(Some(Uid::parse(uid).unwrap()), "k", media_type, attributes, b"payload".as_slice().into()).unwrap();
        self.bus.submit_record(topic, record).wait().unwrap()
    }

    /// Parks the event `uid`, or its replay of this number. Gives the letter's place.
    fn park(&self, binding: &str, uid: &str, number: u32) -> String {
        let is_replay = number > 0;
        let own_uid = if is_replay { format!("{uid}#{number}") } else { uid.to_owned() };
        let letter = DeadLetter {
            binding: BindingId::parse(binding).unwrap(),
            place: place("in", number.into()),
            verdict: Verdict::new(TerminationReason::Rejected, 1, None, ""),
            uid: Some(Uid::parse(&own_uid).unwrap()),
            stored_at: Some(UnixMillis(1)),
            origin: is_replay.then(|| first(uid)),
        };
        let ack = self.store("dead", letter.letter_uid().unwrap().as_str(), letter.write(Attributes::default()).unwrap());
        format!("dead/{}/{}", ack.partition, ack.offset)
    }

    /// Stores replay `number` of `uid` as one out of `letter`.
    fn replayed_before(&self, uid: &str, number: u32, letter: &str) {
        let replay = Replay::of(first(uid), letter.parse().unwrap(), number);
        self.store("in", replay.replay_uid().unwrap().as_str(), replay.write(Attributes::default()).unwrap());
    }

    fn replay(&self, letter: &str) -> Result<Replayed, Fault> {
        replay(&self.bus, &ReplayOrder { letter: letter.to_owned(), event: false, again: false, dry_run: false })
    }

    /// The uid of a replay, and whether it was there.
    fn stored(&self, letter: &str) -> (String, bool) {
        match self.replay(letter).unwrap() {
            Replayed::Stored(placed) => (placed.uid, placed.duplicate),
            Replayed::Would { .. } => panic!("no dry run was asked for"),
        }
    }
}

#[test]
fn a_replay_is_the_event_as_it_was_and_says_which_one_it_is_again() {
    let log = Log::new();
    let letter = log.park("b", "u", 0);
    assert_eq!(log.stored(&letter), ("u#1".to_owned(), false));
    let stored = log.bus.submit_fetch("in", Partition(0), Offset(0), 1).wait().unwrap().remove(0).record;
    assert_eq!((stored.key.as_str(), &stored.payload[..], stored.media_type.as_str()), ("k", &b"payload"[..], "text/plain"));
    let replay = Replay::read(&stored.attributes).unwrap();
    assert_eq!((replay.first(), replay.letter.to_string(), replay.number), (first("u"), letter, 1));
    assert_eq!(DeadLetter::read(&stored.attributes), None, "it is no dead letter itself");
}

#[test]
fn each_letter_of_one_event_has_a_replay_of_its_own() {
    let log = Log::new();
    let letters = [log.park("one", "u", 0), log.park("two", "u", 0)];
    let numbers = |letters: &[String]| letters.iter().map(|letter| log.stored(letter)).collect::<Vec<_>>();
    assert_eq!(numbers(&letters), [("u#1".to_owned(), false), ("u#2".to_owned(), false)]);
    assert_eq!(numbers(&letters), [("u#1".to_owned(), true), ("u#2".to_owned(), true)]);
    // A replay that was parked again goes on behind its own number and all others.
    let again = log.park("one", "u", 1);
    assert_eq!(log.stored(&again), ("u#3".to_owned(), false));
    assert_eq!(log.stored(&again), ("u#3".to_owned(), true));
}

#[test]
fn a_replay_is_found_behind_others_that_retention_removed_up_to_their_bound() {
    let gap = u32::try_from(limits::REPLAY_GAP.max).unwrap();
    for (number, is_found) in [(gap - 1, true), (gap, true), (gap + 1, false)] {
        let log = Log::new();
        let letter = log.park("b", "u", 0);
        log.replayed_before("u", number, &letter);
        let expected = if is_found { (format!("u#{number}"), true) } else { ("u#1".to_owned(), false) };
        assert_eq!(log.stored(&letter), expected, "{number}");
    }
}

#[test]
fn an_event_is_replayed_up_to_its_bound() {
    let max = u32::try_from(limits::REPLAYS.max).unwrap();
    for (last, is_refused) in [(max - 2, false), (max - 1, false), (max, true)] {
        let log = Log::new();
        let letter = log.park("b", "u", max - 3);
        log.replayed_before("u", last, "gone/0/0");
        match log.replay(&letter) {
            Err(fault) => assert!(is_refused && fault.is_not_replayable() && fault.message.contains("1024 times"), "{last}: {fault:?}"),
            Ok(replayed) => {
                assert!(!is_refused, "{last}: {replayed:?}");
                assert_eq!(log.stored(&letter).0, format!("u#{}", last + 1));
            }
        }
    }
}

#[test]
fn a_uid_without_room_for_a_number_is_refused() {
    for (bytes, is_refused) in [(253, false), (254, false), (255, true)] {
        let log = Log::new();
        let letter = log.park("b", &"u".repeat(bytes), 0);
        let replayed = log.replay(&letter);
        assert_eq!(replayed.as_ref().is_err_and(Fault::is_not_replayable), is_refused, "{bytes}: {replayed:?}");
        assert_eq!(replayed.is_err(), is_refused, "{bytes}");
    }
}

#[test]
fn a_dry_run_stores_nothing_and_knows_a_replay_that_is_there() {
    let log = Log::new();
    let letter = log.park("b", "u", 0);
    let dry = || replay(&log.bus, &ReplayOrder { letter: letter.clone(), event: false, again: true, dry_run: true }).unwrap();
    assert_eq!(dry(), Replayed::Would { topic: "in".to_owned(), uid: "u#1".to_owned() });
    assert_eq!(log.bus.bounds("in", Partition(0)).unwrap().1, Offset(0));
    log.stored(&letter);
    assert_eq!(dry(), Replayed::Would { topic: "in".to_owned(), uid: "u#2".to_owned() }, "once more was asked for");
}

/// What a broker gave up was never parked: the event itself is published again, as its replay.
#[test]
fn an_event_that_was_never_parked_is_published_again_once_and_says_which_one_it_is() {
    let log = Log::new();
    let ack = log.store("in", "u", Attributes::default());
    let again = |place: &str| {
        let order = ReplayOrder { letter: place.to_owned(), event: true, again: false, dry_run: false };
        match replay(&log.bus, &order).unwrap() {
            Replayed::Stored(placed) => (placed.uid, placed.duplicate, placed.offset),
            Replayed::Would { .. } => panic!("no dry run was asked for"),
        }
    };
    let place = format!("in/{}/{}", ack.partition, ack.offset);
    let (uid, duplicate, offset) = again(&place);
    assert_eq!((uid.as_str(), duplicate), ("u#1", false));
    assert_eq!(again(&place), ("u#1".to_owned(), true, offset));
    let stored = log.bus.submit_fetch("in", Partition(ack.partition), Offset(offset), 1).wait().unwrap().remove(0).record;
    let told = Replay::read(&stored.attributes).unwrap();
    assert_eq!((told.place.to_string(), told.number, told.uid.as_str()), (place, 1, "u"));
    // A replay that is given up is the next replay of the same event.
    assert_eq!(again(&format!("in/{}/{offset}", ack.partition)).0, "u#2");
}
