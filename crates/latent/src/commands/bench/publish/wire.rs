//! A connection by hand: TLS, one standing subscription, and a publication at a time. It bounds nothing and understands only what the
//! broker of a measurement says.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::Target;

const READ_BYTES: usize = 4_096;

/// See the module.
pub(super) struct Wire {
    stream: TlsStream<TcpStream>,
    read: Box<[u8]>,
    filled: usize,
    out: Vec<u8>,
    /// `HPUB`, its subject and the inbox up to the operation's number.
    command: String,
    /// Headers up to the message's id, and what stands behind it.
    headers: [String; 2],
    operations: u64,
}

impl Wire {
    pub(super) async fn connect(target: &Target, number: usize) -> io::Result<Self> {
        let socket = TcpStream::connect(target.address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(target.server_name.clone()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(tls(&target.root)?).connect(name, socket).await?;
        let inbox = format!("_INBOX.LSF.hand{number}");
        let headers = [
            format!("NATS/1.0\r\nNats-Expected-Stream: {}\r\nNats-Msg-Id: ", target.stream),
            "\r\nContent-Type: application/octet-stream\r\n\r\n".to_owned(),
        ];
        let mut wire = Self {
            stream,
            read: vec![0; READ_BYTES].into(),
            filled: 0,
            out: Vec::new(),
            command: format!("HPUB {} {inbox}.", target.subject),
            headers,
            operations: 0,
        };
        wire.begin(target, &inbox).await?;
        Ok(wire)
    }

    async fn begin(&mut self, target: &Target, inbox: &str) -> io::Result<()> {
        let connect = serde_json::json!({
            "verbose": false, "pedantic": false, "tls_required": true, "name": "by hand", "lang": "rust", "version": "0", "protocol": 1,
            "headers": true, "no_responders": true, "user": target.user, "pass": target.password.as_str(),
        });
        self.out.extend_from_slice(format!("CONNECT {connect}\r\nSUB {inbox}.* 1\r\n").as_bytes());
        self.ping().await
    }

    /// One round trip without a message.
    pub(super) async fn ping(&mut self) -> io::Result<()> {
        self.out.extend_from_slice(b"PING\r\n");
        self.send().await?;
        while self.frame().await? != Frame::Pong {}
        Ok(())
    }

    /// Publishes once and waits for the stream's answer. `id` is new to the stream.
    pub(super) async fn publish(&mut self, id: &str, payload: &[u8]) -> io::Result<()> {
        use std::io::Write as _;
        self.operations += 1;
        let [before, after] = &self.headers;
        let header_bytes = before.len() + id.len() + after.len();
        write!(self.out, "{}{} {header_bytes} {}\r\n{before}{id}{after}", self.command, self.operations, header_bytes + payload.len())?;
        self.out.extend_from_slice(payload);
        self.out.extend_from_slice(b"\r\n");
        self.send().await?;
        while self.frame().await? != Frame::Stored {}
        Ok(())
    }

    async fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        self.stream.flush().await
    }

    /// The next frame, taken out of what was read.
    async fn frame(&mut self) -> io::Result<Frame> {
        loop {
            let here = self.read.get(..self.filled).unwrap_or_default();
            if let Some((frame, bytes)) = parsed(here)? {
                self.read.copy_within(bytes..self.filled, 0);
                self.filled -= bytes;
                if frame == Frame::Ping {
                    self.stream.write_all(b"PONG\r\n").await?;
                }
                return Ok(frame);
            }
            let room = self.read.get_mut(self.filled..).unwrap_or_default();
            match self.stream.read(room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.filled += bytes,
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Ping,
    Pong,
    Stored,
    Other,
}

/// The first frame and its bytes, once it is whole.
fn parsed(bytes: &[u8]) -> io::Result<Option<(Frame, usize)>> {
    let Some(line_end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, behind) = bytes.split_at(line_end);
    let told = || io::Error::other(format!("the broker says {:?}", String::from_utf8_lossy(bytes)));
    if line.starts_with(b"MSG ") {
        let length = line.rsplit(|byte| *byte == b' ').next().and_then(|text| std::str::from_utf8(text).ok()?.parse::<usize>().ok());
        let Some(body) = behind.get(2..2 + length.ok_or_else(told)?) else { return Ok(None) };
        let whole = line_end + 2 + body.len() + 2;
        if bytes.len() < whole {
            return Ok(None);
        }
        // A stored message has a place, and this loop publishes none twice.
        let is = |text: &[u8]| body.windows(text.len()).any(|part| part == text);
        let stored = is(b"\"seq\":") && !is(b"\"error\"") && !is(b"\"duplicate\"");
        return if stored { Ok(Some((Frame::Stored, whole))) } else { Err(told()) };
    }
    let frame = match line {
        b"PING" => Frame::Ping,
        b"PONG" => Frame::Pong,
        _ if line.starts_with(b"-ERR") || line.starts_with(b"HMSG") => return Err(told()),
        _ => Frame::Other,
    };
    Ok(Some((frame, line_end + 2)))
}

/// Trusts one root.
pub(in super::super) fn tls(root: &[u8]) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(root.to_vec())).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(io::Error::other)?;
    Ok(Arc::new(versions.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_when_it_is_whole() {
        let reply = b"MSG _INBOX.LSF.hand1.1 1 26\r\n{\"stream\":\"ORD\", \"seq\":17}\r\nPING\r\n";
        let whole = reply.len() - 6;
        for bytes in 0..reply.len() {
            let expected = (bytes >= whole).then_some((Frame::Stored, whole));
            assert_eq!(parsed(&reply[..bytes]).unwrap(), expected, "{bytes}");
        }
        assert_eq!(parsed(b"PONG\r\nx").unwrap(), Some((Frame::Pong, 6)));
        assert_eq!(parsed(b"INFO {}\r\n").unwrap(), Some((Frame::Other, 9)));
    }

    #[test]
    fn whatever_is_no_new_message_in_the_stream_ends_the_measurement() {
        for said in
            ["-ERR 'no'\r\n", "MSG i 1 13\r\n{\"error\":\"no\"\r\n", "MSG i 1 29\r\n{\"seq\":1,\"duplicate\": true  }\r\n", "MSG i 1 x\r\n"]
        {
            assert!(parsed(said.as_bytes()).is_err(), "{said}");
        }
    }
}
