//! The engine on NATS JetStream: one stream for each topic, one subject for each partition. `docs/design/cluster-bus.md` says why it is so.
//!
//! ```text
//! submit_record ── publishing ── the client ────────▶ stream
//!                      ▲  flights: what is in flight     │
//!                      └── take_answers ◀── answer ◀─────┘
//! submit_fetch, submit_heads ── reading ── consumer, kept for who reads on
//! submit_find ── lookup ── uid_index, else a consumer of headers only
//! a topic with cold_uri ── archiving ── outbox, then publishing, then outbox
//! ```
//!
//! Everything runs on one thread of the bus's own (`executor`), but for the check, the encoding and the hand-over of a publication, which the
//! publisher's thread does. The connection mends itself; nothing that may have been stored is ever sent again by this crate.

mod answer;
mod api;
mod archiving;
mod body;
mod cold_segments;
mod connect;
mod consumer;
mod durables;
mod environment;

mod flights;
mod given;
mod history;
mod in_order;
mod lookup;
mod options;
mod page;
mod pass;
mod permissions;
mod probe;
mod provision;
mod publishing;
mod reading;
mod record;
mod revive;
mod shared;
mod signals;
mod statistics;
mod streams;
mod uid_index;
mod unparsable;
mod words;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use latent_core::{NewRecord, Offset, Partition, StoredRecord, Ticket, Uid, UnixMillis};
use tokio::sync::Semaphore;

use crate::cold::ArchiveStatistics;
use crate::cold::archive::Pass;
use crate::cold::beginnings::{self, Beginnings};
use crate::cold::export::AttestedHead;
use crate::manifest::ColdFormat;
use crate::{
    AppendWatcher, BridgeManifest, BusError, EventBus, MaintenanceReport, PublishAck, PublishResult, RecordHead, TopicSchema,
    TopicStatistics, limits,
};
use api::Api;
use archiving::{Archiving, FromBroker};
use body::Behind;
use provision::of_fault;
use reading::Range;
use record::Which;
use revive::Dial;
use shared::{Air, Shared, Topic, refused};
use signals::Signals;
use streams::TopicStream;

pub use crate::connector::{ConnectorExecutor, ConnectorFault};
pub use durables::{
    AckFloor, Beginning, Durable, DurableAction, DurableDifference, DurablePlan, FoundDurable, Least, apply_durables, compare_durable,
    found_durables, plan_durables,
};
pub use environment::nats_credentials;
pub use options::{NatsCredentials, NatsOptions, NatsRoots};
pub use permissions::{Permission, Permissions, covers};
pub use probe::{Probe, ProbeAnswer, ProbedStream, Probes, probe, stream_settings};
pub use provision::outbox_name;
pub use record::read_record;
pub use streams::{Change, Plan, PlannedAction, Refusal, TopicPlan, stream_name, subject};

/// Name of the bus's thread (B-081).
const THREAD: &str = "latent-nats-bus";
/// Time for the last words on a connection that is closed.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// A bus on a broker. Dropping it deletes its consumers, gives up what is in flight as uncertain, and closes the connection.
///
/// Offsets are stream sequences: partitions of a topic share them, so they ascend with gaps. A watcher ([`EventBus::watch_appends`]) is told
/// of what this bus published, not of what others did.
pub struct NatsBus {
    manifest: BridgeManifest,
    shared: Arc<Shared>,
    /// None when no topic is archived, or this bus publishes to none that is.
    archiving: Option<Archiving>,
    /// Topics that are archived.
    archived: Vec<String>,
    /// From where on topics are archived.
    beginnings: Beginnings,
    executor: ConnectorExecutor,
}

impl NatsBus {
    /// Connects as the environment says, makes the streams or brings them to `manifest`, and opens the bus (B-045, B-047).
    ///
    /// # Errors
    /// [`BusError::Config`] when manifest, environment or the broker's streams are such that nothing can be done, with nothing changed;
    /// [`BusError::NotSent`], [`BusError::Timeout`] when the broker cannot be reached; [`BusError::Backend`] with what it says.
    pub fn provision(url: &str, manifest: &BridgeManifest) -> Result<Self, BusError> {
        manifest.validate()?;
        Self::provision_with(NatsOptions::from_environment(url)?, manifest)
    }

    /// As [`NatsBus::provision`], with options instead of the environment.
    ///
    /// # Errors
    /// As [`NatsBus::provision`].
    pub fn provision_with(options: NatsOptions, manifest: &BridgeManifest) -> Result<Self, BusError> {
        Self::start(options, manifest, |api, manifest| async move { streams::apply(&api, &manifest).await })
    }

    /// Connects as the environment says, checks that the streams fit `manifest`, and changes nothing.
    ///
    /// # Errors
    /// [`BusError::Config`] naming each difference, with both values; else as [`NatsBus::provision`].
    pub fn open(url: &str, manifest: &BridgeManifest) -> Result<Self, BusError> {
        manifest.validate()?;
        Self::open_with(NatsOptions::from_environment(url)?, manifest)
    }

    /// As [`NatsBus::open`], with options instead of the environment.
    ///
    /// # Errors
    /// As [`NatsBus::open`].
    pub fn open_with(options: NatsOptions, manifest: &BridgeManifest) -> Result<Self, BusError> {
        Self::start(options, manifest, |api, manifest| async move { streams::verify(&api, &manifest).await })
    }

    fn start<F>(
        options: NatsOptions,
        manifest: &BridgeManifest,
        streams: impl FnOnce(Api, BridgeManifest) -> F + Send + 'static,
    ) -> Result<Self, BusError>
    where
        F: Future<Output = Result<Vec<TopicStream>, BusError>> + Send + 'static,
    {
        let schemas = provision::preflight(&options, manifest)?;
        let archive = provision::open_archive(&options, manifest)?;
        let archive_options = options.archive.clone();
        let executor = ConnectorExecutor::new(THREAD)?;
        let opened = executor.submit_within(provision::time_of(manifest), opening(options, manifest.clone(), schemas, streams));
        let shared = opened.wait().map_err(|fault| of_fault(fault, "opening the bus"))??;
        let archiving = archive.map(|archive| Archiving::start(archive, &shared, executor.handle())).transpose()?;
        // Of a topic in segments nothing is staged: the stream keeps its events until maintenance has put them into one.
        let in_segments = |topic: &crate::TopicSpec| topic.retention.cold_format == Some(ColdFormat::Segments);
        let is_archived = |topic: &&crate::TopicSpec| topic.retention.cold_uri.is_some() && !in_segments(topic);
        let archived = manifest.topics.iter().filter(is_archived).map(|topic| topic.name.clone()).collect();
        let mut bus = Self { manifest: manifest.clone(), shared, archiving, archived, executor, beginnings: Beginnings::default() };
        if let (Some(options), Some(_)) = (&archive_options, &bus.archiving) {
            // What is in a stream before it is archived here may be archived by nobody.
            let next = |topic: &str, partition: Partition| bus.bounds(topic, partition).ok().map(|(_, next)| next);
            let outbox = provision::outbox_of(options, manifest);
            bus.beginnings = Beginnings::keep(&*options.storage, &outbox, &beginnings::archived(manifest), &next)?;
        }
        Ok(bus)
    }

    /// The manifest in force.
    pub const fn manifest(&self) -> &BridgeManifest {
        &self.manifest
    }

    /// Whether there is a connection to the broker now. Without one, publications are refused until it is made again.
    pub fn is_connected(&self) -> bool {
        self.shared.api.is_connected()
    }

    /// Numbers of every topic, sorted by name, as the broker tells them now.
    ///
    /// # Errors
    /// What the broker says.
    pub fn statistics(&self) -> Result<Vec<TopicStatistics>, BusError> {
        let shared = Arc::clone(&self.shared);
        self.wait("reading the broker's numbers", provision::time_of(&self.manifest), async move { statistics::of_all(&shared).await })
    }

    fn submit<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        operation: impl Future<Output = Result<T, BusError>> + Send + 'static,
    ) -> Ticket<Result<T, BusError>> {
        let interrupted = Err(BusError::Backend("connector operation was interrupted".to_owned()));
        self.executor
            .submit_within(limit, operation)
            .map_or(interrupted, move |result| result.map_err(|fault| of_fault(fault, doing)).and_then(std::convert::identity))
    }

    fn wait<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        operation: impl Future<Output = Result<T, BusError>> + Send + 'static,
    ) -> Result<T, BusError> {
        self.submit(doing, limit, operation).wait()
    }

    /// The part of a read that is asked for of one page.
    fn range(&self, topic: &str, partition: Partition, offset: Offset, count_max: u64) -> Result<Range, BusError> {
        let (topic, _) = self.shared.partition(topic, partition)?;
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX);
        Ok(Range { topic, partition, from: offset.0, count_max, bytes_max: limits::FETCH_BYTES.default })
    }
}

/// One operation's time.
const fn operation_limit() -> Duration {
    Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default)
}

async fn opening<F>(
    options: NatsOptions,
    manifest: BridgeManifest,
    mut schemas: BTreeMap<String, Arc<TopicSchema>>,
    streams: impl FnOnce(Api, BridgeManifest) -> F,
) -> Result<Arc<Shared>, BusError>
where
    F: Future<Output = Result<Vec<TopicStream>, BusError>>,
{
    let air = Arc::new(Air::new());
    let (signals, heard) = (Signals::default(), Arc::clone(&air));
    let hearing = signals.clone();
    let hear = move |event: async_nats::Event| {
        if let Some(subject) = hearing.hear(&event) {
            publishing::refuse(&heard, subject);
        }
    };
    let dial = Dial { options, hear: Arc::new(hear) };
    let api = Api::new(dial.connect().await?, signals);
    let mut found = streams(api.clone(), manifest).await?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let partitions: u64 = found.iter().map(|topic| u64::from(topic.partitions)).sum();
    let uids_max = usize::try_from(limits::LOOKUP_UIDS.default / partitions.max(1)).unwrap_or(usize::MAX);
    let topics: Vec<_> = found
        .into_iter()
        .map(|stream| {
            let schema = schemas.remove(&stream.name);
            Topic::new(stream, schema, uids_max)
        })
        .collect();
    air.know(&topics);
    let ack_inbox = api.client().new_inbox();
    let answers = api.client().subscribe(format!("{ack_inbox}.*")).await;
    let answers = answers.map_err(|error| BusError::NotSent { reason: error.to_string() })?;
    let shared = Arc::new(Shared {
        api,
        clock: Arc::clone(&dial.options.clock),
        dial,
        topics,
        air,
        watcher: std::sync::RwLock::new(None),
        reads: Semaphore::new(limits::BROKER_READS.default_usize()),
        kept: reading::KeptReaders::default(),
        ack_inbox,
    });
    tokio::spawn(publishing::take_answers(Arc::clone(&shared), answers));
    tokio::spawn(publishing::end_overdue(Arc::clone(&shared)));
    tokio::spawn(publishing::settle_refused(Arc::clone(&shared)));
    Ok(shared)
}

impl NatsBus {
    /// Checks a record and hands it over, with its intent first where its topic is archived. With `behind` the stream takes it there only.
    fn submit_behind(&self, topic: &str, record: NewRecord, behind: Option<Behind>) -> Ticket<PublishResult> {
        if !self.archived.iter().any(|archived| archived == topic) {
            return publishing::submit(&self.shared, topic, record, behind).unwrap_or_else(refused);
        }
        let Some(archiving) = &self.archiving else {
            let problem =
                format!("topic {topic:?} has a cold_uri and this bus was opened without an archive; nothing can be published to it here");
            return refused(BusError::Config { problem });
        };
        archiving.submit(&self.shared, topic, record, behind).unwrap_or_else(refused)
    }
}

impl Drop for NatsBus {
    fn drop(&mut self) {
        publishing::end_all(&self.shared.air);
        // Finishes what waits for the outbox, while there is a runtime for what follows from it.
        self.archiving = None;
        // From its own thread nobody can wait for it; the runtime ends by itself and the broker finds the consumers idle.
        if self.executor.is_own_thread() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        // Nobody waits for a broker that does not answer: it finds the consumers idle by itself.
        let closed = self.executor.submit_within(CLOSE_WAIT, async move {
            let deletions: Vec<_> = shared.kept.take_all().into_iter().map(|consumer| tokio::spawn(consumer.delete())).collect();
            for deletion in deletions {
                let _ = deletion.await;
            }
            shared.api.readers_deleted().await;
            let _ = shared.api.client().flush().await;
        });
        if let Err(fault) = closed.wait() {
            tracing::debug!(%fault, "the bus closes without a word to the broker");
        }
        publishing::end_all(&self.shared.air);
    }
}

impl EventBus for NatsBus {
    fn submit_record(&self, topic: &str, record: NewRecord) -> Ticket<PublishResult> {
        self.submit_behind(topic, record, None)
    }

    fn submit_fetch(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
        let count_max = limits::FETCH_RECORDS.default.min(max as u64);
        match self.range(topic, partition, offset, count_max) {
            Err(error) => refused(error),
            Ok(range) if range.count_max == 0 => Ticket::ready(Ok(Vec::new())),
            Ok(range) => {
                let shared = Arc::clone(&self.shared);
                self.submit("reading a page", operation_limit(), async move { reading::fetch(&shared, range).await })
            }
        }
    }

    fn submit_heads(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
        let count_max = limits::FIND_PAGE_RECORDS.default.min(max as u64);
        match self.range(topic, partition, offset, count_max) {
            Err(error) => refused(error),
            Ok(range) if range.count_max == 0 => Ticket::ready(Ok(Vec::new())),
            Ok(range) => {
                let shared = Arc::clone(&self.shared);
                self.submit("reading heads", operation_limit(), async move { reading::heads(&shared, range).await })
            }
        }
    }

    fn stream_of(&self, topic: &str) -> String {
        streams::stream_name(topic)
    }

    fn submit_remains(&self, topic: &str, partition: Partition, offset: Offset) -> Ticket<Result<Bytes, BusError>> {
        let number = match self.shared.partition(topic, partition) {
            Ok((number, _)) => number,
            Err(error) => return refused(error),
        };
        let shared = Arc::clone(&self.shared);
        self.submit("reading a message", operation_limit(), async move {
            let Some(topic) = shared.topics.get(number) else { return Ok(Bytes::new()) };
            let found = topic.source.get(&shared.api, Which::At(offset.0)).await?;
            Ok(found.map(|found| found.body).unwrap_or_default())
        })
    }

    fn submit_find(&self, topic: &str, key: &str, uid: &Uid) -> Ticket<Result<Option<PublishAck>, BusError>> {
        let number = match self.shared.topic(topic) {
            Ok((number, _)) => number,
            Err(error) => return refused(error),
        };
        let limit = Duration::from_millis(limits::LOOKUP_MILLIS.default);
        let (shared, key, uid) = (Arc::clone(&self.shared), key.to_owned(), uid.clone());
        self.submit("looking a uid up", limit, lookup::find(shared, number, key, uid))
    }

    fn partitions(&self, topic: &str) -> Result<u32, BusError> {
        Ok(self.shared.topic(topic)?.1.partitions)
    }

    fn topics(&self) -> Vec<String> {
        self.shared.topics.iter().map(|topic| topic.name.clone()).collect()
    }

    /// Asks the broker.
    fn bounds(&self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError> {
        let (number, _) = self.shared.partition(topic, partition)?;
        let shared = Arc::clone(&self.shared);
        self.wait("reading where a partition begins and ends", operation_limit(), async move {
            let Some(topic) = shared.topics.get(number) else { return Ok((Offset(1), Offset(1))) };
            statistics::bounds(&shared, topic, partition).await
        })
    }

    fn watch_appends(&self, watcher: Arc<dyn AppendWatcher>) {
        *self.shared.watcher.write().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    /// What has expired the broker removes by itself; what is left to do are archive intents, and segments of what the streams have.
    fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, BusError> {
        let mut report = MaintenanceReport::default();
        let Some(Archiving { archive, stager, .. }) = &self.archiving else { return Ok(report) };
        let pass = Pass::default();
        stager.wake();
        self.export_segments(archive, &pass, now, &mut report);
        archive.drain(&pass, now, &FromBroker(self))?;
        archive.tell(&pass, &mut report);
        Ok(report)
    }

    fn set_control_key(&self, key: [u8; 32]) -> Result<(), BusError> {
        self.archiving.as_ref().map_or(Ok(()), |archiving| archiving.archive.add_key(&key))
    }

    fn set_control_keys(&self, newest_first: &[[u8; 32]]) -> Result<(), BusError> {
        self.archiving.as_ref().map_or(Ok(()), |archiving| archiving.archive.set_keys(newest_first))
    }

    fn archive_head(&self, topic: &str, partition: Partition) -> Result<Option<AttestedHead>, BusError> {
        self.archiving.as_ref().map_or(Ok(None), |archiving| archiving.archive.head(topic, partition))
    }

    fn archived_since(&self, topic: &str, partition: Partition) -> Result<Option<Offset>, BusError> {
        Ok(self.beginnings.since(topic, partition))
    }

    fn archive_statistics(&self) -> Option<ArchiveStatistics> {
        self.archiving.as_ref().map(|archiving| archiving.archive.statistics())
    }
}
