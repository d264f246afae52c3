//! What is written, and what is refused before anything is.

use super::*;
use crate::limits::TERM_REASON_BYTES;
use crate::testing::inbox;

fn command(subject: &str, operation: u64, body: &str) -> String {
    format!("PUB {subject} {} {}\r\n{body}\r\n", inbox(operation), body.len())
}

#[test]
fn commands_leave_in_order_each_with_an_inbox_of_its_own() {
    let mut session = session();
    let message = settled_elsewhere(0, 7);
    session.begin_inspect(&consumer()).unwrap();
    session.begin_pull(&consumer(), &PullRequest { pin: PinId::new(PIN), ..pull_of(3) }).unwrap();
    let settlements = [
        (SessionSettlement::Acknowledge, "+ACK"),
        (SessionSettlement::InProgress, "+WPI"),
        (SessionSettlement::RetryAfter { nanos: 250_000_000 }, "-NAK {\"delay\":250000000}"),
        (SessionSettlement::Terminate { reason: None }, "+TERM"),
        (SessionSettlement::Terminate { reason: Some("not readable") }, "+TERM not readable"),
    ];
    for (settlement, _) in settlements {
        session.begin_settle(&message, settlement).unwrap();
    }
    let pull = format!(r#"{{"batch":3,"expires":2000000000,"max_bytes":81920,"idle_heartbeat":500000000,"group":"latent","id":"{PIN}"}}"#);
    let mut expected = command("$JS.API.CONSUMER.INFO.ORD.latent_a_p0", 1, "");
    expected += &command("$JS.API.CONSUMER.MSG.NEXT.ORD.latent_a_p0", 2, &pull);
    for (operation, (_, body)) in (3..).zip(settlements) {
        expected += &command(&ack(0, 7), operation, body);
    }
    assert_eq!(session.under_way(), 7);
    assert_eq!(write(&mut session), expected);
}

#[test]
fn a_raw_stream_s_pull_names_no_group_and_may_end_at_once() {
    let raw = Arc::new(PullConsumer::new(PullProfile { group: None, ..profile() }).unwrap());
    let mut session = session();
    session.begin_pull(&raw, &PullRequest { no_wait: true, idle_heartbeat_nanos: None, ..pull_of(1) }).unwrap();
    assert!(write(&mut session).ends_with("\r\n{\"batch\":1,\"expires\":2000000000,\"max_bytes\":81920,\"no_wait\":true}\r\n"));
    let pinned = PullRequest { pin: PinId::new(PIN), ..pull_of(1) };
    assert_eq!(session.begin_pull(&raw, &pinned), Err(SessionRefused::Request(BadRequest::Pin)));
}

#[test]
fn a_pull_outside_of_its_profile_is_refused_at_its_edges() {
    let (smallest, largest) = (profile().ceiling.message_bytes_max(), profile().request_bytes_max);
    let good = [
        pull_of(1),
        pull_of(8),
        PullRequest { expires_nanos: 5_000_000_000, ..pull_of(1) },
        PullRequest { expires_nanos: 1, idle_heartbeat_nanos: None, ..pull_of(1) },
        PullRequest { idle_heartbeat_nanos: Some(1_000_000_000), ..pull_of(1) },
        PullRequest { max_bytes: smallest, ..pull_of(1) },
        PullRequest { max_bytes: largest, ..pull_of(1) },
    ];
    for pull in good {
        assert!(session().begin_pull(&consumer(), &pull).is_ok(), "{pull:?}");
    }
    let bad = [
        (pull_of(0), BadRequest::Batch),
        (pull_of(9), BadRequest::Batch),
        (PullRequest { expires_nanos: 0, idle_heartbeat_nanos: None, no_wait: true, ..pull_of(1) }, BadRequest::Expires),
        (PullRequest { expires_nanos: 5_000_000_001, ..pull_of(1) }, BadRequest::Expires),
        (PullRequest { idle_heartbeat_nanos: Some(1_000_000_001), ..pull_of(1) }, BadRequest::Heartbeat),
        (PullRequest { idle_heartbeat_nanos: Some(0), ..pull_of(1) }, BadRequest::Heartbeat),
        (PullRequest { max_bytes: smallest - 1, ..pull_of(1) }, BadRequest::MaxBytes),
        (PullRequest { max_bytes: largest + 1, ..pull_of(1) }, BadRequest::MaxBytes),
    ];
    for (pull, problem) in bad {
        let mut session = session();
        assert_eq!(session.begin_pull(&consumer(), &pull), Err(SessionRefused::Request(problem)), "{pull:?}");
        assert!(session.under_way() == 0 && session.outgoing().is_empty());
    }
}

#[test]
fn a_settlement_that_could_be_read_otherwise_is_refused() {
    let (mut session, message) = (session(), settled_elsewhere(0, 7));
    let longest = "r".repeat(TERM_REASON_BYTES.max_usize());
    assert!(session.begin_settle(&message, SessionSettlement::Terminate { reason: Some(&longest) }).is_ok());
    assert!(session.begin_settle(&message, SessionSettlement::RetryAfter { nanos: i64::MAX.unsigned_abs() }).is_ok());
    for reason in ["a\r\nPUB x 0\r\n", "\u{e9}", "\t", &format!("{longest}r")] {
        let refused = session.begin_settle(&message, SessionSettlement::Terminate { reason: Some(reason) });
        assert_eq!(refused, Err(SessionRefused::Request(BadRequest::Reason)), "{reason:?}");
    }
    let refused = session.begin_settle(&message, SessionSettlement::RetryAfter { nanos: i64::MAX.unsigned_abs() + 1 });
    assert_eq!(refused, Err(SessionRefused::Request(BadRequest::Delay)));
    assert_eq!(session.under_way(), 2);
}

#[test]
fn a_profile_that_may_not_be_sent_or_never_be_satisfied_is_refused() {
    type Change = fn(&mut PullProfile);
    let long = || "n".repeat(129);
    let names = ["", "a b", "a.b", "*", ">", "a\r\nPUB x 0", "\u{e9}"].map(str::to_owned).into_iter().chain([long()]);
    for name in names {
        assert_eq!(PullConsumer::new(PullProfile { stream: name.clone(), ..profile() }), Err(PullProfileError::Stream), "{name:?}");
        assert_eq!(PullConsumer::new(PullProfile { consumer: name.clone(), ..profile() }), Err(PullProfileError::Consumer), "{name:?}");
    }
    for filter_subject in ["", ".", "a.", "a..b", "a.*", ">", "a b", "a\r\n", &long()] {
        let refused = PullConsumer::new(PullProfile { filter_subject: filter_subject.to_owned(), ..profile() });
        assert_eq!(refused, Err(PullProfileError::FilterSubject), "{filter_subject:?}");
    }
    for group in ["", "a b", "a\"", "seventeen-letters"] {
        let refused = PullConsumer::new(PullProfile { group: Some(group.to_owned()), ..profile() });
        assert_eq!(refused, Err(PullProfileError::Group), "{group:?}");
    }
    let wrong: [Change; 7] = [
        |profile| profile.ceiling = Ceiling::Raw { payload_bytes_max: 0 },
        |profile| profile.ceiling = Ceiling::Event { payload_bytes_max: 524_289 },
        |profile| profile.batch_max = 0,
        |profile| profile.batch_max = 9,
        |profile| (profile.batch_max, profile.max_in_flight) = (1_025, 2_000),
        |profile| profile.expires_nanos_max = 60_000_000_001,
        |profile| profile.request_bytes_max = profile.ceiling.message_bytes_max() - 1,
    ];
    for (index, change) in wrong.into_iter().enumerate() {
        let mut profile = profile();
        change(&mut profile);
        assert!(PullConsumer::new(profile).is_err(), "{index}");
    }
}

#[test]
fn ceilings_count_the_event_and_requests_the_body() {
    let event = Ceiling::Event { payload_bytes_max: 524_288 };
    assert_eq!((event.message_bytes_max(), event.body_bytes_max()), (715_435, 715_435));
    assert_eq!(event.message_bytes_max(), crate::limits::DELIVERED_BODY_BYTES.max);
    let raw = Ceiling::Raw { payload_bytes_max: 32_768 };
    assert_eq!((raw.message_bytes_max(), raw.body_bytes_max()), (41_984, 32_768));
}

/// A pin lasts by pulls alone: one that shows it and has no room for any message. Nothing else may have so few bytes.
#[test]
fn a_pull_that_keeps_a_pin_asks_for_nothing() {
    let mut session = session();
    session.begin_pull(&consumer(), &PullRequest::keeping(PinId::new(PIN).unwrap())).unwrap();
    let body = format!(r#"{{"batch":1,"max_bytes":1,"no_wait":true,"group":"latent","id":"{PIN}"}}"#);
    assert_eq!(write(&mut session), command("$JS.API.CONSUMER.MSG.NEXT.ORD.latent_a_p0", 1, &body));
    let raw = Arc::new(PullConsumer::new(PullProfile { group: None, ..profile() }).unwrap());
    let keeping = || PullRequest::keeping(PinId::new(PIN).unwrap());
    for (consumer, wrong) in [
        (consumer(), PullRequest { pin: None, ..keeping() }),
        (consumer(), PullRequest { batch: 2, ..keeping() }),
        (consumer(), PullRequest { no_wait: false, ..keeping() }),
        (raw, keeping()),
    ] {
        assert!(matches!(session.begin_pull(&consumer, &wrong), Err(SessionRefused::Request(_))), "{wrong:?}");
    }
}
