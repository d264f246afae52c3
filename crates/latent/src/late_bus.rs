//! The topics of a node whose broker may not be there yet. Until it is, what is asked of it is refused as *not sent*, which is what a node
//! says as well whose broker went away; a thread tries to open it again and again. What is wrong for good at the start is an error of the
//! start, and not waited for here.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use latent_bridge::cold::ArchiveStatistics;
use latent_bridge::cold::export::AttestedHead;
use latent_bridge::nats_bus::stream_name;
use latent_bridge::{
    AppendWatcher, BridgeManifest, BusError, EventBus, MaintenanceReport, NatsBus, PublishAck, PublishResult, RecordHead, TopicStatistics,
};
use latent_core::{NewRecord, Offset, Partition, StoredRecord, Ticket, Uid, UnixMillis};

use crate::broker::BrokerError;

/// Before the second try to open the broker; doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often the log says that it is still waited for.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Opens the broker.
pub(crate) type Opening = Box<dyn Fn() -> Result<NatsBus, BrokerError> + Send>;

/// See the module.
pub(crate) struct LateBus {
    manifest: BridgeManifest,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Awaited(Awaited),
    There(Arc<NatsBus>),
    /// The node has ended.
    Ended,
}

struct Awaited {
    since: Instant,
    why: Why,
    watcher: Option<Arc<dyn AppendWatcher>>,
}

/// Why there is no bus, in words.
#[derive(Clone, PartialEq, Eq)]
struct Why {
    /// What is waited for, and was not had.
    missed: &'static str,
    error: String,
}

impl From<&BrokerError> for Why {
    fn from(error: &BrokerError) -> Self {
        // Found by a node that began without its broker: at the start it is an error.
        let is_held = matches!(error, BrokerError::Outbox { .. });
        Self { missed: if is_held { "the archive's outbox was not free" } else { "the broker was not reached" }, error: error.to_string() }
    }
}

impl LateBus {
    /// A broker that is there.
    pub(crate) fn there(bus: NatsBus) -> Self {
        Self { manifest: bus.manifest().clone(), shared: Shared::new(State::There(Arc::new(bus))) }
    }

    /// A broker that could not be reached, which said `why`.
    ///
    /// # Errors
    /// When the system gives no thread to wait on.
    pub(crate) fn awaited(manifest: BridgeManifest, why: &BrokerError, open: Opening) -> std::io::Result<Self> {
        let why = Why::from(why);
        tracing::warn!(
            why = why.error,
            "the broker is not reached; the node starts without it, and refuses what is for its topics until it is there"
        );
        let shared = Shared::new(State::Awaited(Awaited { since: Instant::now(), why, watcher: None }));
        let waiting = Arc::clone(&shared);
        std::thread::Builder::new().name("latent-late-bus".to_owned()).spawn(move || waiting.open_again(&open))?;
        Ok(Self { manifest, shared })
    }

    /// The bus, when it is there.
    fn bus(&self) -> Result<Arc<NatsBus>, BusError> {
        match &*self.shared.lock() {
            State::There(bus) => Ok(Arc::clone(bus)),
            State::Awaited(Awaited { why: Why { missed, error }, .. }) => {
                Err(BusError::NotSent { reason: format!("{missed} since the node started, and is tried again: {error}") })
            }
            State::Ended => Err(BusError::NotSent { reason: "the node has ended".to_owned() }),
        }
    }

    /// Of a topic that there is.
    fn bus_of(&self, topic: &str) -> Result<Arc<NatsBus>, BusError> {
        self.partitions(topic)?;
        self.bus()
    }

    /// Numbers of every topic, sorted by name.
    ///
    /// # Errors
    /// The broker's.
    pub(crate) fn statistics(&self) -> Result<Vec<TopicStatistics>, BusError> {
        self.bus()?.statistics()
    }

    /// What an operator should know: that there is no broker.
    pub(crate) fn warning(&self) -> Option<String> {
        match &*self.shared.lock() {
            State::There(bus) => (!bus.is_connected())
                .then(|| "there is no connection to the broker of the topics; what is for them is refused until it is back".to_owned()),
            State::Awaited(Awaited { since, why: Why { missed, error }, .. }) => Some(format!(
                "{missed} for {} s, since the node started; what is for its topics is refused until it is: {error}",
                since.elapsed().as_secs()
            )),
            State::Ended => None,
        }
    }
}

impl Drop for LateBus {
    fn drop(&mut self) {
        // What is there is closed by the last who has it.
        *self.shared.lock() = State::Ended;
        self.shared.changed.notify_all();
    }
}

/// The pause before a try; the first one has the number 0.
fn pause_before(attempt: u32) -> Duration {
    PAUSE.saturating_mul(2_u32.saturating_pow(attempt)).min(PAUSE_MAX)
}

impl Shared {
    fn new(state: State) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    // Each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_again(&self, open: &Opening) {
        let mut told = Instant::now();
        for attempt in 0.. {
            let is_awaited = |state: &mut State| matches!(state, State::Awaited(_));
            let waited = self.changed.wait_timeout_while(self.lock(), pause_before(attempt), is_awaited);
            if !is_awaited(&mut waited.unwrap_or_else(PoisonError::into_inner).0) {
                return;
            }
            // Without the lock: it may take seconds.
            match open() {
                Ok(bus) => return self.arrived(bus, attempt),
                Err(error) => self.told_why(&error, &mut told),
            }
        }
    }

    fn arrived(&self, bus: NatsBus, attempt: u32) {
        let mut state = self.lock();
        let State::Awaited(Awaited { since, watcher, .. }) = &mut *state else { return };
        if let Some(watcher) = watcher.take() {
            bus.watch_appends(watcher);
        }
        tracing::warn!(after_seconds = since.elapsed().as_secs(), attempts = attempt.saturating_add(2), "the broker is reached");
        *state = State::There(Arc::new(bus));
    }

    /// Tells another reason at once, and the same one now and then.
    fn told_why(&self, error: &BrokerError, told: &mut Instant) {
        let mut state = self.lock();
        let State::Awaited(Awaited { why, .. }) = &mut *state else { return };
        let now = Why::from(error);
        if now != *why || told.elapsed() >= TOLD_EVERY {
            tracing::warn!(why = now.error, "still waiting: {}", now.missed);
            *told = Instant::now();
        }
        *why = now;
    }
}

/// What the bus says, or why there is none.
fn answered<T>(
    bus: Result<Arc<NatsBus>, BusError>,
    ask: impl FnOnce(&NatsBus) -> Ticket<Result<T, BusError>>,
) -> Ticket<Result<T, BusError>> {
    match bus {
        Ok(bus) => ask(&bus),
        Err(error) => Ticket::ready(Err(error)),
    }
}

impl EventBus for LateBus {
    fn submit_record(&self, topic: &str, record: NewRecord) -> Ticket<PublishResult> {
        answered(self.bus_of(topic), |bus| bus.submit_record(topic, record))
    }

    fn submit_fetch(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
        answered(self.bus_of(topic), |bus| bus.submit_fetch(topic, partition, offset, max))
    }

    fn submit_heads(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
        answered(self.bus_of(topic), |bus| bus.submit_heads(topic, partition, offset, max))
    }

    fn submit_remains(&self, topic: &str, partition: Partition, offset: Offset) -> Ticket<Result<Bytes, BusError>> {
        answered(self.bus_of(topic), |bus| bus.submit_remains(topic, partition, offset))
    }

    fn submit_find(&self, topic: &str, key: &str, uid: &Uid) -> Ticket<Result<Option<PublishAck>, BusError>> {
        answered(self.bus_of(topic), |bus| bus.submit_find(topic, key, uid))
    }

    fn stream_of(&self, topic: &str) -> String {
        stream_name(topic)
    }

    fn partitions(&self, topic: &str) -> Result<u32, BusError> {
        let declared = self.manifest.topics.iter().find(|declared| declared.name == topic);
        declared.map(|declared| declared.partitions).ok_or_else(|| BusError::UnknownTopic { topic: topic.chars().take(120).collect() })
    }

    fn topics(&self) -> Vec<String> {
        let mut names: Vec<_> = self.manifest.topics.iter().map(|topic| topic.name.clone()).collect();
        names.sort();
        names
    }

    fn bounds(&self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError> {
        self.bus_of(topic)?.bounds(topic, partition)
    }

    fn watch_appends(&self, watcher: Arc<dyn AppendWatcher>) {
        match &mut *self.shared.lock() {
            State::There(bus) => bus.watch_appends(watcher),
            State::Awaited(awaited) => awaited.watcher = Some(watcher),
            State::Ended => {}
        }
    }

    fn set_control_keys(&self, newest_first: &[[u8; 32]]) -> Result<(), BusError> {
        self.bus()?.set_control_keys(newest_first)
    }

    fn archived_since(&self, topic: &str, partition: Partition) -> Result<Option<Offset>, BusError> {
        self.bus()?.archived_since(topic, partition)
    }

    fn archive_statistics(&self) -> Option<ArchiveStatistics> {
        self.bus().ok()?.archive_statistics()
    }

    fn archive_head(&self, topic: &str, partition: Partition) -> Result<Option<AttestedHead>, BusError> {
        self.bus()?.archive_head(topic, partition)
    }

    /// The broker removes by itself what has expired; what is left to do are archive intents.
    fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, BusError> {
        self.bus().map_or_else(|_| Ok(MaintenanceReport::default()), |bus| bus.maintain(now))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const MANIFEST: &str = "manifest_version: 1\nname: x\ntopics:\n- { name: b, partitions: 3 }\n- { name: a, partitions: 1 }\n";

    fn refused() -> BrokerError {
        let error = BusError::NotSent { reason: "nobody listens".to_owned() };
        BrokerError::Bus { error, place: "tls://127.0.0.1:1".to_owned(), user: None }
    }

    #[test]
    fn what_is_for_a_broker_that_is_not_there_was_not_sent_and_topics_are_known_all_the_same() {
        let (asking, asked) = mpsc::channel();
        let open: Opening = Box::new(move || {
            let _ = asking.send(());
            Err(refused())
        });
        let bus = LateBus::awaited(BridgeManifest::from_yaml(MANIFEST).unwrap(), &refused(), open).unwrap();
        assert_eq!(
            (bus.topics(), bus.partitions("b"), bus.stream_of("a.b")),
            (vec!["a".to_owned(), "b".to_owned()], Ok(3), stream_name("a.b"))
        );
        let unknown = BusError::UnknownTopic { topic: "c".to_owned() };
        assert_eq!((bus.partitions("c"), bus.bounds("c", Partition(0))), (Err(unknown.clone()), Err(unknown)));
        let error = bus.submit_fetch("a", Partition(0), Offset(0), 1).wait().unwrap_err();
        assert!(matches!(&error, BusError::NotSent { reason } if reason.contains("nobody listens")), "{error}");
        assert!(bus.warning().unwrap().contains("nobody listens"));
        assert_eq!(bus.maintain(UnixMillis(1)), Ok(MaintenanceReport::default()));
        asked.recv().unwrap();
        drop(bus);
        // Nobody asks any more: the thread has let go of what it opens with.
        assert!(asked.iter().count() <= 1);
    }

    /// A node that began without its broker holds no outbox meanwhile, and may find that somebody else took it.
    #[test]
    fn an_outbox_that_somebody_else_took_meanwhile_is_told_as_that_and_not_as_a_broker_that_is_away() {
        let held = || BrokerError::Outbox { outbox: "/deep/outbox".into(), holder: "process 7 (the bus x on NATS)".to_owned() };
        let (asking, asked) = mpsc::channel();
        let open: Opening = Box::new(move || {
            let _ = asking.send(());
            Err(held())
        });
        let bus = LateBus::awaited(BridgeManifest::from_yaml(MANIFEST).unwrap(), &refused(), open).unwrap();
        asked.recv().unwrap();
        let told = |words: &str| ["/deep/outbox", "process 7"].iter().all(|part| words.contains(part)) && !words.contains("not reached");
        latent_testkit::wait_until("the other reason", || bus.warning().is_some_and(|warning| told(&warning)));
        let error = bus.bounds("a", Partition(0)).unwrap_err();
        assert!(matches!(&error, BusError::NotSent { reason } if told(reason) && reason.contains("outbox was not free")), "{error}");
    }

    #[test]
    fn it_is_tried_again_after_longer_and_longer_pauses() {
        let pauses: Vec<_> = (0..7).map(|attempt| pause_before(attempt).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pause_before(u32::MAX), PAUSE_MAX);
    }
}
