//! A scripted peer that speaks NATS and answers on the subjects of JetStream. It says what no real broker would say twice in the same way:
//! pulls without messages while messages are pending, pages that come late. A client of a real broker could not play it: only a server
//! may say where a message lies.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latent_bridge::NatsBus;
use latent_bridge::nats_bus::NatsOptions;
use latent_testkit::broker::VERSION;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::live::{STREAM, beside, manifest, runtime, spec, with_topic};

/// What the script does with pulls.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    /// The uids that the partition holds, at the sequences from 1 on.
    pub(super) uids: Vec<String>,
    /// Before each page that has messages so many pulls get none.
    pub(super) empty_pulls: usize,
    /// A page has at most so many messages.
    pub(super) page: usize,
    /// The first message of a page comes so much later than it was asked for; a pull that has ended by then gets nothing.
    pub(super) delay: Duration,
    /// The fresh consumers that are told of one pending message where there is none.
    pub(super) false_pending: usize,
    /// No pull ever gets a message.
    pub(super) is_mute: bool,
    /// What each publication is answered in turn.
    pub(super) answers: Vec<Answer>,
}

/// An answer to a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Another one with its uid is being stored.
    InProcess,
    /// The user may not publish there.
    NotPermitted,
    /// Nothing listens there.
    NoResponders,
}

/// What was asked of it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) created: AtomicUsize,
    pub(super) pulls: AtomicUsize,
    pub(super) deleted: AtomicUsize,
    pub(super) published: AtomicUsize,
}

/// A consumer as the script keeps it.
#[derive(Debug)]
struct Kept {
    name: String,
    /// The next sequence.
    next: u64,
    deliveries: u64,
}

/// See the module. Dropping it ends its thread.
pub(super) struct ScriptedJetStream {
    pub(super) bus: NatsBus,
    pub(super) asked: Arc<Asked>,
    /// While it is set, the stream is said to have no leader, and no messages.
    pub(super) leaderless: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ScriptedJetStream {
    /// Starts it, and a bus on it.
    pub(super) fn start(script: Script) -> Self {
        let (asked, (stop, stopped), (ready, is_ready)) = (Arc::new(Asked::default()), oneshot::channel(), std::sync::mpsc::channel());
        let info = genuine_info(script.uids.len());
        let leaderless = Arc::new(AtomicBool::new(false));
        let (of_script, is_leaderless) = (Arc::clone(&asked), Arc::clone(&leaderless));
        let played = Arc::new(Played {
            info,
            script,
            asked: of_script,
            leaderless: is_leaderless,
            consumers: Mutex::default(),
            empty_pulls: AtomicUsize::new(0),
        });
        let serve = async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(Peer::serve(connection, Arc::clone(&played)));
            }
        };
        let thread = std::thread::spawn(move || {
            runtime().block_on(async {
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
        });
        let address = is_ready.recv().unwrap();
        let bus = NatsBus::open_with(NatsOptions::new(&format!("nats://{address}")), &manifest(1)).unwrap();
        Self { bus, asked, leaderless, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for ScriptedJetStream {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the script has been printed; the test fails by what it then misses.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// One connection: as much of the protocol as the bus speaks.
struct Peer {
    out: mpsc::UnboundedSender<Vec<u8>>,
    /// Subscriptions, number and subject.
    subscriptions: Mutex<Vec<(String, String)>>,
}

impl Peer {
    async fn serve(connection: TcpStream, played: Arc<Played>) {
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
                        tokio::spawn(Arc::clone(&played).answer(Arc::clone(&peer), request));
                    }
                }
                _ => {}
            }
            line.clear();
        }
    }

    fn send(&self, bytes: Vec<u8>) {
        // One that has gone hears nothing.
        let _ = self.out.send(bytes);
    }

    fn json(&self, to: &str, body: &Value) {
        self.message(to, "", "NATS/1.0\r\n\r\n", &body.to_string());
    }

    fn status(&self, to: &str, words: &str) {
        self.message(to, "", &format!("NATS/1.0 {words}\r\n\r\n"), "");
    }

    fn message(&self, to: &str, reply: &str, block: &str, body: &str) {
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
struct Request {
    subject: String,
    reply: String,
    body: Value,
}

/// What a real broker says of the stream, with as many messages as the script has.
fn genuine_info(messages: usize) -> Value {
    let (broker, _bus) = with_topic(spec(), 1);
    let mut info: Value = beside(&broker, async |admin| admin.jetstream().request(format!("STREAM.INFO.{STREAM}"), &()).await.unwrap());
    info["state"]["messages"] = json!(messages);
    info["state"]["first_seq"] = json!(1);
    info["state"]["last_seq"] = json!(messages);
    info
}

/// The script being played.
struct Played {
    script: Script,
    info: Value,
    asked: Arc<Asked>,
    leaderless: Arc<AtomicBool>,
    consumers: Mutex<Vec<Kept>>,
    /// Since the last page.
    empty_pulls: AtomicUsize,
}

impl Played {
    async fn answer(self: Arc<Self>, peer: Arc<Peer>, Request { subject, reply, body }: Request) {
        if !subject.starts_with('$') {
            return self.answer_publication(&peer, &subject, &reply);
        }
        let tokens: Vec<_> = subject.split('.').skip(2).collect();
        let answered = match tokens[..] {
            ["STREAM", "INFO", _] => self.info(),
            ["CONSUMER", "CREATE", _, name, ..] => self.create(name, &body),
            ["CONSUMER", "DELETE", ..] => {
                self.asked.deleted.fetch_add(1, Ordering::SeqCst);
                json!({ "success": true })
            }
            ["CONSUMER", "MSG", "NEXT", _, name] => return self.pull(&peer, &reply, name, &body).await,
            ["STREAM", "MSG", "GET", _] => self.get(&body),
            _ => json!({ "error": { "code": 503, "err_code": 10_039, "description": "the script does not know this" } }),
        };
        peer.json(&reply, &answered);
    }

    fn answer_publication(&self, peer: &Peer, subject: &str, reply: &str) {
        let at = self.asked.published.fetch_add(1, Ordering::SeqCst);
        match self.script.answers[at] {
            Answer::InProcess => {
                let error = json!({ "code": 400, "err_code": 10_158, "description": "duplicate message id is in process" });
                peer.json(reply, &json!({ "error": error, "stream": STREAM, "seq": 0 }));
            }
            Answer::NotPermitted => {
                peer.send(format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n").into_bytes());
            }
            Answer::NoResponders => peer.status(reply, "503"),
        }
    }

    fn info(&self) -> Value {
        let mut info = self.info.clone();
        if self.leaderless.load(Ordering::SeqCst) {
            // As a real member of a cluster that has just started, and knows of the others nothing yet.
            info["state"] = json!({ "messages": 0, "first_seq": 0, "last_seq": 0 });
            info["cluster"] = json!({ "name": "tests", "raft_group": "S-R3F-x", "replicas": [] });
        }
        info
    }

    fn create(&self, name: &str, body: &Value) -> Value {
        let created = self.asked.created.fetch_add(1, Ordering::SeqCst);
        let next = body["config"]["opt_start_seq"].as_u64().unwrap();
        self.consumers().push(Kept { name: name.to_owned(), next, deliveries: 0 });
        let mut pending = self.pending(next);
        if pending == 0 && created < self.script.false_pending {
            pending = 1;
        }
        json!({ "stream_name": STREAM, "name": name, "config": body["config"], "num_pending": pending })
    }

    fn pending(&self, next: u64) -> u64 {
        (self.script.uids.len() as u64 + 1).saturating_sub(next)
    }

    async fn pull(&self, peer: &Peer, reply: &str, name: &str, body: &Value) {
        self.asked.pulls.fetch_add(1, Ordering::SeqCst);
        let Some(page) = self.page(name, body) else { return peer.status(reply, "408 Request Timeout") };
        elapsed(self.script.delay).await;
        let is_short = (page.len() as u64) < body["batch"].as_u64().unwrap();
        for (sequence, delivery) in page {
            let uid = &self.script.uids[usize::try_from(sequence).unwrap() - 1];
            let pending = self.pending(sequence + 1);
            let place = format!("$JS.ACK.{STREAM}.{name}.1.{sequence}.{delivery}.1700000000000000000.{pending}");
            peer.message(reply, &place, &format!("NATS/1.0\r\nNats-Msg-Id: {uid}\r\n\r\n"), &stored_body());
        }
        if is_short {
            peer.status(reply, "408 Request Timeout");
        }
    }

    /// Sequences with the numbers of their deliveries. Decided under the lock, so that two pulls of one consumer never get the same.
    fn page(&self, name: &str, body: &Value) -> Option<Vec<(u64, u64)>> {
        let mut consumers = self.consumers();
        let consumer = consumers.iter_mut().find(|consumer| consumer.name == name).unwrap();
        if self.script.is_mute || self.pending(consumer.next) == 0 {
            return None;
        }
        // Of all consumers together: who makes another one does not begin anew.
        let empty_so_far = self.empty_pulls.fetch_add(1, Ordering::SeqCst);
        if empty_so_far < self.script.empty_pulls {
            return None;
        }
        self.empty_pulls.store(0, Ordering::SeqCst);
        let count = body["batch"].as_u64().unwrap().min(self.script.page as u64).min(self.pending(consumer.next));
        let page = (0..count).map(|n| (consumer.next + n, consumer.deliveries + 1 + n)).collect();
        consumer.next += count;
        consumer.deliveries += count;
        Some(page)
    }

    fn get(&self, body: &Value) -> Value {
        let sequence = body["seq"].as_u64().unwrap_or(self.script.uids.len() as u64);
        let uid = usize::try_from(sequence).unwrap().checked_sub(1).and_then(|at| self.script.uids.get(at));
        let Some(uid) = uid else { return json!({ "error": { "code": 404, "err_code": 10_037, "description": "no message found" } }) };
        let (block, content) = (format!("NATS/1.0\r\nNats-Msg-Id: {uid}\r\n\r\n"), stored_body());
        json!({ "message": { "subject": "t.p0", "seq": sequence, "hdrs": STANDARD.encode(block), "data": STANDARD.encode(content) } })
    }

    fn consumers(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stored_body() -> String {
    json!({ "partition": 0, "offset": 0, "key": "k", "stored_at": 1, "value": 1 }).to_string()
}

/// The script's own slowness: nothing is waited for in it.
async fn elapsed(duration: Duration) {
    let _ = tokio::time::timeout(duration, std::future::pending::<()>()).await;
}
