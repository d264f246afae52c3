use latent_capabilities::{Origin, Publications};
use latent_core::{
    ActivationId, ActivationOutcome, BindingId, ComponentDigest, ContractName, FunctionName, Offset, Partition, Place, PublicationId,
    RouteGeneration, ServiceName, TenantId, TopicName, TraceId, UnixMillis,
};
use latent_node::{Delivery, Ended as EndedOutcome, Principal};
use latent_wasmtime::{LogLine, LogSource};

use super::*;

/// A delivery that ended well and whose function wrote these lines.
pub(in crate::commands::dev) fn entry(log: &[&str]) -> JournalEntry {
    let (binding, topic) = (BindingId::parse("greet").unwrap(), TopicName::parse("hello.in").unwrap());
    JournalEntry {
        activation: ActivationId::from_random([7; 16]),
        trace: TraceId::from_random([0; 16]),
        tenant: TenantId::parse("local").unwrap(),
        principal: Principal::trigger(&binding),
        service: ServiceName::parse("hello").unwrap(),
        contract: ContractName::parse("demo:pkg/i@1.0.0").unwrap(),
        function: FunctionName::parse("handle").unwrap(),
        generation: RouteGeneration(3),
        publication: PublicationId(1),
        digest: ComponentDigest::of(b""),
        delivery: Some(Delivery {
            place: Place { topic: topic.clone(), partition: Partition(2), offset: Offset(17) },
            origin: Origin { binding, topic, partition: Partition(2), offset: Offset(17), stored_at: None },
            count: 2,
        }),
        ended: EndedOutcome::of(&ActivationOutcome::Success),
        queued_at: UnixMillis(0),
        started_at: Some(UnixMillis(5)),
        wait_micros: 10,
        run_micros: 1_234,
        fuel_used: 4_811,
        memory_bytes_peak: 65_536,
        outbound_requests: 1,
        publications: Publications::NONE,
        log: log.iter().map(|text| LogLine { source: LogSource::Stdout, text: (*text).to_owned() }).collect(),
        log_bytes_cut: 0,
    }
}

fn said(text: &str) -> Said {
    Said { bytes: text.as_bytes().to_vec(), bytes_left_out: 0 }
}

#[test]
fn an_activation_is_one_line_with_what_its_function_said_under_it() {
    let message = Message::Activation(Box::new(entry(&["greeted ada", "  ", "second"])));
    let text = message.text(Paint::Plain);
    assert_eq!(text, "success  hello  greet  hello.in/2@17  attempt 2  1.2 ms  fuel 4811\n    stdout: greeted ada\n    stdout: second");
    let document = message.document();
    let place = ["outcome", "trigger", "topic", "partition", "offset", "attempt", "fuel"].map(|field| document[field].clone());
    assert_eq!(json!(place), json!(["success", "greet", "hello.in", 2, 17, 2, 4_811]));
    assert_eq!(document["log"][0], json!({ "source": "stdout", "text": "greeted ada" }));
}

#[test]
fn a_failure_says_why_and_a_call_has_no_place() {
    let ended = EndedOutcome::of(&ActivationOutcome::Rejected { reason: "not a name\nreally".to_owned() });
    let call = JournalEntry { delivery: None, ended, log_bytes_cut: 9, ..entry(&[]) };
    let message = Message::Activation(Box::new(call));
    assert_eq!(
        message.text(Paint::Plain),
        "rejected  hello  demo:pkg/i@1.0.0#handle  called  1.2 ms  fuel 4811\n    not a name\n    really\n    … and 9 bytes beyond its budget for logs"
    );
    assert_eq!((&message.document()["topic"], &message.document()["reason"]), (&Value::Null, &json!("not a name\nreally")));
}

#[test]
fn nothing_that_is_said_moves_a_terminal_s_cursor_and_only_colours_are_coloured() {
    let hostile = "\u{1b}[2Jgone";
    let failed = Failed { project: "hello".to_owned(), millis: 1_250, output: said(hostile), next: None };
    let refused = Message::Refused { kind: "node".to_owned(), message: hostile.to_owned(), instead: Instead::WhatRan };
    let change = Difference {
        object: "service".to_owned(),
        name: hostile.to_owned(),
        change: "added".to_owned(),
        from: String::new(),
        to: String::new(),
    };
    let in_force = InForce { epoch: 2, changes: vec![change], routes: vec![], notes: vec![] };
    let building = Building { project: "hello".to_owned(), services: vec![], changed: vec![hostile.to_owned()], command: String::new() };
    let messages = [
        Message::BuildFailed(failed),
        refused,
        Message::InForce(in_force),
        Message::Building(building),
        Message::Activation(Box::new(entry(&[hostile]))),
    ];
    for message in messages {
        assert!(!message.text(Paint::Plain).contains('\u{1b}'), "{message:?}");
        assert!(!message.text(Paint::Colours).contains("\u{1b}[2J"), "{message:?}");
        assert_eq!(message.document().to_string().lines().count(), 1);
    }
    assert!(Message::Activation(Box::new(entry(&[]))).text(Paint::Colours).starts_with("\u{1b}[32msuccess\u{1b}[0m"));
}

#[test]
fn a_build_names_few_files_and_counts_the_others() {
    let building = |changed: &[&str]| {
        let changed = changed.iter().map(|&file| file.to_owned()).collect();
        let services = vec!["hello".to_owned(), "other".to_owned()];
        Message::Building(Building { project: "hello".to_owned(), services, changed, command: "cargo build".to_owned() }).text(Paint::Plain)
    };
    assert_eq!(building(&[]), "building hello for hello, other: cargo build");
    assert_eq!(building(&["a", "b", "c"]), "building hello for hello, other (a, b, c changed): cargo build");
    assert_eq!(building(&["a", "b", "c", "d"]), "building hello for hello, other (a, b, c and 1 more changed): cargo build");
}

#[test]
fn a_failed_build_shows_what_the_compiler_said_and_what_else_to_do() {
    let output = Said { bytes: b"error[E0425]: no value\n --> src/lib.rs\n".to_vec(), bytes_left_out: 7 };
    let failed = Failed { project: "hello".to_owned(), millis: 1_250, output, next: Some("rustup target add t".to_owned()) };
    assert_eq!(
        Message::BuildFailed(failed).text(Paint::Plain),
        "error: hello could not be built (1.2 s); what was built before stays\n    error[E0425]: no value\n     --> src/lib.rs\n    … and 7 more bytes\n    next: rustup target add t"
    );
}

#[test]
fn a_new_component_is_told_by_the_route_that_leads_to_it() {
    let route = Route { service: "hello".to_owned(), component: format!("sha256:{}", "ab".repeat(32)), generation: 3 };
    let component = Difference {
        object: "service".to_owned(),
        name: "hello".to_owned(),
        change: "component".to_owned(),
        from: "sha256:1".to_owned(),
        to: "sha256:2".to_owned(),
    };
    let in_force = InForce { epoch: 2, changes: vec![component], routes: vec![route], notes: vec![] };
    assert_eq!(Message::InForce(in_force).text(Paint::Plain), "in force\n    hello leads to component sha256:abababababab, generation 3");
    let nothing = InForce { epoch: 2, changes: vec![], routes: vec![], notes: vec![] };
    assert_eq!(Message::InForce(nothing).text(Paint::Plain), "nothing that runs is different");
}
