//! A log for commands that read or write much of it: as it is, where this process has it, else through the running node.

use std::sync::{Arc, Mutex, PoisonError};

use latent_bridge::cold::ArchiveStatistics;
use latent_bridge::cold::export::{ArchiveHead, AttestedHead};
use latent_bridge::{AppendWatcher, BusError, EventBus, HeadContent, MaintenanceReport, PublishAck, PublishResult, RecordHead};
use latent_core::{Attributes, MediaType, NewRecord, Offset, Partition, Record, StoredRecord, Ticket, Uid, UncertainCause, UnixMillis};

use super::Access;
use crate::control::{Answer, ControlError, Event, Fault, HeadInfo, NewEvent, Payload, Published, Request};
use crate::error::CliError;
use crate::limits;

/// A log, and what keeps it open.
pub(crate) struct CommandBus {
    bus: Arc<dyn EventBus>,
    /// None: a running node has it.
    access: Option<Access>,
}

impl CommandBus {
    /// The log behind an access.
    ///
    /// # Errors
    /// [`CliError::Log`] when it is on a broker that cannot be opened.
    pub(crate) fn of(access: Access) -> Result<Self, CliError> {
        let target = match &access {
            Access::Node(_) => None,
            Access::Directory(directory) => Some(Arc::clone(&directory.target)),
            Access::Broker(broker) => Some(Arc::clone(&broker.target)),
        };
        let Some(target) = target else {
            return Ok(Self { bus: Arc::new(NodeBus(Mutex::new(access))), access: None });
        };
        let bus = target.bus().map_err(|fault| CliError::Log { doing: "opening the log".to_owned(), fault })?;
        Ok(Self { bus, access: Some(access) })
    }

    /// Whether a running node is asked, which knows more than lies in files.
    pub(crate) const fn is_of_node(&self) -> bool {
        self.access.is_none()
    }

    /// The log.
    pub(crate) fn bus(&self) -> &Arc<dyn EventBus> {
        &self.bus
    }
}

/// The log of a running node, over its control socket. One request is under way at a time.
struct NodeBus(Mutex<Access>);

impl NodeBus {
    fn ask(&self, request: Request) -> Result<Answer, ControlError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).try_ask(request)
    }

    /// For what changes nothing.
    fn read(&self, request: Request, place: (&str, Partition)) -> Result<Answer, BusError> {
        self.ask(request).map_err(|error| match error {
            ControlError::Refused(fault) => error_of(&fault, place),
            error => BusError::NotSent { reason: error.to_string() },
        })
    }

    fn publish_some(&self, topic: &str, records: &[NewRecord]) -> Vec<PublishResult> {
        let event = |record: &NewRecord| NewEvent {
            uid: record.uid.as_ref().map(|uid| uid.as_str().to_owned()),
            key: record.key().to_owned(),
            media_type: record.media_type().as_str().to_owned(),
            attributes: record.attributes().iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            payload: Payload(record.payload().clone()),
        };
        let asked = self.ask(Request::Publish { topic: topic.to_owned(), events: records.iter().map(event).collect() });
        let all = |error: BusError| records.iter().map(|_| Err(error.clone())).collect();
        match asked {
            Ok(Answer::Published(published)) if published.len() == records.len() => {
                published.into_iter().map(|one| result_of(topic, one)).collect()
            }
            Ok(_) => all(unexpected()),
            Err(ControlError::Refused(fault)) => all(error_of(&fault, (topic, Partition(0)))),
            Err(error) if error.may_have_happened() => {
                let uncertain = |record: &NewRecord| match &record.uid {
                    Some(uid) => Err(BusError::Uncertain { uid: uid.clone(), cause: UncertainCause::Closed }),
                    None => Err(BusError::Backend(error.to_string())),
                };
                records.iter().map(uncertain).collect()
            }
            Err(error) => all(BusError::NotSent { reason: error.to_string() }),
        }
    }
}

fn unexpected() -> BusError {
    BusError::Backend("the node answered something else than it was asked for".to_owned())
}

fn result_of(topic: &str, published: Published) -> PublishResult {
    match published {
        Published::Fault(fault) => Err(error_of(&fault, (topic, Partition(0)))),
        Published::Stored(placed) => Ok(PublishAck {
            topic: placed.topic,
            partition: placed.partition,
            offset: placed.offset,
            uid: placed.uid,
            duplicate: placed.duplicate,
        }),
    }
}

/// What a fault of the node means to whoever speaks with a log.
fn error_of(fault: &Fault, (topic, partition): (&str, Partition)) -> BusError {
    if let Some(next) = fault.continue_at {
        return BusError::Unreadable { topic: topic.to_owned(), partition: partition.0, offset: next.saturating_sub(1) };
    }
    if fault.is_unknown_topic() {
        return BusError::UnknownTopic { topic: topic.to_owned() };
    }
    match (fault.permanent, fault.is_busy()) {
        (true, _) => BusError::Rejected { rule: fault.message.clone(), permanent: true },
        (false, true) => BusError::NotSent { reason: fault.message.clone() },
        (false, false) => BusError::Backend(fault.message.clone()),
    }
}

fn stored(event: Event) -> Result<StoredRecord, BusError> {
    let record = Record {
        uid: Uid::parse(&event.uid)?,
        key: event.key,
        media_type: MediaType::parse(&event.media_type)?,
        attributes: Attributes::stored(event.attributes)?,
        payload: event.payload.0,
        stored_at: UnixMillis(event.stored_at),
    };
    Ok(StoredRecord { partition: Partition(event.partition), offset: Offset(event.offset), record })
}

fn attested(topic: &str, partition: Partition, info: HeadInfo) -> Option<AttestedHead> {
    let head = ArchiveHead::unproven(&info.document).filter(|head| head.place.topic == topic && head.place.partition == partition)?;
    Some(AttestedHead { head, document: info.document })
}

impl EventBus for NodeBus {
    fn submit_record(&self, topic: &str, record: NewRecord) -> Ticket<PublishResult> {
        Ticket::ready(self.publish_some(topic, &[record]).pop().unwrap_or_else(|| Err(unexpected())))
    }

    fn publish_batch(&self, topic: &str, records: &[NewRecord]) -> Vec<PublishResult> {
        let mut results: Vec<PublishResult> = Vec::with_capacity(records.len());
        while let Some(rest) = records.get(results.len()..).filter(|rest| !rest.is_empty()) {
            if results.iter().any(|result| result.as_ref().is_err_and(|error| !error.is_permanent())) {
                // What comes behind must not overtake.
                let behind = BusError::NotSent { reason: "an event before it was not stored".to_owned() };
                results.extend(rest.iter().map(|_| Err(behind.clone())));
                break;
            }
            let mut bytes = 0;
            let fits = |record: &&NewRecord| {
                bytes += record.key().len() + record.payload().len();
                bytes <= limits::PUBLISH_BATCH_BYTES.max_usize()
            };
            let count = rest.iter().take(limits::PUBLISH_BATCH_RECORDS.max_usize()).take_while(fits).count().max(1);
            results.extend(self.publish_some(topic, &rest[..count.min(rest.len())]));
        }
        results
    }

    fn submit_fetch(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
        let request = Request::Fetch { topic: topic.to_owned(), partition: partition.0, offset: offset.0, max: max as u64 };
        Ticket::ready(self.read(request, (topic, partition)).and_then(|answer| match answer {
            Answer::Events(events) => events.into_iter().map(stored).collect(),
            _ => Err(unexpected()),
        }))
    }

    fn submit_heads(&self, topic: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
        let head = |stored: StoredRecord| {
            let (key, payload_bytes) = (stored.record.key, stored.record.payload.len() as u64);
            RecordHead { offset: stored.offset, content: HeadContent::Readable { key, payload_bytes } }
        };
        let fetched = self.submit_fetch(topic, partition, offset, max).wait();
        Ticket::ready(fetched.map(|records| records.into_iter().map(head).collect()))
    }

    fn submit_find(&self, topic: &str, key: &str, uid: &Uid) -> Ticket<Result<Option<PublishAck>, BusError>> {
        let request = Request::Find { topic: topic.to_owned(), key: Some(key.to_owned()), uid: uid.as_str().to_owned() };
        Ticket::ready(self.read(request, (topic, Partition(0))).and_then(|answer| match answer {
            Answer::Found(None) => Ok(None),
            Answer::Found(Some(placed)) => result_of(topic, Published::Stored(placed)).map(Some),
            _ => Err(unexpected()),
        }))
    }

    fn partitions(&self, topic: &str) -> Result<u32, BusError> {
        match self.read(Request::Partitions { topic: topic.to_owned() }, (topic, Partition(0)))? {
            Answer::Partitions(partitions) => Ok(partitions),
            _ => Err(unexpected()),
        }
    }

    fn topics(&self) -> Vec<String> {
        match self.ask(Request::Topics) {
            Ok(Answer::Topics(topics)) => topics.into_iter().map(|topic| topic.topic).collect(),
            _ => Vec::new(),
        }
    }

    fn bounds(&self, topic: &str, partition: Partition) -> Result<(Offset, Offset), BusError> {
        match self.read(Request::Bounds { topic: topic.to_owned(), partition: partition.0 }, (topic, partition))? {
            Answer::Bounds(bounds) => Ok((Offset(bounds.first), Offset(bounds.next))),
            _ => Err(unexpected()),
        }
    }

    /// The node's own watcher stays.
    fn watch_appends(&self, _watcher: Arc<dyn AppendWatcher>) {}

    fn maintain(&self, _now: UnixMillis) -> Result<MaintenanceReport, BusError> {
        Err(BusError::Backend("a node maintains its log by itself".to_owned()))
    }

    /// The node has its own.
    fn set_control_keys(&self, _newest_first: &[[u8; 32]]) -> Result<(), BusError> {
        Ok(())
    }

    fn archive_head(&self, topic: &str, partition: Partition) -> Result<Option<AttestedHead>, BusError> {
        match self.read(Request::ArchiveHead { topic: topic.to_owned(), partition: partition.0 }, (topic, partition))? {
            Answer::ArchiveHead(head) => Ok(head.and_then(|info| attested(topic, partition, info))),
            _ => Err(unexpected()),
        }
    }

    fn archived_since(&self, topic: &str, partition: Partition) -> Result<Option<Offset>, BusError> {
        match self.read(Request::ArchivedSince { topic: topic.to_owned(), partition: partition.0 }, (topic, partition))? {
            Answer::ArchivedSince(offset) => Ok(offset.map(Offset)),
            _ => Err(unexpected()),
        }
    }

    fn archive_statistics(&self) -> Option<ArchiveStatistics> {
        match self.ask(Request::ArchiveIntents) {
            Ok(Answer::ArchiveIntents(statistics)) => statistics,
            _ => None,
        }
    }
}
