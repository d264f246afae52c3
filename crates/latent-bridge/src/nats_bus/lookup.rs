//! Where the event with a uid lies, or that there certainly is none (B-059 to B-063).
//!
//! What lookups have read is remembered (`uid_index`), so a lookup reads what came since the last one; only the first one of a partition
//! reads it from its beginning, headers only. A remembered place is read before it is believed. Absence is what a fresh consumer at the end
//! of the pass says, after the stream's history was looked at.

use std::sync::Arc;

use async_nats::header::HeaderValue;
use latent_core::{Partition, Uid, partition_for};

use super::body;
use super::consumer::{Consumer, Delivered, PullEnd};
use super::pass::{Next, Pass};
use super::reading::{after_loss, check_epoch, fresh, leader_has_more, singly};
use super::record::{Single, Which};
use super::shared::{Indexed, Shared, Topic};
use super::uid_index::UidHash;
use crate::{BusError, PublishAck, limits};

/// Consumers that one lookup may lose before it is given up.
const CONSUMERS_MAX: u32 = 16;

/// The answer to a lookup of `uid` in the partition of `key`.
pub(super) async fn find(shared: Arc<Shared>, topic: usize, key: String, uid: Uid) -> Result<Option<PublishAck>, BusError> {
    let Some(topic) = shared.topics.get(topic) else { return Ok(None) };
    let partition = partition_for(&key, topic.partitions);
    let index = usize::try_from(partition.0).ok().and_then(|at| topic.indexes.get(at));
    let Some(index) = index else { return Ok(None) };
    // First the partition's turn, then a place among the reads: lookups that wait for each other keep no other read waiting.
    let mut indexed = index.lock().await;
    let _permit = shared.reads.acquire().await.map_err(|_| BusError::NotSent { reason: "the bus is closed".to_owned() })?;
    let epoch = topic.history().epoch();
    let found = Lookup { shared: &shared, topic, partition, uid: &uid, epoch }.run(&mut indexed).await?;
    Ok(found.map(|offset| PublishAck {
        topic: topic.name.clone(),
        partition: partition.0,
        offset,
        uid: uid.as_str().to_owned(),
        duplicate: false,
    }))
}

#[derive(Clone, Copy)]
struct Lookup<'l> {
    shared: &'l Arc<Shared>,
    topic: &'l Topic,
    partition: Partition,
    uid: &'l Uid,
    epoch: u64,
}

impl Lookup<'_> {
    async fn run(self, indexed: &mut Indexed) -> Result<Option<u64>, BusError> {
        if indexed.epoch != self.epoch {
            indexed.uids.clear();
            indexed.epoch = self.epoch;
        }
        let hash = indexed.uids.hash(self.uid);
        if indexed.uids.floor() > 1 {
            // What lies below was forgotten for want of room; the lowest place of a uid may be there.
            if let Some(found) = self.below(indexed.uids.floor()).await? {
                return Ok(Some(found));
            }
        }
        for sequence in indexed.uids.candidates(hash) {
            if self.is_at(indexed, hash, sequence).await? {
                return Ok(Some(sequence));
            }
        }
        self.scan(indexed).await
    }

    /// Whether a remembered place holds the uid.
    async fn is_at(self, indexed: &mut Indexed, hash: UidHash, sequence: u64) -> Result<bool, BusError> {
        let Some(found) = self.topic.source.get(&self.shared.api, Which::At(sequence)).await? else {
            indexed.uids.forget(hash, sequence);
            return Ok(false);
        };
        let known = found.uid();
        if known.as_ref() == Some(self.uid) {
            return Ok(true);
        }
        if known.as_ref().is_some_and(|known| indexed.uids.hash(known) == hash) {
            return Ok(false);
        }
        // A sequence is given once in a history, so this is another one.
        let problem = self.topic.history().changed_at(sequence);
        Err(self.topic.history_changed(problem))
    }

    /// Reads what came since the last lookup.
    async fn scan(self, indexed: &mut Indexed) -> Result<Option<u64>, BusError> {
        let mut consumer = self.start(indexed.uids.scanned() + 1).await?;
        self.check_witness(indexed).await?;
        let mut walk = Walk::default();
        loop {
            if walk.is_fresh && consumer.pending() == 0 && self.is_over(&mut consumer).await? {
                indexed.uids.note_scanned(consumer.next() - 1);
                return Ok(None);
            }
            let page = self.page(&mut consumer, &mut walk).await?;
            for delivered in &page {
                let uid = self.uid_of(delivered).await?;
                indexed.uids.note(delivered.sequence, uid.as_ref());
                if uid.as_ref() == Some(self.uid) {
                    return Ok(Some(delivered.sequence));
                }
            }
            if walk.prove {
                let next = consumer.next();
                consumer = self.start(next).await?;
                (walk.is_fresh, walk.prove) = (true, false);
            }
        }
    }

    /// The lowest place below `floor`, read again because there was no room to remember it.
    async fn below(self, floor: u64) -> Result<Option<u64>, BusError> {
        let mut consumer = self.start(1).await?;
        let mut walk = Walk::default();
        loop {
            let is_over = consumer.next() >= floor;
            // A consumer may be one of a replica that is behind: what it lacks the leader has.
            if is_over || (consumer.pending() == 0 && !self.is_behind(&mut consumer, floor).await?) {
                return Ok(None);
            }
            let page = self.page(&mut consumer, &mut walk).await?;
            for delivered in page.iter().take_while(|delivered| delivered.sequence < floor) {
                if self.uid_of(delivered).await?.as_ref() == Some(self.uid) {
                    return Ok(Some(delivered.sequence));
                }
            }
            if walk.prove {
                let next = consumer.next();
                consumer = self.start(next).await?;
                (walk.is_fresh, walk.prove) = (true, false);
            }
        }
    }

    /// Whether the leader has a record below `floor` that the consumer knows nothing of.
    async fn is_behind(self, consumer: &mut Consumer, floor: u64) -> Result<bool, BusError> {
        let next = singly(self.shared, self.topic, self.partition, consumer.next()).await?;
        let is_behind = next.is_some_and(|next| next.sequence < floor);
        if is_behind {
            consumer.expect_more();
        }
        Ok(is_behind)
    }

    /// A consumer of the history that the lookup began in, whoever notices a change meanwhile.
    async fn start(self, from: u64) -> Result<Consumer, BusError> {
        let (consumer, now) = fresh(self.shared, self.topic, self.partition, from, true).await?;
        check_epoch(self.topic, self.epoch, now)?;
        Ok(consumer)
    }

    /// Nothing is pending for a fresh consumer, and the leader has nothing either.
    async fn is_over(self, consumer: &mut Consumer) -> Result<bool, BusError> {
        if leader_has_more(self.shared, self.topic, self.partition, consumer.next()).await? {
            consumer.expect_more();
            return Ok(false);
        }
        Ok(true)
    }

    /// One page. Says by `walk` when the consumer has nothing more and a fresh one must say so, too.
    async fn page(self, consumer: &mut Consumer, walk: &mut Walk) -> Result<Vec<Delivered>, BusError> {
        let bytes_max = limits::FETCH_BYTES.default;
        match consumer.pull(limits::LOOKUP_PAGE_RECORDS.default, bytes_max).await {
            Ok(pulled) if pulled.end == PullEnd::Gone => {
                self.lost(consumer, walk).await?;
                Ok(pulled.messages)
            }
            Ok(pulled) if pulled.end == PullEnd::Lost => {
                let next = consumer.next();
                let is_again = walk.lost_at.replace(next) == Some(next);
                after_loss(self.shared, self.topic, self.partition, self.epoch, next, is_again).await?;
                self.lost(consumer, walk).await?;
                Ok(pulled.messages)
            }
            Ok(pulled) if pulled.end == PullEnd::Fenced => self.alone(consumer, walk).await,
            Ok(pulled) => {
                walk.is_fresh = false;
                match walk.pass.pulled(pulled.messages.len(), consumer.pending()) {
                    Next::Pull => {}
                    Next::Replace => {
                        *consumer = self.start(consumer.next()).await?;
                        walk.is_fresh = true;
                    }
                    Next::Attested => walk.prove = true,
                    Next::Stalled => {
                        let (topic, pending) = (&self.topic.name, consumer.pending());
                        return Err(BusError::Backend(format!(
                            "uid lookup stalled: the broker says that {pending} records of topic {topic:?}, partition {}, are there and sends none of them; look it up again",
                            self.partition
                        )));
                    }
                }
                Ok(pulled.messages)
            }
            Err(BusError::Backend(problem)) => {
                tracing::debug!(problem, topic = self.topic.name, "a lookup's consumer is of no use any more");
                self.lost(consumer, walk).await?;
                Ok(Vec::new())
            }
            // Another consumer would be refused as well.
            Err(BusError::Rejected { rule, .. }) => Err(BusError::Backend(rule)),
            Err(error) => Err(error),
        }
    }

    /// The next message, which no consumer may deliver; then another consumer behind it.
    async fn alone(self, consumer: &mut Consumer, walk: &mut Walk) -> Result<Vec<Delivered>, BusError> {
        let found = singly(self.shared, self.topic, self.partition, consumer.next()).await?;
        let Some(found) = found else {
            self.lost(consumer, walk).await?;
            return Ok(Vec::new());
        };
        *consumer = self.start(found.sequence.saturating_add(1)).await?;
        walk.is_fresh = true;
        Ok(vec![found])
    }

    /// Goes on with another consumer where this one ended.
    async fn lost(self, consumer: &mut Consumer, walk: &mut Walk) -> Result<(), BusError> {
        walk.lost += 1;
        if walk.lost >= CONSUMERS_MAX {
            let operation =
                format!("looking a uid up in topic {:?}: the broker removed {} consumers meanwhile", self.topic.name, walk.lost);
            return Err(BusError::Timeout { operation });
        }
        *consumer = self.start(consumer.next()).await?;
        walk.is_fresh = true;
        Ok(())
    }

    /// The uid of a message of which the headers alone were read. Without an id there it is read singly.
    async fn uid_of(self, delivered: &Delivered) -> Result<Option<Uid>, BusError> {
        let Some(message) = &delivered.message else { return Ok(None) };
        let headers = message.headers.as_ref();
        if let Some(id) = body::id_of(headers) {
            return Ok(Uid::parse(id).ok());
        }
        // The broker says how large the body is that it left out; an empty one holds no uid.
        let size = headers.and_then(|headers| headers.get("Nats-Msg-Size")).map_or("", HeaderValue::as_str);
        if size == "0" {
            return Ok(None);
        }
        let found = self.topic.source.get(&self.shared.api, Which::At(delivered.sequence)).await?;
        let uid = found.and_then(|Single { body, .. }| body::uid_of_body(&body));
        if uid.is_none() {
            tracing::warn!(
                topic = self.topic.name,
                partition = self.partition.0,
                sequence = delivered.sequence,
                "a message without a uid lies in the partition; it is no event and was passed over"
            );
        }
        Ok(uid)
    }

    /// The last record that was read before is the same one still. That it is gone says nothing: records expire.
    async fn check_witness(self, indexed: &Indexed) -> Result<(), BusError> {
        let Some((sequence, hash)) = indexed.uids.witness() else { return Ok(()) };
        let Some(found) = self.topic.source.get(&self.shared.api, Which::At(sequence)).await? else { return Ok(()) };
        let uid = found.uid();
        if uid.is_some_and(|uid| indexed.uids.hash(&uid) == hash) {
            return Ok(());
        }
        let problem = self.topic.history().changed_at(sequence);
        Err(self.topic.history_changed(problem))
    }
}

/// How a pass is going.
struct Walk {
    pass: Pass,
    /// The consumer has delivered nothing yet.
    is_fresh: bool,
    /// Nothing is pending for it; a fresh one must say so, too.
    prove: bool,
    lost: u32,
    /// Where the connection was lost last.
    lost_at: Option<u64>,
}

impl Default for Walk {
    fn default() -> Self {
        Self { pass: Pass::default(), is_fresh: true, prove: false, lost: 0, lost_at: None }
    }
}
