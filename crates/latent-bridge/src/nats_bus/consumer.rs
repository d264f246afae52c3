//! One ephemeral pull consumer of one partition: created at a sequence, pulled page by page, deleted when it is dropped (B-059, B-065).
//!
//! It acknowledges nothing and its memory is the broker's alone; a process that is killed leaves it to the broker, which removes it after
//! `reader_idle_millis`. Each message carries the number of its delivery: a gap there means that one was lost on the way to us, and then
//! the consumer is of no use any more. Nothing here decides whether a partition has ended: that is `pass.rs`.

use std::time::Duration;

use async_nats::{Message, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::api::{Api, ApiFault};
use super::record::Single;
use super::words::{Told, told};
use crate::{BusError, limits};

/// Which messages, from where on.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) stream: String,
    pub(super) subject: String,
    /// The first sequence; at least 1.
    pub(super) from: u64,
    /// Leave the bodies on the broker.
    pub(super) headers_only: bool,
}

/// A message with its place.
#[derive(Debug, Clone)]
pub(super) struct Delivered {
    pub(super) sequence: u64,
    /// `None`: the client cannot read it. It is of another program.
    pub(super) message: Option<Message>,
}

impl Delivered {
    /// Of a message that was read singly.
    pub(super) fn singly(subject: &Subject, found: Single) -> Self {
        let Single { sequence, headers, body } = found;
        let length = subject.len() + body.len();
        let message = headers.map(|headers| Message {
            subject: subject.clone(),
            reply: None,
            payload: body,
            headers: Some(headers),
            status: None,
            description: None,
            length,
        });
        Self { sequence, message }
    }
}

/// How a pull ended before it had what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PullEnd {
    /// It has all of them, or as many bytes as allowed.
    Full,
    /// The broker says that there is nothing more at the moment, or the time was up.
    Short,
    /// The next message has more bytes than were asked for.
    TooLarge,
    /// The consumer is not there any more, or of no use.
    Gone,
    /// The connection was lost, and what was on its way with it.
    Lost,
    /// The next message is to be read singly.
    Fenced,
}

/// One pull's result.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) messages: Vec<Delivered>,
    pub(super) end: PullEnd,
}

/// See the module.
pub(super) struct Consumer {
    api: Api,
    stream: String,
    name: String,
    inbox: String,
    replies: Subscriber,
    pulls: u64,
    /// The number of the last delivery.
    delivered: u64,
    /// Messages that the broker has for it, as last told.
    pending: u64,
    /// The sequence after the last one delivered.
    next: u64,
    /// Messages before one that is to be read singly, where there is such a one.
    fence: Option<u64>,
    deleted: bool,
}

#[derive(Deserialize)]
struct Created {
    #[serde(default)]
    num_pending: u64,
}

impl Consumer {
    /// Creates one.
    pub(super) async fn create(api: &Api, wanted: &Wanted) -> Result<Self, ApiFault> {
        let name = format!("latent_read_{}", api.fresh_token());
        let client = api.client();
        let inbox = client.new_inbox();
        let subscribed = client.subscribe(format!("{inbox}.*")).await;
        let replies = subscribed.map_err(|error| ApiFault::Unreadable { subject: inbox.clone(), problem: told(error) })?;
        let idle = Duration::from_millis(limits::READER_IDLE_MILLIS.default);
        let request = json!({
            "stream_name": wanted.stream,
            "config": {
                "name": name,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": wanted.from.max(1),
                "ack_policy": "none",
                "replay_policy": "instant",
                "filter_subject": wanted.subject,
                "headers_only": wanted.headers_only,
                "mem_storage": true,
                "num_replicas": 1,
                "inactive_threshold": u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX),
            },
            "action": "create",
        });
        let subject = format!("CONSUMER.CREATE.{}.{name}.{}", wanted.stream, wanted.subject);
        let Created { num_pending } = api.read(&subject, &request).await?;
        Ok(Self {
            api: api.clone(),
            stream: wanted.stream.clone(),
            name,
            inbox,
            replies,
            pulls: 0,
            delivered: 0,
            pending: num_pending,
            next: wanted.from.max(1),
            fence: None,
            deleted: false,
        })
    }

    /// Messages that the broker has for it, as last told.
    pub(super) const fn pending(&self) -> u64 {
        self.pending
    }

    /// After so many messages comes one that no consumer may deliver.
    pub(super) const fn set_fence(&mut self, messages: u64) {
        self.fence = Some(messages);
    }

    /// Whether it stops before a message that is to be read singly.
    pub(super) const fn is_fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// Somebody else knows that there is more: the next pull waits for it.
    pub(super) fn expect_more(&mut self) {
        self.pending = self.pending.max(1);
    }

    /// The sequence after the last one delivered.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Asks for at most `count` messages and waits for them.
    ///
    /// Where messages are known to be pending, the broker may take `pull_expiry_millis` to send them; where none are, it answers at once.
    pub(super) async fn pull(&mut self, count: u64, bytes_max: u64) -> Result<Pulled, BusError> {
        if self.fence == Some(0) {
            return Ok(Pulled { messages: Vec::new(), end: PullEnd::Fenced });
        }
        self.pulls += 1;
        let reply = format!("{}.{}", self.inbox, self.pulls);
        let expiry = Duration::from_millis(limits::PULL_EXPIRY_MILLIS.default);
        let count = if self.pending == 0 { count } else { count.min(self.pending) }.min(self.fence.unwrap_or(u64::MAX));
        let request = if self.pending == 0 {
            json!({ "batch": count, "max_bytes": bytes_max, "no_wait": true })
        } else {
            json!({ "batch": count, "max_bytes": bytes_max, "expires": u64::try_from(expiry.as_nanos()).unwrap_or(u64::MAX) })
        };
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream, self.name);
        let (mut losses, mut refusals) = (self.api.losses(), self.api.signals.refusals());
        let sent = self.api.client().publish_with_reply(subject.clone(), reply.clone(), Bytes::from(request.to_string())).await;
        sent.map_err(|error| BusError::NotSent { reason: error.to_string() })?;
        let began = Instant::now();
        let mut messages = Vec::new();
        loop {
            if messages.len() as u64 == count {
                return Ok(Pulled { messages, end: PullEnd::Full });
            }
            let patience = if messages.is_empty() { limits::READ_PATIENCE_MILLIS } else { limits::PAGE_MILLIS };
            let until = began + Duration::from_millis(patience.default);
            let came = tokio::select! {
                // What came before the connection was lost counts.
                biased;
                came = timeout_at(until, self.replies.next()) => came,
                () = losses.next() => return Ok(Pulled { messages, end: PullEnd::Lost }),
                inbox = refusals.of(&subject) => return Err(refused(&subject, inbox.as_deref())),
            };
            let trouble = match came {
                // What has come is a page; what comes later is of the next one, in the same order.
                Err(_) if !messages.is_empty() => return Ok(Pulled { messages, end: PullEnd::Short }),
                Err(_) => self.timed_out(),
                // The client's task has ended.
                Ok(None) => {
                    losses.settled().await;
                    return Ok(Pulled { messages, end: PullEnd::Lost });
                }
                Ok(Some(message)) => match status_of(&message) {
                    // Of an earlier pull, whose frames may come late.
                    Some(_) if message.subject.as_str() != reply => continue,
                    Some(status) => match self.ended(status, message.description.as_deref().unwrap_or_default()) {
                        Ok(end) => return Ok(Pulled { messages, end }),
                        Err(trouble) => trouble,
                    },
                    None => match self.take(message) {
                        Ok(delivered) => {
                            messages.push(delivered);
                            continue;
                        }
                        Err(trouble) => trouble,
                    },
                },
            };
            // The place that was reached lies behind what was taken, so that is never thrown away.
            return if messages.is_empty() { Err(trouble) } else { Ok(Pulled { messages, end: PullEnd::Gone }) };
        }
    }

    /// What a status says of the pull that it ends.
    fn ended(&self, status: u16, words: &str) -> Result<PullEnd, BusError> {
        match (status, words) {
            (404 | 408, _) => Ok(PullEnd::Short),
            (409, words) if words.starts_with("Batch Completed") => Ok(PullEnd::Full),
            (409, words) if words.starts_with("Message Size Exceeds MaxBytes") => Ok(PullEnd::TooLarge),
            (409, words)
                if words.starts_with("Consumer Deleted")
                    || words.starts_with("Server Shutdown")
                    || words.starts_with("Leadership Change") =>
            {
                Ok(PullEnd::Gone)
            }
            (503, _) => Ok(PullEnd::Gone),
            (status, words) => Err(BusError::Backend(format!("pulling from {}: the broker answers {status} {}", self.name, Told(words)))),
        }
    }

    fn take(&mut self, message: Message) -> Result<Delivered, BusError> {
        let Some(place) = message.reply.as_deref().and_then(Place::parse) else {
            return Err(BusError::Backend(format!("a message of {} does not say where it lies", self.stream)));
        };
        if place.delivery != self.delivered + 1 || place.sequence < self.next {
            return Err(BusError::Backend(format!(
                "of {} delivery {} at sequence {} came where delivery {} at {} or later was due; messages were lost on the way and are read again",
                self.name,
                place.delivery,
                place.sequence,
                self.delivered + 1,
                self.next,
            )));
        }
        self.delivered = place.delivery;
        self.pending = place.pending;
        self.fence = self.fence.map(|fence| fence.saturating_sub(1));
        let what =
            || BusError::OutOfRange { what: format!("the sequence after {}", place.sequence), problem: "sequences end there".to_owned() };
        self.next = place.sequence.checked_add(1).ok_or_else(what)?;
        Ok(Delivered { sequence: place.sequence, message: Some(message) })
    }

    fn timed_out(&self) -> BusError {
        BusError::Timeout { operation: format!("reading from stream {}", self.stream) }
    }

    /// Deletes it and waits for the answer. A refusal is no failure: the broker removes it by itself when it is idle for long.
    pub(super) async fn delete(mut self) {
        self.deleted = true;
        let (api, subject) = (self.api.clone(), self.deletion());
        drop(self);
        api.delete_reader(&subject).await;
    }

    fn deletion(&self) -> String {
        format!("CONSUMER.DELETE.{}.{}", self.stream, self.name)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.deleted {
            self.api.delete_reader_beside(self.deletion());
        }
    }
}

/// What is not done by another consumer either.
fn refused(subject: &str, inbox: Option<&str>) -> BusError {
    BusError::Rejected { rule: Api::refused(subject, inbox).to_string(), permanent: false }
}

/// The status that ends a pull. A message of the stream may have one, too: whoever published it wrote that, and it says nothing.
fn status_of(message: &Message) -> Option<u16> {
    let status = message.status?.as_u16();
    message.reply.as_deref().and_then(Place::parse).is_none().then_some(status)
}

/// What the reply subject of a delivered message says (NATS ADR-15): `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<delivery>.
/// <time>.<pending>`, with domain and account before the stream in the longer form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    sequence: u64,
    delivery: u64,
    pending: u64,
}

impl Place {
    fn parse(reply: &str) -> Option<Self> {
        let tokens: Vec<_> = reply.split('.').collect();
        let at = match tokens.len() {
            9 => 0,
            11.. => 2,
            _ => return None,
        };
        if tokens.first() != Some(&"$JS") || tokens.get(1) != Some(&"ACK") {
            return None;
        }
        let number = |token: usize| tokens.get(at + token)?.parse().ok();
        Some(Self { sequence: number(5)?, delivery: number(6)?, pending: number(8)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_from_both_forms_of_the_reply_subject() {
        let place = Place { sequence: 22, delivery: 3, pending: 5 };
        assert_eq!(Place::parse("$JS.ACK.av_t.c.1.22.3.1700000000000000000.5"), Some(place));
        assert_eq!(Place::parse("$JS.ACK.dom.ACCHASH.av_t.c.1.22.3.1700000000000000000.5"), Some(place));
        assert_eq!(Place::parse("$JS.ACK.dom.ACCHASH.av_t.c.1.22.3.1700000000000000000.5.random"), Some(place));
    }

    #[test]
    fn any_other_reply_subject_says_no_place() {
        for reply in
            ["", "_INBOX.x", "$JS.ACK.av_t.c.1.22.3.17", "$JS.ACK.s.c.1.x.3.17.5", "$JS.ACK.s.c.1.22.3.17.-5", "$JS.NAK.s.c.1.22.3.17.5"]
        {
            assert_eq!(Place::parse(reply), None, "{reply}");
        }
        assert_eq!(Place::parse("$JS.ACK.a.b.c.1.22.3.17.5"), None, "ten tokens are neither form");
    }
}
