use latent_capabilities::{Origin, Publications};
use latent_core::{
    ActivationId, ActivationOutcome, BindingId, ComponentDigest, ContractName, FunctionName, LogicalTopic, Offset, Partition, Place,
    PublicationId, RouteGeneration, ServiceName, TenantId, TopicName, TraceId, Uid,
};
use latent_node::{Delivery, Ended, Principal};
use latent_wasmtime::{LogLine, LogSource};

use super::super::protocol::{Answer, encode_answer};
use super::*;

fn entry(count: u32) -> JournalEntry {
    let (binding, topic) = (BindingId::parse("work").unwrap(), TopicName::parse("in").unwrap());
    JournalEntry {
        activation: ActivationId::from_random([7; 16]),
        trace: TraceId::from_random([0; 16]),
        tenant: TenantId::parse("acme").unwrap(),
        principal: Principal::trigger(&binding),
        service: ServiceName::parse("work").unwrap(),
        contract: ContractName::parse("demo:pkg/i@1.0.0").unwrap(),
        function: FunctionName::parse("handle").unwrap(),
        generation: RouteGeneration(1),
        publication: PublicationId(1),
        digest: ComponentDigest::of(b""),
        delivery: Some(Delivery {
            place: Place { topic: topic.clone(), partition: Partition(0), offset: Offset(4) },
            origin: Origin { binding, topic, partition: Partition(0), offset: Offset(4), stored_at: None },
            count,
        }),
        ended: Ended::of(&ActivationOutcome::Success),
        queued_at: UnixMillis(0),
        started_at: None,
        wait_micros: 0,
        run_micros: 0,
        fuel_used: 0,
        memory_bytes_peak: 0,
        outbound_requests: 0,
        publications: Publications::NONE,
        log: Vec::new(),
        log_bytes_cut: 0,
    }
}

fn published(count: usize) -> Publications {
    let publication = |number: usize| Publication {
        topic: LogicalTopic::parse("out").unwrap(),
        uid: Some(Uid::parse(&format!("u{number}")).unwrap()),
        end: PublicationEnd::Uncertain { cause: "closed" },
    };
    (0..count).map(publication).collect()
}

#[test]
fn the_newest_runs_are_shown_oldest_first_up_to_their_bound() {
    let max = u32::try_from(limits::WHY_RUNS.max).unwrap();
    for (entries, left_out) in [(max - 1, 0), (max, 0), (max + 1, 1)] {
        let newest_first: Vec<_> = (1..=entries).rev().map(|count| Arc::new(entry(count))).collect();
        let (runs, told) = runs_of(&newest_first);
        assert_eq!(told, u64::from(left_out));
        let counts: Vec<_> = runs.iter().map(|run| run.attempt).collect();
        assert_eq!(counts, (left_out + 1..=entries).collect::<Vec<_>>());
    }
}

#[test]
fn what_an_answer_has_no_room_for_is_counted() {
    let line = |text: &str| LogLine { source: LogSource::Stdout, text: text.to_owned() };
    let entry = JournalEntry { publications: published(2), log: vec![line("abc"), line("de")], log_bytes_cut: 7, ..entry(1) };
    for (outputs, left_out) in [(1, 1), (2, 0), (3, 0)] {
        let run = Room { log_bytes: 0, outputs }.run(&entry);
        assert_eq!((run.outputs.len() as u64, run.outputs_left_out), (2 - left_out, left_out), "{outputs}");
    }
    // A line and the one behind it, with 32 bytes around each; what is left out has a line break.
    for (log_bytes, shown, cut) in [(34, 0, 7 + 4 + 3), (35, 1, 7 + 3), (68, 1, 7 + 3), (69, 2, 7)] {
        let run = Room { log_bytes, outputs: 0 }.run(&entry);
        assert_eq!((run.log.len(), run.log_bytes_cut), (shown, cut), "{log_bytes}");
    }
}

fn trigger(id: &str) -> TriggerEvent {
    TriggerEvent {
        id: id.to_owned(),
        state: EventWord::BehindItsKey,
        reason: Some("undecodable".to_owned()),
        attempts: Some(u32::MAX),
        attempts_max: u32::MAX,
        next_attempt_at: Some(u64::MAX),
        dead_letter_topic: Some("t".repeat(120)),
    }
}

#[test]
fn triggers_are_shown_up_to_their_bound() {
    let max = limits::WHY_TRIGGERS.max_usize();
    for (count, left_out) in [(max - 1, 0), (max, 0), (max + 1, 1)] {
        let history = EventHistory::of_triggers(vec![trigger("t"); count]);
        assert_eq!((history.triggers.len() as u64 + left_out, history.triggers_left_out), (count as u64, left_out));
    }
}

#[test]
fn the_largest_story_fits_a_line() {
    // Each byte of a control character is six of JSON.
    let bytes = |limit: &latent_core::Limit| "\u{1}".repeat(limit.max_usize());
    let mut run = Room { log_bytes: 0, outputs: 0 }.run(&entry(u32::MAX));
    run.detail = bytes(&latent_node::limits::JOURNAL_DETAIL_BYTES);
    (run.trigger, run.service) = ("t".repeat(64), "s".repeat(64));
    (run.queued_at, run.started_at, run.wait_micros, run.run_micros) = (u64::MAX, Some(u64::MAX), u64::MAX, u64::MAX);
    (run.fuel, run.memory_bytes, run.log_bytes_cut, run.outputs_left_out) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    let output = RunOutput {
        topic: "t".repeat(120),
        uid: Some("\"".repeat(256)),
        outcome: "budget-exhausted".to_owned(),
        cause: Some("cancelled".to_owned()),
        partition: None,
        offset: Some(u64::MAX),
        in_log: None,
    };
    let mut runs = vec![run; limits::WHY_RUNS.max_usize()];
    runs[0].log = vec![("stdout".to_owned(), bytes(&limits::WHY_LOG_BYTES))];
    runs[0].outputs = vec![output; limits::WHY_OUTPUTS.max_usize()];
    let triggers = vec![trigger(&"t".repeat(64)); limits::WHY_TRIGGERS.max_usize()];
    let history = EventHistory { runs, runs_left_out: u64::MAX, ..EventHistory::of_triggers(triggers) };
    let line = encode_answer(Answer::EventHistory(Box::new(history)));
    assert!(line.len() <= limits::CONTROL_LINE_BYTES.max_usize(), "{} bytes", line.len());
    // Many lines of nothing cost what stands around them.
    assert!(serde_json::to_vec(&("stdout", "")).unwrap().len() <= 32);
}
