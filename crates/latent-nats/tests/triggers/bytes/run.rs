//! Cases side by side on one broker: each worker with a thread, a proxy and a node's half of its own, each case with a consumer, a message and
//! a connection of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use latent_core::{LogicalTopic, MessageId};
use latent_nats::triggers::{StepEnd, StepFault, StepOutcome, TriggerDraft};
use latent_testkit::broker::{Admin, Broker, BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::proxy::{self, Direction, FaultProxy};

use super::positions::{Case, Plain};
use crate::bench::{Half, STREAM, Setup, binding_draft, consumer_settings, draft_of, password, subject, tenant};

const WORKERS: usize = 24;
/// Time of one delivery. What it cuts short is right all the same: every rule holds for every end.
const TIMEOUT_MILLIS: u64 = 400;
/// Longer than a round takes, so that nothing is handed out twice meanwhile.
const ACK_WAIT_MILLIS: u64 = 60_000;

/// Where a message is when its case has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// Not handed out, or handed out and not settled: it comes (again).
    Waiting,
    /// The consumer is done with it.
    Settled,
    /// Nowhere.
    Gone,
}

/// How one case ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) end: StepEnd,
    pub(super) at: At,
    pub(super) runs: usize,
    pub(super) is_reached: bool,
    /// What passed the proxy, whole.
    pub(super) message_passed: bool,
    pub(super) command_passed: bool,
    pub(super) receipt_passed: bool,
}

/// A broker with a stream for all cases and a user for all consumers. What the least authority is, other tests show.
pub(super) fn spec() -> BrokerSpec {
    let user = BrokerUser::publisher("shop", &password("shop"), ["$JS.API.CONSUMER.>", "$JS.ACK.>"]);
    BrokerSpec::with_users([user]).stream(StreamSpec::new(STREAM, ["in.>"]))
}

/// What is said without a fault.
pub(super) fn plain(broker: &Broker) -> Plain {
    let mut worker = Worker::new(broker);
    let runtime = runtime();
    let case = Case { number: 99_999_999, direction: Direction::ToClient, byte: u64::MAX, fault: proxy::Fault::Cut };
    runtime.block_on(async { prepare(&broker.admin().await, broker, &worker, &case).await });
    let ended = runtime.block_on(worker.run(broker, &case));
    assert!(matches!(ended.end, StepEnd::Settled { .. }) && ended.receipt_passed, "{ended:?}");
    let said = |direction| worker.proxy.transcript(direction);
    Plain { to_broker: said(Direction::ToBroker), to_client: said(Direction::ToClient) }
}

/// Runs all of them, then asks the broker about each message.
pub(super) fn all(broker: &Broker, cases: &[Case]) -> Vec<(Case, Ended)> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut worker = Worker::new(broker);
                let runtime = runtime();
                let admin = runtime.block_on(broker.admin());
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    runtime.block_on(prepare(&admin, broker, &worker, case));
                    let ended = runtime.block_on(worker.run(broker, case));
                    done.lock().unwrap().push((case.clone(), ended));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    runtime().block_on(settle(broker, &mut done));
    done
}

/// Looks where each message is, once the broker is done with everything that it got, and leaves nothing behind.
async fn settle(broker: &Broker, done: &mut [(Case, Ended)]) {
    let admin = broker.admin().await;
    latent_testkit::wait_until("the broker sees every connection closed", || admin.connections().is_empty());
    for (case, ended) in done {
        let name = name(case);
        let info = admin.consumer(STREAM, &name).await;
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let waiting = number(&info["num_pending"]) + number(&info["num_ack_pending"]);
        ended.at = match (waiting, number(&info["ack_floor"]["consumer_seq"])) {
            (1, 0) => At::Waiting,
            (0, 1) => At::Settled,
            _ => At::Gone,
        };
        admin.delete_consumer(STREAM, &name).await;
    }
    admin.purge_stream(STREAM).await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Far apart from the name of every other case, so that a changed byte makes no case another one.
fn name(case: &Case) -> String {
    let id = MessageId::derive("case", &tenant("shop"), &LogicalTopic::parse("out").unwrap(), &case.number.to_string());
    format!("c{}", &id.as_str()[4..24])
}

async fn prepare(admin: &Admin, broker: &Broker, worker: &Worker, case: &Case) {
    let draft = worker.draft(broker, case);
    admin.add_consumer(STREAM, &consumer_settings(&draft.bindings.as_ref().unwrap()[0])).await;
    admin.store(&subject(&name(case)), payload(case).as_bytes()).await;
}

fn payload(case: &Case) -> String {
    format!(r#"["ok","{}"]"#, name(case))
}

struct Worker {
    proxy: FaultProxy,
    half: Option<Half>,
    epoch: u64,
}

impl Worker {
    fn new(broker: &Broker) -> Self {
        Self { proxy: FaultProxy::start(broker), half: None, epoch: 0 }
    }

    fn draft(&self, broker: &Broker, case: &Case) -> TriggerDraft {
        let mut binding = binding_draft("shop", &name(case));
        (binding.operation_timeout_millis, binding.ack_wait_millis) = (Some(TIMEOUT_MILLIS), Some(ACK_WAIT_MILLIS));
        binding.budget.as_mut().unwrap().wall_time_millis = Some(TIMEOUT_MILLIS);
        draft_of(broker, self.proxy.address(), vec![binding])
    }

    /// One visit of triggers that are new: no connection, no backoff, and the first operation of the first connection.
    async fn run(&mut self, broker: &Broker, case: &Case) -> Ended {
        let draft = self.draft(broker, case);
        let half = self.half.get_or_insert_with(|| Half::new(Setup::default().settings, Setup::default().limits));
        let (expected, epoch) = (Some(self.epoch).filter(|epoch| *epoch > 0), self.epoch + 1);
        self.epoch = epoch;
        let (mut triggers, _monitor) = half.install(&draft, epoch, expected);
        let before = half.scripted.runs().len();
        let connection = self.proxy.connections();
        let watch = self.proxy.inject(Some(connection), case.direction, proxy::At::Byte(case.byte), case.fault);
        let manager = Arc::clone(&half.manager);
        let end = match triggers.step(&manager).await {
            StepOutcome::Reported(step) => step.end,
            // A changed byte can say that there is nothing; then it was not asked for.
            StepOutcome::Idle { .. } | StepOutcome::Empty { .. } | StepOutcome::Delayed { .. } => StepEnd::Failed(StepFault::Backoff),
            other => panic!("{other:?}"),
        };
        let is_reached = watch.is_reached();
        triggers.close_idle();
        let payload = payload(case);
        let runs = half.scripted.runs().len() - before;
        let to_broker = self.proxy.transcript_of(connection, Direction::ToBroker);
        let to_client = self.proxy.transcript_of(connection, Direction::ToClient);
        let command = find(&to_broker, b"\r\n+ACK\r\n");
        let inboxes = to_client.windows(2).filter(|pair| pair == b"\r\n").count();
        Ended {
            end,
            at: At::Gone,
            runs,
            is_reached,
            message_passed: find(&to_client, format!("{payload}\r\n").as_bytes()),
            command_passed: command,
            // The last thing that the broker says; the status behind the message may come before or after it.
            receipt_passed: inboxes > 0 && find(&to_client, b".3 1 0\r\n\r\n"),
        }
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes.windows(pattern.len()).any(|window| window == pattern)
}
