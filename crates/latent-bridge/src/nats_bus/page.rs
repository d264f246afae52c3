//! One page of a partition: pulled until there is enough, through one consumer after the other where one fails. Decides when a page is one;
//! what its messages mean is not known here.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::consumer::{Consumer, Delivered, PullEnd, Pulled};
use super::pass::{Next, Pass};
use super::reading::{Range, after_loss, check_epoch, fresh, has_more, leader_has_more, look, singly, stalled, take_kept};
use super::shared::{Shared, Topic};
use crate::{BusError, limits};

/// Bytes that a message has on the broker beside what `max_payload` counts.
const MESSAGE_OVERHEAD_BYTES: u64 = 4_096;
/// Beyond it no consumer is made: a broker counts from there on, and sequences of real streams are far below.
const SEQUENCE_MAX: u64 = 1 << 62;
/// Consumers that one page may lose before it is given up.
const CONSUMERS_MAX: u32 = 4;

/// One page, and the consumer that stands behind it.
pub(super) struct Page {
    pub(super) messages: Vec<Delivered>,
    pub(super) consumer: Option<Consumer>,
    pub(super) epoch: u64,
}

impl Page {
    const fn empty(consumer: Option<Consumer>, epoch: u64) -> Self {
        Self { messages: Vec::new(), consumer, epoch }
    }
}

/// Reads one. An empty one says that the broker attests the end, a short one says nothing.
pub(super) async fn read(shared: &Arc<Shared>, topic: &Topic, range: Range) -> Result<Page, BusError> {
    let _permit = shared.reads.acquire().await.map_err(|_| BusError::NotSent { reason: "the bus is closed".to_owned() })?;
    let from = range.from.max(1);
    if from > SEQUENCE_MAX {
        look(shared, topic).await?;
        return Ok(Page::empty(None, topic.history().epoch()));
    }
    let (consumer, epoch) = match take_kept(shared, topic, range) {
        Some(kept) => kept,
        None => {
            let (mut consumer, epoch) = fresh(shared, topic, range.partition, from, false).await?;
            if consumer.pending() == 0 {
                if !leader_has_more(shared, topic, range.partition, from).await? {
                    return Ok(Page::empty(Some(consumer), epoch));
                }
                consumer.expect_more();
            }
            (consumer, epoch)
        }
    };
    let mut pager = Pager::new(shared, topic, range, consumer, epoch);
    loop {
        match pager.step().await {
            Ok(Step::On) => {}
            Ok(Step::Page) => return Ok(pager.page(true)),
            Ok(Step::LastPage) => return Ok(pager.page(false)),
            // Nobody would be told of it again.
            Err(changed @ BusError::HistoryChanged { .. }) => return Err(changed),
            // A page that has something is one; the trouble comes back with the next, if it lasts.
            Err(_) if !pager.messages.is_empty() => return Ok(pager.page(false)),
            Err(error) => return Err(error),
        }
    }
}

/// What a page has come to.
enum Step {
    /// There is more to do.
    On,
    /// It is one, and its consumer stands behind it.
    Page,
    /// It is one, and its consumer is of no use.
    LastPage,
}

struct Pager<'p> {
    shared: &'p Arc<Shared>,
    topic: &'p Topic,
    range: Range,
    consumer: Consumer,
    epoch: u64,
    messages: Vec<Delivered>,
    bytes: u64,
    /// What one message alone may take.
    one_message: u64,
    pass: Pass,
    /// Consumers that were lost.
    lost: u32,
    /// Where the connection was lost last.
    lost_at: Option<u64>,
    began: Instant,
}

impl<'p> Pager<'p> {
    fn new(shared: &'p Arc<Shared>, topic: &'p Topic, range: Range, consumer: Consumer, epoch: u64) -> Self {
        let one_message = shared.api.client().max_payload() as u64 + MESSAGE_OVERHEAD_BYTES;
        let (messages, pass, began) = (Vec::new(), Pass::default(), Instant::now());
        Self { shared, topic, range, consumer, epoch, messages, bytes: 0, one_message, pass, lost: 0, lost_at: None, began }
    }

    fn page(self, is_consumer_of_use: bool) -> Page {
        Page { messages: self.messages, consumer: is_consumer_of_use.then_some(self.consumer), epoch: self.epoch }
    }

    async fn step(&mut self) -> Result<Step, BusError> {
        let missing = (self.range.count_max - self.messages.len()) as u64;
        let bytes = self.range.bytes_max.saturating_sub(self.bytes).max(self.one_message);
        let Pulled { messages, end } = match self.consumer.pull(missing, bytes).await {
            Err(BusError::Backend(problem)) if self.messages.is_empty() => {
                tracing::debug!(problem, topic = self.topic.name, "a reader's consumer is of no use any more");
                return self.replace().await;
            }
            // Another consumer would be refused as well.
            Err(BusError::Rejected { rule, .. }) => return Err(BusError::Backend(rule)),
            pulled => pulled?,
        };
        let count = messages.len();
        self.bytes = messages.iter().fold(self.bytes, |sum, delivered| sum.saturating_add(held_bytes(delivered)));
        self.messages.extend(messages);
        let is_late = self.began.elapsed() >= Duration::from_millis(limits::PAGE_MILLIS.default);
        let is_full = self.messages.len() >= self.range.count_max || self.bytes >= self.range.bytes_max;
        let is_page = is_full || (is_late && !self.messages.is_empty());
        match end {
            PullEnd::Lost => self.look_at_loss().await,
            _ if is_page => Ok(Step::Page),
            PullEnd::Fenced | PullEnd::TooLarge if !self.messages.is_empty() => Ok(Step::Page),
            PullEnd::Fenced => self.alone().await,
            PullEnd::TooLarge => {
                // Stored when the broker allowed more than it does now: one alone is read whatever its size.
                self.one_message = self.one_message.max(limits::MESSAGE_BYTES.default);
                self.go_on(count).await
            }
            PullEnd::Full | PullEnd::Short => self.go_on(count).await,
            PullEnd::Gone => self.replace().await,
        }
    }

    /// After a pull that gave so many.
    async fn go_on(&mut self, count: usize) -> Result<Step, BusError> {
        let mut next = self.pass.pulled(count, self.consumer.pending());
        if next == Next::Attested {
            // What was read is a page; that nothing is behind it is for the next one to find.
            let (shared, topic, partition) = (self.shared, self.topic, self.range.partition);
            if !self.messages.is_empty() || !has_more(shared, topic, partition, self.consumer.next()).await? {
                return Ok(Step::Page);
            }
            self.consumer.expect_more();
            next = self.pass.pulled(count, self.consumer.pending());
        }
        match next {
            Next::Stalled => Err(stalled(self.topic, self.range.partition, self.consumer.pending())),
            Next::Replace => self.renew().await,
            Next::Pull | Next::Attested => Ok(Step::On),
        }
    }

    /// The next message, which no consumer may deliver, is a page of its own.
    async fn alone(&mut self) -> Result<Step, BusError> {
        let found = singly(self.shared, self.topic, self.range.partition, self.consumer.next()).await?;
        self.messages.extend(found);
        Ok(Step::LastPage)
    }

    /// The connection was lost: perhaps by the next message.
    async fn look_at_loss(&mut self) -> Result<Step, BusError> {
        let next = self.consumer.next();
        let is_again = self.lost_at.replace(next) == Some(next);
        after_loss(self.shared, self.topic, self.range.partition, self.epoch, next, is_again).await?;
        if self.messages.is_empty() { self.replace().await } else { Ok(Step::LastPage) }
    }

    /// Goes on with another consumer, some times.
    async fn replace(&mut self) -> Result<Step, BusError> {
        self.lost += 1;
        if self.lost >= CONSUMERS_MAX {
            let operation = format!("reading topic {:?}: the broker removed {} consumers meanwhile", self.topic.name, self.lost);
            return Err(BusError::Timeout { operation });
        }
        self.renew().await
    }

    /// Another consumer at the place that was reached, which must be of the same history.
    async fn renew(&mut self) -> Result<Step, BusError> {
        let (another, now) = fresh(self.shared, self.topic, self.range.partition, self.consumer.next(), false).await?;
        check_epoch(self.topic, self.epoch, now)?;
        self.consumer = another;
        Ok(Step::On)
    }
}

fn held_bytes(delivered: &Delivered) -> u64 {
    delivered.message.as_ref().map_or(0, |message| message.length as u64)
}
