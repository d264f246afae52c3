//! Records of a partition and where readers stand (B-064 to B-066). A page is read in `page.rs`.
//!
//! Who reads on from where a page ended gets the consumer of that page: a replay or a tail uses one for as long as it reads. Each new
//! consumer is made together with a look at the stream's history. A message that the client cannot read ends the connection when a consumer
//! delivers it: what lies where a reader was when that happened is looked at singly, and its place remembered.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use latent_core::{Offset, Partition, StoredRecord};

use super::body;
use super::consumer::{Consumer, Delivered, Wanted};
use super::page::{Page, read};
use super::record::Which;
use super::shared::{Shared, Topic};
use super::streams;
use crate::{BusError, HeadContent, RecordHead, limits};

/// Messages that are looked at singly behind one that the client cannot read: such messages seldom come alone.
const LOOK_AHEAD: usize = 64;
/// Readable ones among them, after which nothing more is looked for.
const LOOK_AHEAD_READABLE: usize = 16;

/// Where a reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) topic: usize,
    pub(super) partition: Partition,
    pub(super) next: u64,
}

/// Consumers of pages that ended, for who reads on.
#[derive(Default)]
pub(super) struct KeptReaders(Mutex<VecDeque<(Position, u64, Consumer)>>);

impl KeptReaders {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Position, u64, Consumer)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The consumer that stands there, of this history.
    fn take(&self, position: Position, epoch: u64) -> Option<Consumer> {
        let mut kept = self.lock();
        let at = kept.iter().position(|(known, of, _)| *known == position && *of == epoch)?;
        kept.remove(at).map(|(_, _, consumer)| consumer)
    }

    /// Keeps one; the one kept longest is deleted when there are too many.
    fn keep(&self, position: Position, epoch: u64, consumer: Consumer) {
        let gone = {
            let mut kept = self.lock();
            kept.push_back((position, epoch, consumer));
            if kept.len() > limits::KEPT_READERS.default_usize() { kept.pop_front() } else { None }
        };
        drop(gone);
    }

    /// Takes all of them.
    pub(super) fn take_all(&self) -> Vec<Consumer> {
        self.lock().drain(..).map(|(_, _, consumer)| consumer).collect()
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) topic: usize,
    pub(super) partition: Partition,
    pub(super) from: u64,
    pub(super) count_max: usize,
    pub(super) bytes_max: u64,
}

/// What was read for a caller, of which history it is, and where its reader stands now.
struct Read<T> {
    of_page: Result<Vec<T>, BusError>,
    epoch: u64,
    next: u64,
}

/// Records from `from` on, up to the first one that is none.
pub(super) async fn fetch(shared: &Arc<Shared>, range: Range) -> Result<Vec<StoredRecord>, BusError> {
    let topic = topic_of(shared, range.topic)?;
    of_one_history(topic, range, read_records(shared, topic, range)).await
}

/// What can be known of records without their payloads, from `from` on; up to 1,024 of them, fewer only at the end.
pub(super) async fn heads(shared: &Arc<Shared>, range: Range) -> Result<Vec<RecordHead>, BusError> {
    let topic = topic_of(shared, range.topic)?;
    of_one_history(topic, range, read_heads(shared, topic, range)).await
}

/// Tells a reader whose offset is of an earlier history, and remembers where it stands afterwards.
async fn of_one_history<T>(topic: &Topic, range: Range, read: impl Future<Output = Result<Read<T>, BusError>>) -> Result<Vec<T>, BusError> {
    let from = range.from.max(1);
    topic.goes_on(range.partition, from)?;
    match read.await {
        Ok(Read { of_page, epoch, next }) => {
            topic.given().gave(epoch, range.partition, from, next.max(from));
            of_page
        }
        Err(error) => {
            if matches!(error, BusError::HistoryChanged { .. }) {
                // It is told now, and not once more.
                let _ = topic.goes_on(range.partition, from);
            }
            Err(error)
        }
    }
}

async fn read_records(shared: &Arc<Shared>, topic: &Topic, range: Range) -> Result<Read<StoredRecord>, BusError> {
    let page = read(shared, topic, range).await?;
    let (mut records, epoch, mut next) = (Vec::with_capacity(page.messages.len()), page.epoch, range.from);
    for delivered in &page.messages {
        let behind = delivered.sequence.saturating_add(1);
        match record_of(delivered) {
            Ok(record) => records.push(StoredRecord { partition: range.partition, offset: Offset(delivered.sequence), record }),
            Err(problem) => {
                tracing::debug!(topic = topic.name, sequence = delivered.sequence, problem, "a message is no record");
                if records.is_empty() {
                    let of_page = Err(unreadable(topic, range.partition, delivered.sequence));
                    return Ok(Read { of_page, epoch, next: behind });
                }
                return Ok(Read { of_page: Ok(records), epoch, next });
            }
        }
        next = behind;
    }
    keep(shared, range, page);
    Ok(Read { of_page: Ok(records), epoch, next })
}

async fn read_heads(shared: &Arc<Shared>, topic: &Topic, range: Range) -> Result<Read<RecordHead>, BusError> {
    let (mut range, mut heads) = (range, Vec::new());
    let count_max = range.count_max;
    loop {
        range.count_max = count_max - heads.len();
        let page = read(shared, topic, range).await?;
        heads.extend(page.messages.iter().map(head));
        let (epoch, next) = (page.epoch, page.messages.last().and_then(|last| last.sequence.checked_add(1)));
        keep(shared, range, page);
        match next {
            Some(next) if heads.len() < count_max => range.from = next,
            next => return Ok(Read { of_page: Ok(heads), epoch, next: next.unwrap_or(range.from) }),
        }
    }
}

fn record_of(delivered: &Delivered) -> Result<latent_core::Record, String> {
    let message = delivered.message.as_ref().ok_or("its headers cannot be read")?;
    body::decode(message)
}

fn head(delivered: &Delivered) -> RecordHead {
    let content = record_of(delivered)
        .map_or(HeadContent::Damaged, |record| HeadContent::Readable { payload_bytes: record.payload.len() as u64, key: record.key });
    RecordHead { offset: Offset(delivered.sequence), content }
}

fn keep(shared: &Arc<Shared>, range: Range, page: Page) {
    if let Some(consumer) = page.consumer {
        let position = Position { topic: range.topic, partition: range.partition, next: consumer.next() };
        shared.kept.keep(position, page.epoch, consumer);
    }
}

pub(super) fn unreadable(topic: &Topic, partition: Partition, sequence: u64) -> BusError {
    BusError::Unreadable { topic: topic.name.clone(), partition: partition.0, offset: sequence }
}

fn topic_of(shared: &Shared, number: usize) -> Result<&Topic, BusError> {
    shared.topics.get(number).ok_or_else(|| BusError::Backend(format!("topic number {number} is not there")))
}

/// The stream's state, checked against what is known of it.
pub(super) async fn look(shared: &Shared, topic: &Topic) -> Result<streams::StreamInfo, BusError> {
    let highest = topic.history().highest();
    let info = streams::info(&shared.api, &topic.source.stream).await?;
    if !info.is_of_leader() {
        return Err(BusError::Backend(format!("stream {} has no leader at the moment; ask again", topic.source.stream)));
    }
    let problem = topic.history().observe(highest, &info.created, info.state.last_seq);
    problem.map_or(Ok(info), |problem| Err(topic.history_changed(problem)))
}

/// Makes a consumer and looks at the history meanwhile.
pub(super) async fn fresh(
    shared: &Shared,
    topic: &Topic,
    partition: Partition,
    from: u64,
    headers_only: bool,
) -> Result<(Consumer, u64), BusError> {
    let subject = topic.subject(partition)?.to_string();
    let wanted = Wanted { stream: topic.source.stream.clone(), subject, from: from.max(1), headers_only };
    let (consumer, looked) = tokio::join!(Consumer::create(&shared.api, &wanted), look(shared, topic));
    let consumer = consumer.map_err(BusError::from);
    looked?;
    let (mut consumer, epoch) = (consumer?, topic.history().epoch());
    let apart = topic.unparsable().next(epoch, partition, wanted.from);
    if let Some(apart) = apart {
        fence(shared, wanted, &mut consumer, apart).await?;
    }
    Ok((consumer, epoch))
}

/// Stops a consumer before the message at `apart`: so many lie before it as the broker has for this one and not for one that begins there.
async fn fence(shared: &Shared, wanted: Wanted, consumer: &mut Consumer, apart: u64) -> Result<(), BusError> {
    if apart <= wanted.from {
        consumer.set_fence(0);
        return Ok(());
    }
    let behind = Consumer::create(&shared.api, &Wanted { from: apart, headers_only: true, ..wanted }).await?;
    consumer.set_fence(consumer.pending().saturating_sub(behind.pending()));
    Ok(())
}

/// The message at `from` or behind it, whatever its headers are; `None` where there certainly is none.
pub(super) async fn singly(shared: &Shared, topic: &Topic, partition: Partition, from: u64) -> Result<Option<Delivered>, BusError> {
    let subject = topic.subject(partition)?;
    let found = topic.source.get(&shared.api, Which::NextOf(subject.as_str(), from)).await?;
    Ok(found.map(|found| Delivered::singly(subject, found)))
}

/// The connection was lost while the message at `next` or behind it was waited for. If the client cannot read that one it is not pulled again,
/// nor if the connection was lost there before.
pub(super) async fn after_loss(
    shared: &Shared,
    topic: &Topic,
    partition: Partition,
    epoch: u64,
    next: u64,
    is_again: bool,
) -> Result<(), BusError> {
    shared.api.connected().await?;
    let (mut next, mut is_again, mut readable, mut is_explained) = (next, is_again, 0, false);
    for _ in 0..LOOK_AHEAD {
        let Some(found) = singly(shared, topic, partition, next).await? else { return Ok(()) };
        if found.message.is_none() || is_again {
            let (name, sequence) = (topic.name.as_str(), found.sequence);
            tracing::warn!(topic = name, %partition, sequence, "the client loses its connection by a message; it is read singly from now on");
            topic.unparsable().note(epoch, partition, found.sequence);
            is_explained = true;
        } else {
            readable += 1;
        }
        // What the client can read did nothing to the connection, and then nothing is to be feared of the others.
        if !is_explained || readable == LOOK_AHEAD_READABLE {
            return Ok(());
        }
        let Some(behind) = found.sequence.checked_add(1) else { return Ok(()) };
        (next, is_again) = (behind, false);
    }
    Ok(())
}

/// Whether there is a record at `from` or behind it, from the stream itself: what a consumer knows of new records may be a moment old.
pub(super) async fn has_more(shared: &Shared, topic: &Topic, partition: Partition, from: u64) -> Result<bool, BusError> {
    let subject = topic.subject(partition)?.to_string();
    Ok(topic.source.get(&shared.api, Which::NextOf(&subject, from)).await?.is_some())
}

/// Whether the leader knows of a record at `from` or behind it. Only where replicas may be behind is anybody asked.
pub(super) async fn leader_has_more(shared: &Shared, topic: &Topic, partition: Partition, from: u64) -> Result<bool, BusError> {
    if topic.source.replicas <= 1 { Ok(false) } else { has_more(shared, topic, partition, from).await }
}

/// What was read so far and what comes must be of one history, whoever noticed the change.
pub(super) fn check_epoch(topic: &Topic, before: u64, now: u64) -> Result<(), BusError> {
    if before == now {
        return Ok(());
    }
    Err(topic.history_changed("it changed while it was read".to_owned()))
}

/// The consumer that was kept where `range` begins, unless it would deliver what no consumer may.
pub(super) fn take_kept(shared: &Shared, topic: &Topic, range: Range) -> Option<(Consumer, u64)> {
    let epoch = topic.history().epoch();
    let position = Position { topic: range.topic, partition: range.partition, next: range.from.max(1) };
    let kept = shared.kept.take(position, epoch)?;
    let is_open = kept.is_fenced() || topic.unparsable().next(epoch, range.partition, position.next).is_none();
    is_open.then_some((kept, epoch))
}

pub(super) fn stalled(topic: &Topic, partition: Partition, pending: u64) -> BusError {
    let operation = format!(
        "reading topic {:?}, partition {partition}: the broker says that {pending} records are there and has sent none of them in {} pulls",
        topic.name,
        limits::EMPTY_PULLS.default
    );
    BusError::Timeout { operation }
}
