use super::*;
use crate::testing::{INFO, PASSWORD, fresh, inbox, take};
use crate::{Answer, FailureCause, FailureKind, Stage, decide};

fn opened(link: &mut Link) -> (Handshake<'_>, String) {
    let mut handshake = Handshake::begin(link, PASSWORD);
    handshake.received(INFO);
    let written = String::from_utf8(take(&mut handshake)).unwrap();
    (handshake, written)
}

/// The outcome of a handshake whose peer says `info` first and `reply` once everything is written.
fn outcome(info: &[u8], reply: &[u8]) -> Result<(), HandshakeError> {
    let mut link = fresh();
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    handshake.received(info);
    take(&mut handshake);
    handshake.received(reply);
    take(&mut handshake);
    handshake.ended(Ended::PeerClosed);
    let outcome = handshake.finish();
    assert_eq!(link.is_reusable(), outcome.is_ok());
    outcome
}

#[test]
fn a_session_opens_with_connect_one_subscription_and_a_ping_that_is_answered() {
    let mut link = fresh();
    assert!(!link.is_reusable() && link.server().is_none());
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    assert_eq!((handshake.want(), handshake.outgoing().concat().len()), (Want::Read, 0));
    handshake.received(&INFO[..40]);
    assert_eq!(handshake.want(), Want::Read);
    handshake.received(&INFO[40..]);
    let written = String::from_utf8(take(&mut handshake)).unwrap();
    let (connect, rest) = written.split_once("\r\n").unwrap();
    assert!(connect.starts_with("CONNECT {\"verbose\":false,\"pedantic\":false,\"tls_required\":true,"), "{connect}");
    assert!(
        connect.ends_with(",\"protocol\":1,\"headers\":true,\"no_responders\":true,\"user\":\"publisher\",\"pass\":\"marker-secret\"}")
    );
    assert_eq!(rest, format!("SUB {}* 1\r\nPING\r\n", inbox(0).trim_end_matches('0')));
    assert_eq!(handshake.want(), Want::Read);
    handshake.received(b"PO");
    handshake.received(b"NG\r\n");
    assert_eq!((handshake.want(), handshake.finish()), (Want::Done, Ok(())));
    let server = link.server().unwrap();
    assert!(link.is_reusable() && server.max_payload_bytes == 1_048_576 && server.jetstream && server.auth_required);
}

#[test]
fn a_pong_counts_only_after_the_whole_ping() {
    let mut link = fresh();
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    handshake.received(INFO);
    handshake.offering();
    let bytes = handshake.outgoing().concat().len();
    handshake.wrote(bytes - 1);
    handshake.received(b"PONG\r\n");
    assert_eq!(handshake.finish(), Err(HandshakeError::UnexpectedFrame));
    assert_eq!(outcome(b"PONG\r\n", b""), Err(HandshakeError::UnexpectedFrame));
}

#[test]
fn each_end_has_its_error_and_none_is_uncertain() {
    use HandshakeError as E;
    let long = [b"INFO ", &*vec![b' '; 8_193], b"\r\n"].concat();
    let flood = b"PING\r\n".repeat(9);
    let table: [(&[u8], &[u8], HandshakeError); 24] = [
        (b"", b"", E::ConnectionLost),
        (&INFO[..20], b"", E::ConnectionLost),
        (INFO, b"", E::ConnectionLost),
        (&long, b"", E::LineTooLong),
        (b"nonsense\r\n", b"", E::Malformed),
        (b"INFO nonsense\r\n", b"", E::Info(InfoError::Malformed)),
        (b"INFO {\"max_payload\":9}\r\n", b"", E::Info(InfoError::NoHeaders)),
        (b"INFO {\"headers\":false,\"max_payload\":9}\r\n", b"", E::Info(InfoError::NoHeaders)),
        (b"INFO {\"headers\":true}\r\n", b"", E::Info(InfoError::NoMaxPayload)),
        (b"INFO {\"headers\":true,\"max_payload\":0}\r\n", b"", E::Info(InfoError::NoMaxPayload)),
        (b"PING\r\n", b"", E::UnexpectedFrame),
        (b"MSG a 1 0\r\n\r\n", b"", E::UnexpectedFrame),
        (b"-ERR 'Authentication Timeout'\r\n", b"", E::AuthenticationTimedOut),
        (INFO, b"-ERR 'Authorization Violation'\r\n", E::AuthenticationFailed),
        (INFO, b"-ERR 'Authentication Timeout'\r\n", E::AuthenticationTimedOut),
        (INFO, b"-ERR 'maximum connections exceeded'\r\n", E::ConnectionLimit),
        (INFO, b"-ERR 'maximum account active connections exceeded'\r\n", E::ConnectionLimit),
        (INFO, b"-ERR 'Permissions Violation for Subscription to \"_INBOX.LSF.x\"'\r\n", E::SubscriptionRefused),
        (INFO, b"-ERR 'Permissions Violation for Publish to \"orders.new\"'\r\n", E::BrokerError),
        (INFO, b"-ERR\r\n", E::BrokerError),
        (INFO, b"MSG _INBOX.LSF.x 1 0\r\n\r\n", E::UnexpectedFrame),
        (INFO, b"MSG a 1 5000\r\n", E::UnexpectedFrame),
        (INFO, &flood, E::ControlFlood),
        (INFO, b"INFO {}\r\n", E::Info(InfoError::NoMaxPayload)),
    ];
    for (info, reply, expected) in table {
        assert_eq!(outcome(info, reply), Err(expected), "{} / {}", String::from_utf8_lossy(info), String::from_utf8_lossy(reply));
        let Answer::KnownFailure { kind, .. } = decide(Stage::BeforeWrite, expected.evidence()) else { panic!("{expected:?}") };
        assert_eq!(kind, FailureKind::Unavailable, "{expected:?}");
    }
    for (how, error, kind) in [
        (Ended::DeadlineExceeded, E::DeadlineExceeded, FailureKind::DeadlineExceeded),
        (Ended::Cancelled, E::Cancelled, FailureKind::Cancelled),
        (Ended::TransportFailed, E::ConnectionLost, FailureKind::Unavailable),
    ] {
        let mut link = fresh();
        let (mut handshake, _) = opened(&mut link);
        handshake.ended(how);
        assert_eq!(handshake.finish(), Err(error));
        assert!(matches!(decide(Stage::BeforeWrite, error.evidence()), Answer::KnownFailure { kind: found, .. } if found == kind));
    }
}

#[test]
fn a_refused_credential_is_told_apart() {
    let answer = decide(Stage::BeforeWrite, HandshakeError::AuthenticationFailed.evidence());
    assert_eq!(answer, Answer::KnownFailure { kind: FailureKind::Unavailable, cause: FailureCause::AuthenticationFailed });
}

#[test]
fn control_frames_are_answered_up_to_their_bound() {
    let mut link = fresh();
    let (mut handshake, _) = opened(&mut link);
    handshake.received(&[b"PING\r\n".repeat(6), INFO.to_vec(), b"+OK\r\nPONG\r\n".to_vec()].concat());
    assert_eq!(take(&mut handshake), b"PONG\r\n".repeat(6));
    assert_eq!(handshake.finish(), Ok(()));
}

#[test]
fn the_secret_is_gone_once_it_is_written_and_is_never_shown() {
    let mut link = fresh();
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    assert!(!handshake.opening.is_empty());
    handshake.received(INFO);
    let shown = format!("{handshake:?} {PASSWORD:?} {:?}", Credential::Token(b"marker-token"));
    take(&mut handshake);
    assert!(handshake.opening.is_empty());
    let shown = format!("{shown} {handshake:?}");
    assert!(!shown.contains("marker") && !shown.contains("publisher"), "{shown}");
    drop(handshake);
    assert!(!link.is_reusable());
    // A failure wipes it, too.
    let mut link = fresh();
    let mut handshake = Handshake::begin(&mut link, PASSWORD);
    handshake.ended(Ended::Cancelled);
    assert!(handshake.opening.is_empty() && handshake.outgoing().concat().is_empty());
}

#[test]
fn a_secret_is_taken_at_its_bound_and_refused_one_beyond() {
    let begin = |secret: &[u8]| {
        let mut link = fresh();
        let tokens = Handshake::begin(&mut link, Credential::Token(secret)).outcome;
        let mut link = fresh();
        assert_eq!(Handshake::begin(&mut link, Credential::Password { user: "u", password: secret }).outcome, tokens);
        tokens
    };
    let too_long = |bytes| Some(Err(HandshakeError::Credential(CredentialError::SecretBytes { bytes, bytes_max: 4_096 })));
    assert_eq!((begin(&[b'x'; 4_096]), begin(&[0; 4_096])), (None, None));
    assert_eq!((begin(&[b'x'; 4_097]), begin(b"")), (too_long(4_097), too_long(0)));
    assert_eq!(begin(b"\xff"), Some(Err(HandshakeError::Credential(CredentialError::NotText))));
    let mut link = fresh();
    let mut handshake = Handshake::begin(&mut link, Credential::Token(&[b'x'; 4_097]));
    handshake.received(INFO);
    assert!(handshake.want() == Want::Done && handshake.outgoing().concat().is_empty());
}

#[test]
fn a_link_has_one_handshake() {
    let mut link = crate::testing::established();
    assert_eq!(Handshake::begin(&mut link, PASSWORD).finish(), Err(HandshakeError::NotFresh));
    assert!(!link.is_reusable());
}
