//! From a request to its answer. Used by the socket and by commands that have the directory to themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use latent_bridge::{BusError, EventBus, HeadContent, PublishAck};
use latent_core::{ActivationId, Offset, Partition, Place, Ticket, TopicName, Uid, partition_for};
use tokio::sync::watch;

use super::administration::page_of_services;
use super::forgetting::page_of_removed;
use super::protocol::{Answer, Bounds, Event, Fault, HeadInfo, Placed, Request, TopicInfo};
use super::publishing::publish;
use super::replaying::replay;
use super::statistics::{PartitionPlace, page_of_partitions};
use super::target::{ControlTarget, TriggerStatus};
use crate::engine::Engine;
use crate::limits;

/// Answers one request. Nothing in it blocks the calling thread: it runs on a thread that may block.
pub(crate) async fn answer(target: &Arc<dyn ControlTarget>, request: Request) -> Answer {
    answer_telling(target, request, watch::channel(None).0).await
}

/// As [`answer`]; `handed_over` is told the activation of a call, so that whoever watches the caller can stop it.
pub(super) async fn answer_telling(
    target: &Arc<dyn ControlTarget>,
    request: Request,
    handed_over: watch::Sender<Option<ActivationId>>,
) -> Answer {
    let target = Arc::clone(target);
    let tell = move |activation| _ = handed_over.send_replace(Some(activation));
    let answered = tokio::task::spawn_blocking(move || answer_blocking(&*target, request, &tell)).await;
    let failed = |_| Answer::Fault(Fault::refused("node", "the node failed while it answered; its log says why".to_owned()));
    answered.unwrap_or_else(failed)
}

fn answer_blocking(target: &dyn ControlTarget, request: Request, handed_over: &dyn Fn(ActivationId)) -> Answer {
    read(target, request, handed_over).unwrap_or_else(Answer::Fault)
}

fn read(target: &dyn ControlTarget, request: Request, handed_over: &dyn Fn(ActivationId)) -> Result<Answer, Fault> {
    Ok(match request {
        Request::Ping => Answer::Node(target.node_info()),
        Request::Topics => Answer::Topics(target.statistics()?.into_iter().map(TopicInfo::from).collect()),
        Request::Partitions { topic } => Answer::Partitions(target.bus()?.partitions(&topic)?),
        Request::Bounds { topic, partition } => {
            let (first, next) = target.bus()?.bounds(&topic, Partition(partition))?;
            Answer::Bounds(Bounds { first: first.0, next: next.0 })
        }
        Request::Fetch { topic, partition, offset, max } => {
            let range = Range { partition: Partition(partition), offset: Offset(offset), max };
            Answer::Events(fetch(&*target.bus()?, target.engine(), &topic, range)?)
        }
        Request::Find { topic, key, uid } => {
            let uid = Uid::parse(&uid).map_err(BusError::from)?;
            let bus = target.bus()?;
            let found = match key {
                Some(key) => bus.submit_find(&topic, &key, &uid).wait(),
                None => find_anywhere(&*bus, target.engine(), &topic, &uid),
            };
            Answer::Found(found?.map(Placed::from))
        }
        Request::TriggerStatus { after } => page_of_statuses(target.trigger_status(), after.as_deref()),
        Request::Summary => Answer::Summary(target.node_summary()),
        Request::Statistics { topic, after } => statistics(target, topic.as_deref(), after.as_ref())?,
        Request::Maintain => Answer::Maintained(target.maintain()?.into()),
        Request::Reload(order) => Answer::Reloaded(target.reload(order)?),
        Request::Invoke(invocation) => Answer::Invoked(Box::new(target.invoke(*invocation, handed_over)?)),
        Request::Publish { topic, events } => publish(&*target.bus()?, target.engine(), &topic, events),
        Request::Services { after } => {
            let (services, more) = page_of_services(target.services()?, after.as_ref());
            Answer::Services { services, more }
        }
        Request::RouteService(order) => Answer::Routed(target.route_service(&order)?),
        Request::RevokeService(order) => Answer::Revoked(target.revoke_service(&order)?),
        Request::Clock => Answer::Clock(target.clock()?),
        Request::ConfirmClock => Answer::Clock(target.confirm_clock()?),
        Request::Replay(order) => Answer::Replayed(replay(&*target.bus()?, &order)?),
        Request::EventHistory { topic, partition, offset } => {
            let topic = TopicName::parse(&topic).map_err(BusError::from)?;
            let place = Place { topic, partition: Partition(partition), offset: Offset(offset) };
            Answer::EventHistory(Box::new(target.event_history(&place)?))
        }
        Request::RemovedTriggers { after } => {
            let (triggers, more) = page_of_removed(target.removed_triggers()?, after.as_deref());
            Answer::RemovedTriggers { triggers, more }
        }
        Request::ArchiveHead { topic, partition } => {
            let head = target.bus()?.archive_head(&topic, Partition(partition))?;
            Answer::ArchiveHead(head.map(|head| HeadInfo { document: head.document }))
        }
        Request::ArchiveIntents => Answer::ArchiveIntents(target.bus()?.archive_statistics()),
        Request::ArchivedSince { topic, partition } => {
            Answer::ArchivedSince(target.bus()?.archived_since(&topic, Partition(partition))?.map(|offset| offset.0))
        }
        Request::ForgetTrigger { id } => Answer::Forgotten(target.forget_trigger(&id)?),
    })
}

fn statistics(target: &dyn ControlTarget, topic: Option<&str>, after: Option<&PartitionPlace>) -> Result<Answer, Fault> {
    if let Some(topic) = topic {
        // Refuses what the log does not have.
        target.bus()?.partitions(topic)?;
    }
    let mut topics = target.statistics()?;
    topics.retain(|statistics| topic.is_none_or(|topic| statistics.topic == topic));
    let (partitions, more) = page_of_partitions(target.engine(), &topics, after);
    Ok(Answer::Statistics { partitions, more })
}

/// The event with this uid, whatever its key. An engine on local files knows uids by topic; on a broker they are known by partition, so
/// each is asked, some at a time, and what cannot be read in one of them leaves the answer open only when no other has it.
fn find_anywhere(bus: &dyn EventBus, engine: Engine, topic: &str, uid: &Uid) -> Result<Option<PublishAck>, BusError> {
    if engine == Engine::Embedded {
        return bus.submit_find(topic, "", uid).wait();
    }
    let keys = keys_of(bus.partitions(topic)?);
    first_found(&keys, limits::FINDS_AT_ONCE.default_usize(), |key| bus.submit_find(topic, key, uid))
}

type Finding = Ticket<Result<Option<PublishAck>, BusError>>;

/// Asks for so many keys at once.
fn first_found(keys: &[String], at_once: usize, find: impl Fn(&str) -> Finding) -> Result<Option<PublishAck>, BusError> {
    let mut open = None;
    for keys in keys.chunks(at_once) {
        let asked: Vec<_> = keys.iter().map(|key| find(key)).collect();
        for answer in asked {
            match answer.wait() {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                Err(error @ BusError::Unreadable { .. }) => open = open.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
    }
    open.map_or(Ok(None), Err)
}

/// For each partition, in their order, a key that chooses it.
fn keys_of(partitions: u32) -> Vec<String> {
    let mut keys = BTreeMap::new();
    for number in 0_u64.. {
        if keys.len() as u64 >= u64::from(partitions) {
            break;
        }
        let key = number.to_string();
        keys.entry(partition_for(&key, partitions)).or_insert(key);
    }
    keys.into_values().collect()
}

struct Range {
    partition: Partition,
    offset: Offset,
    max: u64,
}

/// A page that fits an answer.
fn fetch(bus: &dyn EventBus, engine: Engine, topic: &str, range: Range) -> Result<Vec<Event>, BusError> {
    let max = usize::try_from(range.max).unwrap_or(usize::MAX).min(limits::FETCH_PAGE_RECORDS.max_usize());
    let mut records = match engine {
        Engine::Embedded => {
            // The heads tell how much is read, so that no more payload is loaded than is sent.
            let heads = bus.submit_heads(topic, range.partition, range.offset, max).wait()?;
            let sizes = heads.iter().map(|head| match &head.content {
                HeadContent::Readable { key, payload_bytes } => payload_bytes.saturating_add(key.len() as u64),
                HeadContent::Damaged => 0,
            });
            bus.submit_fetch(topic, range.partition, range.offset, fitting(sizes)).wait()?
        }
        // Heads are another pass over the stream there, and one reader is kept for whoever goes on where it ended.
        Engine::Nats => bus.submit_fetch(topic, range.partition, range.offset, max).wait()?,
    };
    let sizes = records.iter().map(|stored| (stored.record.payload.len() + stored.record.key.len()) as u64);
    records.truncate(fitting(sizes));
    Ok(records.into_iter().map(Event::from).collect())
}

/// How many records fit a page: at least one, if there is one.
fn fitting(sizes: impl ExactSizeIterator<Item = u64>) -> usize {
    let (mut bytes, at_least) = (0_u64, sizes.len().min(1));
    let fits = |own: &u64| {
        bytes = bytes.saturating_add(*own);
        bytes <= limits::FETCH_PAGE_BYTES.max
    };
    sizes.take_while(fits).count().max(at_least)
}

fn page_of_statuses(statuses: Vec<TriggerStatus>, after: Option<&str>) -> Answer {
    let mut rest: Vec<_> = statuses.into_iter().filter(|status| after.is_none_or(|after| *status.id > *after)).collect();
    let page = limits::STATUS_PAGE.max_usize();
    let more = rest.len() > page;
    rest.truncate(page);
    Answer::Statuses { statuses: rest.into_iter().map(TriggerStatus::bounded).collect(), more }
}

#[cfg(test)]
mod tests {
    use latent_bridge::{AppendWatcher, MaintenanceReport, PublishResult, RecordHead};
    use std::cell::RefCell;

    use latent_core::{NewRecord, StoredRecord, UnixMillis};

    use super::*;

    #[test]
    fn a_page_holds_what_fits_and_at_least_one_record() {
        let half = limits::FETCH_PAGE_BYTES.max / 2;
        let cases: [(&[u64], usize); 7] = [
            (&[], 0),
            (&[half * 4, 1], 1),
            (&[half, half - 1], 2),
            (&[half, half], 2),
            (&[half, half + 1], 1),
            (&[0, 0, half, half], 4),
            (&[half, half, 1], 2),
        ];
        for (sizes, expected) in cases {
            assert_eq!(fitting(sizes.iter().copied()), expected, "{sizes:?}");
        }
    }

    #[test]
    fn each_partition_has_a_key_that_chooses_it() {
        for partitions in [1, 2, 7, 1_024] {
            let keys = keys_of(partitions);
            let chosen: Vec<_> = keys.iter().map(|key| partition_for(key, partitions)).collect();
            assert_eq!(chosen, (0..partitions).map(Partition).collect::<Vec<_>>());
        }
    }

    /// Three partitions in which a uid is looked for: what each answers.
    struct Found([Result<Option<u64>, BusError>; 3]);

    impl EventBus for Found {
        fn submit_record(&self, _: &str, _: NewRecord) -> Ticket<PublishResult> {
            Ticket::ready(Err(BusError::Backend("not asked for".to_owned())))
        }

        fn submit_fetch(&self, _: &str, partition: Partition, offset: Offset, max: usize) -> Ticket<Result<Vec<StoredRecord>, BusError>> {
            let payload = vec![b'x'; usize::try_from(limits::FETCH_PAGE_BYTES.max / 2).unwrap()];
            let record = |number: usize| StoredRecord {
                partition,
                // As on a broker: with gaps.
                offset: Offset(offset.0 + 7 * number as u64),
                record: latent_core::Record {
                    uid: Uid::parse("u").unwrap(),
                    key: String::new(),
                    media_type: latent_core::MediaType::json(),
                    attributes: latent_core::Attributes::default(),
                    payload: payload.clone().into(),
                    stored_at: UnixMillis(1),
                },
            };
            Ticket::ready(Ok((0..max.min(5)).map(record).collect()))
        }

        fn submit_heads(&self, _: &str, _: Partition, _: Offset, _: usize) -> Ticket<Result<Vec<RecordHead>, BusError>> {
            Ticket::ready(Err(BusError::Backend("a second pass over the stream".to_owned())))
        }

        fn submit_find(&self, topic: &str, key: &str, uid: &Uid) -> Ticket<Result<Option<PublishAck>, BusError>> {
            let partition = partition_for(key, 3).0;
            let ack = |offset| PublishAck { topic: topic.to_owned(), partition, offset, uid: uid.as_str().to_owned(), duplicate: false };
            Ticket::ready(self.0[partition as usize].clone().map(|found| found.map(ack)))
        }

        fn partitions(&self, _: &str) -> Result<u32, BusError> {
            Ok(3)
        }

        fn topics(&self) -> Vec<String> {
            Vec::new()
        }

        fn bounds(&self, _: &str, _: Partition) -> Result<(Offset, Offset), BusError> {
            Err(BusError::Backend("not asked for".to_owned()))
        }

        fn watch_appends(&self, _: Arc<dyn AppendWatcher>) {}

        fn maintain(&self, _: UnixMillis) -> Result<MaintenanceReport, BusError> {
            Ok(MaintenanceReport::default())
        }
    }

    #[test]
    fn on_a_broker_a_uid_without_a_key_is_looked_for_in_every_partition() {
        let unreadable = |partition| BusError::Unreadable { topic: "t".to_owned(), partition, offset: 4 };
        let away = || BusError::Timeout { operation: "x".to_owned() };
        let uid = Uid::parse("u").unwrap();
        let found = |answers: [Result<Option<u64>, BusError>; 3]| find_anywhere(&Found(answers), Engine::Nats, "t", &uid);
        let place = found([Ok(None), Err(unreadable(1)), Ok(Some(9))]).unwrap().unwrap();
        assert_eq!((place.partition, place.offset), (2, 9), "what cannot be read elsewhere is no doubt");
        assert_eq!(found([Ok(None), Ok(None), Ok(None)]), Ok(None));
        assert_eq!(found([Err(unreadable(0)), Ok(None), Err(unreadable(2))]), Err(unreadable(0)), "it may have been the one");
        assert_eq!(found([Ok(None), Err(away()), Ok(Some(1))]), Err(away()), "nobody has looked there");
    }

    #[test]
    fn keys_are_asked_for_together_up_to_the_bound() {
        let keys: Vec<_> = (0..5).map(|key: u32| key.to_string()).collect();
        let (waiting, groups, asked) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()), RefCell::new(0));
        // Nothing is answered before the whole group was asked: one after the other would wait for ever.
        let find = |_: &str| {
            let (ticket, completer) = Ticket::pair(Ok(None));
            *asked.borrow_mut() += 1;
            waiting.borrow_mut().push(completer);
            if waiting.borrow().len() == 2 || *asked.borrow() == keys.len() {
                groups.borrow_mut().push(waiting.borrow().len());
                waiting.take().into_iter().for_each(|completer| completer.complete(Ok(None)));
            }
            ticket
        };
        assert_eq!(first_found(&keys, 2, find), Ok(None));
        assert_eq!(groups.into_inner(), [2, 2, 1]);
    }

    #[test]
    fn a_page_of_a_broker_is_read_once_and_cut_to_what_an_answer_holds() {
        let bus = Found([Ok(None), Ok(None), Ok(None)]);
        let range = |max| Range { partition: Partition(1), offset: Offset(3), max };
        let offsets = |max| fetch(&bus, Engine::Nats, "t", range(max)).unwrap().iter().map(|event| event.offset).collect::<Vec<_>>();
        assert_eq!((offsets(1), offsets(100)), (vec![3], vec![3, 10]));
    }
}
