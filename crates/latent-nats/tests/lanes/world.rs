//! A broker with one stream whose subjects are partitions of a topic, and pinned consumers as the profile needs them.

use std::net::SocketAddrV4;
use std::sync::Arc;

use latent_core::{BindingId, ConsumerName, Partition, StreamName, Subject, TenantId, TopicName};
use latent_nats::lanes::{LaneDraft, LaneInput, LanesConfig, LanesDraft};
use latent_nats::{EndpointDraft, RootsDraft};
use latent_node::NodeLimits;
use latent_node::delivery::DeliveryPolicy;
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::proxy::FaultProxy;
use latent_testkit::until_some;
use serde_json::{Map, Value, json};

use crate::handler::Handler;
use crate::node::{Node, Parked};

pub(crate) const TENANT: &str = "shop";
pub(crate) const PASSWORD: &str = "lanes of the shop";
pub(crate) const STREAM: &str = "av_orders";
const TOPIC: &str = "orders";
/// Lanes that keep a pull open; a quarter of the places that the tenant of the tests has.
pub(crate) const HOT: u64 = 4;
const GROUP: &str = "latent";

/// How the lanes of a test are.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) partitions: u32,
    pub(crate) max_in_flight: u32,
    pub(crate) ack_wait_millis: u64,
    pub(crate) priority_timeout_millis: u64,
    pub(crate) policy: DeliveryPolicy,
    pub(crate) dead_letter: bool,
    pub(crate) payload_ceiling_bytes: u32,
    pub(crate) limits: NodeLimits,
    pub(crate) address: Option<SocketAddrV4>,
}

impl Default for Setup {
    fn default() -> Self {
        let policy =
            DeliveryPolicy { retry_delay_millis: 50, deliveries_max: 3, operation_timeout_millis: 5_000, ..DeliveryPolicy::default() };
        Self {
            partitions: 1,
            max_in_flight: 8,
            ack_wait_millis: 6_000,
            priority_timeout_millis: 10_000,
            policy,
            dead_letter: false,
            payload_ceiling_bytes: 4_096,
            limits: NodeLimits { cells: 4, admission_slots: 32, ..NodeLimits::for_cores(1) },
            address: None,
        }
    }
}

/// See the module.
pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) admin: Admin,
    pub(crate) handler: Arc<Handler>,
    pub(crate) parked: Arc<Parked>,
    pub(crate) setup: Setup,
}

impl World {
    pub(crate) async fn start(setup: Setup) -> Self {
        Self::start_with(setup, |_, _| ()).await
    }

    /// With consumers that are changed before they are made, by their partition.
    pub(crate) async fn start_with(setup: Setup, change: impl Fn(u32, &mut Map<String, Value>)) -> Self {
        let names: Vec<String> = (0..setup.partitions).map(consumer).collect();
        let user = BrokerUser::trigger(TENANT, PASSWORD, names.iter().map(|name| (STREAM, name.as_str())));
        let spec = BrokerSpec::with_users([user])
            .stream(StreamSpec::new(STREAM, [format!("{TOPIC}.>")]).max_msgs(100_000).max_msg_size(1_048_576));
        let broker = Broker::start(spec);
        let admin = broker.admin().await;
        let world = Self { broker, admin, handler: Arc::default(), parked: Arc::default(), setup };
        for (partition, lane) in (0..).zip(world.config().lanes()) {
            let mut settings = settings(lane, world.setup.priority_timeout_millis);
            change(partition, settings.as_object_mut().unwrap());
            world.admin.add_consumer(STREAM, &settings).await;
        }
        world
    }

    /// With a proxy between the nodes and the broker.
    pub(crate) async fn behind_proxy(setup: Setup) -> (Self, FaultProxy) {
        let mut world = Self::start(setup).await;
        let proxy = FaultProxy::start(&world.broker);
        world.setup.address = Some(proxy.address());
        (world, proxy)
    }

    /// The consumer of a partition again, as it was made first.
    pub(crate) async fn add_consumer(&self, partition: u32) {
        let config = self.config();
        let lane = &config.lanes()[partition as usize];
        self.admin.add_consumer(STREAM, &settings(lane, self.setup.priority_timeout_millis)).await;
    }

    /// Every key's texts ran in the order of `count` numbers, each at least once and none before the one before it had ended well.
    pub(crate) fn assert_order(&self, keys: &[&str], count: usize) {
        for key in keys {
            let mut texts = self.handler.of_key(key);
            texts.dedup();
            let numbers: Vec<usize> = texts.iter().filter_map(|text| text.rsplit('-').next()?.parse().ok()).collect();
            assert!(numbers.is_sorted(), "{key}: {numbers:?}");
            let mut different = numbers.clone();
            different.dedup();
            assert_eq!(different.len(), count, "{key}: {numbers:?}");
        }
        assert_eq!(self.handler.overlaps(), 0);
    }

    /// Another node on the same consumers.
    pub(crate) fn node(&self, name: &'static str) -> Node {
        Node::start(name, &self.handler, &self.parked, self.draft(), self.setup.policy, self.setup.limits)
    }

    pub(crate) fn config(&self) -> LanesConfig {
        self.draft().check().unwrap()
    }

    pub(crate) fn draft(&self) -> LanesDraft {
        let address = self.setup.address.unwrap_or(self.broker.address());
        LanesDraft {
            endpoint: EndpointDraft {
                address: Some(address.to_string()),
                allow_non_public_peer: Some(address.to_string()),
                server_name: Some(self.broker.server_name()),
            },
            roots: RootsDraft::only(&self.broker.ca().root_der()),
            hot_max: HOT,
            lanes: (0..self.setup.partitions).map(|partition| self.lane(partition)).collect(),
        }
    }

    fn lane(&self, partition: u32) -> LaneDraft {
        let Setup { max_in_flight, ack_wait_millis, policy, dead_letter, .. } = self.setup;
        LaneDraft {
            id: BindingId::parse(&format!("work_p{partition}")).unwrap(),
            trigger: BindingId::parse("work").unwrap(),
            tenant: TenantId::parse(TENANT).unwrap(),
            input: LaneInput::Event { topic: TopicName::parse(TOPIC).unwrap(), partition: Partition(partition) },
            stream: StreamName::parse(STREAM).unwrap(),
            consumer: ConsumerName::parse(&consumer(partition)).unwrap(),
            filter: Subject::parse(&format!("{TOPIC}.p{partition}")).unwrap(),
            group: Some(GROUP.to_owned()),
            max_in_flight,
            max_deliveries: policy.deliveries_max,
            payload_ceiling_bytes: self.setup.payload_ceiling_bytes,
            ack_wait_millis,
            operation_timeout_millis: policy.operation_timeout_millis,
            dead_letter: dead_letter.then(|| TopicName::parse("letters").unwrap()),
        }
    }

    /// Publishes `key|text` into a partition.
    pub(crate) async fn publish(&self, partition: u32, key: &str, text: &str) {
        self.admin.store(&format!("{TOPIC}.p{partition}"), format!("{key}|{text}").as_bytes()).await;
    }

    pub(crate) async fn consumer_info(&self, partition: u32) -> Value {
        self.admin.consumer(STREAM, &consumer(partition)).await
    }

    /// Waits until nothing of a partition is pending or unsettled at the broker.
    pub(crate) async fn until_settled(&self, partition: u32) {
        let look = || async {
            let info = self.consumer_info(partition).await;
            (info["num_pending"] == 0 && info["num_ack_pending"] == 0).then_some(())
        };
        until_some("everything settled at the broker", look).await;
    }
}

fn consumer(partition: u32) -> String {
    format!("latent_work_p{partition}")
}

/// The consumer of a lane, as T-101 wants it, in the broker's own form.
fn settings(lane: &latent_nats::lanes::LaneBinding, priority_timeout_millis: u64) -> Value {
    let profile = lane.consumer().profile();
    json!({
        "durable_name": profile.consumer,
        "filter_subject": profile.filter_subject,
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "deliver_policy": "all",
        "max_waiting": 32,
        "max_ack_pending": profile.max_in_flight,
        "ack_wait": profile.ack_wait_nanos,
        "max_deliver": lane.consumer().max_deliver_min(),
        "priority_groups": [GROUP],
        "priority_policy": "pinned_client",
        "priority_timeout": priority_timeout_millis * 1_000_000,
    })
}
