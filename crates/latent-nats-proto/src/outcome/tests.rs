use super::*;

const STAGES: [Stage; 3] = [Stage::BeforeWrite, Stage::PartlyWritten, Stage::Written];

fn failed(kind: FailureKind, cause: FailureCause) -> Answer {
    Answer::KnownFailure { kind, cause }
}

fn unavailable(cause: FailureCause) -> Answer {
    failed(FailureKind::Unavailable, cause)
}

/// Each piece of evidence with its answer before the write, while it is under way, and after it.
fn table() -> Vec<(Evidence, [Answer; 3])> {
    use Answer::Uncertain;
    use FailureCause as Cause;
    use FailureKind::InvalidEvent;
    use UncertainCause as Hidden;
    let invalid = |cause| failed(InvalidEvent, cause);
    // Before the write something on this side, then the same uncertain end.
    let both = |before: Cause, after: Hidden| [unavailable(before), Uncertain(after), Uncertain(after)];
    let foreign_until = |answer| [unavailable(Cause::Protocol), Uncertain(Hidden::ForeignReply), answer];
    let mut table = vec![
        (Evidence::Stored { sequence: 7, duplicate: true }, foreign_until(Answer::Receipt { sequence: 7, duplicate: true })),
        (Evidence::Stored { sequence: 7, duplicate: false }, foreign_until(Answer::Receipt { sequence: 7, duplicate: false })),
        (Evidence::NoResponders, foreign_until(unavailable(Cause::NoResponders))),
        (
            Evidence::PublishRefused,
            [
                unavailable(Cause::BrokerError),
                Uncertain(Hidden::PermissionOfAnother),
                failed(FailureKind::PermissionDenied, Cause::PublishRefused),
            ],
        ),
        (Evidence::PermissionOfAnother, both(Cause::BrokerError, Hidden::PermissionOfAnother)),
        (Evidence::MaximumPayload, [unavailable(Cause::BrokerError), invalid(Cause::ServerMaximum), invalid(Cause::ServerMaximum)]),
        (Evidence::AboveServerMaximum, [invalid(Cause::ServerMaximum), Uncertain(Hidden::BrokerError), Uncertain(Hidden::BrokerError)]),
        (Evidence::AuthenticationFailed, both(Cause::AuthenticationFailed, Hidden::BrokerError)),
        (Evidence::BrokerError, both(Cause::BrokerError, Hidden::BrokerError)),
        (Evidence::ConnectionLost { within_reply: false }, both(Cause::ConnectionLost, Hidden::ConnectionLost)),
        (Evidence::ConnectionLost { within_reply: true }, both(Cause::ConnectionLost, Hidden::ReplyTruncated)),
        (Evidence::MalformedFrame, both(Cause::Protocol, Hidden::MalformedReply)),
        (Evidence::LineTooLong, both(Cause::LineTooLong, Hidden::LineTooLong)),
        (Evidence::OversizedReply, both(Cause::Protocol, Hidden::OversizedReply)),
        (Evidence::ForeignReply, both(Cause::Protocol, Hidden::ForeignReply)),
        (Evidence::UnexpectedFrame, both(Cause::Protocol, Hidden::ForeignReply)),
        (Evidence::MalformedReceipt, both(Cause::Protocol, Hidden::MalformedReply)),
        (Evidence::WrongStream, both(Cause::Protocol, Hidden::WrongStream)),
        (Evidence::UnexpectedStatus, both(Cause::Protocol, Hidden::UnexpectedStatus)),
        (Evidence::ControlFlood, both(Cause::ControlFlood, Hidden::ControlFlood)),
        (Evidence::UnusableServer, both(Cause::UnusableServer, Hidden::MalformedReply)),
    ];
    let deadline = failed(FailureKind::DeadlineExceeded, Cause::Deadline);
    for (within_reply, hidden) in [(false, Hidden::Deadline), (true, Hidden::ReplyStalled)] {
        table.push((Evidence::Deadline { within_reply }, [deadline, Uncertain(hidden), Uncertain(hidden)]));
    }
    let cancelled = failed(FailureKind::Cancelled, Cause::Cancelled);
    table.push((Evidence::Cancelled, [cancelled, Uncertain(Hidden::Cancelled), Uncertain(Hidden::Cancelled)]));
    let refusals = [
        (Some(400), Some(10_060), invalid(Cause::StreamMismatch)),
        (Some(400), Some(10_054), invalid(Cause::StreamMessageSize)),
        (Some(503), Some(10_077), Uncertain(Hidden::StorageLimit)),
        (Some(503), Some(10_023), Uncertain(Hidden::StorageLimit)),
        (Some(500), Some(10_047), Uncertain(Hidden::StorageLimit)),
        (Some(500), Some(10_028), Uncertain(Hidden::StorageLimit)),
        (Some(503), Some(10_008), Uncertain(Hidden::InternalError)),
        (Some(500), Some(1), Uncertain(Hidden::InternalError)),
        (Some(599), Some(10_060), Uncertain(Hidden::InternalError)),
        (Some(600), Some(10_060), Uncertain(Hidden::UnlistedRejection)),
        (Some(499), Some(10_077), Uncertain(Hidden::UnlistedRejection)),
        (Some(400), Some(10_109), Uncertain(Hidden::UnlistedRejection)),
        (Some(400), Some(10_071), Uncertain(Hidden::UnlistedRejection)),
        (Some(403), Some(10_060), Uncertain(Hidden::UnlistedRejection)),
        (Some(404), Some(10_059), Uncertain(Hidden::UnlistedRejection)),
        (Some(409), Some(10_158), Uncertain(Hidden::UnlistedRejection)),
        (Some(429), Some(10_167), Uncertain(Hidden::UnlistedRejection)),
        (Some(10_060), Some(400), Uncertain(Hidden::UnlistedRejection)),
        (Some(0), Some(0), Uncertain(Hidden::UnlistedRejection)),
        (Some(u64::MAX), Some(u64::MAX), Uncertain(Hidden::UnlistedRejection)),
        (Some(400), None, Uncertain(Hidden::UnlistedRejection)),
        (Some(503), None, Uncertain(Hidden::UnlistedRejection)),
        (None, Some(10_060), Uncertain(Hidden::UnlistedRejection)),
        (None, None, Uncertain(Hidden::UnlistedRejection)),
    ];
    table.extend(refusals.map(|(code, err_code, after)| (Evidence::Rejected { code, err_code }, foreign_until(after))));
    table
}

#[test]
fn every_pair_of_stage_and_evidence_has_its_answer() {
    for (evidence, answers) in table() {
        for (stage, expected) in STAGES.into_iter().zip(answers) {
            assert_eq!(decide(stage, evidence), expected, "{stage:?} {evidence:?}");
        }
    }
}

#[test]
fn the_table_has_every_kind_of_evidence() {
    // A new variant does not compile here until it is in the table, too.
    let index = |evidence: Evidence| match evidence {
        Evidence::Stored { .. } => 0,
        Evidence::Rejected { .. } => 1,
        Evidence::NoResponders => 2,
        Evidence::PublishRefused => 3,
        Evidence::PermissionOfAnother => 4,
        Evidence::MaximumPayload => 5,
        Evidence::AboveServerMaximum => 6,
        Evidence::AuthenticationFailed => 7,
        Evidence::BrokerError => 8,
        Evidence::ConnectionLost { .. } => 9,
        Evidence::Deadline { .. } => 10,
        Evidence::Cancelled => 11,
        Evidence::MalformedFrame => 12,
        Evidence::LineTooLong => 13,
        Evidence::OversizedReply => 14,
        Evidence::ForeignReply => 15,
        Evidence::UnexpectedFrame => 16,
        Evidence::MalformedReceipt => 17,
        Evidence::WrongStream => 18,
        Evidence::UnexpectedStatus => 19,
        Evidence::ControlFlood => 20,
        Evidence::UnusableServer => 21,
    };
    let seen: std::collections::BTreeSet<i32> = table().into_iter().map(|(evidence, _)| index(evidence)).collect();
    assert_eq!(seen, (0..22).collect());
}

#[test]
fn before_the_write_nothing_is_uncertain_and_after_it_only_a_refusal_is_a_failure() {
    let refusals = |evidence: Evidence| {
        matches!(evidence, Evidence::Rejected { .. } | Evidence::NoResponders | Evidence::PublishRefused | Evidence::MaximumPayload)
    };
    for (evidence, _) in table() {
        assert!(matches!(decide(Stage::BeforeWrite, evidence), Answer::KnownFailure { .. }), "{evidence:?}");
        for stage in [Stage::PartlyWritten, Stage::Written] {
            let is_failure = matches!(decide(stage, evidence), Answer::KnownFailure { .. });
            assert!(!is_failure || refusals(evidence), "{stage:?} {evidence:?}");
        }
    }
}

#[test]
fn a_connection_is_kept_only_after_a_whole_reply_to_this_publication() {
    for (evidence, _) in table() {
        for stage in STAGES {
            let is_kept = connection_after(stage, evidence) == Connection::Keep;
            let is_reply =
                matches!(evidence, Evidence::Stored { .. } | Evidence::Rejected { .. } | Evidence::NoResponders | Evidence::PublishRefused);
            let expected = stage == Stage::Written && is_reply || stage == Stage::BeforeWrite && evidence == Evidence::AboveServerMaximum;
            assert_eq!(is_kept, expected, "{stage:?} {evidence:?}");
        }
    }
}
