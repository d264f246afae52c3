//! The embedded engine: topics in one directory on this machine, owned by one process.
//!
//! One segmented log for each topic, shared by its partitions. One writer thread commits everything in groups (`commit` decides,
//! `writer` does); reads run on the caller's thread (`reader`). `docs/formats/embedded-log.md` describes every file.
//!
//! Promises: an acknowledged record was synced. A record that was refused is not there. What could be either is called uncertain,
//! and its topic takes nothing more until it was opened again, because only reading the log can tell.
//!
//! Limitation: positions and the uid index are in memory (together about 72 bytes a record) and are rebuilt by reading the whole log
//! at opening. `positions` and `uid_index` are the seams for bounded ones.

mod append_file;
mod body;
mod commit;
mod directory;
#[cfg(test)]
mod format_page;
mod frame;
mod lock;
mod options;
mod positions;
mod provision;
mod queue;
mod reader;
mod rebuild;
mod recovery;
mod scan;
mod segment_reader;
mod state_log;
mod state_scan;
mod statistics;
mod storage;
mod topic;
mod topic_log;
mod uid_index;
mod watermark;
mod window;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use latent_core::{Clock, NewRecord, Offset, Partition, StoredRecord, Ticket, Uid, UncertainCause, partition_for};

use commit::{GroupCommit, Submission};
use directory::{Layout, StoreId};
use lock::DirectoryLock;
use provision::OpenedDirectory;
use queue::{Bound, Cost, Grouping, Lane, Queue};
use reader::Range;
use recovery::{OpenedTopic, TopicToOpen, open_topic};
use state_log::{StateLogToOpen, StateShared};
use topic::Topic;
use uid_index::UidHash;
use writer::{Command, Writer};

use crate::{AppendWatcher, BridgeManifest, BusError, EventBus, PublishAck, PublishResult, RecordHead, limits};

pub use options::{EngineLimits, EngineOptions};
pub use state_log::{Durability, ReplayReport, StateLog};
pub use statistics::{PartitionStatistics, TopicStatistics};
pub use storage::{OpenAs, OsStorage, PathKind, Storage, StorageFile};

/// Name of the thread that writes.
const WRITER_THREAD: &str = "latent-log-writer";

/// An open data directory. Dropping it finishes what was handed over, stops the writer and releases the directory.
pub struct EmbeddedBroker {
    shared: Arc<Shared>,
    manifest: BridgeManifest,
    torn_records: u64,
    writer: Option<JoinHandle<()>>,
    /// Last, so that it is released when the writer has ended.
    _lock: DirectoryLock,
}

struct Shared {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    limits: EngineLimits,
    layout: Layout,
    store: StoreId,
    /// Sorted by name.
    topics: Vec<Arc<Topic>>,
    queue: Arc<Queue<Command>>,
    watcher: RwLock<Option<Arc<dyn AppendWatcher>>>,
    state_logs: Mutex<BTreeMap<String, Arc<StateShared>>>,
}

impl EmbeddedBroker {
    /// Creates a data directory for `manifest` and opens it, with default options.
    ///
    /// # Errors
    /// See [`EmbeddedBroker::provision_with`].
    pub fn provision(directory: &Path, manifest: &BridgeManifest) -> Result<Self, BusError> {
        Self::provision_with(directory, manifest, EngineOptions::default())
    }

    /// Creates a data directory for `manifest` and opens it.
    ///
    /// # Errors
    /// [`BusError::Config`] when the manifest is invalid or asks for what this engine cannot do, or when the directory is already
    /// provisioned; [`BusError::Io`].
    pub fn provision_with(directory: &Path, manifest: &BridgeManifest, options: EngineOptions) -> Result<Self, BusError> {
        Self::start(provision::provision(directory, manifest, &options)?, options)
    }

    /// True when the directory was provisioned: it has a manifest, whatever else is in it. Takes no lock.
    ///
    /// # Errors
    /// [`BusError::Io`] when it cannot be looked at.
    pub fn is_provisioned(directory: &Path) -> Result<bool, BusError> {
        provision::is_provisioned(&*EngineOptions::default().storage, &Layout::new(directory))
    }

    /// Opens a provisioned directory with default options.
    ///
    /// # Errors
    /// See [`EmbeddedBroker::open_with`].
    pub fn open(directory: &Path) -> Result<Self, BusError> {
        Self::open_with(directory, EngineOptions::default())
    }

    /// Opens a provisioned directory: reads every log, cuts torn tails, rebuilds the indexes.
    ///
    /// # Errors
    /// [`BusError::Config`] when it is not provisioned, of an unknown format version, or missing a file; [`BusError::InUse`] naming the
    /// holder; [`BusError::Io`].
    pub fn open_with(directory: &Path, options: EngineOptions) -> Result<Self, BusError> {
        Self::start(provision::open(directory, &options)?, options)
    }

    /// Opens a directory and brings it to `manifest`, provisioning it when it is not yet, with default options.
    ///
    /// # Errors
    /// See [`EmbeddedBroker::open_or_apply_with`].
    pub fn open_or_apply(directory: &Path, manifest: &BridgeManifest) -> Result<Self, BusError> {
        Self::open_or_apply_with(directory, manifest, EngineOptions::default())
    }

    /// Opens a directory and brings it to `manifest`, provisioning it when it is not yet. Added topics and changed retention are applied
    /// durably.
    ///
    /// # Errors
    /// [`BusError::Config`], with nothing changed, when the manifest changes the name or a partition count, or leaves a topic out; else
    /// as [`EmbeddedBroker::provision_with`] and [`EmbeddedBroker::open_with`].
    pub fn open_or_apply_with(directory: &Path, manifest: &BridgeManifest, options: EngineOptions) -> Result<Self, BusError> {
        if !provision::is_provisioned(&*options.storage, &Layout::new(directory))? {
            return Self::provision_with(directory, manifest, options);
        }
        let mut opened = provision::open(directory, &options)?;
        provision::apply(&mut opened, manifest, &options)?;
        Self::start(opened, options)
    }

    fn start(opened: OpenedDirectory, options: EngineOptions) -> Result<Self, BusError> {
        let EngineOptions { clock, storage, limits, holder: _ } = options;
        let topics = open_topics(&storage, &opened, limits)?;
        let OpenedDirectory { layout, lock, store, manifest } = opened;
        let machine = GroupCommit::new(topics.iter().map(|opened| (opened.log.topic.name.clone(), opened.next.clone())));
        let torn_records = topics.iter().map(|opened| opened.torn).sum();
        let logs: Vec<_> = topics.into_iter().map(|opened| opened.log).collect();
        let queue = Queue::new(
            Bound { count: limits.queue_records, bytes: limits.queue_bytes },
            Bound { count: limits.state_queue_entries, bytes: limits.state_queue_bytes },
        );
        let shared = Arc::new(Shared {
            storage,
            clock,
            limits,
            layout,
            store,
            topics: logs.iter().map(|log| Arc::clone(&log.topic)).collect(),
            queue: Arc::new(queue),
            watcher: RwLock::new(None),
            state_logs: Mutex::new(BTreeMap::new()),
        });
        let writer = Writer::new(Arc::clone(&shared), machine, logs);
        let writer = std::thread::Builder::new().name(WRITER_THREAD.to_owned()).spawn(move || writer.run());
        let writer = writer.map_err(|error| BusError::Backend(format!("the writer thread could not be started: {error}")))?;
        Ok(Self { shared, manifest, torn_records, writer: Some(writer), _lock: lock })
    }

    /// Whether this engine can do everything that a manifest asks for. Provisioning asks too; this is for whoever wants to know before.
    ///
    /// # Errors
    /// [`BusError::Config`] naming topic and field.
    pub fn check_supported(manifest: &BridgeManifest) -> Result<(), BusError> {
        provision::check_supported(manifest)
    }

    /// The manifest in force.
    pub fn manifest(&self) -> &BridgeManifest {
        &self.manifest
    }

    /// Unfinished last writes that were cut when the directory was opened: at most one for each topic.
    pub fn recovered_torn_records(&self) -> u64 {
        self.torn_records
    }

    /// Numbers of every topic, sorted by name.
    pub fn statistics(&self) -> Vec<TopicStatistics> {
        self.shared.topics.iter().map(|topic| statistics::of_topic(topic)).collect()
    }

    /// Gives up every offset of a partition below `next`: no record will be stored there, and reading there is
    /// [`BusError::Unreadable`]. For whoever keeps offsets in files of their own and finds some that this log has lost (B-030). Waits
    /// until that is durable; an offset the log has passed already changes nothing.
    ///
    /// # Errors
    /// [`BusError::UnknownTopic`]; [`BusError::OutOfRange`] for an unknown partition or more than `raised_offsets` at once;
    /// [`BusError::Poisoned`], [`BusError::Io`].
    pub fn raise_next(&self, topic: &str, partition: Partition, next: Offset) -> Result<(), BusError> {
        let (number, shared) = self.shared.topic(topic)?;
        let (_, known) = shared.bounds(partition)?;
        let given_up = next.0.saturating_sub(known.0);
        if given_up == 0 {
            return Ok(());
        }
        limits::RAISED_OFFSETS.check(given_up).map_err(|error| {
            let what = format!("offset {next} of topic {topic:?}, partition {partition}");
            BusError::OutOfRange { what, problem: format!("the log ends at {known}: {error}") }
        })?;
        let closed = BusError::NotSent { reason: "the log was closed".to_owned() };
        let (ticket, completer) = Ticket::pair(Err(closed));
        let cost = Cost { lane: Lane::State, bytes: 0, grouping: Grouping::Alone };
        self.shared.queue.push(cost, Command::Raise { topic: number, partition: partition.0, next: next.0, completer })?;
        ticket.wait()
    }

    /// Whether the state log `name` was ever made.
    pub fn has_state_log(&self, name: &str) -> bool {
        let path = self.shared.layout.state_log(name);
        check_state_name(name).is_ok() && self.shared.storage.kind(&path).is_ok_and(|kind| kind != PathKind::Missing)
    }

    /// Opens the state log `name` (letters, digits, `_` and `-`), creating it when it is new. The same name gives the same log.
    ///
    /// # Errors
    /// [`BusError::Config`] for a bad name, [`BusError::Busy`] when too many are open, [`BusError::Io`].
    pub fn state_log(&self, name: &str) -> Result<StateLog, BusError> {
        let shared = &*self.shared;
        check_state_name(name)?;
        let mut open = shared.state_logs.lock().unwrap_or_else(PoisonError::into_inner);
        let log = match open.get(name) {
            Some(log) => Arc::clone(log),
            None if open.len() as u64 >= shared.limits.state_logs => return Err(BusError::Busy { limit: limits::STATE_LOGS.name }),
            None => {
                let wanted = StateLogToOpen {
                    name,
                    path: shared.layout.state_log(name),
                    salt: shared.store.salt(&format!("state/{name}")),
                    preallocation_bytes: shared.limits.preallocation_bytes,
                };
                let log = Arc::new(StateShared::open(&*shared.storage, wanted)?);
                open.insert(name.to_owned(), Arc::clone(&log));
                log
            }
        };
        Ok(StateLog {
            shared: log,
            queue: Arc::clone(&shared.queue),
            entry_bytes_max: shared.limits.state_entry_bytes,
            log_bytes_max: shared.limits.state_log_bytes,
        })
    }
}

fn check_state_name(name: &str) -> Result<(), BusError> {
    let bytes_max = limits::STATE_LOG_NAME_BYTES.max_usize();
    let fits = !name.is_empty() && name.len() <= bytes_max;
    if !fits || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
        let problem = format!("a state log's name is 1 to {bytes_max} letters, digits, `_` and `-`, not {name:.80?}");
        return Err(BusError::Config { problem });
    }
    Ok(())
}

/// Opens every topic, in the order of their names.
fn open_topics(storage: &Arc<dyn Storage>, opened: &OpenedDirectory, limits: EngineLimits) -> Result<Vec<OpenedTopic>, BusError> {
    let mut specs: Vec<_> = opened.manifest.topics.iter().collect();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let open = |spec: &crate::TopicSpec| {
        let wanted = TopicToOpen {
            name: &spec.name,
            partitions: spec.partitions,
            directory: opened.layout.topic(&spec.name),
            salt: opened.store.salt(&format!("topics/{}", spec.name)),
            segment_bytes_max: limits.segment_bytes,
            preallocation_bytes: limits.preallocation_bytes,
        };
        open_topic(storage, wanted)
    };
    specs.into_iter().map(open).collect()
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        self.shared.queue.close();
        // Dropped by the writer itself, from a watcher that held the last reference, it cannot wait for itself.
        let writer = self.writer.take().filter(|writer| writer.thread().id() != std::thread::current().id());
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the log's writer panicked");
        }
    }
}

impl Shared {
    fn topic(&self, name: &str) -> Result<(usize, &Arc<Topic>), BusError> {
        let found = self.topics.binary_search_by(|topic| topic.name.as_str().cmp(name)).ok();
        let topic = found.and_then(|at| self.topics.get(at).map(|topic| (at, topic)));
        topic.ok_or_else(|| BusError::UnknownTopic { topic: name.chars().take(120).collect() })
    }

    fn watcher(&self) -> Option<Arc<dyn AppendWatcher>> {
        self.watcher.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn range(&self, partition: Partition, offset: Offset, max: usize) -> Range {
        let count_max = usize::try_from(self.limits.fetch_records).unwrap_or(usize::MAX).min(max);
        Range { partition, offset, count_max, bytes_max: self.limits.fetch_bytes }
    }

    fn mint_uid(&self) -> Result<Uid, BusError> {
        let millis = self.clock.unix().0;
        let nanos = u32::try_from(millis % 1_000 * 1_000_000).unwrap_or(0);
        let uuid = uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, millis / 1_000, nanos));
        Ok(Uid::parse(&uuid.to_string())?)
    }

    fn submit(&self, topic: &str, record: &NewRecord) -> Result<Ticket<PublishResult>, BusError> {
        let (number, topic) = self.topic(topic)?;
        if topic.is_poisoned() {
            return Err(topic.poisoned_error());
        }
        let uid = record.uid.clone().map_or_else(|| self.mint_uid(), Ok)?;
        let too_large = || BusError::Rejected { rule: "the record is larger than its fields may be".to_owned(), permanent: true };
        let body = body::encode(&uid, record).ok_or_else(too_large)?;
        let cost = Cost { lane: Lane::Records, bytes: body.bytes.len() as u64, grouping: Grouping::Shared };
        let (ticket, completer) = Ticket::pair(Err(BusError::Uncertain { uid: uid.clone(), cause: UncertainCause::Closed }));
        let submission = Submission {
            topic: number,
            partition: partition_for(record.key(), topic.partitions).0,
            uid_hash: UidHash::of(uid.as_str()),
            uid,
            body,
            ticket: completer,
        };
        self.queue.push(cost, Command::Publish(submission))?;
        Ok(ticket)
    }

    fn find(&self, topic: &str, uid: &Uid) -> Result<Option<PublishAck>, BusError> {
        let (_, topic) = self.topic(topic)?;
        let found = reader::read_located(&*self.storage, topic, UidHash::of(uid.as_str()))?;
        let same = found.filter(|(_, body)| body::decode_uid(body) == Some(uid.as_str()));
        Ok(same.map(|(at, _)| PublishAck {
            topic: topic.name.clone(),
            partition: at.partition,
            offset: at.offset,
            uid: uid.as_str().to_owned(),
            duplicate: false,
        }))
    }
}

impl EventBus for EmbeddedBroker {
    fn submit_record(&self, topic: &str, record: NewRecord) -> Ticket<PublishResult> {
        self.shared.submit(topic, &record).unwrap_or_else(|error| Ticket::ready(Err(error)))
    }

    fn submit_fetch(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
        let shared = &*self.shared;
        let range = shared.range(partition, offset, max);
        Ticket::ready(shared.topic(topic).and_then(|(_, topic)| reader::fetch(&*shared.storage, topic, range)))
    }

    fn submit_heads(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
        let shared = &*self.shared;
        let range = shared.range(partition, offset, max);
        Ticket::ready(shared.topic(topic).and_then(|(_, topic)| reader::heads(&*shared.storage, topic, range)))
    }

    fn submit_find(&self, topic: &str, _key: &str, uid: &Uid) -> Ticket<Result<Option<PublishAck>, BusError>> {
        Ticket::ready(self.shared.find(topic, uid))
    }

    fn partitions(&self, topic: &str) -> Result<u32, BusError> {
        Ok(self.shared.topic(topic)?.1.partitions)
    }

    fn topics(&self) -> Vec<String> {
        self.shared.topics.iter().map(|topic| topic.name.clone()).collect()
    }

    fn bounds(&self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError> {
        self.shared.topic(topic)?.1.bounds(partition)
    }

    fn watch_appends(&self, watcher: Arc<dyn AppendWatcher>) {
        *self.shared.watcher.write().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }
}
