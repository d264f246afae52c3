use super::*;

fn uid() -> Uid {
    Uid::parse("u").unwrap()
}

#[test]
fn the_message_id_is_pinned() {
    let (tenant, topic) = (TenantId::parse("acme").unwrap(), LogicalTopic::parse("triage.results").unwrap());
    let id = message_id("edge", &tenant, &topic, "delivery-1");
    assert_eq!(id, "lsf-49706168b71b15ada4e29f126e6b9482d4210d4a265012e5d5b846dd439388f7");
}

#[test]
fn namespace_tenant_topic_and_key_never_share_a_message_id() {
    let id = |namespace: &str, tenant: &str, topic: &str, key: &str| {
        message_id(namespace, &TenantId::parse(tenant).unwrap(), &LogicalTopic::parse(topic).unwrap(), key)
    };
    let ids = [
        id("n", "a", "t", "k"),
        id("m", "a", "t", "k"),
        id("n", "b", "t", "k"),
        id("n", "a", "u", "k"),
        id("n", "a", "t", "l"),
        id("na", "a", "t", "k"),
    ];
    let different: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(different.len(), ids.len());
}

#[test]
fn every_answer_of_the_bus_has_its_outcome() {
    let kind = |error: BusError| match outcome_of(Err(error), uid(), UnixMillis(0), str::to_owned) {
        PublicationOutcome::Receipt(_) => "receipt",
        PublicationOutcome::KnownFailure(failure) => failure.kind(),
        PublicationOutcome::Uncertain(uncertain) => uncertain.cause.kind(),
    };
    let text = || "x".to_owned();
    let table = [
        (BusError::UnknownTopic { topic: text() }, "invalid-topic"),
        (BusError::Rejected { rule: text(), permanent: true }, "invalid-event"),
        (BusError::Rejected { rule: text(), permanent: false }, "unavailable"),
        (BusError::Conflict { topic: text(), uid: uid() }, "conflict"),
        (BusError::Config { problem: text() }, "unavailable"),
        (BusError::OutOfRange { what: text(), problem: text() }, "unavailable"),
        (BusError::NotSent { reason: text() }, "unavailable"),
        (BusError::Busy { limit: "x" }, "unavailable"),
        (BusError::Poisoned { log: text() }, "unavailable"),
        (BusError::InUse { directory: text(), holder: text() }, "unavailable"),
        (BusError::Timeout { operation: text() }, "unavailable"),
        (BusError::Serde { problem: text() }, "invalid-event"),
        (BusError::Uncertain { uid: uid(), cause: UncertainCause::Closed }, "closed"),
        (BusError::Io { operation: "write", file: text(), kind: std::io::ErrorKind::Other, reason: text() }, "storage"),
        (BusError::Unreadable { topic: text(), partition: 0, offset: 0 }, "storage"),
        (BusError::Backend(text()), "storage"),
    ];
    for (error, expected) in table {
        let shown = error.to_string();
        assert_eq!(kind(error), expected, "{shown}");
    }
}

#[test]
fn a_receipt_names_the_stream_that_the_engine_has_for_the_topic() {
    let ack = latent_bridge::PublishAck { topic: "a.b".to_owned(), partition: 1, offset: 7, uid: "u".to_owned(), duplicate: true };
    for (stream_of, stream) in
        [(str::to_owned as fn(&str) -> String, "a.b"), (|topic: &str| format!("av_{}", topic.replace('.', "_")), "av_a_b")]
    {
        let PublicationOutcome::Receipt(receipt) = outcome_of(Ok(ack.clone()), uid(), UnixMillis(3), stream_of) else {
            panic!("no receipt")
        };
        assert_eq!((&*receipt.stream, receipt.sequence, receipt.duplicate, receipt.accepted_at), (stream, 7, true, UnixMillis(3)));
    }
}
