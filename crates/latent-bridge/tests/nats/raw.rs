//! A client that puts on the wire what no library would: header blocks that are none.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use latent_testkit::broker::{Broker, SERVER_NAME};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::live::{PASSWORD, USER};

/// See the module.
pub(crate) struct Raw(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Raw {
    pub(crate) fn connect(broker: &Broker) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(broker.ca().root_der())).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(tls.with_root_certificates(roots).with_no_client_auth());
        let session = ClientConnection::new(tls, ServerName::try_from(SERVER_NAME).unwrap()).unwrap();
        let mut raw = Self(BufReader::new(StreamOwned::new(session, TcpStream::connect(broker.address()).unwrap())));
        let connect = json!({ "verbose": false, "pedantic": false, "headers": true, "user": USER, "pass": PASSWORD });
        raw.send(format!("CONNECT {connect}\r\nSUB raw.reply 1\r\n").as_bytes());
        raw
    }

    fn send(&mut self, bytes: &[u8]) {
        let stream = self.0.get_mut();
        stream.write_all(bytes).unwrap();
        stream.flush().unwrap();
    }

    /// Publishes a message with this header block. Gives its sequence.
    pub(crate) fn plant(&mut self, subject: &str, block: &[u8], body: &[u8]) -> u64 {
        let sizes = format!("{} {}", block.len(), block.len() + body.len());
        let head = format!("HPUB {subject} raw.reply {sizes}\r\n");
        self.send(&[head.as_bytes(), block, body, b"\r\n"].concat());
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the broker ended the connection");
            assert!(!line.starts_with("-ERR"), "{line}");
            let reply = line.find('{').and_then(|at| serde_json::from_str::<Value>(line[at..].trim()).ok());
            if let Some(sequence) = reply.as_ref().and_then(|reply| reply["seq"].as_u64()) {
                assert!(reply.unwrap().get("error").is_none(), "{line}");
                return sequence;
            }
        }
    }
}
