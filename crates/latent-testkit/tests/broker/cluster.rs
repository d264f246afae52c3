//! Three brokers that keep a stream together, and lose its leader.

use latent_testkit::broker::{BrokerSpec, Cluster};
use latent_testkit::{require_broker, until_some};

/// Publishes until the cluster acknowledges: while it elects, nobody answers.
async fn publish(cluster: &Cluster, by: usize, id: &str) -> u64 {
    let admin = cluster.members()[by].admin().await;
    until_some("the stream acknowledges", async || {
        let headers = async_nats::HeaderMap::from_iter([("Nats-Msg-Id".parse().unwrap(), id.into())]);
        let publication = admin.jetstream().publish_with_headers("orders.new", headers, "x".into()).await.ok()?;
        Some(publication.await.ok()?.sequence)
    })
    .await
}

#[tokio::test]
async fn a_stream_of_three_survives_the_kill_of_its_leader_which_comes_back_with_what_it_stored() {
    require_broker!();
    let cluster = Cluster::start(&BrokerSpec::default().disk(16 << 20));
    let config = async_nats::jetstream::stream::Config {
        name: "ORD".into(),
        subjects: vec!["orders.>".into()],
        num_replicas: 3,
        ..Default::default()
    };
    cluster.members()[0].admin().await.jetstream().create_stream(config).await.unwrap();
    let leader = cluster.leader_of("ORD");
    assert_eq!(publish(&cluster, leader, "a").await, 1);
    cluster.kill(leader);
    let next = cluster.leader_of("ORD");
    assert_ne!(next, leader);
    assert_eq!(publish(&cluster, next, "a").await, 1, "the id is known to the others");
    assert_eq!(publish(&cluster, next, "b").await, 2);
    cluster.restart(leader);
    assert_eq!(cluster.members()[leader].admin().await.count("ORD").await, 2);
}
