//! The real broker behind a proxy that keeps back, cuts and stalls. What the stream then holds decides what was right to say.

use std::sync::Arc;
use std::time::Duration;

use latent_capabilities::ProviderOutcome;
use latent_core::{KnownFailure, PublicationOutcome, UncertainCause};
use latent_secrets::SecretName;
use latent_testkit::broker::Broker;
use latent_testkit::proxy::{At, Direction, Fault, FaultProxy};
use latent_testkit::{StandingTime, require_broker};
use tokio::task::JoinHandle;

use crate::bench::{Bench, STREAM, Setup, event, failure, password, receipt, spec, uncertain};

/// The beginning of every answer to a publication.
const ANSWER: &[u8] = b"MSG _INBOX.LSF.";
/// More than the operation's time, which is virtual in the tests that let it pass.
const BEYOND_THE_DEADLINE: Duration = Duration::from_millis(5_001);

/// A broker, the proxy before it, and a publisher that knows only the proxy.
fn behind_proxy() -> (Arc<Bench>, FaultProxy) {
    let broker = Broker::start(spec());
    let proxy = FaultProxy::start(&broker);
    let bench = Bench::on(broker, Setup { address: Some(proxy.address()), ..Setup::default() });
    (Arc::new(bench), proxy)
}

fn begin(bench: &Arc<Bench>, tenant: &'static str, key: &'static str) -> JoinHandle<PublicationOutcome> {
    let bench = Arc::clone(bench);
    tokio::spawn(async move { bench.publish(tenant, key).await })
}

/// Publications that reached the broker, on all connections.
fn publications(proxy: &FaultProxy) -> usize {
    let count = |text: Vec<u8>| text.windows(5).filter(|window| *window == b"HPUB ").count();
    (0..proxy.connections()).map(|connection| count(proxy.transcript_of(connection, Direction::ToBroker))).sum()
}

fn last_record(bench: &Bench) -> (ProviderOutcome, Option<&'static str>) {
    let record = bench.audit.records().pop().unwrap();
    (record.observed, record.told)
}

/// P-054, X-047, BUG-01, BUG-15.
#[tokio::test(start_paused = true)]
async fn a_withheld_acknowledgement_is_uncertain_and_an_explicit_retry_finds_the_first_message() {
    require_broker!();
    let _standing = StandingTime::hold();
    let (bench, proxy) = behind_proxy();
    receipt(bench.publish("shop", "k-0").await);
    let withheld = proxy.withhold_from(Direction::ToClient, ANSWER);
    let call = begin(&bench, "shop", "k-1");
    withheld.reached().await;
    tokio::time::advance(BEYOND_THE_DEADLINE).await;
    let hidden = uncertain(call.await.unwrap());
    assert_eq!(hidden.cause, UncertainCause::Deadline);
    assert_eq!(last_record(&bench), (ProviderOutcome::Unknown { cause: "deadline" }, Some("uncertain")));
    proxy.until_open(0).await;
    proxy.release();
    let admin = bench.broker.admin().await;
    let stored = admin.messages(STREAM).await;
    assert_eq!((stored.len(), publications(&proxy)), (2, 2), "stored once, and sent once");
    assert_eq!(stored[1].header("Nats-Msg-Id"), hidden.uid.as_ref().map(latent_core::Uid::as_str), "to be looked up by");

    let retried = receipt(bench.publish("shop", "k-1").await);
    assert_eq!((retried.sequence, retried.duplicate), (2, true), "the original one");
    assert_eq!((admin.count(STREAM).await, publications(&proxy)), (2, 3));
    let snapshot = bench.publisher.snapshot();
    assert_eq!((snapshot.attempts, snapshot.acknowledged, snapshot.duplicates, snapshot.uncertain, snapshot.failures), (3, 2, 1, 1, 0));
}

/// P-052: what the network still has may arrive after the answer was given up. Uncertain was right, and the retry doubles nothing.
#[tokio::test(start_paused = true)]
async fn a_publication_that_arrives_late_is_stored_once_with_its_retry() {
    require_broker!();
    let _standing = StandingTime::hold();
    let (bench, proxy) = behind_proxy();
    receipt(bench.publish("shop", "k-0").await);
    let stalled = proxy.inject(None, Direction::ToBroker, At::After(b"NATS/1.0\r\n".to_vec()), Fault::Stall);
    let call = begin(&bench, "shop", "k-1");
    stalled.reached().await;
    tokio::time::advance(BEYOND_THE_DEADLINE).await;
    assert_eq!(uncertain(call.await.unwrap()).cause, UncertainCause::Deadline);
    proxy.until_open(0).await;
    let admin = bench.broker.admin().await;
    assert_eq!(admin.count(STREAM).await, 1, "not stored yet");
    proxy.release();
    latent_testkit::wait_until("the rest arrives", || proxy.held(Direction::ToBroker) == 0);
    assert_eq!(receipt(bench.publish("shop", "k-1").await).sequence, 2);
    assert_eq!(admin.count(STREAM).await, 2);
}

/// P-052: the other side of uncertain. The broker never gets all of it, so the retry is the first one.
#[tokio::test]
async fn a_publication_cut_on_its_way_is_uncertain_and_its_retry_is_the_first_to_be_stored() {
    require_broker!();
    let (bench, proxy) = behind_proxy();
    receipt(bench.publish("shop", "k-0").await);
    proxy.inject(None, Direction::ToBroker, At::After(b"NATS/1.0\r\n".to_vec()), Fault::Cut);
    assert_eq!(uncertain(bench.publish("shop", "k-1").await).cause, UncertainCause::Closed);
    let retried = receipt(bench.publish("shop", "k-1").await);
    assert_eq!((retried.sequence, retried.duplicate), (2, false));
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 2);
}

/// P-055, X-027: the socket is closed and every charge is back; what was stored stays.
#[tokio::test]
async fn a_publication_cancelled_after_the_write_is_stored_and_leaves_nothing_behind_here() {
    require_broker!();
    let (bench, proxy) = behind_proxy();
    let withheld = proxy.withhold_from(Direction::ToClient, ANSWER);
    let call = begin(&bench, "shop", "k-1");
    withheld.reached().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let (own, all) = (bench.publisher.snapshot(), bench.pools.pools.snapshot());
    assert_eq!((own.running, own.connections, own.uncertain, all.running, all.connections, all.bytes), (0, 0, 1, 0, 0, 0));
    assert_eq!(last_record(&bench), (ProviderOutcome::Unknown { cause: "cancelled" }, None));
    proxy.until_open(0).await;
    proxy.release();
    let admin = bench.broker.admin().await;
    assert_eq!(admin.count(STREAM).await, 1);
    assert!(receipt(bench.publish("shop", "k-1").await).duplicate);
}

/// what has started keeps its answer; what comes next begins with what is current.
#[tokio::test]
async fn a_credential_rotated_after_the_write_takes_no_receipt_away() {
    require_broker!();
    let (bench, proxy) = behind_proxy();
    let withheld = proxy.withhold_from(Direction::ToClient, ANSWER);
    let call = begin(&bench, "shop", "k-1");
    withheld.reached().await;
    bench
        .secrets
        .rotate(&SecretName::parse("shop").unwrap(), password("shop").as_bytes(), None, latent_core::Clock::unix(&*bench.clock))
        .unwrap();
    proxy.release();
    assert_eq!(receipt(call.await.unwrap()).sequence, 1);
    assert_eq!(receipt(bench.publish("shop", "k-2").await).sequence, 2);
    assert_eq!((proxy.connections(), bench.publisher.snapshot().connected), (2, 2));
}

/// what has started ends under the plan and the epoch it started with; what comes next does not.
#[tokio::test]
async fn an_epoch_replaced_after_the_write_takes_no_receipt_away() {
    require_broker!();
    let (bench, proxy) = behind_proxy();
    let withheld = proxy.withhold_from(Direction::ToClient, ANSWER);
    let call = begin(&bench, "shop", "k-1");
    withheld.reached().await;
    let second = bench.install(2, Some(1)).unwrap();
    assert!(matches!(failure(bench.publish("shop", "k-2").await), KnownFailure::Unavailable { .. }));
    bench.grant_through(&second, &["out"]);
    assert!(!call.is_finished());
    proxy.release();
    assert_eq!(receipt(call.await.unwrap()).sequence, 1);
    let first = bench.publisher.snapshot();
    assert_eq!((first.running, first.connections, first.acknowledged), (0, 0, 1), "and its connection is not kept");
    assert_eq!(receipt(bench.publish("shop", "k-2").await).sequence, 2);
}

/// the provider saw the acknowledgement, and the guest was interrupted before it was told.
#[tokio::test]
async fn an_acknowledgement_is_in_the_audit_although_the_caller_was_interrupted() {
    require_broker!();
    let (bench, proxy) = behind_proxy();
    let withheld = proxy.withhold_from(Direction::ToClient, ANSWER);
    let session = bench.session("shop", 10_000);
    let call = tokio::spawn(async move { session.publish(event("k-1")).await });
    withheld.reached().await;
    proxy.release();
    drop(call.await.unwrap());
    assert_eq!(last_record(&bench), (ProviderOutcome::Acknowledged { duplicate: false }, None));
    assert_eq!(bench.publisher.snapshot().acknowledged, 1);
}

/// P-002: this runtime has one thread, and while one answer is kept back another publication gets its own.
#[tokio::test(flavor = "current_thread")]
async fn another_publication_gets_on_while_an_answer_is_awaited() {
    require_broker!();
    let (bench, proxy) = behind_proxy();
    let withheld = proxy.withhold_from(Direction::ToClient, ANSWER);
    let waiting = begin(&bench, "shop", "k-1");
    withheld.reached().await;
    for key in ["k-1", "k-2", "k-3"] {
        receipt(bench.publish("bank", key).await);
    }
    // Of the same tenant too, on another connection.
    receipt(bench.publish("shop", "k-2").await);
    assert!(!waiting.is_finished());
    proxy.release();
    receipt(waiting.await.unwrap());
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 5);
}

/// X-024, P-060: an outage between two calls and one within a call.
#[tokio::test]
async fn a_broker_that_dies_within_a_call_leaves_it_uncertain_and_the_next_one_unavailable() {
    require_broker!();
    let (bench, proxy) = behind_proxy();
    receipt(bench.publish("shop", "k-0").await);
    let withheld = proxy.withhold_from(Direction::ToClient, ANSWER);
    let call = begin(&bench, "shop", "k-1");
    withheld.reached().await;
    bench.broker.kill();
    // The answer that the proxy holds does not come any more.
    proxy.inject(Some(0), Direction::ToBroker, At::Byte(proxy.bytes_of(0, Direction::ToBroker)), Fault::Cut).reached().await;
    assert_eq!(uncertain(call.await.unwrap()).cause, UncertainCause::Closed);
    proxy.release();
    assert!(matches!(failure(bench.publish("shop", "k-2").await), KnownFailure::Unavailable { .. }));
    bench.broker.restart();
    assert_eq!(bench.until_receipt("shop", "k-1").await.sequence, 1, "the memory of ids went with the stream (P-040)");
}
