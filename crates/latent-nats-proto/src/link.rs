//! The protocol memory of one connection. It lives as long as its socket, and its buffers are allocated once.

use std::fmt;

use crate::decoder::Decoder;
use crate::exchange::Ended;
use crate::frame::{Frame, FrameError};
use crate::inbox::{INBOX_BYTES_MAX, Inbox, InstanceInbox};
use crate::info::{self, InfoError, ServerFacts};
use crate::limits::{
    CONTROL_FRAMES, DELIVERED_BODY_BYTES, DELIVERED_HEADER_BYTES, DELIVERED_PAYLOAD_BYTES, HEADER_BLOCK_BYTES, PIN_BYTES, SUBJECT_BYTES,
};
use crate::outcome::{Connection, Evidence};
use crate::triggers::{AckNumbers, Delivery};

pub(crate) const PING: &[u8] = b"PING\r\n";
pub(crate) const PONG: &[u8] = b"PONG\r\n";
/// The subscription that every connection has, as the protocol names it.
pub(crate) const SUBSCRIPTION: &[u8] = b"1";
const TAIL_BYTES: usize = 2 + PONG.len() * CONTROL_FRAMES.max_usize();
/// `HPUB`, two sizes of at most twenty digits, spaces and the line end.
const PUBLISH_LINE_BYTES: usize = 64 + SUBJECT_BYTES.max_usize() + INBOX_BYTES_MAX;
const HEAD_BYTES: usize = PUBLISH_LINE_BYTES + HEADER_BLOCK_BYTES.max_usize() + TAIL_BYTES;

/// `NATS/1.0`, `Nats-Pin-Id: `, the pin and line ends: what the broker adds to the headers of a message.
pub(crate) const PIN_LINE_BYTES: usize = 32 + PIN_BYTES.max_usize();

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Fresh,
    Established,
    /// An exchange is under way, or was dropped before its end.
    Busy,
    Broken,
}

/// A connection's protocol memory; lives as long as its socket.
pub struct Link {
    pub(crate) decoder: Decoder,
    pub(crate) inbox: Inbox,
    pub(crate) server: Option<ServerFacts>,
    pub(crate) standing: Standing,
    /// What goes out first, up to a publication's payload.
    pub(crate) head: Vec<u8>,
    /// What goes out last: a publication's line end, and answers to PINGs.
    pub(crate) tail: Tail,
    /// Control frames seen in this stage.
    controls: usize,
    /// A status of the last pull may still arrive, once. Nothing that publishes sets it.
    pub(crate) late_status_may_arrive: bool,
    /// The message that the last pull brought.
    pub(crate) delivery: DeliveryStore,
}

/// Most bytes of a message that a session hands out whole.
fn session_message_bytes(body_bytes_max: u32) -> usize {
    (body_bytes_max as usize).min(DELIVERED_BODY_BYTES.max_usize()) + DELIVERED_HEADER_BYTES.max_usize() + PIN_LINE_BYTES
}

/// What a link read for an exchange.
pub(crate) enum Seen<'a> {
    /// A control frame, dealt with.
    Control,
    /// Something that ends the exchange.
    Fault(Evidence),
    /// Anything else.
    Frame(Frame<'a>),
}

impl Link {
    /// The memory of the connection with this number, which no other of the instance ever had.
    pub fn new(instance: &InstanceInbox, connection: u64) -> Self {
        Self::with(Decoder::for_receipts(), DeliveryStore::new(0), instance, connection)
    }

    /// The memory of a connection that pulls messages of at most this payload, which is copied once on its way.
    pub fn for_triggers(instance: &InstanceInbox, connection: u64, payload_bytes_max: u32) -> Self {
        let payload_bytes_max = (payload_bytes_max as usize).min(DELIVERED_PAYLOAD_BYTES.max_usize());
        let message_bytes_max = payload_bytes_max + DELIVERED_HEADER_BYTES.max_usize();
        let delivery = DeliveryStore::new(message_bytes_max + ACK_SUBJECT_BYTES);
        Self::with(Decoder::new(message_bytes_max), delivery, instance, connection)
    }

    /// The memory of a connection on which a [`Session`](crate::session::Session) works. A message larger than this body is let go by.
    pub fn for_sessions(instance: &InstanceInbox, connection: u64, body_bytes_max: u32) -> Self {
        Self::with(Decoder::skipping(session_message_bytes(body_bytes_max)), DeliveryStore::new(0), instance, connection)
    }

    /// Takes the link out of its connection, for whoever keeps it from here on. What is left is of no use.
    pub fn take(&mut self) -> Self {
        let spent = Self {
            decoder: Decoder::new(0),
            inbox: Inbox::spent(),
            server: None,
            standing: Standing::Broken,
            head: Vec::new(),
            tail: Tail { bytes: [0; TAIL_BYTES], len: 0 },
            controls: 0,
            late_status_may_arrive: false,
            delivery: DeliveryStore::new(0),
        };
        std::mem::replace(self, spent)
    }

    /// Memory that such a link reads into.
    pub(crate) fn session_buffer_bytes(body_bytes_max: u32) -> usize {
        Decoder::buffer_bytes(session_message_bytes(body_bytes_max))
    }

    fn with(decoder: Decoder, delivery: DeliveryStore, instance: &InstanceInbox, connection: u64) -> Self {
        Self {
            decoder,
            inbox: Inbox::new(instance, connection),
            server: None,
            standing: Standing::Fresh,
            head: Vec::with_capacity(HEAD_BYTES),
            tail: Tail { bytes: [0; TAIL_BYTES], len: 0 },
            controls: 0,
            late_status_may_arrive: false,
            delivery,
        }
    }

    /// What the server said of itself last; nothing before the handshake.
    pub fn server(&self) -> Option<ServerFacts> {
        self.server
    }

    /// Whether the handshake is done and no exchange failed or was dropped before its end. A [`Checkout`](crate::Checkout) may begin; a
    /// publication only when nothing is half-read, which is [`Link::is_reusable`]. A broker may send an INFO at any time, so a half-read
    /// one is nothing unusual.
    pub fn is_established(&self) -> bool {
        self.standing == Standing::Established
    }

    /// Whether another exchange may begin: the handshake is done, no exchange failed or was dropped before its end, and nothing is
    /// half-read.
    pub fn is_reusable(&self) -> bool {
        self.standing == Standing::Established && self.decoder.ends_with_line()
    }

    /// Begins a stage with its own count of control frames.
    pub(crate) fn begin_stage(&mut self) {
        self.controls = 0;
    }

    /// Begins an exchange: nothing is left to write and it is another stage.
    pub(crate) fn begin_exchange(&mut self) {
        self.standing = Standing::Busy;
        self.head.clear();
        self.tail.len = 0;
        self.begin_stage();
    }

    /// Ends an exchange.
    pub(crate) fn end_exchange(&mut self, connection: Connection) {
        self.standing = match connection {
            Connection::Keep => Standing::Established,
            Connection::Close => Standing::Broken,
        };
    }

    /// The next complete frame. PING is answered in the tail, INFO is taken, and both count.
    pub(crate) fn read(&mut self) -> Option<Seen<'_>> {
        self.read_with_store().0
    }

    /// The same, with what a pull needs beside the frame: where a message is kept, and whether a late status may arrive.
    pub(crate) fn read_with_store(&mut self) -> (Option<Seen<'_>>, &mut DeliveryStore, &mut bool) {
        let Self { decoder, server, tail, controls, late_status_may_arrive, delivery, .. } = self;
        (read(decoder, server, tail, controls), delivery, late_status_may_arrive)
    }

    /// The message that the last pull brought, if it brought one that was not settled yet.
    pub fn delivery(&self) -> Option<Delivery<'_>> {
        self.delivery.get()
    }

    /// What an end from outside shows.
    pub(crate) fn ended(&self, how: Ended) -> Evidence {
        let within_reply = self.decoder.is_within_frame();
        match how {
            Ended::PeerClosed | Ended::TransportFailed => Evidence::ConnectionLost { within_reply },
            Ended::DeadlineExceeded => Evidence::Deadline { within_reply },
            Ended::Cancelled => Evidence::Cancelled,
        }
    }
}

fn read<'a>(decoder: &'a mut Decoder, server: &mut Option<ServerFacts>, tail: &mut Tail, controls: &mut usize) -> Option<Seen<'a>> {
    let frame = match decoder.next() {
        Ok(frame) => frame?,
        Err(error) => return Some(Seen::Fault(frame_fault(error))),
    };
    if !matches!(frame, Frame::Ping | Frame::Info(_) | Frame::Ok) {
        return Some(Seen::Frame(frame));
    }
    *controls += 1;
    if *controls > CONTROL_FRAMES.max_usize() {
        return Some(Seen::Fault(Evidence::ControlFlood));
    }
    match frame {
        Frame::Ping => tail.push(PONG),
        Frame::Info(text) => match info::read(text) {
            Ok(facts) => *server = Some(facts),
            Err(error) => return Some(Seen::Fault(info_fault(error))),
        },
        _ => (),
    }
    Some(Seen::Control)
}

pub(crate) fn frame_fault(error: FrameError) -> Evidence {
    match error {
        FrameError::LineTooLong => Evidence::LineTooLong,
        FrameError::Malformed => Evidence::MalformedFrame,
        FrameError::Oversized => Evidence::OversizedReply,
    }
}

pub(crate) fn info_fault(error: InfoError) -> Evidence {
    match error {
        InfoError::Malformed => Evidence::MalformedFrame,
        InfoError::NoHeaders | InfoError::NoMaxPayload => Evidence::UnusableServer,
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("standing", &self.standing).field("server", &self.server).finish_non_exhaustive()
    }
}

/// The last bytes to go out. There is room for an answer to every PING that a stage may have.
pub(crate) struct Tail {
    bytes: [u8; TAIL_BYTES],
    len: usize,
}

impl Tail {
    pub(crate) fn push(&mut self, part: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + part.len()) {
            room.copy_from_slice(part);
            self.len += part.len();
        }
    }

    pub(crate) fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Moves everything to the end of `head`.
    pub(crate) fn move_to(&mut self, head: &mut Vec<u8>) {
        head.extend_from_slice(self.get());
        self.len = 0;
    }
}

/// Longest acknowledgement subject: two names of 128 bytes and eight numbers or tokens.
pub(crate) const ACK_SUBJECT_BYTES: usize = 512;

/// The message that the last pull brought, in memory that is allocated once.
pub(crate) struct DeliveryStore {
    /// Acknowledgement subject, headers, payload.
    bytes: Vec<u8>,
    bytes_max: usize,
    ack_subject_bytes: usize,
    header_bytes: usize,
    numbers: Option<AckNumbers>,
}

impl DeliveryStore {
    fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes_max), bytes_max, ack_subject_bytes: 0, header_bytes: 0, numbers: None }
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.numbers = None;
    }

    /// Keeps a message. False when it does not fit.
    pub(crate) fn keep(&mut self, ack_subject: &[u8], headers: &[u8], payload: &[u8], numbers: AckNumbers) -> bool {
        self.clear();
        if ack_subject.len() > ACK_SUBJECT_BYTES || ack_subject.len() + headers.len() + payload.len() > self.bytes_max {
            return false;
        }
        [ack_subject, headers, payload].into_iter().for_each(|part| self.bytes.extend_from_slice(part));
        (self.ack_subject_bytes, self.header_bytes) = (ack_subject.len(), headers.len());
        self.numbers = Some(numbers);
        true
    }

    fn get(&self) -> Option<Delivery<'_>> {
        let numbers = self.numbers?;
        let (headers, payload) = self.bytes.get(self.ack_subject_bytes..)?.split_at_checked(self.header_bytes)?;
        Some(Delivery { headers, payload, numbers })
    }

    /// Copies the acknowledgement subject and gives the message up: it is settled once.
    pub(crate) fn take_ack_subject(&mut self, into: &mut [u8; ACK_SUBJECT_BYTES]) -> Option<usize> {
        self.numbers.take()?;
        let subject = self.bytes.get(..self.ack_subject_bytes)?;
        into.get_mut(..subject.len())?.copy_from_slice(subject);
        Some(subject.len())
    }
}

/// How an exchange reads: frame by frame while it waits for any, and whatever comes behind stays.
pub(crate) trait Reader {
    fn link(&mut self) -> &mut Link;

    fn is_reading(&self) -> bool;

    /// Reads one frame. False when none is complete.
    fn read_frame(&mut self) -> bool;

    /// More bytes came than there is room for.
    fn overflow(&mut self);
}

pub(crate) fn receive(reader: &mut impl Reader, bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let taken = reader.link().decoder.fill(rest);
        rest = rest.get(taken..).unwrap_or_default();
        while reader.is_reading() && reader.read_frame() {}
        if rest.is_empty() {
            return;
        }
        if taken == 0 {
            return reader.overflow();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LINK_BYTES;

    #[test]
    fn a_link_stays_within_its_bound() {
        let link = crate::testing::fresh();
        let bytes = size_of::<Link>() + link.decoder.capacity() + link.head.capacity();
        assert!((16_384..=LINK_BYTES.max_usize()).contains(&bytes), "{bytes}");
    }
}
