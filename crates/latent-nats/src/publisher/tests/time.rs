//! The one deadline of an operation, its cancellation, and who owns what afterwards. Time is virtual: it moves only here.

use latent_capabilities::limits::{CALL_SCRATCH_BYTES, CONNECTION_BYTES, POOL_CALLS_RUNNING};
use latent_capabilities::{PoolSettings, ProviderOutcome};
use latent_core::{KnownFailure, PublicationOutcome, UncertainCause};
use latent_nats_proto::limits::CONTROL_FRAMES;
use latent_testkit::StandingTime;
use latent_testkit::broker::{SERVER_NAME, TestCa};
use latent_testkit::fake_peer::{FakePeer, INFO, Step};
use latent_testkit::proxy::{At, Direction, Fault, FaultProxy};
use tokio::task::JoinHandle;

use super::bench::{Bench, PAYLOAD_END, STORED, Setup, TIMEOUT_MILLIS, advance, event, failure, receipt, serve, serve_each, uncertain};

fn one_at_a_time() -> PoolSettings {
    PoolSettings::default().set(&POOL_CALLS_RUNNING, 1).unwrap()
}

/// What a publication came to whose time is over now. One that has begun its time anew fails the test instead of hanging it.
async fn ended(call: JoinHandle<PublicationOutcome>) -> PublicationOutcome {
    for _ in 0..100_000 {
        if call.is_finished() {
            return call.await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    panic!("its deadline has passed, and it goes on");
}

/// X-025, BUG-02: queue, TLS, INFO, session and answer take their time one after the other, out of one deadline.
#[tokio::test(start_paused = true)]
async fn one_deadline_spans_queue_connect_session_and_answer() {
    let _standing = StandingTime::hold();
    let held = serve([Step::Gate, Step::reply_message(STORED), Step::Hold]);
    let staged = [Step::Gate, Step::send(INFO), Step::ExpectUntil(b"PING\r\n".to_vec()), Step::Gate, Step::send("PONG\r\n")];
    let staged = staged.into_iter().chain([Step::ServeUntil(PAYLOAD_END.to_vec()), Step::Gate, Step::reply_message(STORED)]);
    let ca = TestCa::new();
    let peer = FakePeer::start(&ca.issue(SERVER_NAME), vec![held, staged.collect()]);
    let proxy = FaultProxy::start_raw_before(peer.address());
    let setup = Setup { settings: one_at_a_time(), address: Some(proxy.address()), ..Setup::default() };
    let bench = Bench::before(peer, &ca.root_der(), setup);

    let first = bench.begin("shop");
    bench.peer.until_received(0, PAYLOAD_END).await;
    let tls = proxy.inject(Some(1), Direction::ToClient, At::Byte(0), Fault::Stall);
    let second = bench.begin("bank");
    bench.until(|snapshot| snapshot.queued == 1).await;
    let stage = TIMEOUT_MILLIS / 5;

    advance(stage).await;
    bench.peer.open_gate();
    receipt(first.await.unwrap());
    // Out of the queue and into TLS, which does not get on.
    tls.reached().await;
    advance(stage).await;
    proxy.release();
    bench.peer.until_accepted(2).await;
    advance(stage).await;
    bench.peer.open_gate();
    bench.peer.until_received(1, b"PING\r\n").await;
    advance(stage).await;
    bench.peer.open_gate();
    bench.peer.until_received(1, PAYLOAD_END).await;
    advance(stage - 10).await;
    assert!(!second.is_finished());
    advance(20).await;
    assert_eq!(uncertain(ended(second).await), UncertainCause::Deadline);
    bench.peer.until_client_ended(1).await;
    assert_eq!(bench.publications(), 2);
}

/// X-025, P-048, BUG-02: a peer that stops at any stage before the write. The deadline is the cause, and it is the original one.
#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_before_the_write_ends_at_the_deadline_which_is_the_cause() {
    let _standing = StandingTime::hold();
    let ca = TestCa::new();
    let tls = |script: Vec<Step>| FakePeer::start(&ca.issue(SERVER_NAME), vec![script]);
    let dribbled = INFO.bytes().take(50).flat_map(|byte| [Step::Gate, Step::Send(vec![byte])]).chain([Step::Hold]);
    let peers = [
        ("no TLS", FakePeer::start_cleartext("")),
        ("no INFO", tls(vec![Step::Hold])),
        ("no PONG", tls(vec![Step::send(INFO), Step::Hold])),
        ("INFO byte by byte", tls(dribbled.collect())),
    ];
    for (stage, peer) in peers {
        let bench = Bench::before(peer, &ca.root_der(), Setup { settings: one_at_a_time(), ..Setup::default() });
        let running = bench.begin("shop");
        bench.peer.until_accepted(1).await;
        let waiting = bench.begin("bank");
        bench.until(|snapshot| snapshot.queued == 1).await;
        for _ in 0..29 {
            bench.peer.open_gate();
            advance(TIMEOUT_MILLIS / 30).await;
        }
        assert!(!running.is_finished() && !waiting.is_finished(), "{stage}");
        advance(TIMEOUT_MILLIS / 30 + 1).await;
        assert_eq!(failure(ended(running).await), KnownFailure::DeadlineExceeded, "{stage}");
        // The one that waited had the same time from the same moment on.
        assert_eq!(failure(ended(waiting).await), KnownFailure::DeadlineExceeded, "{stage}");
        bench.peer.until_client_ended(0).await;
        bench.assert_nothing_is_held();
        assert_eq!(bench.publications(), 0);
    }
}

/// P-052, P-054, BUG-01: every way to keep the answer back until the deadline. Exactly one publication is on the wire.
#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_in_time_is_uncertain_whatever_else_comes() {
    let _standing = StandingTime::hold();
    let half = Step::reply(|received| latent_testkit::fake_peer::message_for(received, STORED.as_bytes())[..30].to_vec());
    let pings = "PING\r\n".repeat(CONTROL_FRAMES.max_usize());
    let kept_back = [
        ("silence", vec![]),
        ("half an answer", vec![half]),
        ("PINGs", vec![Step::send(pings), Step::ExpectUntil(b"PONG\r\n".repeat(CONTROL_FRAMES.max_usize()))]),
        ("INFO", vec![Step::send(INFO)]),
    ];
    for (how, steps) in kept_back {
        let bench = Bench::start(vec![serve(steps.into_iter().chain([Step::Hold]))]);
        let call = bench.begin("shop");
        bench.peer.until_received(0, PAYLOAD_END).await;
        advance(TIMEOUT_MILLIS - 10).await;
        assert!(!call.is_finished(), "{how}");
        advance(20).await;
        assert_eq!(uncertain(ended(call).await), UncertainCause::Deadline, "{how}");
        bench.peer.until_client_ended(0).await;
        bench.assert_nothing_is_held();
        assert_eq!((bench.peer.accepted(), bench.publications()), (1, 1), "{how}");
        let record = bench.audit.records().pop().unwrap();
        assert_eq!((record.observed, record.told), (ProviderOutcome::Unknown { cause: "deadline" }, Some("uncertain")));
    }
}

/// P-028: whichever is nearer, the operation's time or the activation's.
#[tokio::test(start_paused = true)]
async fn the_nearer_deadline_wins() {
    let _standing = StandingTime::hold();
    for (activation, ends_at) in [(500, 500), (TIMEOUT_MILLIS, TIMEOUT_MILLIS), (60_000, TIMEOUT_MILLIS)] {
        let bench = Bench::start(vec![serve([Step::Hold])]);
        let session = bench.session("shop", activation);
        let call = tokio::spawn(async move { session.publish(event()).await.tell() });
        bench.peer.until_received(0, PAYLOAD_END).await;
        advance(ends_at - 10).await;
        assert!(!call.is_finished(), "{activation}");
        advance(20).await;
        assert_eq!(uncertain(ended(call).await), UncertainCause::Deadline, "{activation}");
    }
}

/// P-055, BUG-29: given up at every stage, the socket is closed and every charge is back. The next call is clean.
#[tokio::test]
async fn a_publication_that_is_dropped_closes_its_socket_and_gives_back_everything() {
    let stages = [
        ("connecting", vec![Step::Hold], None),
        ("half an INFO", vec![Step::send(&INFO[..30]), Step::Hold], None),
        ("opening the session", vec![Step::send(INFO), Step::Hold], Some(&b"PING\r\n"[..])),
        ("awaiting the answer", serve([Step::Hold]), Some(PAYLOAD_END)),
        ("within the answer", serve([Step::send("MSG _INBOX."), Step::Hold]), Some(PAYLOAD_END)),
    ];
    for (stage, script, reached) in stages {
        let bench = Bench::start(vec![script, serve_each([Step::reply_message(STORED)])]);
        let call = bench.begin("shop");
        bench.peer.until_accepted(1).await;
        if let Some(bytes) = reached {
            bench.peer.until_received(0, bytes).await;
        }
        let charged = bench.pools.pools.snapshot();
        assert_eq!((charged.running, charged.connections), (1, 1), "{stage}");
        assert!(charged.bytes >= CONNECTION_BYTES.default + CALL_SCRATCH_BYTES.default, "{stage}: {charged:?}");
        Bench::give_up(call).await;
        bench.assert_nothing_is_held();
        bench.peer.until_client_ended(0).await;
        let is_written = reached == Some(PAYLOAD_END);
        let snapshot = bench.publisher.snapshot();
        assert_eq!((snapshot.uncertain, snapshot.failures), (u64::from(is_written), u64::from(!is_written)), "{stage}");
        let record = bench.audit.records().pop().unwrap();
        let cancelled = ProviderOutcome::NotStarted { reason: "cancelled" };
        let expected = if is_written { ProviderOutcome::Unknown { cause: "cancelled" } } else { cancelled };
        assert_eq!((record.observed, record.told), (expected, None), "{stage}");
        receipt(bench.publish().await);
        assert_eq!(bench.count(1, b"HPUB "), 1, "{stage}");
    }
}

/// P-057, BUG-29: in the queue there is nothing of it but its place.
#[tokio::test]
async fn a_publication_that_is_dropped_in_the_queue_writes_nothing_and_leaves_no_charge() {
    let script = serve([Step::Gate, Step::reply_message(STORED), Step::Hold]);
    let bench = Bench::start_with(vec![script], Setup { settings: one_at_a_time(), ..Setup::default() });
    let first = bench.begin("shop");
    bench.peer.until_received(0, PAYLOAD_END).await;
    let before = bench.pools.pools.snapshot();
    let waiting = bench.begin("bank");
    bench.until(|snapshot| snapshot.queued == 1).await;
    assert!(bench.pools.pools.snapshot().bytes > before.bytes);
    Bench::give_up(waiting).await;
    assert_eq!(bench.pools.pools.snapshot(), before);
    let record = bench.audit.records().pop().unwrap();
    assert_eq!((record.observed, record.told), (ProviderOutcome::NotStarted { reason: "cancelled" }, None));
    bench.peer.open_gate();
    receipt(first.await.unwrap());
    assert_eq!((bench.peer.accepted(), bench.publications()), (1, 1));
}
