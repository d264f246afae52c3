use latent_core::{Offset, Partition, Place, TopicName};

use super::*;
use crate::control::{EventHistory, Payload};

fn trigger(state: EventWord) -> TriggerEvent {
    TriggerEvent {
        id: "t".to_owned(),
        state,
        reason: None,
        attempts: Some(1),
        attempts_max: 5,
        next_attempt_at: Some(12_000),
        dead_letter_topic: None,
    }
}

fn story(triggers: Vec<TriggerEvent>) -> Story {
    let event = Event {
        partition: 0,
        offset: 7,
        uid: "u".to_owned(),
        key: "k".to_owned(),
        media_type: "text/plain".to_owned(),
        attributes: vec![("Kind".to_owned(), "test".to_owned())],
        payload: Payload(b"abc".as_slice().into()),
        stored_at: 0,
    };
    Story {
        topic: "in".to_owned(),
        uid: "u".to_owned(),
        event: Some(event),
        place: Place { topic: TopicName::parse("in").unwrap(), partition: Partition(0), offset: Offset(7) },
        is_letter: None,
        history: EventHistory::of_triggers(triggers),
        letters: Vec::new(),
        replays: Vec::new(),
    }
}

#[test]
fn a_trigger_that_a_broker_wakes_is_not_told_as_none() {
    let none = story(Vec::new());
    let broker = story(vec![TriggerEvent::on_broker("triage".to_owned(), 5, None)]);
    assert!(tell(&none, 0).contains("none wakes for this topic"));
    let told = tell(&broker, 0);
    assert!(told.contains("triage: a broker wakes it") && !told.contains("none wakes"), "{told}");
}

fn run(outcome: &str) -> Run {
    Run {
        activation: "a".to_owned(),
        trigger: "t".to_owned(),
        attempt: 2,
        outcome: outcome.to_owned(),
        detail: "why\nnot".to_owned(),
        service: "s".to_owned(),
        component: format!("sha256:{}", "ab".repeat(32)),
        queued_at: 0,
        started_at: Some(5),
        wait_micros: 150,
        run_micros: 2_000,
        fuel: 9,
        memory_bytes: 65_536,
        outputs: vec![output("uncertain", Some("closed"), Some(false))],
        outputs_left_out: 1,
        log: vec![("stdout".to_owned(), "\u{1b}[2Jline".to_owned())],
        log_bytes_cut: 3,
    }
}

fn output(outcome: &str, cause: Option<&str>, in_log: Option<bool>) -> RunOutput {
    let place = in_log.filter(|there| *there);
    RunOutput {
        topic: "out".to_owned(),
        uid: Some("v".to_owned()),
        outcome: outcome.to_owned(),
        cause: cause.map(str::to_owned),
        partition: place.map(|_| 1),
        offset: place.map(|_| 4),
        in_log,
    }
}

#[test]
fn each_state_of_an_event_is_told_in_its_own_words() {
    let cases = [
        (EventWord::Settled, "done; no run of it is remembered"),
        (EventWord::Settling, "done; that is being written down"),
        (EventWord::Pending, "waits for its turn, then runs for attempt 2 of 5"),
        (EventWord::BehindItsKey, "waits until an earlier event of its key is done"),
        (EventWord::Delayed, "attempt 2 of 5 is due in 12 s"),
        (EventWord::Running, "is running, attempt 1 of 5"),
        (EventWord::Condemned, "will not run again and waits to be parked"),
        (EventWord::Expired, "the log has removed it; whether it was done is not known any more"),
        (EventWord::Removed, "is not configured any more, and its state is kept"),
    ];
    for (state, words) in cases {
        assert_eq!(trigger_words(&story(Vec::new()), &trigger(state), 0), words);
    }
    let condemned = TriggerEvent { reason: Some("exhausted".to_owned()), ..trigger(EventWord::Condemned) };
    assert_eq!(trigger_words(&story(Vec::new()), &condemned, 0), "will not run again (exhausted) and waits to be parked");
}

#[test]
fn a_settled_event_is_told_by_the_trigger_s_last_run() {
    for (outcome, words) in
        [("success", "done: success at attempt 2"), ("rejected", "done: it ended with rejected at attempt 2 and will not run again")]
    {
        let mut story = story(Vec::new());
        story.history.runs = vec![run("trap"), run(outcome), Run { trigger: "other".to_owned(), ..run("timeout") }];
        assert_eq!(trigger_words(&story, &trigger(EventWord::Settled), 0), words);
    }
}

#[test]
fn a_publication_is_told_with_its_place_and_whether_the_log_has_it() {
    let cases = [
        (output("receipt", None, Some(true)), "published out/1/4, uid v: receipt"),
        (output("receipt", None, Some(false)), "published out, uid v: receipt; the log has it no more"),
        (RunOutput { offset: Some(4), ..output("receipt", None, None) }, "published out at offset 4, uid v: receipt"),
        (output("uncertain", Some("closed"), Some(true)), "published out/1/4, uid v: uncertain (closed); the log has it"),
        (output("uncertain", Some("closed"), Some(false)), "published out, uid v: uncertain (closed); the log does not have it"),
        (RunOutput { uid: None, ..output("permission-denied", None, None) }, "published out: permission-denied"),
    ];
    for (output, words) in cases {
        assert_eq!(output_words(&output), words);
    }
}

#[test]
fn the_whole_story_is_a_line_for_each_thing_to_know() {
    let mut story = story(vec![trigger(EventWord::Running)]);
    story.history.runs = vec![run("trap")];
    story.history.runs_left_out = 2;
    story.history.journal = Some(JournalReach { entries: 3, oldest_queued_at: Some(0) });
    let expected = "\
event     in/0/7, uid u
          stored 1970-01-01T00:00:00.000Z, key k, text/plain, 3 bytes
          attribute Kind: test
trigger   t: is running, attempt 1 of 5
          2 older runs are not shown
run       1970-01-01T00:00:00.005Z, t, attempt 2: trap: why\u{fffd}not
          waited 0.1 ms, ran 2.0 ms, fuel 9, memory 64 KiB, service s, component sha256:abababababab
          activation a
          published out, uid v: uncertain (closed); the log does not have it
          1 further publication is not shown
          stdout: \u{fffd}[2Jline
          3 bytes of its log are not kept or not shown
journal   the last 3 runs of any event are remembered, from 1970-01-01T00:00:00.000Z on
";
    assert_eq!(tell(&story, 0), expected);
    story.event = None;
    assert!(tell(&story, 0).starts_with("event     in/0/7, uid u; the log has it no more\n"), "{}", tell(&story, 0));
}
