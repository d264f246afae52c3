//! Audit on real files, filled by real sessions, and on storages that fail.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what supports the tests may fail like a test")]

mod bench;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use latent_capabilities::{AuditSink, AuditSlot, EventDraft};
use latent_core::{KnownFailure, PublicationOutcome, Receipt, UncertainCause, UnixMillis};
use latent_node::{AuditClose, AuditFile, AuditFileError, AuditFileLimits, limits};

use bench::{Answer, Gate, GatedDisk, Session, draft, lines, names, record};

/// Only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn smallest() -> AuditFileLimits {
    AuditFileLimits { files: limits::AUDIT_FILES.min, file_bytes: limits::AUDIT_FILE_BYTES.min, ..AuditFileLimits::default() }
}

fn slot(audit: &Arc<AuditFile>) -> AuditSlot {
    AuditSlot::reserve(&(Arc::clone(audit) as Arc<dyn AuditSink>))
}

fn write(audit: &Arc<AuditFile>, records: usize) {
    (0..records).for_each(|_| slot(audit).fill(record()));
}

#[test]
fn each_way_a_publication_ends_leaves_exactly_one_line() {
    let receipt = Receipt { stream: "out".into(), sequence: 1, duplicate: false, accepted_at: UnixMillis(0) };
    let rejected = PublicationOutcome::KnownFailure(KnownFailure::Conflict);
    let uncertain = PublicationOutcome::Uncertain(latent_core::Uncertain { uid: None, cause: UncertainCause::Storage });
    let table = [
        (Answer::Outcome(PublicationOutcome::Receipt(receipt)), "acknowledged", Some("receipt")),
        (Answer::Outcome(rejected), "rejected", Some("invalid-event")),
        (Answer::Outcome(uncertain), "unknown", Some("uncertain")),
        (Answer::Silence, "unknown", None),
        (Answer::Never, "not-started", None),
    ];
    for (answer, observed, told) in table {
        let directory = tempfile::tempdir().unwrap();
        let audit = AuditFile::start(directory.path(), AuditFileLimits::default()).unwrap();
        Session::new(&audit, answer).publish(draft());
        assert_eq!(audit.close(PATIENCE), AuditClose::Ended);
        let lines = lines(directory.path());
        assert_eq!(lines.len(), 1, "{observed}");
        assert_eq!((lines[0]["observed"].as_str(), lines[0]["told"].as_str()), (Some(observed), told));
        assert_eq!((audit.status().written, audit.status().dropped), (1, 0));
    }
}

#[test]
fn no_part_of_an_event_and_no_word_of_a_peer_reaches_the_file() {
    const MARKERS: [&str; 7] =
        ["MARK-payload", "MARK-key", "MARK-Name", "MARK-value", "MARK-idempotency", "MARK/media", "MARK broker text"];
    let directory = tempfile::tempdir().unwrap();
    let audit = AuditFile::start(directory.path(), AuditFileLimits::default()).unwrap();
    let receipt = Receipt { stream: "MARK broker text".into(), sequence: 1, duplicate: true, accepted_at: UnixMillis(0) };
    let answers = [
        PublicationOutcome::KnownFailure(KnownFailure::Unavailable { reason: "MARK broker text".to_owned() }),
        PublicationOutcome::KnownFailure(KnownFailure::InvalidEvent { rule: "MARK broker text".to_owned() }),
        PublicationOutcome::Receipt(receipt),
    ];
    for answer in answers {
        Session::new(&audit, Answer::Outcome(answer)).publish(EventDraft {
            topic: "out".to_owned(),
            key: Some("MARK-key".to_owned()),
            payload: "MARK-payload".into(),
            media_type: "MARK/media".to_owned(),
            attributes: vec![("MARK-Name".to_owned(), "MARK-value".to_owned())],
            idempotency_key: "MARK-idempotency".to_owned(),
        });
    }
    assert_eq!(audit.close(PATIENCE), AuditClose::Ended);
    let text: String = names(directory.path()).iter().map(|name| std::fs::read_to_string(directory.path().join(name)).unwrap()).collect();
    assert_eq!(text.lines().count(), 3);
    for marker in MARKERS {
        assert!(!text.contains(marker), "{marker} is in {text}");
    }
}

#[test]
fn directory_and_files_belong_to_their_owner_alone() {
    let outer = tempfile::tempdir().unwrap();
    let directory = outer.path().join("audit");
    let audit = AuditFile::start(&directory, AuditFileLimits::default()).unwrap();
    write(&audit, 1);
    assert_eq!(audit.close(PATIENCE), AuditClose::Ended);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join("audit-0000000001.jsonl"))), (0o700, 0o600));
}

#[test]
fn files_rotate_by_size_and_the_oldest_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("notes.txt"), "not ours").unwrap();
    let audit = AuditFile::start(directory.path(), smallest()).unwrap();
    write(&audit, 1_000);
    assert_eq!(audit.close(PATIENCE), AuditClose::Ended);
    assert_eq!((audit.status().written, audit.status().dropped), (1_000, 0));
    let found = names(directory.path());
    let (files, others): (Vec<_>, Vec<_>) = found.iter().partition(|name| name.ends_with(".jsonl"));
    assert_eq!((files.len() as u64, others.len()), (limits::AUDIT_FILES.min, 1));
    assert!(files[0].as_str() > "audit-0000000001.jsonl", "{files:?}");
    for name in files {
        let bytes = std::fs::metadata(directory.path().join(name)).unwrap().len();
        assert!(bytes > 0 && bytes <= limits::AUDIT_FILE_BYTES.min, "{name} has {bytes}");
    }
    assert!(!lines(directory.path()).is_empty());
}

#[test]
fn a_restart_continues_the_newest_file_after_a_torn_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit-0000000004.jsonl");
    std::fs::write(&path, "{\"v\":1}\n{\"v\":").unwrap();
    for expected in [3, 4] {
        let audit = AuditFile::start(directory.path(), AuditFileLimits::default()).unwrap();
        write(&audit, 1);
        assert_eq!(audit.close(PATIENCE), AuditClose::Ended);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), expected);
        let whole = text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count();
        assert_eq!(whole, expected - 1);
    }
    assert_eq!(names(directory.path()), ["audit-0000000004.jsonl"]);
}

#[test]
fn a_disk_that_refuses_stops_no_work_and_is_tried_again_with_each_record() {
    let outer = tempfile::tempdir().unwrap();
    let blocked = outer.path().join("audit");
    // A file where the directory should be.
    std::fs::write(&blocked, "").unwrap();
    let audit = AuditFile::start(&blocked, AuditFileLimits::default()).unwrap();
    write(&audit, 2);
    while audit.status().dropped < 2 {
        std::thread::yield_now();
    }
    let status = audit.status();
    assert!(status.failing && status.last_error.is_some_and(|fault| fault.operation == "list"), "{status:?}");
    std::fs::remove_file(&blocked).unwrap();
    write(&audit, 1);
    assert_eq!(audit.close(PATIENCE), AuditClose::Ended);
    let status = audit.status();
    assert_eq!((status.written, status.dropped, status.failing, status.last_error.is_some()), (1, 2, false, true));
    assert_eq!(lines(&blocked).len(), 1);
}

#[test]
fn a_full_queue_drops_and_counts_at_its_edge_while_work_goes_on() {
    let gate = Arc::new(Gate::default());
    let limits = AuditFileLimits { queue_records: 2, ..AuditFileLimits::default() };
    let audit = AuditFile::start_on(GatedDisk(Arc::clone(&gate)), limits).unwrap();
    write(&audit, 1);
    // The writer holds the first record and waits for the disk; from here on places are counted.
    gate.until_waiting();
    let slots: Vec<_> = (0..3).map(|_| slot(&audit)).collect();
    slots.into_iter().for_each(|slot| slot.fill(record()));
    let status = audit.status();
    assert_eq!((status.queued, status.dropped), (2, 1));
    assert_eq!(audit.close(Duration::from_millis(1)), AuditClose::Unfinished { queued: 2 });
    write(&audit, 1);
    gate.open();
    assert_eq!(audit.close(PATIENCE), AuditClose::Ended);
    assert_eq!((audit.status().written, audit.status().dropped), (3, 2), "what comes after the close began is dropped");
}

#[test]
fn a_slot_that_is_not_filled_returns_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let limits = AuditFileLimits { queue_records: 1, ..AuditFileLimits::default() };
    let audit = AuditFile::start(directory.path(), limits).unwrap();
    drop(slot(&audit));
    write(&audit, 1);
    assert_eq!(audit.close(PATIENCE), AuditClose::Ended);
    assert_eq!((audit.status().written, audit.status().dropped), (1, 0));
}

#[test]
fn each_limit_is_checked_at_its_edges() {
    type Set = fn(&mut AuditFileLimits, u64);
    let fields: [(Set, latent_core::Limit); 3] = [
        (|l, v| l.files = v, limits::AUDIT_FILES),
        (|l, v| l.file_bytes = v, limits::AUDIT_FILE_BYTES),
        (|l, v| l.queue_records = v, limits::AUDIT_QUEUE_RECORDS),
    ];
    for (set, limit) in fields {
        for (value, fits) in [(limit.min - 1, false), (limit.min, true), (limit.max, true), (limit.max + 1, false)] {
            let mut limits = AuditFileLimits::default();
            set(&mut limits, value);
            assert_eq!(limits.checked().is_ok(), fits, "{} = {value}", limit.name);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let refused = AuditFile::start(directory.path(), AuditFileLimits { files: 0, ..AuditFileLimits::default() });
    assert!(matches!(refused, Err(AuditFileError::Limit(error)) if error.name == "audit_files"));
}
