//! A broker, a node's half with functions by script, and triggers installed between them.

mod half;
mod scripted;

use std::net::SocketAddrV4;
use std::sync::Arc;

use latent_capabilities::PoolSettings;
use latent_core::{ProviderId, TenantId};
use latent_nats::triggers::{
    BindingDraft, BudgetDraft, LastStep, NatsTriggers, RunEnd, StepEnd, StepFault, StepOutcome, TriggerDraft, TriggerMonitor,
    TriggerSnapshot,
};
use latent_nats::{EndpointDraft, RootsDraft};
use latent_node::delivery::{Confirmation, VisitSettlement};
use latent_node::{LocalActivationManager, NodeLimits};
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::proxy::FaultProxy;
use latent_testkit::until_some;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use half::{Half, publication, route};

pub(crate) const TENANTS: [&str; 2] = ["shop", "bank"];
pub(crate) const STREAM: &str = "IN";
pub(crate) const CONTRACT: &str = "demo:plain/work@1.0.0";
/// A success, acknowledged.
pub(crate) const ACKNOWLEDGED: StepEnd =
    StepEnd::Settled { settlement: VisitSettlement::Acknowledge, confirmation: Confirmation::Confirmed };
/// The time of one delivery, unless a test says otherwise: far more than any of them takes.
const TIMEOUT_MILLIS: u64 = 5_000;
/// What the consumers of the tests wait for a settlement.
const ACK_WAIT_MILLIS: u64 = 6_000;
const CEILING: u64 = 1_024;

/// What a bench is started with.
pub(crate) struct Setup {
    pub(crate) spec: BrokerSpec,
    pub(crate) settings: PoolSettings,
    pub(crate) limits: NodeLimits,
    /// The bindings, as tenant and name; consumer, filter and id are called like the binding.
    pub(crate) bindings: Vec<(&'static str, String)>,
    /// Changes each binding before it is checked.
    pub(crate) change: fn(&mut BindingDraft),
    /// Where the triggers go instead of to the broker itself.
    pub(crate) address: Option<SocketAddrV4>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            spec: spec(&[("shop", "one")]),
            settings: PoolSettings::default(),
            limits: NodeLimits { cells: 2, ..NodeLimits::for_cores(1) },
            bindings: vec![("shop", "one".to_owned())],
            change: |_| (),
            address: None,
        }
    }
}

impl Setup {
    /// With these bindings, on a broker that has users for them.
    pub(crate) fn of(bindings: &[(&'static str, &str)]) -> Self {
        let owned = bindings.iter().map(|(tenant, name)| (*tenant, (*name).to_owned())).collect();
        Self { spec: spec(bindings), bindings: owned, ..Self::default() }
    }
}

/// A broker with one stream for every subject below `in`, and for each tenant a user that may use its own consumers.
pub(crate) fn spec(bindings: &[(&str, &str)]) -> BrokerSpec {
    let of = |tenant: &str| {
        let consumers = bindings.iter().filter(|(owner, _)| *owner == tenant).map(|(_, name)| (STREAM, *name));
        BrokerUser::trigger(tenant, &password(tenant), consumers)
    };
    BrokerSpec::with_users(TENANTS.map(of)).stream(StreamSpec::new(STREAM, ["in.>"]))
}

pub(crate) fn password(tenant: &str) -> String {
    format!("pw of {tenant} \"quoted\"")
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

pub(crate) fn provider() -> ProviderId {
    ProviderId::parse("triggers").unwrap()
}

pub(crate) fn subject(name: &str) -> String {
    format!("in.{name}")
}

pub(crate) fn binding_draft(tenant: &str, name: &str) -> BindingDraft {
    BindingDraft {
        id: Some(name.to_owned()),
        tenant: Some(tenant.to_owned()),
        service: Some("work".to_owned()),
        contract: Some(CONTRACT.to_owned()),
        function: Some("run".to_owned()),
        stream: Some(STREAM.to_owned()),
        consumer: Some(name.to_owned()),
        filter: Some(subject(name)),
        payload_ceiling_bytes: Some(CEILING),
        operation_timeout_millis: Some(TIMEOUT_MILLIS),
        max_deliver: Some(3),
        ack_wait_millis: Some(ACK_WAIT_MILLIS),
        nak_delay_millis: Some(100),
        budget: Some(BudgetDraft {
            cpu_fuel: Some(1_000_000),
            memory_bytes: Some(1 << 20),
            wall_time_millis: Some(TIMEOUT_MILLIS),
            outbound_requests: Some(0),
            log_bytes: Some(1_024),
        }),
        ..BindingDraft::default()
    }
}

/// For tests that wait for a message to come again because nobody settled it.
pub(crate) fn soon_again(binding: &mut BindingDraft) {
    (binding.operation_timeout_millis, binding.ack_wait_millis) = (Some(1_200), Some(2_200));
    binding.budget.as_mut().unwrap().wall_time_millis = Some(1_200);
}

/// The consumer that a binding of the tests needs, in the broker's own form.
pub(crate) fn consumer_settings(binding: &BindingDraft) -> Value {
    json!({
        "durable_name": binding.consumer,
        "filter_subject": binding.filter,
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "deliver_policy": "all",
        "max_waiting": 1,
        "max_ack_pending": 1,
        "max_batch": 1,
        "max_expires": 100_000_000,
        "max_bytes": binding.payload_ceiling_bytes.unwrap() + 9_216,
        "ack_wait": binding.ack_wait_millis.unwrap() * 1_000_000,
        "max_deliver": binding.max_deliver.unwrap(),
    })
}

/// Everything together.
pub(crate) struct Bench {
    pub(crate) broker: Broker,
    pub(crate) admin: Admin,
    pub(crate) half: Half,
    /// Gone while it runs by itself.
    triggers: Option<NatsTriggers>,
    pub(crate) monitor: TriggerMonitor,
    pub(crate) draft: TriggerDraft,
}

/// Triggers that run by themselves.
pub(crate) struct Driver {
    stop: watch::Sender<bool>,
    task: JoinHandle<(NatsTriggers, RunEnd)>,
}

impl Driver {
    /// Waits until they end by themselves. They are dropped then.
    pub(crate) async fn ended(self) -> RunEnd {
        self.task.await.unwrap().1
    }

    /// Ends the driver where it stands, as the end of its process would.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.is_err());
    }
}

impl Bench {
    pub(crate) async fn start(setup: Setup) -> Self {
        let broker = Broker::start(setup.spec.clone());
        Self::on(broker, setup).await
    }

    /// Another node in the place of this one, with an empty disk: nothing is left of it but what the broker keeps.
    pub(crate) fn begin_anew(&mut self, setup: &Setup) {
        self.triggers = None;
        self.half = Half::new(setup.settings.clone(), setup.limits);
        let (triggers, monitor) = self.half.install(&self.draft, 1, None);
        (self.triggers, self.monitor) = (Some(triggers), monitor);
    }

    /// Installs another epoch in the place of what is in force.
    pub(crate) fn replace(&mut self, epoch: u64, expected: Option<u64>) {
        let (triggers, monitor) = self.half.install(&self.draft, epoch, expected);
        (self.triggers, self.monitor) = (Some(triggers), monitor);
    }

    /// With a proxy between the triggers and the broker.
    pub(crate) async fn behind_proxy(setup: Setup) -> (Self, FaultProxy) {
        let broker = Broker::start(setup.spec.clone());
        let proxy = FaultProxy::start(&broker);
        let setup = Setup { address: Some(proxy.address()), ..setup };
        (Self::on(broker, setup).await, proxy)
    }

    /// Before a broker that runs, with consumers made for every binding.
    pub(crate) async fn on(broker: Broker, setup: Setup) -> Self {
        let admin = broker.admin().await;
        let address = setup.address.unwrap_or(broker.address());
        let half = Half::new(setup.settings, setup.limits);
        let bindings: Vec<BindingDraft> = setup.bindings.iter().map(|(tenant, name)| binding_draft(tenant, name)).collect();
        let bindings: Vec<_> = bindings
            .into_iter()
            .map(|mut binding| {
                (setup.change)(&mut binding);
                binding
            })
            .collect();
        let draft = draft_of(&broker, address, bindings);
        add_consumers(&admin, &draft).await;
        let (triggers, monitor) = half.install(&draft, 1, None);
        Self { broker, admin, half, triggers: Some(triggers), monitor, draft }
    }

    pub(crate) fn triggers(&mut self) -> &mut NatsTriggers {
        self.triggers.as_mut().unwrap()
    }

    /// The triggers to be driven and the administrator to act beside them.
    pub(crate) fn parts(&mut self) -> (&mut NatsTriggers, &Admin) {
        (self.triggers.as_mut().unwrap(), &self.admin)
    }

    /// Lets them run by themselves.
    pub(crate) fn drive(&mut self) -> Driver {
        let mut triggers = self.triggers.take().unwrap();
        let (stop, stopped) = watch::channel(false);
        let manager = Arc::clone(&self.half.manager);
        let task = tokio::spawn(async move {
            let end = triggers.run(&manager, stopped).await;
            (triggers, end)
        });
        Driver { stop, task }
    }

    /// Stops them, and looks that nothing is held any more (T-060).
    pub(crate) async fn stop(&mut self, driver: Driver) {
        driver.stop.send(true).unwrap();
        let (triggers, end) = driver.task.await.unwrap();
        assert_eq!(end, RunEnd::Stopped);
        self.triggers = Some(triggers);
        self.assert_nothing_is_held();
    }

    /// No reservation, no store, no call, no connection, no byte charged for any.
    pub(crate) fn assert_nothing_is_held(&self) {
        let all = self.half.pools.pools.snapshot();
        assert_eq!((all.queued, all.running, all.connections, all.parked, all.bytes), (0, 0, 0, 0, 0));
        assert_eq!((self.half.manager.snapshot().node.held(), self.half.scripted.stores()), (0, 0));
    }

    /// Stores one payload for a binding.
    pub(crate) async fn publish(&self, name: &str, payload: &str) {
        self.admin.store(&subject(name), payload.as_bytes()).await;
    }

    /// Publishes one payload with headers.
    pub(crate) async fn publish_with(&self, name: &str, headers: &[(&str, &str)], payload: &str) {
        self.admin.publish_with(&subject(name), headers, payload.as_bytes()).await;
    }

    pub(crate) async fn step(&mut self) -> StepOutcome {
        let manager = Arc::clone(&self.half.manager);
        self.triggers().step(&manager).await
    }

    /// Steps until one is such an end; what waits at the broker is waited for.
    async fn step_until(&mut self, awaited: &str, is_it: impl Fn(&LastStep) -> bool) -> LastStep {
        let bench = tokio::sync::Mutex::new(self);
        let look = || async {
            match bench.lock().await.step().await {
                StepOutcome::Reported(step) => Some(step).filter(&is_it),
                StepOutcome::Stopped | StepOutcome::Retired => panic!("{awaited}: it ended"),
                _ => None,
            }
        };
        until_some(awaited, look).await
    }

    /// Steps until one says something.
    pub(crate) async fn step_until_reported(&mut self) -> LastStep {
        self.step_until("a report", |_| true).await
    }

    /// Steps until a message was handed out, through failures and whatever backoff is left.
    pub(crate) async fn step_until_handed(&mut self) -> LastStep {
        self.step_until("a message", |step| step.handed.is_some()).await
    }

    /// The failure of the next step that says something. A broker may tell of a message a moment after it has stored it.
    pub(crate) async fn fault(&mut self) -> StepFault {
        match self.step_until_reported().await.end {
            StepEnd::Failed(fault) => fault,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for what the triggers' own counters show.
    pub(crate) async fn until(&self, reached: impl Fn(&TriggerSnapshot) -> bool) {
        until_some("counters of the triggers", || std::future::ready(reached(&self.monitor.snapshot()).then_some(()))).await;
    }

    /// Waits until the last step is such a one.
    pub(crate) async fn until_step(&self, is_it: impl Fn(&LastStep) -> bool) -> LastStep {
        until_some("a step", || std::future::ready(self.monitor.last_step().filter(|step| is_it(step)))).await
    }

    /// What the broker says of a binding's consumer: never delivered, delivered and not settled.
    pub(crate) async fn backlog(&self, name: &str) -> (u64, u64) {
        let info = self.admin.consumer(STREAM, name).await;
        (info["num_pending"].as_u64().unwrap(), info["num_ack_pending"].as_u64().unwrap())
    }

    /// Waits until the broker says this of a binding's consumer.
    pub(crate) async fn until_backlog(&self, name: &str, backlog: (u64, u64)) {
        until_some("the consumer's backlog", || async { (self.backlog(name).await == backlog).then_some(()) }).await;
    }
}

/// Steps until a message was handed out.
pub(crate) async fn handed(triggers: &mut NatsTriggers, manager: &Arc<LocalActivationManager>) -> LastStep {
    let triggers = tokio::sync::Mutex::new(triggers);
    let look = || async {
        match triggers.lock().await.step(manager).await {
            StepOutcome::Reported(step) => Some(step).filter(|step| step.handed.is_some()),
            _ => None,
        }
    };
    until_some("a message", look).await
}

/// A configuration of these bindings, before this broker at this address.
pub(crate) fn draft_of(broker: &Broker, address: SocketAddrV4, bindings: Vec<BindingDraft>) -> TriggerDraft {
    TriggerDraft {
        format_version: Some(1),
        endpoint: Some(EndpointDraft {
            address: Some(address.to_string()),
            allow_non_public_peer: Some(address.to_string()),
            server_name: Some(broker.server_name()),
        }),
        roots: Some(RootsDraft::only(&broker.ca().root_der())),
        poll_interval_millis: Some(10),
        bindings: Some(bindings),
    }
}

/// The consumers of every binding, as the profile needs them.
pub(crate) async fn add_consumers(admin: &Admin, draft: &TriggerDraft) {
    for binding in draft.bindings.as_ref().unwrap() {
        admin.add_consumer(binding.stream.as_deref().unwrap(), &consumer_settings(binding)).await;
    }
}
