//! The pinned broker with its streams and consumers, a proxy where a test wants one, and the node before it.

use std::net::SocketAddrV4;
use std::sync::Arc;

use latent_capabilities::PoolSettings;
use latent_nats::triggers::{BindingDraft, BudgetDraft, LastStep, StepEnd, StepOutcome, TriggerDraft};
use latent_nats::{EndpointDraft, MappingDraft, NatsDraft, RootsDraft};
use latent_node::delivery::{Confirmation, TerminationReason, VisitSettlement};
use latent_node::{JournalEntry, NodeLimits};
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser, PullConsumer, StreamSpec};
use latent_testkit::proxy::FaultProxy;
use latent_testkit::until_some;
use tokio::sync::Mutex;

use crate::node::{Node, Orders, TENANTS, TOPIC, password, publishing_user};

pub(crate) const IN: &str = "IN";
pub(crate) const OUT: &str = "OUT";
/// The least that the operation's time below allows.
const ACK_WAIT_MILLIS: u64 = 1_500;
pub(crate) const OPERATION_MILLIS: u64 = 500;
pub(crate) const NAK_DELAY_MILLIS: u64 = 100;

/// Who reaches the broker through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proxied {
    Nobody,
    Triggers,
    Publisher,
}

/// What a world is made of.
pub(crate) struct Setup {
    pub(crate) bindings: Vec<BindingDraft>,
    pub(crate) input: StreamSpec,
    pub(crate) limits: NodeLimits,
    pub(crate) settings: PoolSettings,
    pub(crate) proxied: Proxied,
}

impl Setup {
    /// Of one binding, `one` of `shop`, that calls this function.
    pub(crate) fn calling(function: &str) -> Self {
        Self::of([binding("shop", "one", function)])
    }

    pub(crate) fn of(bindings: impl IntoIterator<Item = BindingDraft>) -> Self {
        Self {
            bindings: bindings.into_iter().collect(),
            input: StreamSpec::new(IN, ["in.>"]),
            limits: NodeLimits { cells: 2, ..NodeLimits::for_cores(1) },
            settings: PoolSettings::default(),
            proxied: Proxied::Nobody,
        }
    }

    /// With every binding changed.
    pub(crate) fn each(mut self, change: impl Fn(&mut BindingDraft)) -> Self {
        self.bindings.iter_mut().for_each(change);
        self
    }

    /// With time enough for functions that work for a while, also on a busy machine.
    pub(crate) fn patient(self) -> Self {
        self.within(2_000)
    }

    /// With so many milliseconds for each delivery.
    pub(crate) fn within(self, millis: u64) -> Self {
        self.each(|binding| {
            binding.operation_timeout_millis = Some(millis);
            binding.ack_wait_millis = Some(millis + 1_000);
            binding.budget.as_mut().unwrap().wall_time_millis = Some(millis);
        })
    }

    pub(crate) fn behind_proxy(self, proxied: Proxied) -> Self {
        Self { proxied, ..self }
    }

    fn spec(&self) -> BrokerSpec {
        let triggers = TENANTS.map(|tenant| {
            let own = self.bindings.iter().filter(|binding| binding.tenant.as_deref() == Some(tenant));
            BrokerUser::trigger(tenant, &password(tenant), own.map(|binding| (IN, binding.consumer.as_deref().unwrap())))
        });
        let publishers = TENANTS.map(|tenant| {
            let user = publishing_user(tenant);
            BrokerUser::publisher(&user, &password(&user), [format!("{tenant}.{TOPIC}")])
        });
        let results = StreamSpec::new(OUT, TENANTS.map(|tenant| format!("{tenant}.{TOPIC}")));
        let users = triggers.into_iter().chain(publishers);
        let disk = if self.input.on_disk { 64 << 20 } else { 1 };
        BrokerSpec::with_users(users).disk(disk).stream(self.input.clone()).stream(results)
    }
}

/// A binding whose id, consumer and subject are called alike.
pub(crate) fn binding(tenant: &str, name: &str, function: &str) -> BindingDraft {
    BindingDraft {
        id: Some(name.to_owned()),
        tenant: Some(tenant.to_owned()),
        service: Some("work".to_owned()),
        contract: Some(format!("demo:plain/{}@1.0.0", if function == "divide" { "work" } else { "worse" })),
        function: Some(function.to_owned()),
        stream: Some(IN.to_owned()),
        consumer: Some(name.to_owned()),
        filter: Some(subject(name)),
        payload_ceiling_bytes: Some(1_024),
        operation_timeout_millis: Some(OPERATION_MILLIS),
        max_deliver: Some(3),
        ack_wait_millis: Some(ACK_WAIT_MILLIS),
        nak_delay_millis: Some(NAK_DELAY_MILLIS),
        budget: Some(BudgetDraft {
            // More than the time allows, so that time is what ends a guest.
            cpu_fuel: Some(1_000_000_000_000),
            memory_bytes: Some(8 << 20),
            wall_time_millis: Some(OPERATION_MILLIS),
            outbound_requests: Some(4),
            log_bytes: Some(1_024),
        }),
        ..BindingDraft::default()
    }
}

pub(crate) fn subject(name: &str) -> String {
    format!("in.{name}")
}

/// The consumer that a binding needs.
fn consumer(binding: &BindingDraft) -> PullConsumer {
    PullConsumer {
        stream: IN.to_owned(),
        name: binding.consumer.clone().unwrap(),
        filter: binding.filter.clone().unwrap(),
        payload_bytes_max: binding.payload_ceiling_bytes.unwrap(),
        ack_wait_millis: binding.ack_wait_millis.unwrap(),
        max_deliver: binding.max_deliver.unwrap(),
    }
}

/// See the module.
pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) admin: Admin,
    pub(crate) proxy: Option<FaultProxy>,
    pub(crate) node: Node,
    pub(crate) orders: Orders,
}

/// The broker's side alone, with what a node on it would be told.
pub(crate) struct Ground {
    pub(crate) broker: Broker,
    pub(crate) admin: Admin,
    pub(crate) proxy: Option<FaultProxy>,
    pub(crate) orders: Orders,
}

impl Ground {
    pub(crate) async fn prepare(setup: Setup) -> Self {
        let broker = Broker::start(setup.spec());
        let admin = broker.admin().await;
        broker.add_consumers(&setup.bindings.iter().map(consumer).collect::<Vec<_>>());
        let proxy = (setup.proxied != Proxied::Nobody).then(|| FaultProxy::start(&broker));
        let address = |who| match &proxy {
            Some(proxy) if setup.proxied == who => proxy.address(),
            _ => broker.address(),
        };
        let triggers = TriggerDraft {
            format_version: Some(1),
            endpoint: Some(endpoint(&broker, address(Proxied::Triggers))),
            roots: Some(RootsDraft::only(&broker.ca().root_der())),
            poll_interval_millis: Some(10),
            bindings: Some(setup.bindings.clone()),
        };
        let orders = Orders {
            triggers: triggers.check().unwrap(),
            publisher: publisher(&broker, address(Proxied::Publisher)).check().unwrap(),
            limits: setup.limits,
            settings: setup.settings,
        };
        Self { broker, admin, proxy, orders }
    }
}

fn endpoint(broker: &Broker, address: SocketAddrV4) -> EndpointDraft {
    EndpointDraft {
        address: Some(address.to_string()),
        allow_non_public_peer: Some(address.to_string()),
        server_name: Some(broker.server_name()),
    }
}

fn publisher(broker: &Broker, address: SocketAddrV4) -> NatsDraft {
    let mapping = |tenant: &str| MappingDraft {
        tenant: Some(tenant.to_owned()),
        topic: Some(TOPIC.to_owned()),
        subject: Some(format!("{tenant}.{TOPIC}")),
        stream: Some(OUT.to_owned()),
    };
    NatsDraft {
        format_version: Some(1),
        endpoint: Some(endpoint(broker, address)),
        roots: Some(RootsDraft::only(&broker.ca().root_der())),
        idempotency_namespace: Some("tests".to_owned()),
        payload_ceiling_bytes: Some(65_536),
        operation_timeout_millis: Some(5_000),
        duplicate_window_millis: Some(120_000),
        mappings: Some(TENANTS.map(mapping).to_vec()),
    }
}

impl World {
    pub(crate) async fn start(setup: Setup) -> Self {
        let Ground { broker, admin, proxy, orders } = Ground::prepare(setup).await;
        let node = Node::start(orders.clone());
        Self { broker, admin, proxy, node, orders }
    }

    pub(crate) async fn send(&self, name: &str, payload: &str) {
        self.admin.publish(&subject(name), payload.as_bytes()).await;
    }

    pub(crate) async fn step(&mut self) -> StepOutcome {
        self.node.triggers.step(&self.node.manager).await
    }

    /// Steps until one says something; what waits at the broker is waited for.
    pub(crate) async fn step_until_reported(&mut self) -> LastStep {
        let node = Mutex::new(&mut self.node);
        let step = || async {
            let Node { triggers, manager, .. } = &mut **node.lock().await;
            match triggers.step(manager).await {
                StepOutcome::Reported(step) => Some(step),
                StepOutcome::Idle { .. } | StepOutcome::Delayed { .. } | StepOutcome::Empty { .. } => None,
                other => panic!("{other:?}"),
            }
        };
        until_some("a step that says something", step).await
    }

    /// What a consumer has: never delivered, delivered and not settled.
    pub(crate) async fn backlog(&self, name: &str) -> (u64, u64) {
        let info = self.admin.consumer(IN, name).await;
        (info["num_pending"].as_u64().unwrap(), info["num_ack_pending"].as_u64().unwrap())
    }

    /// Waits until so many messages wait for a binding at the broker.
    pub(crate) async fn until_waiting(&self, name: &str, count: u64) {
        let look = || async { (self.backlog(name).await.0 == count).then_some(()) };
        until_some("messages at the broker", look).await;
    }

    /// The keys under which guests published, in order.
    pub(crate) async fn results(&self) -> Vec<String> {
        results(&self.admin).await
    }

    /// How the last activations ended, oldest first.
    pub(crate) fn ends(&self) -> Vec<&'static str> {
        self.journal().iter().map(|entry| entry.ended.kind).collect()
    }

    pub(crate) fn journal(&self) -> Vec<Arc<JournalEntry>> {
        let mut entries = self.node.manager.journal_newest(1_000);
        entries.reverse();
        entries
    }

    /// Nothing of an activation, a visit or a connection is held.
    pub(crate) fn assert_nothing_held(&self) {
        let account = self.node.manager.snapshot().node;
        assert_eq!((account.held(), account.input_bytes), (0, 0), "{account:?}");
        let (triggers, pools) = (self.node.monitor.snapshot(), self.node.pools.pools.snapshot());
        assert_eq!((triggers.running, triggers.connections, pools.running), (0, 0, 0), "{triggers:?} {pools:?}");
    }
}

pub(crate) async fn results(admin: &Admin) -> Vec<String> {
    let messages = admin.messages(OUT).await;
    messages.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned()).collect()
}

/// A settlement that the broker confirmed.
pub(crate) const fn confirmed(settlement: VisitSettlement) -> StepEnd {
    StepEnd::Settled { settlement, confirmation: Confirmation::Confirmed }
}

pub(crate) const ACKNOWLEDGED: StepEnd = confirmed(VisitSettlement::Acknowledge);
pub(crate) const REJECTED: StepEnd = confirmed(VisitSettlement::Terminate(TerminationReason::Rejected));
pub(crate) const EXHAUSTED: StepEnd = confirmed(VisitSettlement::Terminate(TerminationReason::Exhausted));
pub(crate) const DELAYED: StepEnd = confirmed(VisitSettlement::RetryAfter { millis: NAK_DELAY_MILLIS });
