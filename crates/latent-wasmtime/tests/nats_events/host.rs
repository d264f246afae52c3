//! One engine with the guest `behave`, run in sessions of a provider that publishes to the broker.

use std::sync::LazyLock;

use bytes::Bytes;
use latent_capabilities::Session;
use latent_core::{ActivationOutcome, Attributes, Budget, DeliveredEvent, MediaType, Offset, Partition, TopicName, TraceId, UnixMillis};
use latent_test_guests::BEHAVE;
use latent_wasmtime::{ActivationReport, EngineOptions, HandlerCall, PreparedComponent, WasmEngine};

static SHARED: LazyLock<(WasmEngine, PreparedComponent)> = LazyLock::new(|| {
    let engine = WasmEngine::new(EngineOptions { cells: 64, ..EngineOptions::default() }).unwrap();
    let behave = engine.prepare(BEHAVE.component).unwrap();
    (engine, behave)
});

pub(crate) fn budget() -> Budget {
    Budget { wall_time_millis: 30_000, outbound_requests: 16, ..Budget::default() }
}

/// One activation of the guest on an event with this payload.
pub(crate) fn run(session: Session, budget: Budget, payload: &str) -> impl Future<Output = ActivationReport> + Send + use<> {
    let (engine, behave) = &*SHARED;
    let event = DeliveredEvent {
        topic: TopicName::parse("in").unwrap(),
        partition: Partition(0),
        offset: Offset(0),
        uid: None,
        key: String::new(),
        media_type: MediaType::octet_stream(),
        attributes: Attributes::default(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        delivery: 1,
        stored_at: UnixMillis(1_000),
    };
    engine.run_handler(behave, HandlerCall { event, session, budget, trace: TraceId::from_random([0xab; 16]) })
}

/// What the guest saw: the reason with which it rejects.
pub(crate) async fn seen(session: Session, payload: &str) -> String {
    match run(session, budget(), payload).await.outcome {
        ActivationOutcome::Rejected { reason } => reason,
        other => panic!("{payload} ended as {other:?}"),
    }
}
