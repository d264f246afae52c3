//! A connection by hand: TLS, one standing subscription, a request at a time. It bounds nothing and understands only what the broker of a
//! measurement says.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::super::failed;
use super::super::super::figure::Slice;
use super::super::super::publish::{Target, tls};
use super::{consumer, filter};
use crate::error::CliError;

const READ_BYTES: usize = 16_384;
const INBOX: &str = "_INBOX.LSF.hand";
const PULL: &[u8] = b"{\"batch\":1,\"no_wait\":true,\"expires\":100000000}";

/// Messages that are on their way together.
const TOGETHER: usize = 256;

/// A message with headers.
pub(in super::super) struct Message {
    pub(in super::super) subject: String,
    /// The whole block.
    pub(in super::super) headers: String,
    pub(in super::super) body: String,
}

/// One thread, which waits in the system's own poll: nothing is handed over.
pub(in super::super) struct ByHand {
    runtime: Runtime,
    wire: RefCell<Wire>,
    stream: String,
    subject: String,
}

impl ByHand {
    pub(super) fn connect(target: &Target) -> Result<Self, CliError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed("making a runtime"))?;
        let wire = runtime.block_on(Wire::connect(target)).map_err(failed(format!("connecting to {} by hand", target.address)))?;
        Ok(Self { runtime, wire: RefCell::new(wire), stream: target.stream.clone(), subject: target.subject.clone() })
    }

    /// One round trip without a message.
    pub(super) fn ping(&self) -> Result<(), CliError> {
        self.runtime.block_on(self.wire.borrow_mut().ping()).map_err(failed("asking for a PONG"))
    }

    /// Stores so many messages for a consumer; when the last one was stored.
    pub(super) fn store(&self, number: usize, payload: &[u8], count: u32) -> Result<Instant, CliError> {
        let subject = filter(&self.subject, number);
        let wire = &mut *self.wire.borrow_mut();
        let storing = async {
            for _ in 0..count {
                wire.request(&subject, payload).await?;
                if !wire.body().windows(6).any(|part| part == b"\"seq\":") {
                    return Err(wire.told());
                }
            }
            Ok(Instant::now())
        };
        self.runtime.block_on(storing).map_err(failed("storing messages by hand"))
    }

    /// Stores messages, many before the first answer; when the first one began to be stored.
    pub(in super::super) fn store_all(&self, messages: &[Message]) -> Result<Instant, CliError> {
        let wire = &mut *self.wire.borrow_mut();
        let storing = async {
            let started = Instant::now();
            for together in messages.chunks(TOGETHER) {
                wire.publish(together).await?;
            }
            Ok(started)
        };
        self.runtime.block_on(storing).map_err(failed("storing messages by hand"))
    }

    /// So many messages of a consumer: inspected, pulled, acknowledged, each with the broker's answer awaited.
    pub(super) fn handle(&self, number: usize, count: u32) -> Result<Slice, CliError> {
        let name = consumer(number);
        let info = format!("$JS.API.CONSUMER.INFO.{}.{name}", self.stream);
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{name}", self.stream);
        let wire = &mut *self.wire.borrow_mut();
        let handling = async {
            let (started, mut latencies) = (Instant::now(), Vec::new());
            let mut now = started;
            for _ in 0..count {
                wire.request(&info, b"").await?;
                wire.request(&next, PULL).await?;
                let Some(reply) = wire.reply.take() else { return Err(wire.told()) };
                wire.request(&reply, b"+ACK").await?;
                let done = Instant::now();
                latencies.push(done.duration_since(now));
                now = done;
            }
            Ok(Slice { units: u64::from(count), elapsed: now.duration_since(started), latencies })
        };
        self.runtime.block_on(handling).map_err(failed("handling messages by hand"))
    }

    /// The inspections of so many consumers, one after the other.
    pub(super) fn inspect(&self, numbers: std::ops::Range<usize>) -> Result<Duration, CliError> {
        let started = Instant::now();
        let wire = &mut *self.wire.borrow_mut();
        let inspecting = async {
            for number in numbers {
                wire.request(&format!("$JS.API.CONSUMER.INFO.{}.{}", self.stream, consumer(number)), b"").await?;
            }
            Ok(started.elapsed())
        };
        self.runtime.block_on(inspecting).map_err(failed("inspecting consumers by hand"))
    }
}

struct Wire {
    socket: TlsStream<TcpStream>,
    read: Vec<u8>,
    filled: usize,
    out: Vec<u8>,
    requests: u64,
    /// Of the last message: where it is to be answered, and its body in what was read.
    reply: Option<String>,
    body: std::ops::Range<usize>,
    /// What was read before this is used up.
    used: usize,
}

impl Wire {
    async fn connect(target: &Target) -> io::Result<Self> {
        let socket = TcpStream::connect(target.address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(target.server_name.clone()).map_err(io::Error::other)?;
        let socket = TlsConnector::from(tls(&target.root)?).connect(name, socket).await?;
        let read = vec![0; READ_BYTES];
        let mut wire = Self { socket, read, filled: 0, out: Vec::new(), requests: 0, reply: None, body: 0..0, used: 0 };
        let connect = serde_json::json!({
            "verbose": false, "pedantic": false, "tls_required": true, "name": "by hand", "lang": "rust", "version": "0", "protocol": 1,
            "headers": true, "no_responders": true, "user": target.user, "pass": target.password.as_str(),
        });
        write!(wire.out, "CONNECT {connect}\r\nSUB {INBOX}.* 1\r\n")?;
        wire.ping().await?;
        Ok(wire)
    }

    async fn ping(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"PING\r\n");
        self.send().await?;
        while self.frame().await? != Frame::Pong {}
        Ok(())
    }

    /// Asks and waits for the one answer.
    async fn request(&mut self, subject: &str, payload: &[u8]) -> io::Result<()> {
        self.requests += 1;
        write!(self.out, "PUB {subject} {INBOX}.{} {}\r\n", self.requests, payload.len())?;
        self.out.extend_from_slice(payload);
        self.out.extend_from_slice(b"\r\n");
        self.send().await?;
        while self.frame().await? != Frame::Message {}
        Ok(())
    }

    /// Publishes and waits for as many answers, each of which says where a new message was stored.
    async fn publish(&mut self, messages: &[Message]) -> io::Result<()> {
        for Message { subject, headers, body } in messages {
            self.requests += 1;
            let (number, all) = (self.requests, headers.len() + body.len());
            write!(self.out, "HPUB {subject} {INBOX}.{number} {} {all}\r\n{headers}{body}\r\n", headers.len())?;
        }
        self.send().await?;
        for _ in messages {
            while self.frame().await? != Frame::Message {}
            let is = |text: &[u8]| self.body().windows(text.len()).any(|part| part == text);
            if !is(b"\"seq\":") || is(b"\"duplicate\"") {
                return Err(self.told());
            }
        }
        Ok(())
    }

    fn body(&self) -> &[u8] {
        self.read.get(self.body.clone()).unwrap_or_default()
    }

    fn told(&self) -> io::Error {
        io::Error::other(format!("the broker says {:?}", String::from_utf8_lossy(self.body())))
    }

    async fn send(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.out).await?;
        self.out.clear();
        self.socket.flush().await
    }

    async fn frame(&mut self) -> io::Result<Frame> {
        self.read.copy_within(self.used..self.filled, 0);
        self.filled -= self.used;
        self.used = 0;
        loop {
            if let Some(parsed) = parsed(self.read.get(..self.filled).unwrap_or_default())? {
                (self.used, self.body) = (parsed.bytes, parsed.body);
                if parsed.frame == Frame::Message {
                    self.reply = parsed.reply;
                } else if parsed.frame == Frame::Ping {
                    self.socket.write_all(b"PONG\r\n").await?;
                }
                return Ok(parsed.frame);
            }
            let room = self.read.get_mut(self.filled..).unwrap_or_default();
            match self.socket.read(room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.filled += bytes,
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Ping,
    Pong,
    Message,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    frame: Frame,
    bytes: usize,
    reply: Option<String>,
    body: std::ops::Range<usize>,
}

/// The first frame, once it is whole.
fn parsed(bytes: &[u8]) -> io::Result<Option<Parsed>> {
    let Some(line_end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = bytes.get(..line_end).unwrap_or_default();
    let told = || io::Error::other(format!("the broker says {:?}", String::from_utf8_lossy(bytes)));
    let begin = line_end + 2;
    let other = |frame| Ok(Some(Parsed { frame, bytes: begin, reply: None, body: 0..0 }));
    let Some(words) = line.strip_prefix(b"MSG ") else {
        return match line {
            b"PING" => other(Frame::Ping),
            b"PONG" => other(Frame::Pong),
            // Statuses have headers, and nothing here is to end with one.
            _ if line.starts_with(b"-ERR") || line.starts_with(b"HMSG") => Err(told()),
            _ => other(Frame::Other),
        };
    };
    let words: Vec<_> = std::str::from_utf8(words).map_err(|_| told())?.split(' ').collect();
    let (reply, length) = match *words.as_slice() {
        [_, _, length] => (None, length),
        [_, _, reply, length] => (Some(reply.to_owned()), length),
        _ => return Err(told()),
    };
    let end = begin + length.parse::<usize>().map_err(|_| told())?;
    Ok((bytes.len() >= end + 2).then_some(Parsed { frame: Frame::Message, bytes: end + 2, reply, body: begin..end }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_when_it_is_whole() {
        let said = b"MSG _INBOX.LSF.hand.7 1 $JS.ACK.S.c.1.2.3.4.5 2\r\n[]\r\nPING\r\n";
        let whole = said.len() - 6;
        for bytes in 0..whole {
            assert_eq!(parsed(&said[..bytes]).unwrap(), None, "{bytes}");
        }
        let message = parsed(said).unwrap().unwrap();
        assert_eq!((message.frame, message.bytes, &said[message.body.clone()]), (Frame::Message, whole, &b"[]"[..]));
        assert_eq!(message.reply.as_deref(), Some("$JS.ACK.S.c.1.2.3.4.5"));
        assert_eq!(parsed(b"MSG i 1 0\r\n\r\n").unwrap().unwrap().reply, None);
        assert_eq!(parsed(&said[whole..]).unwrap().unwrap().frame, Frame::Ping);
    }

    #[test]
    fn a_status_or_an_error_ends_the_measurement() {
        for said in ["-ERR 'no'\r\n", "HMSG i 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n", "MSG i 1 x\r\n", "MSG i 1\r\n"] {
            assert!(parsed(said.as_bytes()).is_err(), "{said}");
        }
    }
}
