//! A scripted JetStream: the pinned broker without one, and a client that answers in its place on its subjects. It says what no real one
//! would say twice in the same way: pulls without messages while messages are pending, pages that come late.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{Client, HeaderMap, Message};
use futures_util::StreamExt as _;
use latent_bridge::NatsBus;
use latent_testkit::broker::{Broker, BrokerSpec, SERVER_NAME};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::live::{PASSWORD, STREAM, USER, beside, manifest, options, spec, with_topic};

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
}

/// What was asked of it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) created: AtomicUsize,
    pub(super) pulls: AtomicUsize,
    pub(super) deleted: AtomicUsize,
}

/// A consumer as the script keeps it.
#[derive(Debug)]
struct Kept {
    name: String,
    /// The next sequence.
    next: u64,
    deliveries: u64,
    empty_left: usize,
}

/// See the module. Dropping it ends its thread before the broker.
pub(super) struct ScriptedJetStream {
    pub(super) bus: NatsBus,
    pub(super) asked: Arc<Asked>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    _broker: Arc<Broker>,
}

impl ScriptedJetStream {
    /// Starts it, and a bus on it.
    pub(super) fn start(script: Script) -> Self {
        let broker = Arc::new(Broker::start(BrokerSpec { jetstream: false, ..spec() }));
        let (asked, (stop, stopped), (ready, is_ready)) = (Arc::new(Asked::default()), oneshot::channel(), std::sync::mpsc::channel());
        let info = genuine_info(script.uids.len());
        let (consumers, raw) = (Mutex::default(), Raw::connect(&broker));
        let played = Arc::new(Played { info, script, asked: Arc::clone(&asked), consumers, raw });
        let thread = std::thread::spawn({
            let broker = Arc::clone(&broker);
            move || {
                beside(&broker, async |admin| {
                    let mut requests = admin.client().subscribe("$JS.API.>").await.unwrap();
                    admin.client().flush().await.unwrap();
                    ready.send(()).unwrap();
                    let serve = async {
                        while let Some(request) = requests.next().await {
                            // Each by itself: a page that comes late holds nothing else up.
                            tokio::spawn(Arc::clone(&played).answer(admin.client().clone(), request));
                        }
                    };
                    tokio::select! {
                        () = serve => {}
                        _ = stopped => {}
                    }
                });
            }
        });
        is_ready.recv().unwrap();
        let bus = NatsBus::open_with(options(&broker), &manifest(1)).unwrap();
        Self { bus, asked, stop: Some(stop), thread: Some(thread), _broker: broker }
    }
}

impl Drop for ScriptedJetStream {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the script has been printed; the test fails by what it then misses.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
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
    consumers: Mutex<Vec<Kept>>,
    raw: Raw,
}

/// What one pull gets.
enum Page {
    Nothing,
    /// Sequence and number of the delivery.
    Messages(Vec<(u64, u64)>),
}

impl Played {
    async fn answer(self: Arc<Self>, client: Client, request: Message) {
        let Some(reply) = request.reply.clone() else { return };
        let subject = request.subject.as_str().strip_prefix("$JS.API.").unwrap().to_owned();
        let body: Value = serde_json::from_slice(&request.payload).unwrap_or_default();
        let tokens: Vec<_> = subject.split('.').collect();
        let answered = match tokens[..] {
            ["STREAM", "INFO", _] => self.info.clone(),
            ["CONSUMER", "CREATE", _, name, ..] => self.create(name, &body),
            ["CONSUMER", "DELETE", ..] => {
                self.asked.deleted.fetch_add(1, Ordering::SeqCst);
                json!({ "success": true })
            }
            ["CONSUMER", "MSG", "NEXT", _, name] => return self.pull(&client, &reply, name, &body).await,
            ["DIRECT", "GET", _] => return self.get(&client, &reply, &body).await,
            _ => json!({ "error": { "code": 503, "err_code": 10_039, "description": "the script does not know this" } }),
        };
        client.publish(reply, answered.to_string().into()).await.unwrap();
    }

    fn create(&self, name: &str, body: &Value) -> Value {
        let created = self.asked.created.fetch_add(1, Ordering::SeqCst);
        let next = body["config"]["opt_start_seq"].as_u64().unwrap();
        self.consumers().push(Kept { name: name.to_owned(), next, deliveries: 0, empty_left: self.script.empty_pulls });
        let mut pending = self.pending(next);
        if pending == 0 && created < self.script.false_pending {
            pending = 1;
        }
        json!({ "stream_name": STREAM, "name": name, "config": body["config"], "num_pending": pending })
    }

    fn pending(&self, next: u64) -> u64 {
        (self.script.uids.len() as u64 + 1).saturating_sub(next)
    }

    async fn pull(&self, client: &Client, reply: &async_nats::Subject, name: &str, body: &Value) {
        self.asked.pulls.fetch_add(1, Ordering::SeqCst);
        let Page::Messages(messages) = self.page(name, body) else { return self.raw.status(reply, "408 Request Timeout") };
        elapsed(self.script.delay).await;
        let is_short = (messages.len() as u64) < body["batch"].as_u64().unwrap();
        for (sequence, delivery) in messages {
            let uid = &self.script.uids[sequence as usize - 1];
            let headers = HeaderMap::from_iter([("Nats-Msg-Id".parse().unwrap(), uid.as_str().into())]);
            let pending = self.pending(sequence + 1);
            let place = format!("$JS.ACK.{STREAM}.{name}.1.{sequence}.{delivery}.1700000000000000000.{pending}");
            client.publish_with_reply_and_headers(reply.clone(), place, headers, stored_body().into()).await.unwrap();
        }
        client.flush().await.unwrap();
        if is_short {
            self.raw.status(reply, "408 Request Timeout");
        }
    }

    /// Decides under the lock, so that two pulls of one consumer never get the same.
    fn page(&self, name: &str, body: &Value) -> Page {
        let mut consumers = self.consumers();
        let consumer = consumers.iter_mut().find(|consumer| consumer.name == name).unwrap();
        if self.script.is_mute || self.pending(consumer.next) == 0 {
            return Page::Nothing;
        }
        if consumer.empty_left > 0 {
            consumer.empty_left -= 1;
            return Page::Nothing;
        }
        consumer.empty_left = self.script.empty_pulls;
        let count = body["batch"].as_u64().unwrap().min(self.script.page as u64).min(self.pending(consumer.next));
        let messages = (0..count).map(|n| (consumer.next + n, consumer.deliveries + 1 + n)).collect();
        consumer.next += count;
        consumer.deliveries += count;
        Page::Messages(messages)
    }

    async fn get(&self, client: &Client, reply: &async_nats::Subject, body: &Value) {
        let sequence = body["seq"].as_u64().unwrap_or(self.script.uids.len() as u64);
        let Some(uid) = sequence.checked_sub(1).and_then(|at| self.script.uids.get(at as usize)) else {
            return self.raw.status(reply, "404 Message Not Found");
        };
        let headers = [("Nats-Msg-Id", uid.as_str()), ("Nats-Sequence", &sequence.to_string()), ("Nats-Subject", "t.p0")];
        let headers = HeaderMap::from_iter(headers.map(|(name, value)| (name.parse().unwrap(), value.into())));
        client.publish_with_headers(reply.clone(), headers, stored_body().into()).await.unwrap();
    }

    fn consumers(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stored_body() -> String {
    json!({ "partition": 0, "offset": 0, "key": "k", "stored_at": 1, "value": 1 }).to_string()
}

/// A connection of its own for statuses, which no client library sends.
struct Raw(Mutex<StreamOwned<ClientConnection, TcpStream>>);

impl Raw {
    fn connect(broker: &Broker) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(broker.ca().root_der().into()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let connection = ClientConnection::new(Arc::new(config), SERVER_NAME.try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(broker.address()).unwrap());
        let hello = json!({ "verbose": false, "pedantic": false, "headers": true, "user": USER, "pass": PASSWORD, "no_responders": false });
        stream.write_all(format!("CONNECT {hello}\r\n").as_bytes()).unwrap();
        Self(Mutex::new(stream))
    }

    fn status(&self, reply: &str, words: &str) {
        let block = format!("NATS/1.0 {words}\r\n\r\n");
        let line = format!("HPUB {reply} {0} {0}\r\n{block}\r\n", block.len());
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(line.as_bytes()).unwrap();
        stream.flush().unwrap();
    }
}

/// The script's own slowness: nothing is waited for in it.
async fn elapsed(duration: Duration) {
    let _ = tokio::time::timeout(duration, std::future::pending::<()>()).await;
}
