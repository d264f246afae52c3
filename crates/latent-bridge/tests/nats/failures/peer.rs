//! One connection of a server that speaks as much of the protocol as the bus does. What it answers is not known here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use latent_testkit::broker::VERSION;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// See the module.
pub(super) struct Peer {
    out: mpsc::UnboundedSender<Vec<u8>>,
    /// Subscriptions, number and subject.
    subscriptions: Mutex<Vec<(String, String)>>,
}

impl Peer {
    /// Serves a connection, and gives each request to `answer`.
    pub(super) async fn serve<A: Future<Output = ()> + Send + 'static>(connection: TcpStream, answer: impl Fn(Arc<Self>, Request) -> A) {
        connection.set_nodelay(true).unwrap();
        let (input, mut output) = connection.into_split();
        let (out, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
        let peer = Arc::new(Self { out, subscriptions: Mutex::default() });
        tokio::spawn(async move {
            while let Some(bytes) = queue.recv().await {
                if output.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        let info = json!({
            "server_id": "scripted", "server_name": "scripted", "version": VERSION, "proto": 1, "headers": true,
            "max_payload": 1_048_576, "jetstream": true, "host": "127.0.0.1", "port": 4_222, "go": "", "client_id": 1,
        });
        peer.send(format!("INFO {info}\r\n").into_bytes());
        let (mut input, mut line) = (BufReader::new(input), String::new());
        while input.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["PING"] => peer.send(b"PONG\r\n".to_vec()),
                ["SUB", subject, .., number] => peer.subscriptions().push((number.to_owned(), subject.to_owned())),
                ["UNSUB", number, ..] => peer.subscriptions().retain(|(known, _)| known != number),
                [verb @ ("PUB" | "HPUB"), subject, .., bytes] => {
                    let reply = (words.len() == if verb == "PUB" { 4 } else { 5 }).then(|| words[2].to_owned());
                    let mut content = vec![0; bytes.parse::<usize>().unwrap() + 2];
                    input.read_exact(&mut content).await.unwrap();
                    content.truncate(content.len() - 2);
                    if let Some(reply) = reply {
                        // Each by itself: a page that comes late holds nothing else up.
                        let request =
                            Request { subject: subject.to_owned(), reply, body: serde_json::from_slice(&content).unwrap_or_default() };
                        tokio::spawn(answer(Arc::clone(&peer), request));
                    }
                }
                _ => {}
            }
            line.clear();
        }
    }

    pub(super) fn send(&self, bytes: Vec<u8>) {
        // One that has gone hears nothing.
        let _ = self.out.send(bytes);
    }

    pub(super) fn json(&self, to: &str, body: &Value) {
        self.message(to, "", "NATS/1.0\r\n\r\n", &body.to_string());
    }

    pub(super) fn status(&self, to: &str, words: &str) {
        self.message(to, "", &format!("NATS/1.0 {words}\r\n\r\n"), "");
    }

    pub(super) fn message(&self, to: &str, reply: &str, block: &str, body: &str) {
        let subscriptions = self.subscriptions();
        let Some((number, _)) = subscriptions.iter().find(|(_, subject)| matches(subject, to)) else { return };
        let sizes = format!("{} {}", block.len(), block.len() + body.len());
        self.send(format!("HMSG {to} {number} {reply} {sizes}\r\n{block}{body}\r\n").into_bytes());
    }

    fn subscriptions(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn matches(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(token), Some(word)) if token == "*" || token == word => {}
            _ => return false,
        }
    }
}

/// What the bus asks.
pub(super) struct Request {
    pub(super) subject: String,
    pub(super) reply: String,
    pub(super) body: Value,
}
