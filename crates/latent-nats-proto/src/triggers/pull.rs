//! One message is asked for: batch 1, no wait, 100 ms (T-040).

use super::ack_subject::{self, AckNumbers};
use super::consumer::ConsumerProfile;
use super::request::{Question, Request, RequestRefused, is_name, operation};
use super::status::{self, PullStatus};
use crate::decoder::decimal;
use crate::frame::Message;
use crate::headers;
use crate::limits::DELIVERED_HEADER_BYTES;
use crate::link::{DeliveryStore, Link};
use crate::outcome::{Connection, Evidence};

/// The line of a status that says that nothing of its request is left.
const NOTHING_LEFT: &[u8] = b"\r\nNats-Pending-Messages: 0\r\n";

/// A delivered message, in the memory of its link until the next pull.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Delivery<'l> {
    /// The header block, empty when there is none.
    pub headers: &'l [u8],
    /// The payload.
    pub payload: &'l [u8],
    /// What the acknowledgement subject says.
    pub numbers: AckNumbers,
}

impl std::fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("payload_bytes", &self.payload.len()).field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

/// What a pull brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// A message: [`Link::delivery`] has it.
    Message(AckNumbers),
    /// A status instead.
    Status(PullStatus),
}

/// Why a pull brought nothing that can be used. A message, if there was one, is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullError {
    /// What was seen.
    pub evidence: Evidence,
    /// Whether the request may have been written.
    pub possible_write: bool,
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullEnd {
    /// What it brought.
    pub result: Result<Pulled, PullError>,
    /// What may become of the connection.
    pub connection: Connection,
}

struct Asked<'l>(ConsumerProfile<'l>);

impl Question for Asked<'_> {
    type Answer = Pulled;

    fn message(&self, message: Message<'_>, is_own: bool, store: &mut DeliveryStore) -> Result<Pulled, Evidence> {
        let status = match message.headers.map(headers::status) {
            None => None,
            Some(Ok(status)) => status,
            Some(Err(_)) => return Err(Evidence::MalformedFrame),
        };
        let block = message.headers.unwrap_or_default();
        if is_own {
            let code = status.filter(|_| message.payload.is_empty()).ok_or(Evidence::UnexpectedFrame)?;
            return Ok(Pulled::Status(status::read(code, block)));
        }
        if message.subject != self.0.filter_subject.as_bytes() || status.is_some() {
            return Err(Evidence::ForeignReply);
        }
        let (payload_bytes_max, header_bytes_max) = (self.0.payload_bytes_max as usize, DELIVERED_HEADER_BYTES.max_usize());
        if message.payload.len() > payload_bytes_max || block.len() > header_bytes_max {
            return Err(Evidence::OversizedReply);
        }
        let reply = message.reply.unwrap_or_default();
        let numbers = ack_subject::read(reply, self.0.stream, self.0.consumer).map_err(|_| Evidence::ForeignReply)?;
        if !store.keep(reply, block, message.payload, numbers) {
            return Err(Evidence::OversizedReply);
        }
        Ok(Pulled::Message(numbers))
    }

    fn keeps_connection(answer: &Pulled) -> bool {
        !matches!(answer, Pulled::Status(status) if !status.keeps_connection())
    }

    fn leaves_status(answer: &Pulled) -> bool {
        matches!(answer, Pulled::Message(_))
    }

    /// A consumer with replicas sends a message when a majority knows of its delivery, and the status at once: that the one message which
    /// was asked for is given says that it comes.
    fn is_early_status(message: Message<'_>) -> bool {
        let block = message.headers.unwrap_or_default();
        let is_completed = matches!(headers::status(block), Ok(Some(409))) && status::read(409, block) == PullStatus::BatchCompleted;
        is_completed && message.payload.is_empty() && block.windows(NOTHING_LEFT.len()).any(|line| line == NOTHING_LEFT)
    }
}

/// A pull under way.
pub struct Pull<'l>(Request<'l, Asked<'l>>);

impl std::fmt::Debug for Pull<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<'l> Pull<'l> {
    /// Begins; what the link delivered before is given up.
    ///
    /// # Errors
    /// [`RequestRefused`].
    pub fn begin(link: &'l mut Link, profile: &ConsumerProfile<'l>) -> Result<Self, RequestRefused> {
        if !is_name(profile.stream) || !is_name(profile.consumer) {
            return Err(RequestRefused::Text);
        }
        link.delivery.clear();
        let mut body = [0; 96];
        let mut bytes = 0;
        let (digits, start) = decimal(profile.request_bytes_max());
        let parts: [&[u8]; 3] =
            [b"{\"batch\":1,\"no_wait\":true,\"expires\":100000000,\"max_bytes\":", digits.get(start..).unwrap_or_default(), b"}"];
        for part in parts {
            if let Some(room) = body.get_mut(bytes..bytes + part.len()) {
                room.copy_from_slice(part);
                bytes += part.len();
            }
        }
        let subject: [&[u8]; 4] = [b"$JS.API.CONSUMER.MSG.NEXT.", profile.stream.as_bytes(), b".", profile.consumer.as_bytes()];
        Request::begin(link, Asked(*profile), &subject, body.get(..bytes).unwrap_or_default()).map(Self)
    }
}

operation!(Pull, PullEnd, |request: Request<'_, Asked<'_>>| {
    let (end, connection) = request.into_end();
    let result = end.map_err(|(stage, evidence)| PullError { evidence, possible_write: stage.possible_write() });
    PullEnd { result, connection }
});
