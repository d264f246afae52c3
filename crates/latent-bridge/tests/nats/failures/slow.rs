//! A broker that is slow, or says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use latent_bridge::{BusError, EventBus, NatsBus};
use latent_core::UncertainCause;
use latent_testkit::require_broker;

use super::scripted::{Answer, Script, ScriptedJetStream};
use crate::live::{manifest, options, record, spec, with_topic};

fn uids(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("u{n}")).collect()
}

fn script() -> Script {
    Script { uids: uids(6), page: 2, ..Script::default() }
}

fn found(scripted: &ScriptedJetStream, uid: &str) -> Result<Option<u64>, BusError> {
    scripted.bus.find_event_by_uid("t", "k", uid).map(|found| found.map(|ack| ack.offset))
}

/// BUG-54. One and seven empty pulls before every page are slowness: what is there is found, what is not is absent, and each page makes the
/// count begin again. B-061, B-062.
#[test]
fn bug_54_empty_pulls_while_messages_are_pending_say_nothing_about_absence() {
    require_broker!();
    for empty_pulls in [0, 1, 7] {
        let scripted = ScriptedJetStream::start(Script { empty_pulls, ..script() });
        assert_eq!(found(&scripted, "u6"), Ok(Some(6)), "{empty_pulls}");
        assert_eq!(found(&scripted, "nowhere"), Ok(None), "{empty_pulls}");
        assert!(scripted.asked.pulls.load(Ordering::SeqCst) >= 3 * (1 + empty_pulls), "every page took so many pulls");
        assert_eq!(scripted.bus.fetch("t", 0, 0, 100).unwrap().len(), 6, "{empty_pulls}");
    }
}

/// BUG-54. Eight empty pulls in a row are an error, of a lookup and of a read: never an absent uid, never a short list.
#[test]
fn bug_54_eight_empty_pulls_in_a_row_are_a_stall_and_never_an_end() {
    require_broker!();
    for script in [Script { empty_pulls: 8, ..script() }, Script { is_mute: true, ..script() }] {
        let is_mute = script.is_mute;
        let scripted = ScriptedJetStream::start(script);
        for uid in ["u6", "nowhere"] {
            let stalled = found(&scripted, uid).unwrap_err();
            assert!(stalled.to_string().contains("uid lookup stalled"), "{stalled}");
            assert!(!stalled.is_permanent());
        }
        // What was read before the silence is a page, and the next one begins behind it.
        match scripted.bus.fetch("t", 0, 0, 100) {
            Ok(whole) => assert!(whole.len() == 6 && !is_mute, "{whole:?}"),
            Err(slow) => assert!(matches!(slow, BusError::Timeout { .. }) && is_mute, "{slow:?}"),
        }
    }
}

/// BUG-54. Pages that come shortly before and after the end of a pull's time.
#[test]
fn bug_54_pages_around_the_end_of_a_pulls_time_are_taken_whole() {
    require_broker!();
    for millis in [450, 600] {
        let scripted = ScriptedJetStream::start(Script { delay: Duration::from_millis(millis), page: 3, ..script() });
        assert_eq!(found(&scripted, "u6"), Ok(Some(6)), "{millis}");
        assert_eq!(found(&scripted, "nowhere"), Ok(None), "{millis}");
        let read: Vec<_> = scripted.bus.fetch("t", 0, 0, 100).unwrap().into_iter().map(|event| event.uid).collect();
        assert_eq!(read, uids(6), "{millis}");
    }
}

/// BUG-54. Only a fresh consumer for which nothing is pending proves absence: one that speaks of a message that never comes proves nothing.
#[test]
fn bug_54_absence_is_what_a_fresh_consumer_says_and_nobody_else() {
    require_broker!();
    let scripted = ScriptedJetStream::start(Script { page: 100, ..script() });
    assert_eq!(found(&scripted, "nowhere"), Ok(None));
    let created = scripted.asked.created.load(Ordering::SeqCst);
    assert!(created >= 2, "the one that read, and a fresh one: {created}");
    let scripted = ScriptedJetStream::start(Script { page: 100, false_pending: 1_000, ..script() });
    let stalled = found(&scripted, "nowhere").unwrap_err();
    assert!(stalled.to_string().contains("uid lookup stalled"), "{stalled}");
}

/// Seen on the pinned broker in a cluster: a member that has just started answers for a stream without a leader, with no messages at all.
/// That is neither an end nor a changed history.
#[test]
fn an_answer_without_a_leader_says_nothing_about_the_stream() {
    require_broker!();
    let scripted = ScriptedJetStream::start(Script { page: 100, ..script() });
    assert_eq!(found(&scripted, "u6"), Ok(Some(6)));
    scripted.now.leaderless.store(true, Ordering::SeqCst);
    for refused in [found(&scripted, "nowhere").map(drop), scripted.bus.fetch("t", 0, 3, 10).map(drop)] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, BusError::Backend(_)) && refused.to_string().contains("no leader"), "{refused:?}");
    }
    scripted.now.leaderless.store(false, Ordering::SeqCst);
    assert_eq!(scripted.bus.fetch("t", 0, 3, 10).unwrap().len(), 4);
    assert_eq!((found(&scripted, "u1"), found(&scripted, "nowhere")), (Ok(Some(1)), Ok(None)));
}

/// A publication that met another one of its uid being stored, was sent again and is then refused: it was not stored, but the other one may
/// be, so what became of the uid is uncertain.
#[test]
fn a_refusal_after_another_one_of_the_uid_was_in_process_is_uncertain() {
    require_broker!();
    for refusal in [Answer::NotPermitted, Answer::NoResponders] {
        let scripted =
            ScriptedJetStream::start(Script { answers: vec![Answer::InProcess, Answer::InProcess, refusal, refusal], ..script() });
        let ended = scripted.bus.publish_record("t", &record("u", "k", "x")).unwrap_err();
        assert!(matches!(&ended, BusError::Uncertain { uid, cause: UncertainCause::Unusable } if uid.as_str() == "u"), "{ended:?}");
        assert_eq!(scripted.asked.published.load(Ordering::SeqCst), 3, "it was sent again while the other one was in process");
        let ended = scripted.bus.publish_record("t", &record("v", "k", "x")).unwrap_err();
        assert!(matches!(ended, BusError::Rejected { permanent: false, .. }), "without another one it is certain: {ended:?}");
    }
}

/// BUG-54 on a real broker whose machine is busy.
#[test]
fn bug_54_a_busy_broker_makes_no_uid_absent() {
    require_broker!();
    const RECORDS: usize = 5_000;
    let (broker, bus) = with_topic(spec(), 1);
    let records: Vec<_> = (0..RECORDS).map(|n| record(&format!("u{n}"), "k", "x")).collect();
    let acks: Vec<_> = bus.publish_batch("t", &records).into_iter().map(Result::unwrap).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        // Cold and warm: each of them begins ten times without knowing anything.
        for round in 0..10 {
            let bus = NatsBus::open_with(options(&broker), &manifest(1)).unwrap();
            for n in 0..5 {
                let at = (round * 509 + n * 997) % RECORDS;
                let found = bus.find_event_by_uid("t", "k", &format!("u{at}")).unwrap().unwrap();
                assert_eq!(found.offset, acks[at].offset);
                assert_eq!(bus.find_event_by_uid("t", "k", &format!("absent-{at}")), Ok(None));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
