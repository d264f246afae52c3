//! The embedded engine: topics in one directory on this machine, owned by one process.
//!
//! One segmented log for each topic, shared by its partitions. One writer at a time commits everything in groups (`commit` decides,
//! `writer` does): a thread of its own, or a publisher that waits anyway. Reads run on the caller's thread (`reader`), derived files are
//! kept by another (`indexer`). `docs/formats/embedded-log.md` describes every file.
//!
//! Promises: an acknowledged record was synced. A record that was refused is not there. What could be either is called uncertain,
//! and its topic takes nothing more until it was opened again, because only reading the log can tell.
//!
//! Memory does not grow with the log but for about 24 bytes a partition in each full segment: positions and uids of a full segment
//! lie in files of their own (`segment_index`, `uid_runs`), which are derived and made again where they are missing or damaged.

mod append_file;
mod body;
mod cold;
mod commit;
pub(crate) mod directory;
mod events;
#[cfg(test)]
mod format_page;
mod frame;
mod frame_reader;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz_bodies;
mod heal;
mod in_order;
mod indexer;
mod lock;
mod numbers;
mod options;
mod positions;
mod prepared;
mod provision;
mod queue;
mod reader;
mod rebuild;
mod recovery;
mod retention;
mod retention_pass;
mod scan;
mod schemas;
mod segment;
mod segment_index;
mod segment_scan;
mod segment_start;
mod state_log;
mod state_scan;
mod state_writer;
mod statistics;
mod storage;
mod topic;
mod topic_log;
mod uid_hash;
mod uid_map;
mod uid_runs;
mod watermark;
mod window;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use bytes::Bytes;
use latent_core::{Clock, NewRecord, Offset, Partition, StoredRecord, Ticket, Uid, UncertainCause, UnixMillis};

use cold::{Cold, Exported, FromIndex};
use commit::{GroupCommit, Located, Submission};
use directory::{Layout, StoreId};
use events::{Events, TopicTraits};
use indexer::IndexWork;
use provision::OpenedDirectory;
use queue::{Bound, Cost, Grouping, Lane, Queue};
use reader::{FoundRecord, Range};
use recovery::{OpenedTopic, TopicToOpen, open_topic};
use segment::{Disk, OpenSegments};
use state_log::{StateLogToOpen, StateShared};
use topic::{Topic, TopicParts};
use topic_log::SegmentBounds;
use uid_hash::UidHasher;
use uid_runs::{FilterBudget, RunStore, UidHash};
use writer::{Asker, Command, Writer};

use crate::bus::batch;
use crate::cold::ArchiveStatistics;
use crate::cold::archive::{Archive, Pass};
use crate::cold::beginnings::{self, Beginnings};
use crate::cold::export::AttestedHead;
use crate::{AppendWatcher, BridgeManifest, BusError, EventBus, MaintenanceReport, PublishAck, PublishResult, RecordHead, limits};

pub use crate::{PartitionStatistics, TopicStatistics};
pub use lock::DirectoryLock;
pub use options::{EngineLimits, EngineOptions};
pub use state_log::{Durability, ReplayReport, StateLog};
pub use storage::{OpenAs, OsStorage, PathKind, Storage, StorageFile};

/// Name of the thread that writes.
const WRITER_THREAD: &str = "latent-log-writer";
/// Name of the thread that keeps indexes.
const INDEX_THREAD: &str = "latent-log-index";

/// An open data directory. Dropping it finishes what was handed over, stops the writer and releases the directory.
pub struct EmbeddedBroker {
    shared: Arc<Shared>,
    manifest: BridgeManifest,
    torn_records: u64,
    writer: Option<JoinHandle<()>>,
    indexer: Option<JoinHandle<()>>,
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
    writer: Mutex<Writer>,
    indexing: IndexWork,
    open_segments: OpenSegments,
    watcher: RwLock<Option<Arc<dyn AppendWatcher>>>,
    state_logs: Mutex<BTreeMap<String, Arc<StateShared>>>,
    /// None when no topic is archived.
    cold: Option<Cold>,
    /// From where on its topics are.
    beginnings: Beginnings,
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
    /// [`BusError::Config`] when the manifest is invalid or asks for what this engine cannot do, when a schema is not found or cannot be
    /// used, or when the directory is already provisioned; [`BusError::Io`].
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

    /// The manifest that a provisioned directory has now, also while another process has the directory. Takes no lock.
    ///
    /// # Errors
    /// [`BusError::Config`] when it has none, or not one of its own; [`BusError::Io`].
    pub fn manifest_of(directory: &Path) -> Result<BridgeManifest, BusError> {
        provision::manifest_of(&*EngineOptions::default().storage, &Layout::new(directory))
    }

    /// Opens a provisioned directory with default options.
    ///
    /// # Errors
    /// See [`EmbeddedBroker::open_with`].
    pub fn open(directory: &Path) -> Result<Self, BusError> {
        Self::open_with(directory, EngineOptions::default())
    }

    /// Opens a provisioned directory: reads the last segment of every log, cuts torn tails, makes indexes again that do not fit.
    ///
    /// # Errors
    /// [`BusError::Config`] when it is not provisioned, of an unknown format version, or has a file missing or changed;
    /// [`BusError::InUse`] naming the holder, [`BusError::OutboxInUse`]; [`BusError::Io`].
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
    /// durably, and so are changed schema files, which hold for what is published from then on. A schema file that is gone, to which the
    /// manifest refers as before, leaves the directory's copy in force.
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
        let EngineOptions { clock, storage, limits, holder: _, schema_roots: _, archive } = options;
        let open_segments = OpenSegments::new(usize::try_from(limits.open_segments).unwrap_or(usize::MAX));
        let topics = open_topics(&storage, &opened, limits, &open_segments)?;
        let OpenedDirectory { layout, lock, store, manifest, schemas: _ } = opened;
        let owner = format!("the embedded engine's directory {}", store.hex());
        let cold = Archive::open(&storage, &manifest, &archive, &layout.cold_outbox(), &owner)?.map(Cold::new);
        let first = |topic: &str, partition: Partition| {
            let opened = topics.iter().find(|opened| opened.log.topic.name == topic)?;
            opened.log.topic.bounds(partition).ok().map(|(first, _)| first)
        };
        let beginnings = Beginnings::keep(&*storage, &layout.cold_outbox(), &beginnings::archived(&manifest), &first)?;
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
            writer: Mutex::new(Writer::new(machine, logs)),
            indexing: IndexWork::default(),
            open_segments,
            watcher: RwLock::new(None),
            state_logs: Mutex::new(BTreeMap::new()),
            cold,
            beginnings,
        });
        let mut broker = Self { shared, manifest, torn_records, writer: None, indexer: None, _lock: lock };
        broker.indexer = Some(broker.spawn(INDEX_THREAD, |shared| indexer::run(&shared))?);
        broker.writer = Some(broker.spawn(WRITER_THREAD, |shared| shared.write_until_closed())?);
        (0..broker.shared.topics.len()).for_each(|topic| broker.shared.indexing.merge(topic));
        Ok(broker)
    }

    fn spawn(&self, name: &str, body: impl FnOnce(Arc<Shared>) + Send + 'static) -> Result<JoinHandle<()>, BusError> {
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || body(shared));
        spawned.map_err(|error| BusError::Backend(format!("the thread {name} could not be started: {error}")))
    }

    /// Whether this engine can do everything that a manifest asks for. Provisioning asks too; this is for whoever wants to know before.
    ///
    /// # Errors
    /// [`BusError::Config`] naming topic and field.
    pub fn check_supported(manifest: &BridgeManifest) -> Result<(), BusError> {
        provision::check_supported(manifest, None)
    }

    /// Whether the schema files of a manifest are found in the options' `schema_roots` and can be used. Provisioning asks too; this is
    /// for whoever wants to know before.
    ///
    /// # Errors
    /// [`BusError::Config`] naming topic and `schema_ref`.
    pub fn check_schemas(manifest: &BridgeManifest, options: &EngineOptions) -> Result<(), BusError> {
        schemas::Schemas::resolve(manifest, &options.schema_roots, None).map(drop)
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
        self.shared.queue.push(ALONE, Command::Raise { topic: number, partition: partition.0, next: next.0, completer })?;
        ticket.wait()
    }

    /// Expires what is older than each topic's `hot_hours` at `now_ms` (milliseconds since 1970), segment by segment. Returns how many
    /// records went.
    ///
    /// # Errors
    /// [`BusError::NotSent`] when the log is closed.
    pub fn enforce_retention(&self, now_ms: u64) -> Result<u64, BusError> {
        Ok(self.maintain(UnixMillis(now_ms))?.expired_records)
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
            engine: Arc::clone(&self.shared),
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
fn open_topics(
    storage: &Arc<dyn Storage>,
    opened: &OpenedDirectory,
    limits: EngineLimits,
    open_segments: &OpenSegments,
) -> Result<Vec<OpenedTopic>, BusError> {
    let mut specs: Vec<_> = opened.manifest.topics.iter().collect();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let hasher = UidHasher::of(opened.store);
    let budget = FilterBudget::new(limits.uid_filter_bytes);
    let schemas = opened.schemas.compiled();
    let open = |spec: &crate::TopicSpec| {
        let directory = opened.layout.topic(&spec.name);
        let salt = opened.store.salt(&format!("topics/{}", spec.name));
        let run_store = RunStore { storage: Arc::clone(storage), directory: directory.clone(), salt, budget: budget.clone() };
        let (name, hasher, hot_hours) = (spec.name.clone(), hasher.clone(), spec.retention.hot_hours.into());
        let bounds = SegmentBounds {
            bytes_max: limits.segment_bytes,
            records_max: limits.segment_records,
            preallocation_bytes: limits.preallocation_bytes,
        };
        let schema = schemas.get(&name).cloned();
        let parts = TopicParts { name, directory, salt, hot_hours, schema, run_store, hasher };
        open_topic(storage, open_segments, TopicToOpen { parts, partitions: spec.partitions, bounds })
    };
    specs.into_iter().map(open).collect()
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        self.shared.queue.close();
        join(self.writer.take(), "writer");
        self.shared.indexing.close();
        join(self.indexer.take(), "indexer");
    }
}

/// Waits for a thread to end. Dropped by the thread itself, from a watcher that held the last reference, it cannot wait for itself.
fn join(thread: Option<JoinHandle<()>>, name: &str) {
    let other = thread.filter(|thread| thread.thread().id() != std::thread::current().id());
    if other.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!("the log's {name} panicked");
    }
}

/// The cost of a command that changes more than a group.
const ALONE: Cost = Cost { lane: Lane::State, count: 1, bytes: 0, grouping: Grouping::Alone };

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

    fn disk(&self, topic: &Topic) -> Disk<'_> {
        Disk { storage: &*self.storage, open: &self.open_segments, salt: topic.salt }
    }

    /// Makes an event ready. A topic's schema has the first word, before anything is done; a uid that is not given is minted.
    fn prepare(&self, topic: &Topic, record: &NewRecord, events: &mut Events) -> Result<(), BusError> {
        if let Some(schema) = &topic.schema {
            schema.check(record.media_type(), record.payload())?;
        }
        let uid = record.uid.clone().map_or_else(|| crate::uid::mint(self.clock.unix()), Ok)?;
        events.push(uid, record, TopicTraits { partitions: topic.partitions, hasher: &topic.hasher })
    }

    /// Hands one record over.
    fn submit(&self, topic: &str, record: &NewRecord, waking: Waking) -> Result<Ticket<PublishResult>, BusError> {
        let (number, topic) = self.topic(topic)?;
        if topic.is_poisoned() {
            return Err(topic.poisoned_error());
        }
        let mut events = Events::default();
        self.prepare(topic, record, &mut events)?;
        let Some(uid) = events.events.first().map(|event| event.uid.clone()) else {
            return Err(BusError::Backend("no event was made of the record".to_owned()));
        };
        let (ticket, completer) = Ticket::pair(Err(BusError::Uncertain { uid, cause: UncertainCause::Closed }));
        self.hand_over(Submission { topic: number, events, behind: None, ticket: Asker::One(completer) }, waking)?;
        Ok(ticket)
    }

    fn hand_over(&self, submission: Submission<Asker>, waking: Waking) -> Result<(), BusError> {
        let (count, bytes) = (submission.events.events.len() as u64, submission.events.frames.len() as u64);
        let cost = Cost { lane: Lane::Records, count, bytes, grouping: Grouping::Shared };
        match waking {
            Waking::Writer => self.queue.push(cost, Command::Publish(submission)),
            Waking::Nobody => self.queue.push_quietly(cost, Command::Publish(submission)),
        }
    }

    /// Publishes records together and waits. One result for each, in order.
    fn publish_together(&self, name: &str, records: &[NewRecord]) -> Vec<PublishResult> {
        let (number, topic) = match self.topic(name) {
            Ok((_, topic)) if topic.is_poisoned() => return refused(records.len(), &topic.poisoned_error()),
            Ok(known) => known,
            Err(error) => return refused(records.len(), &error),
        };
        let mut events = Events::for_records(records);
        let ready: Vec<_> = records.iter().map(|record| self.prepare(topic, record, &mut events)).collect();
        let uids: Vec<_> = events.events.iter().map(|event| event.uid.clone()).collect();
        let (ticket, completer) = Ticket::pair(Vec::new());
        let handed_over =
            self.hand_over(Submission { topic: number, events, behind: None, ticket: Asker::Many(completer) }, Waking::Nobody);
        let results = match handed_over {
            Ok(()) => {
                self.write_if_idle();
                let results = ticket.wait();
                // No answers at all: the writer ended before it had any.
                let closed = |uid| Err(BusError::Uncertain { uid, cause: UncertainCause::Closed });
                if results.is_empty() { uids.into_iter().map(closed).collect() } else { results }
            }
            Err(error) => refused(uids.len(), &error),
        };
        if results.len() == records.len() {
            return results;
        }
        let mut results = results.into_iter();
        let missing = || Err(BusError::Backend("the log gave no answer to this event".to_owned()));
        ready.into_iter().map(|ready| ready.and_then(|()| results.next().unwrap_or_else(missing))).collect()
    }

    /// Looks a uid up. Where the index turns out to be damaged it is made again from the log first, so that derived data refuses nothing.
    fn look_up(&self, number: usize, topic: &Topic, uid: &Uid, hash: UidHash) -> Result<Option<FoundRecord>, BusError> {
        let disk = self.disk(topic);
        match reader::find(&disk, topic, uid, hash) {
            Err(BusError::Io { kind: std::io::ErrorKind::InvalidData, .. }) => {}
            answer => return answer,
        }
        heal::runs_again(&disk, topic, u64::MAX)?;
        self.indexing.merge(number);
        reader::find(&disk, topic, uid, hash)
    }

    /// Ends segments whose records begin to expire, in topics that are archived, so that they can be read to their end.
    fn end_old_segments(&self, now: UnixMillis) -> Result<(), BusError> {
        let (ticket, completer) = Ticket::pair(Err(writer_ended()));
        self.queue.push(ALONE, Command::EndOldSegments { now, completer })?;
        ticket.wait()
    }

    /// Expires what is old; of archived topics no more than what `exported` says.
    fn expire(&self, now: UnixMillis, exported: Exported) -> Result<MaintenanceReport, BusError> {
        let (ticket, completer) = Ticket::pair(Err(writer_ended()));
        self.queue.push(ALONE, Command::Maintain { now, exported, completer })?;
        ticket.wait()
    }

    fn find(&self, topic: &str, uid: &Uid) -> Result<Option<PublishAck>, BusError> {
        let (number, topic) = self.topic(topic)?;
        let found = self.look_up(number, topic, uid, topic.hasher.hash(uid.as_str()))?;
        Ok(found.map(|found| {
            let Located { partition, offset } = found.identity.into();
            PublishAck { topic: topic.name.clone(), partition: partition.into(), offset, uid: uid.as_str().to_owned(), duplicate: false }
        }))
    }
}

/// Whether the log's own thread is woken for a command, or whoever gives it sees to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waking {
    Writer,
    Nobody,
}

fn refused(count: usize, error: &BusError) -> Vec<PublishResult> {
    vec![Err(error.clone()); count]
}

impl EventBus for EmbeddedBroker {
    fn submit_record(&self, topic: &str, record: NewRecord) -> Ticket<PublishResult> {
        self.shared.submit(topic, &record, Waking::Writer).unwrap_or_else(|error| Ticket::ready(Err(error)))
    }

    fn publish_record(&self, topic: &str, record: &NewRecord) -> PublishResult {
        let ticket = self.shared.submit(topic, record, Waking::Nobody)?;
        self.shared.write_if_idle();
        ticket.wait()
    }

    fn publish_batch(&self, topic: &str, records: &[NewRecord]) -> Vec<PublishResult> {
        let mut results = Vec::with_capacity(records.len());
        let mut rest = records;
        while !rest.is_empty() {
            let (together, later) = rest.split_at(together(rest, &self.shared.limits));
            results.extend(self.shared.publish_together(topic, together));
            rest = later;
            if let Some(failed) = results.iter().find_map(batch::may_pass) {
                let behind = batch::behind(failed);
                results.extend(refused(rest.len(), &behind));
                break;
            }
        }
        results
    }

    fn submit_fetch(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
        let shared = &*self.shared;
        let range = shared.range(partition, offset, max);
        Ticket::ready(shared.topic(topic).and_then(|(_, topic)| reader::fetch(&shared.disk(topic), topic, range)))
    }

    fn submit_heads(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
        let shared = &*self.shared;
        let range = shared.range(partition, offset, max);
        Ticket::ready(shared.topic(topic).and_then(|(_, topic)| reader::heads(&shared.disk(topic), topic, range)))
    }

    fn submit_remains(&self, topic: &str, partition: Partition, offset: Offset) -> Ticket<Result<Bytes, BusError>> {
        let shared = &*self.shared;
        let range = shared.range(partition, offset, 1);
        Ticket::ready(shared.topic(topic).and_then(|(_, topic)| reader::remains(&shared.disk(topic), topic, range)))
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

    fn maintain(&self, now: UnixMillis) -> Result<MaintenanceReport, BusError> {
        let Some(cold) = &self.shared.cold else { return self.shared.expire(now, Exported::new()) };
        let pass = Pass::default();
        let mut archived = MaintenanceReport::default();
        self.shared.end_old_segments(now)?;
        let exported = cold.export(&self.shared, &pass, now, &mut archived);
        let mut report = self.shared.expire(now, exported)?;
        cold.archive.drain(&pass, now, &FromIndex(&self.shared))?;
        cold.archive.tell(&pass, &mut report);
        report.unarchived_topics = archived.unarchived_topics;
        report.archived_records = archived.archived_records;
        Ok(report)
    }

    fn set_control_key(&self, key: [u8; 32]) -> Result<(), BusError> {
        self.shared.cold.as_ref().map_or(Ok(()), |cold| cold.archive.add_key(&key))
    }

    fn set_control_keys(&self, newest_first: &[[u8; 32]]) -> Result<(), BusError> {
        self.shared.cold.as_ref().map_or(Ok(()), |cold| cold.archive.set_keys(newest_first))
    }

    fn archive_head(&self, topic: &str, partition: Partition) -> Result<Option<AttestedHead>, BusError> {
        self.shared.cold.as_ref().map_or(Ok(None), |cold| cold.archive.head(topic, partition))
    }

    fn archived_since(&self, topic: &str, partition: Partition) -> Result<Option<Offset>, BusError> {
        Ok(self.shared.beginnings.since(topic, partition))
    }

    fn archive_statistics(&self) -> Option<ArchiveStatistics> {
        self.shared.cold.as_ref().map(|cold| cold.archive.statistics())
    }

    fn watch_appends(&self, watcher: Arc<dyn AppendWatcher>) {
        *self.shared.watcher.write().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }
}

fn writer_ended() -> BusError {
    BusError::Backend("the log's writer ended before it answered".to_owned())
}

/// How many of `records`, at least one, are handed over at once: no more than one group and one segment may hold.
fn together(records: &[NewRecord], engine: &EngineLimits) -> usize {
    let count_max = limits::BATCH_IN_FLIGHT.default.min(engine.group_records);
    let bytes_max = limits::BATCH_IN_FLIGHT_BYTES.default.min(engine.group_bytes).min(engine.segment_bytes);
    let mut bytes = 0;
    let fits = |record: &&NewRecord| {
        bytes += events::frame_bytes_max(record);
        bytes <= bytes_max
    };
    records.iter().take(usize::try_from(count_max).unwrap_or(usize::MAX)).take_while(fits).count().max(1)
}
