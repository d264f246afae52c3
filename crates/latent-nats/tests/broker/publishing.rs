//! What reaches the stream, and what comes back.

use latent_testkit::require_broker;

use crate::bench::{Bench, STREAM, Setup, event, receipt};

#[tokio::test]
async fn a_publication_is_stored_as_specified_and_answered_by_its_receipt() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let first = receipt(bench.publish("shop", "k-1").await);
    assert_eq!((first.stream.as_str(), first.sequence, first.duplicate), (STREAM, 1, false));
    let again = receipt(bench.publish("shop", "k-1").await);
    assert_eq!((again.sequence, again.duplicate), (1, true));
    let stored = bench.broker.admin().await.messages(STREAM).await;
    assert_eq!(stored.len(), 1);
    let message = &stored[0];
    assert_eq!((message.subject.as_str(), &message.payload[..]), ("shop.out", &event("k-1").payload[..]));
    let header = |name| message.header(name).unwrap_or_default().to_owned();
    assert_eq!(header("Nats-Expected-Stream"), STREAM);
    assert_eq!(header("Content-Type"), "application/json");
    assert_eq!(header("Lsf-Event-Key"), "customer-7");
    assert_eq!(header("Lsf-Attr-Trace"), "t-1");
    assert_eq!(header("Nats-Msg-Id").len(), 68);
    assert_eq!(bench.publisher.snapshot().connected, 1, "both went over one connection");
}
