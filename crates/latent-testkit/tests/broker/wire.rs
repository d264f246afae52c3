//! A client by hand: it sends the bytes it is given and reads lines, so that nothing stands between the test and the wire.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use latent_testkit::broker::{Broker, TestCa};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const HANG: Duration = Duration::from_secs(60);

pub(crate) struct Wire {
    stream: TlsStream<TcpStream>,
    read: Vec<u8>,
}

pub(crate) fn trusting(ca: &TestCa) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ca.root_der())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

impl Wire {
    /// Connects to whoever is there.
    pub(crate) async fn connect(address: SocketAddrV4, ca: &TestCa, server_name: &str) -> std::io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        Ok(Self { stream: trusting(ca).connect(name, tcp).await?, read: Vec::new() })
    }

    /// Connects and reads INFO, without the word in front.
    pub(crate) async fn open(broker: &Broker) -> (Self, String) {
        let mut wire = Self::connect(broker.address(), broker.ca(), &broker.server_name()).await.unwrap();
        let info = wire.line().await;
        (wire, info.strip_prefix("INFO ").unwrap().trim_end().to_owned())
    }

    /// Connects as `user` and subscribes to its inboxes, as sid 1.
    pub(crate) async fn publisher(broker: &Broker, user: &str, password: &str) -> Self {
        Self::publisher_through(broker.address(), broker, user, password).await
    }

    /// As [`Wire::publisher`], through a proxy.
    pub(crate) async fn publisher_through(address: SocketAddrV4, broker: &Broker, user: &str, password: &str) -> Self {
        let mut wire = Self::connect(address, broker.ca(), &broker.server_name()).await.unwrap();
        wire.line().await;
        let connect = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"tls_required\":true,\"user\":\"{user}\",\"pass\":\"{password}\",\"protocol\":1,\
             \"headers\":true,\"no_responders\":true}}\r\nSUB _INBOX.LSF.i.c.* 1\r\nPING\r\n"
        );
        wire.send(connect).await;
        assert_eq!(wire.line().await, "PONG\r\n");
        // To a client of protocol 1 the broker introduces itself once more, now with what it is to this user.
        let again = wire.line().await;
        assert!(again.starts_with("INFO ") && again.contains("\"connect_info\":true"), "{again}");
        wire
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends to a peer that may end the connection meanwhile.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    /// The next line with its end.
    pub(crate) async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                return String::from_utf8(self.read.drain(..end + 2).collect()).unwrap();
            }
            assert!(self.more().await, "the connection ended inside a line: {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// The next bytes, exactly this many.
    pub(crate) async fn exactly(&mut self, count: usize) -> String {
        while self.read.len() < count {
            assert!(self.more().await, "the connection ended");
        }
        String::from_utf8(self.read.drain(..count).collect()).unwrap()
    }

    /// Everything until the peer ends the connection.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.read)
    }

    /// True when the peer ends the connection without another byte.
    pub(crate) async fn ends(&mut self) -> bool {
        self.read.is_empty() && !self.more().await
    }

    /// Publishes with headers and a reply inbox.
    pub(crate) async fn hpub(&mut self, subject: &str, inbox: &str, headers: &str, payload: &[u8]) {
        let block = format!("NATS/1.0\r\n{headers}\r\n");
        let mut frame = format!("HPUB {subject} {inbox} {} {}\r\n{block}", block.len(), block.len() + payload.len()).into_bytes();
        frame.extend_from_slice(payload);
        frame.extend_from_slice(b"\r\n");
        self.send(frame).await;
    }

    async fn more(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let read = tokio::time::timeout(HANG, self.stream.read(&mut chunk)).await.unwrap();
        let count = read.unwrap_or(0);
        self.read.extend_from_slice(&chunk[..count]);
        count > 0
    }
}
