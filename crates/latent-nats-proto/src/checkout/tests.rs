use super::*;
use crate::testing::{INFO, established, fresh, inbox, message_with_headers, take};

/// The outcome of a check on a link where `waiting` was read with the last exchange, whose peer then says `reply`, and what was written.
fn check(waiting: &[u8], reply: &[u8]) -> (Result<(), CheckoutError>, String) {
    let mut link = established();
    link.decoder.fill(waiting);
    let mut checkout = Checkout::begin(&mut link);
    let mut written = take(&mut checkout);
    checkout.received(reply);
    written.extend(take(&mut checkout));
    checkout.ended(Ended::PeerClosed);
    let outcome = checkout.finish();
    assert_eq!(link.is_reusable(), outcome.is_ok());
    (outcome, String::from_utf8(written).unwrap())
}

fn good(written: &str) -> (Result<(), CheckoutError>, String) {
    (Ok(()), written.to_owned())
}

#[test]
fn what_waits_is_dealt_with_and_the_ping_is_answered() {
    let (ping, pong) = ("PING\r\n", "PONG\r\n");
    assert_eq!(check(b"", b"PONG\r\n"), good(ping));
    assert_eq!(check(b"PING\r\n", b"PONG\r\n"), good(&format!("{pong}{ping}")));
    assert_eq!(check(b"", b"PING\r\n+OK\r\nPONG\r\n"), good(&format!("{ping}{pong}")));
    let eight = [INFO.repeat(4), b"PING\r\n".repeat(4)].concat();
    assert_eq!(check(&eight, b"PONG\r\n"), good(&format!("{}{ping}", pong.repeat(4))));
    assert_eq!(check(b"", &[&*eight, b"PONG\r\n"].concat()), good(&format!("{ping}{}", pong.repeat(4))));
}

#[test]
fn anything_else_destroys_the_connection() {
    use CheckoutError as E;
    let message = format!("MSG {} 1 0\r\n\r\n", inbox(1)).into_bytes();
    let status = message_with_headers(1, "NATS/1.0 409 Batch Completed\r\n\r\n", "");
    let nine = b"PING\r\n".repeat(9);
    let table: [(&[u8], &[u8], CheckoutError); 14] = [
        (&nine, b"PONG\r\n", E::ControlFlood),
        (b"PING\r\n", &nine[..48], E::ControlFlood),
        (b"", b"", E::ConnectionLost),
        (b"", b"PON", E::ConnectionLost),
        (b"PONG\r\n", b"PONG\r\n", E::UnexpectedFrame),
        (b"", &message, E::UnexpectedFrame),
        (&message, b"PONG\r\n", E::UnexpectedFrame),
        (b"", &status, E::UnexpectedFrame),
        (b"", b"-ERR 'User Authentication Expired'\r\n", E::AuthenticationFailed),
        (b"", b"-ERR 'Stale Connection'\r\n", E::BrokerError),
        (b"", b"nonsense\r\n", E::Malformed),
        (b"", b"INFO {}\r\n", E::Malformed),
        (b"PIN", b"PONG\r\n", E::Malformed),
        (b"", b"MSG a 1 5000\r\n", E::Malformed),
    ];
    for (waiting, reply, expected) in table {
        let (outcome, _) = check(waiting, reply);
        assert_eq!(outcome, Err(expected), "{} / {}", String::from_utf8_lossy(waiting), String::from_utf8_lossy(reply));
    }
}

#[test]
fn a_pong_counts_only_after_the_whole_ping() {
    let mut link = established();
    let mut checkout = Checkout::begin(&mut link);
    checkout.offering();
    checkout.wrote(5);
    checkout.received(b"PONG\r\n");
    assert_eq!(checkout.finish(), Err(CheckoutError::UnexpectedFrame));
}

#[test]
fn exactly_one_late_status_of_a_pull_is_taken_where_one_may_arrive() {
    let status = message_with_headers(1, "NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 1\r\n\r\n", "");
    let pong = b"PONG\r\n".to_vec();
    let with_body = message_with_headers(1, "NATS/1.0 409\r\n\r\n", "x");
    let run = |frames: &[&[u8]]| {
        let mut link = established();
        link.late_status_may_arrive = true;
        let mut checkout = Checkout::begin(&mut link);
        take(&mut checkout);
        checkout.received(&frames.concat());
        (checkout.finish(), link.late_status_may_arrive)
    };
    assert_eq!(run(&[&pong]), (Ok(()), true));
    assert_eq!(run(&[&status, &pong]), (Ok(()), false));
    assert_eq!(run(&[&status, &status, &pong]), (Err(CheckoutError::UnexpectedFrame), false));
    assert_eq!(run(&[&with_body, &pong]), (Err(CheckoutError::UnexpectedFrame), true));
}

#[test]
fn each_end_from_outside_has_its_error() {
    let table = [
        (Ended::PeerClosed, CheckoutError::ConnectionLost, true),
        (Ended::TransportFailed, CheckoutError::ConnectionLost, true),
        (Ended::DeadlineExceeded, CheckoutError::DeadlineExceeded, false),
        (Ended::Cancelled, CheckoutError::Cancelled, false),
    ];
    for (how, expected, allows_redial) in table {
        let mut link = established();
        let mut checkout = Checkout::begin(&mut link);
        checkout.ended(how);
        assert_eq!((checkout.want(), checkout.finish()), (Want::Done, Err(expected)));
        assert_eq!(expected.allows_redial(), allows_redial);
        let answer = crate::decide(crate::Stage::BeforeWrite, expected.evidence());
        assert!(matches!(answer, crate::Answer::KnownFailure { .. }));
    }
    assert!(!CheckoutError::AuthenticationFailed.allows_redial());
    assert_eq!(Checkout::begin(&mut fresh()).finish(), Err(CheckoutError::NotReusable));
}
