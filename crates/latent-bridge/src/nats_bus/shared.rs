//! What the bus, its tasks and its operations share: the connection, the topics with what is known of their streams, the publications in
//! flight, the readers that are kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use latent_core::{Clock, NewRecord, Partition, Ticket, Uid, UnixMillis};
use tokio::sync::{Notify, Semaphore};

use super::api::Api;
use super::body::Behind;
use super::flights::{Flights, SubjectNumber};
use super::given::Given;
use super::history::History;
use super::reading::KeptReaders;
use super::record::Source;
use super::revive::Dial;
use super::streams::{TopicStream, subject};
use super::uid_index::UidIndex;
use super::unparsable::Unparsable;
use crate::{AppendWatcher, BusError, PublishResult, TopicSchema, limits};

/// See the module.
pub(super) struct Shared {
    pub(super) api: Api,
    pub(super) dial: Dial,
    pub(super) clock: Arc<dyn Clock>,
    /// Sorted by name.
    pub(super) topics: Vec<Topic>,
    pub(super) air: Arc<Air>,
    pub(super) watcher: RwLock<Option<Arc<dyn AppendWatcher>>>,
    pub(super) reads: Semaphore,
    pub(super) kept: KeptReaders,
    /// Acknowledgements come to `<inbox>.<number of the flight>`.
    pub(super) ack_inbox: String,
}

/// The publications in flight, shared with who hears the connection's events.
pub(super) struct Air {
    flights: Mutex<Flights<Cargo>>,
    /// Told when there is a first deadline to wait for.
    pub(super) boarded: Notify,
    /// Told when a subject is refused and not all of its flights have ended by that.
    pub(super) refused: Notify,
    /// Subjects, sorted, so that a refusal finds its number. Filled when the topics are known.
    subjects: RwLock<Vec<(String, SubjectNumber)>>,
}

/// One publication in flight.
pub(super) struct Cargo {
    pub(super) topic: usize,
    pub(super) partition: Partition,
    pub(super) uid: Uid,
    pub(super) record: NewRecord,
    /// Where alone the stream may take it.
    pub(super) behind: Option<Behind>,
    pub(super) stored_at: UnixMillis,
    pub(super) completer: latent_core::Completer<PublishResult>,
}

/// A topic and its stream.
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) partitions: u32,
    pub(super) schema: Option<Arc<TopicSchema>>,
    pub(super) source: Source,
    /// By partition.
    pub(super) subjects: Vec<async_nats::Subject>,
    pub(super) history: Mutex<History>,
    unparsable: Mutex<Unparsable>,
    given: Mutex<Given>,
    /// By partition; held while a lookup reads.
    pub(super) indexes: Vec<tokio::sync::Mutex<Indexed>>,
}

/// What lookups know of a partition, and of which history that is.
pub(super) struct Indexed {
    pub(super) epoch: u64,
    pub(super) uids: UidIndex,
}

impl Topic {
    pub(super) fn new(found: TopicStream, schema: Option<Arc<TopicSchema>>, uids_max: usize) -> Self {
        let TopicStream { name, stream, partitions, replicas, created, last_seq } = found;
        let subjects = (0..partitions).map(|partition| async_nats::Subject::from(subject(&name, partition))).collect();
        let index = || tokio::sync::Mutex::new(Indexed { epoch: 0, uids: UidIndex::new(uids_max) });
        Self {
            name,
            partitions,
            schema,
            source: Source { stream, replicas },
            subjects,
            history: Mutex::new(History::new(created, last_seq)),
            unparsable: Mutex::default(),
            given: Mutex::default(),
            indexes: (0..partitions).map(|_| index()).collect(),
        }
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where readers stand.
    pub(super) fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places that no consumer may deliver.
    pub(super) fn unparsable(&self) -> MutexGuard<'_, Unparsable> {
        self.unparsable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The subject of a partition.
    pub(super) fn subject(&self, partition: Partition) -> Result<&async_nats::Subject, BusError> {
        let known = usize::try_from(partition.0).ok().and_then(|at| self.subjects.get(at));
        known.ok_or_else(|| BusError::OutOfRange {
            what: format!("partition {partition}"),
            problem: format!("topic {:?} has {} partitions, counted from 0", self.name, self.partitions),
        })
    }

    /// A reader goes on at `from`. An error when it holds that offset of an earlier history.
    pub(super) fn goes_on(&self, partition: Partition, from: u64) -> Result<(), BusError> {
        let epoch = self.history().epoch();
        if !self.given().goes_on(epoch, partition, from) {
            return Ok(());
        }
        let problem = format!("offset {from} of partition {partition} was given in the stream as it was before");
        Err(BusError::HistoryChanged { topic: self.name.clone(), problem })
    }

    pub(super) fn history_changed(&self, problem: String) -> BusError {
        tracing::error!(topic = self.name, problem, "the history of a topic has changed; what was remembered of it is forgotten");
        BusError::HistoryChanged { topic: self.name.clone(), problem }
    }
}

impl Air {
    pub(super) fn new() -> Self {
        let flights = Flights::new(limits::FLIGHTS.default_usize(), limits::FLIGHT_BYTES.default_usize());
        Self { flights: Mutex::new(flights), boarded: Notify::new(), refused: Notify::new(), subjects: RwLock::default() }
    }

    pub(super) fn flights(&self) -> MutexGuard<'_, Flights<Cargo>> {
        // Each change is one call of the machine, which cannot panic half-way.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which subjects there are.
    pub(super) fn know(&self, topics: &[Topic]) {
        let of_topic = |(topic, known): (usize, &Topic)| -> Vec<(String, SubjectNumber)> {
            let numbered = (0..known.partitions).zip(&known.subjects);
            numbered.map(|(partition, subject)| (subject.to_string(), SubjectNumber { topic, partition })).collect()
        };
        let mut subjects: Vec<_> = topics.iter().enumerate().flat_map(of_topic).collect();
        subjects.sort();
        *self.subjects.write().unwrap_or_else(PoisonError::into_inner) = subjects;
    }

    /// The number of a subject.
    pub(super) fn number(&self, subject: &str) -> Option<SubjectNumber> {
        let subjects = self.subjects.read().unwrap_or_else(PoisonError::into_inner);
        let at = subjects.binary_search_by(|(known, _)| known.as_str().cmp(subject)).ok()?;
        subjects.get(at).map(|(_, number)| *number)
    }
}

impl Shared {
    pub(super) fn topic(&self, name: &str) -> Result<(usize, &Topic), BusError> {
        let found = self.topics.binary_search_by(|topic| topic.name.as_str().cmp(name)).ok();
        let topic = found.and_then(|at| self.topics.get(at).map(|topic| (at, topic)));
        topic.ok_or_else(|| BusError::UnknownTopic { topic: name.chars().take(120).collect() })
    }

    pub(super) fn watcher(&self) -> Option<Arc<dyn AppendWatcher>> {
        self.watcher.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A partition of a topic, or why there is none.
    pub(super) fn partition(&self, topic: &str, partition: Partition) -> Result<(usize, &Topic), BusError> {
        let (number, topic) = self.topic(topic)?;
        topic.subject(partition)?;
        Ok((number, topic))
    }
}

/// A ticket for what is known already.
pub(super) fn refused<T>(error: BusError) -> Ticket<Result<T, BusError>> {
    Ticket::ready(Err(error))
}
