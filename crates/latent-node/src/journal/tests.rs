use latent_capabilities::{Publication, PublicationEnd};
use latent_core::{BindingId, BudgetKind, LogicalTopic, TrapCode};
use latent_wasmtime::LogSource;

use super::*;

fn limits_of(journal_entries: u32, journal_log_bytes: u64) -> NodeLimits {
    NodeLimits { journal_entries, journal_log_bytes, ..NodeLimits::for_cores(1) }
}

/// Room for so many lines of three bytes.
fn lines_of_three(count: u64) -> u64 {
    count * (3 + LINE_BYTES)
}

fn id(number: u8) -> ActivationId {
    ActivationId::from_random([number; 16])
}

fn line(text: &str) -> LogLine {
    LogLine { source: LogSource::Stdout, text: text.to_owned() }
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).unwrap()
}

fn place(offset: u64) -> Place {
    Place { topic: topic("t"), partition: Partition(0), offset: Offset(offset) }
}

/// The entry of activation `number`, whose guest wrote `log`.
fn entry(number: u8, log: &[&str]) -> JournalEntry {
    let binding = BindingId::parse("b").unwrap();
    JournalEntry {
        activation: id(number),
        trace: TraceId::from_random([0; 16]),
        tenant: TenantId::parse("acme").unwrap(),
        principal: Principal::trigger(&binding),
        service: ServiceName::parse("triage").unwrap(),
        contract: ContractName::parse("demo:pkg/i@1.0.0").unwrap(),
        function: FunctionName::parse("handle").unwrap(),
        generation: RouteGeneration(1),
        publication: PublicationId(1),
        digest: ComponentDigest::of(b""),
        delivery: Some(Delivery {
            place: place(0),
            origin: Origin { binding, topic: topic("t"), partition: Partition(0), offset: Offset(0), stored_at: None },
            count: 1,
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
        log: log.iter().map(|text| line(text)).collect(),
        log_bytes_cut: 0,
    }
}

fn kept(journal: &Journal) -> Vec<(u8, usize, u64)> {
    let number = |entry: &JournalEntry| (1..=9).find(|number| id(*number) == entry.activation).unwrap();
    journal.newest(usize::MAX).iter().map(|entry| (number(entry), entry.log.len(), entry.log_bytes_cut)).collect()
}

#[test]
fn the_last_entries_are_kept_newest_first_and_older_ones_fall_off() {
    let mut journal = Journal::new(&limits_of(3, 1_000));
    assert!(journal.is_empty());
    for number in 1..=4 {
        journal.push(entry(number, &[]));
        assert_eq!(journal.len(), usize::from(number).min(3));
    }
    assert_eq!(kept(&journal), [(4, 0, 0), (3, 0, 0), (2, 0, 0)]);
    assert_eq!(journal.newest(1).len(), 1);
    assert!(journal.find(id(1)).is_none());
    assert_eq!(journal.find(id(2)).unwrap().activation, id(2));
}

#[test]
fn the_oldest_logs_are_dropped_first_and_their_entries_stay() {
    let mut journal = Journal::new(&limits_of(10, lines_of_three(3)));
    for number in 1..=3 {
        journal.push(entry(number, &["abc"]));
    }
    assert_eq!(kept(&journal), [(3, 1, 0), (2, 1, 0), (1, 1, 0)]);
    journal.push(entry(4, &[""]));
    assert_eq!(kept(&journal), [(4, 1, 0), (3, 1, 0), (2, 1, 0), (1, 0, 4)]);
    journal.push(entry(5, &["0123456789"]));
    assert_eq!(kept(&journal), [(5, 1, 0), (4, 1, 0), (3, 0, 4), (2, 0, 4), (1, 0, 4)]);
}

#[test]
fn a_log_larger_than_the_whole_bound_is_not_kept_and_counted() {
    for (bytes, lines) in [(10, 1), (11, 1), (12, 0)] {
        let mut journal = Journal::new(&limits_of(10, 11 + LINE_BYTES));
        journal.push(entry(1, &[&"x".repeat(bytes)]));
        let cut = if lines == 1 { 0 } else { 13 };
        assert_eq!(kept(&journal), [(1, lines, cut)], "{bytes}");
    }
}

#[test]
fn logs_that_fall_off_with_their_entries_make_room() {
    let mut journal = Journal::new(&limits_of(2, lines_of_three(2)));
    for number in 1..=9 {
        journal.push(entry(number, &["abc"]));
    }
    assert_eq!(kept(&journal), [(9, 1, 0), (8, 1, 0)]);
    journal.push(entry(1, &["abcdefg"]));
    assert_eq!(kept(&journal), [(1, 1, 0), (9, 0, 4)]);
    journal.push(entry(2, &[]));
    assert_eq!(kept(&journal), [(2, 0, 0), (1, 1, 0)]);
    journal.push(entry(3, &["abc"]));
    assert_eq!(kept(&journal), [(3, 1, 0), (2, 0, 0)]);
}

#[test]
fn logs_are_dropped_oldest_first_also_after_entries_fell_off() {
    let mut journal = Journal::new(&limits_of(3, lines_of_three(2)));
    for number in 1..=9 {
        journal.push(entry(number, &["abc"]));
        let expected = [(number, 1, 0), (number.max(2) - 1, 1, 0), (number.max(3) - 2, 0, 4)];
        assert_eq!(kept(&journal), expected[..usize::from(number).min(3)]);
    }
}

#[test]
fn an_entry_that_a_reader_holds_keeps_its_log() {
    let mut journal = Journal::new(&limits_of(2, lines_of_three(1)));
    journal.push(entry(1, &["abc"]));
    let held = journal.find(id(1)).unwrap();
    journal.push(entry(2, &["abc"]));
    assert_eq!((held.log.len(), journal.find(id(1)).unwrap().log.len()), (1, 0));
}

/// The entry of activation `number`, which published so many events.
fn published(number: u8, count: usize) -> JournalEntry {
    let topic = LogicalTopic::parse("out").unwrap();
    let publication = Publication { topic, uid: None, end: PublicationEnd::Conflict };
    JournalEntry { publications: std::iter::repeat_n(publication, count).collect(), ..entry(number, &["abc"]) }
}

fn named(journal: &Journal) -> Vec<(usize, u64, usize)> {
    journal.newest(9).iter().map(|entry| (entry.publications.len(), entry.publications.left_out(), entry.log.len())).collect()
}

#[test]
fn publications_are_named_up_to_a_bound_over_all_entries_and_the_oldest_are_dropped_and_counted() {
    let bytes = published(1, 3).publications.bytes();
    for (bytes_max, oldest) in [(bytes - 1, (0, 2, 1)), (bytes, (2, 0, 1)), (bytes + 1, (2, 0, 1))] {
        let mut journal = Journal::new(&NodeLimits { journal_publication_bytes: bytes_max, ..NodeLimits::for_cores(1) });
        journal.push(published(1, 2));
        journal.push(entry(2, &["abc"]));
        journal.push(published(3, 1));
        assert_eq!(named(&journal), [(1, 0, 1), (0, 0, 1), oldest], "{bytes_max}");
    }
}

#[test]
fn publications_that_fall_off_with_their_entries_make_room() {
    let journal_publication_bytes = published(1, 2).publications.bytes();
    let mut journal = Journal::new(&NodeLimits { journal_entries: 2, journal_publication_bytes, ..NodeLimits::for_cores(1) });
    for number in 1..=9 {
        journal.push(published(number, 1));
    }
    assert_eq!(named(&journal), [(1, 0, 1), (1, 0, 1)]);
    journal.push(published(1, 2));
    assert_eq!(named(&journal), [(2, 0, 1), (0, 1, 1)]);
}

#[test]
fn the_activations_on_an_event_are_found_by_its_place_newest_first_and_a_replay_by_its_own() {
    let on = |number, place: Place| {
        let mut entry = entry(number, &[]);
        entry.delivery = entry.delivery.map(|delivery| Delivery { place, ..delivery });
        entry
    };
    let mut journal = Journal::new(&limits_of(9, 0));
    journal.push(on(1, place(0)));
    journal.push(on(2, place(5)));
    journal.push(on(3, Place { partition: Partition(1), ..place(0) }));
    journal.push(on(4, Place { topic: topic("u"), ..place(0) }));
    journal.push(JournalEntry { delivery: None, ..entry(5, &[]) });
    journal.push(on(6, place(0)));
    let found = |offset| -> Vec<_> {
        let entries = journal.of_event(&topic("t"), Partition(0), Offset(offset));
        entries.iter().map(|entry| (entry.activation, entry.delivery.as_ref().map(Delivery::is_replay))).collect()
    };
    assert_eq!(found(0), [(id(6), Some(false)), (id(1), Some(false))]);
    assert_eq!(found(5), [(id(2), Some(true))]);
    assert_eq!(found(9), []);
}

#[test]
fn every_outcome_keeps_its_kind_and_its_reason() {
    let why = || "why".to_owned();
    let table = [
        (ActivationOutcome::Success, "success", ""),
        (ActivationOutcome::Rejected { reason: why() }, "rejected", "why"),
        (ActivationOutcome::RetryRequested { reason: why(), delay_millis: None }, "retry", "why"),
        (ActivationOutcome::DeclaredFailure, "declared-failure", ""),
        (ActivationOutcome::InvalidArguments { reason: why() }, "invalid-arguments", "why"),
        (ActivationOutcome::IncompatibleContract { reason: why() }, "incompatible-contract", "why"),
        (ActivationOutcome::PermissionRefused { reason: why() }, "permission-refused", "why"),
        (ActivationOutcome::Timeout, "timeout", ""),
        (ActivationOutcome::Cancelled, "cancelled", ""),
        (ActivationOutcome::Trap { code: TrapCode::Exit, detail: why() }, "trap", "exit: why"),
        (ActivationOutcome::BudgetExhausted(BudgetKind::Fuel), "fuel-exhausted", ""),
        (ActivationOutcome::HostFailure { reason: why() }, "host-failure", "why"),
    ];
    for (outcome, kind, detail) in table {
        assert_eq!(Ended::of(&outcome), Ended { kind, detail: detail.to_owned() });
    }
}

#[test]
fn a_reason_is_cut_at_its_bound_between_two_characters() {
    let detail = |reason: String| Ended::of(&ActivationOutcome::Rejected { reason }).detail.len();
    let most = limits::JOURNAL_DETAIL_BYTES.max_usize();
    assert_eq!([most - 1, most, most + 1].map(|bytes| detail("x".repeat(bytes))), [most - 1, most, most]);
    assert_eq!(detail(format!("x{}", "é".repeat(most))), most - 1);
}
