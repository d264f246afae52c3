//! Pages of a partition, read through ephemeral consumers (B-064 to B-066).
//!
//! Who reads on from where a page ended gets the consumer of that page: a replay or a tail uses one for as long as it reads. Each new
//! consumer is made together with a look at the stream's history. A page that is shorter than asked for says nothing; an empty one says
//! that the broker attests the end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use latent_core::{Offset, Partition, StoredRecord};

use super::body;
use super::consumer::{Consumer, Delivered, PullEnd, Pulled, Wanted};
use super::pass::{Next, Pass};
use super::record::Which;
use super::shared::{Shared, Topic};
use super::streams;
use crate::{BusError, HeadContent, RecordHead, limits};

/// Bytes that a message has on the broker beside what `max_payload` counts.
const MESSAGE_OVERHEAD_BYTES: u64 = 4_096;
/// Beyond it no consumer is made: a broker counts from there on, and sequences of real streams are far below.
const SEQUENCE_MAX: u64 = 1 << 62;
/// More than a broker may be told to take in one message (64 MiB).
const ANY_MESSAGE_BYTES: u64 = 1 << 27;
/// After which a page that has something ends, so that a slow link gets on.
const PAGE_TIME: Duration = Duration::from_millis(4_000);
/// Consumers that one page may lose before it is given up.
const CONSUMERS_MAX: u32 = 4;

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

/// One page, and the consumer that stands behind it.
struct Page {
    messages: Vec<Delivered>,
    consumer: Option<Consumer>,
    epoch: u64,
}

/// Records from `from` on, up to the first one that is none.
pub(super) async fn fetch(shared: &Arc<Shared>, range: Range) -> Result<Vec<StoredRecord>, BusError> {
    let topic = topic_of(shared, range.topic)?;
    let page = read(shared, topic, range).await?;
    let mut records = Vec::with_capacity(page.messages.len());
    for delivered in &page.messages {
        match body::decode(&delivered.message) {
            Ok(record) => records.push(StoredRecord { partition: range.partition, offset: Offset(delivered.sequence), record }),
            Err(problem) => {
                tracing::debug!(topic = topic.name, sequence = delivered.sequence, problem, "a message is no record");
                if records.is_empty() {
                    return Err(unreadable(topic, range.partition, delivered.sequence));
                }
                return Ok(records);
            }
        }
    }
    keep(shared, range, page);
    Ok(records)
}

/// What can be known of records without their payloads, from `from` on; up to 1,024 of them, fewer only at the end.
pub(super) async fn heads(shared: &Arc<Shared>, range: Range) -> Result<Vec<RecordHead>, BusError> {
    let topic = topic_of(shared, range.topic)?;
    let (mut range, mut heads) = (range, Vec::new());
    let count_max = range.count_max;
    loop {
        range.count_max = count_max - heads.len();
        let page = read(shared, topic, range).await?;
        heads.extend(page.messages.iter().map(head));
        let next = page.messages.last().and_then(|last| last.sequence.checked_add(1));
        keep(shared, range, page);
        match next {
            Some(next) if heads.len() < count_max => range.from = next,
            _ => return Ok(heads),
        }
    }
}

fn head(delivered: &Delivered) -> RecordHead {
    let content = body::decode(&delivered.message)
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
    Ok((consumer?, topic.history().epoch()))
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

/// A consumer at the place that is asked for.
struct Standing {
    consumer: Consumer,
    epoch: u64,
    /// The broker attests that there is nothing.
    is_over: bool,
}

/// The consumer that was kept there, or a fresh one, which may already say that there is nothing.
async fn stand(shared: &Shared, topic: &Topic, range: Range) -> Result<Standing, BusError> {
    if let Some((consumer, epoch)) = take_kept(shared, topic, range) {
        return Ok(Standing { consumer, epoch, is_over: false });
    }
    let from = range.from.max(1);
    let (mut consumer, epoch) = fresh(shared, topic, range.partition, from, false).await?;
    let is_over = consumer.pending() == 0 && !leader_has_more(shared, topic, range.partition, from).await?;
    if !is_over && consumer.pending() == 0 {
        consumer.expect_more();
    }
    Ok(Standing { consumer, epoch, is_over })
}

async fn read(shared: &Arc<Shared>, topic: &Topic, range: Range) -> Result<Page, BusError> {
    let _permit = shared.reads.acquire().await.map_err(|_| BusError::NotSent { reason: "the bus is closed".to_owned() })?;
    let from = range.from.max(1);
    if from > SEQUENCE_MAX {
        look(shared, topic).await?;
        return Ok(Page { messages: Vec::new(), consumer: None, epoch: 0 });
    }
    let Standing { mut consumer, epoch, is_over } = stand(shared, topic, range).await?;
    if is_over {
        return Ok(Page { messages: Vec::new(), consumer: Some(consumer), epoch });
    }
    let began = tokio::time::Instant::now();
    let mut one_message = shared.api.client.max_payload() as u64 + MESSAGE_OVERHEAD_BYTES;
    let (mut messages, mut bytes, mut pass, mut lost) = (Vec::new(), 0_u64, Pass::default(), 0);
    loop {
        let missing = (range.count_max - messages.len()) as u64;
        let pulled = consumer.pull(missing, range.bytes_max.saturating_sub(bytes).max(one_message)).await;
        match pulled {
            Ok(Pulled { messages: more, end }) => {
                let count = more.len();
                bytes = more.iter().fold(bytes, |sum, delivered| sum.saturating_add(held_bytes(delivered)));
                messages.extend(more);
                let is_late = !messages.is_empty() && began.elapsed() >= PAGE_TIME;
                let is_page = messages.len() >= range.count_max || bytes >= range.bytes_max || is_late;
                if is_page || (end == PullEnd::TooLarge && !messages.is_empty()) {
                    return Ok(Page { messages, consumer: Some(consumer), epoch });
                }
                if end == PullEnd::TooLarge {
                    // Stored when the broker allowed more than it does now: one alone is read whatever its size.
                    one_message = one_message.max(ANY_MESSAGE_BYTES);
                }
                if end != PullEnd::Gone {
                    let mut next = pass.pulled(count, consumer.pending());
                    if next == Next::Attested {
                        // What was read is a page; that nothing is behind it is for the next one to find.
                        let is_over = !messages.is_empty() || !has_more(shared, topic, range.partition, consumer.next()).await?;
                        if is_over {
                            return Ok(Page { messages, consumer: Some(consumer), epoch });
                        }
                        consumer.expect_more();
                        next = pass.pulled(count, consumer.pending());
                    }
                    if next == Next::Stalled && !messages.is_empty() {
                        return Ok(Page { messages, consumer: None, epoch });
                    }
                    if next == Next::Stalled {
                        return Err(stalled(topic, range.partition, consumer.pending()));
                    }
                    if next == Next::Replace {
                        renew(shared, topic, range.partition, (&mut consumer, epoch)).await?;
                    }
                    continue;
                }
            }
            // A page that has something is one; the trouble comes back with the next, if it lasts.
            Err(_) if !messages.is_empty() => return Ok(Page { messages, consumer: None, epoch }),
            Err(BusError::Backend(problem)) => {
                tracing::debug!(problem, topic = topic.name, "a reader's consumer is of no use any more");
            }
            Err(error) => return Err(error),
        }
        lost += 1;
        if lost >= CONSUMERS_MAX {
            let operation = format!("reading topic {:?}: the broker removed {lost} consumers meanwhile", topic.name);
            return Err(BusError::Timeout { operation });
        }
        renew(shared, topic, range.partition, (&mut consumer, epoch)).await?;
    }
}

/// Another consumer at the place that was reached, which must be of the same history.
async fn renew(shared: &Shared, topic: &Topic, partition: Partition, (consumer, epoch): (&mut Consumer, u64)) -> Result<(), BusError> {
    let (another, now) = fresh(shared, topic, partition, consumer.next(), false).await?;
    check_epoch(topic, epoch, now)?;
    *consumer = another;
    Ok(())
}

/// What was read so far and what comes must be of one history, whoever noticed the change.
pub(super) fn check_epoch(topic: &Topic, before: u64, now: u64) -> Result<(), BusError> {
    if before == now {
        return Ok(());
    }
    Err(topic.history_changed("it changed while it was read".to_owned()))
}

fn take_kept(shared: &Shared, topic: &Topic, range: Range) -> Option<(Consumer, u64)> {
    let epoch = topic.history().epoch();
    let position = Position { topic: range.topic, partition: range.partition, next: range.from.max(1) };
    shared.kept.take(position, epoch).map(|consumer| (consumer, epoch))
}

fn held_bytes(delivered: &Delivered) -> u64 {
    delivered.message.length as u64
}

pub(super) fn stalled(topic: &Topic, partition: Partition, pending: u64) -> BusError {
    let operation = format!(
        "reading topic {:?}, partition {partition}: the broker says that {pending} records are there and has sent none of them in {} pulls",
        topic.name,
        limits::EMPTY_PULLS.default
    );
    BusError::Timeout { operation }
}
