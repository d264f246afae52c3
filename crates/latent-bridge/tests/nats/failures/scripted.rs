//! A scripted peer that speaks NATS and answers on the subjects of JetStream. It says what no real broker would say twice in the same way:
//! pulls without messages while messages are pending, pages that come late. A client of a real broker could not play it: only a server
//! may say where a message lies.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latent_bridge::NatsBus;
use latent_bridge::nats_bus::NatsOptions;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use super::peer::{Peer, Request};
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
    /// After each page that has messages the consumer is said to be deleted.
    pub(super) is_deleting: bool,
    /// A page that has messages and is not all that was asked for is followed by nothing at all.
    pub(super) is_falling_silent: bool,
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

/// What a test changes while the script is played.
#[derive(Debug, Default)]
pub(super) struct Now {
    /// The stream is said to have no leader, and no messages.
    pub(super) leaderless: AtomicBool,
    /// The stream is said to have been made at another time.
    pub(super) remade: AtomicBool,
    /// No consumer is made.
    pub(super) refuses_consumers: AtomicBool,
    /// Pulls get nothing until it is unset.
    pub(super) holds_pulls: AtomicBool,
    released: Notify,
}

impl Now {
    /// Lets held pulls go on.
    pub(super) fn release(&self) {
        self.holds_pulls.store(false, Ordering::SeqCst);
        self.released.notify_waiters();
    }

    async fn held(&self) {
        loop {
            let released = self.released.notified();
            if !self.holds_pulls.load(Ordering::SeqCst) {
                return;
            }
            released.await;
        }
    }
}

/// A consumer as the script keeps it.
#[derive(Debug)]
struct Kept {
    name: String,
    /// The next sequence.
    next: u64,
    deliveries: u64,
}

/// See the module. Dropping it closes the bus, and then ends the script's thread.
pub(super) struct ScriptedJetStream {
    pub(super) bus: NatsBus,
    pub(super) asked: Arc<Asked>,
    pub(super) now: Arc<Now>,
    _stage: Stage,
}

/// The thread of the script.
struct Stage {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ScriptedJetStream {
    /// Starts it, and a bus on it.
    pub(super) fn start(script: Script) -> Self {
        let (asked, (stop, stopped), (ready, is_ready)) = (Arc::new(Asked::default()), oneshot::channel(), std::sync::mpsc::channel());
        let info = genuine_info(script.uids.len());
        let (now, of_script) = (Arc::new(Now::default()), Arc::clone(&asked));
        let played = Arc::new(Played {
            info,
            script,
            asked: of_script,
            now: Arc::clone(&now),
            consumers: Mutex::default(),
            empty_pulls: AtomicUsize::new(0),
        });
        let serve = async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((connection, _)) = listener.accept().await {
                let played = Arc::clone(&played);
                tokio::spawn(Peer::serve(connection, move |peer, request| Arc::clone(&played).answer(peer, request)));
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
        Self { bus, asked, now, _stage: Stage { stop: Some(stop), thread: Some(thread) } }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the script has been printed; the test fails by what it then misses.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// What a real broker says of the stream, with as many messages as the script has.
fn genuine_info(messages: usize) -> Value {
    static GENUINE: LazyLock<Value> = LazyLock::new(|| {
        let (broker, _bus) = with_topic(spec(), 1);
        beside(&broker, async |admin| admin.jetstream().request(format!("STREAM.INFO.{STREAM}"), &()).await.unwrap())
    });
    let mut info = GENUINE.clone();
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
    now: Arc<Now>,
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
        if self.now.leaderless.load(Ordering::SeqCst) {
            // As a real member of a cluster that has just started, and knows of the others nothing yet.
            info["state"] = json!({ "messages": 0, "first_seq": 0, "last_seq": 0 });
            info["cluster"] = json!({ "name": "tests", "raft_group": "S-R3F-x", "replicas": [] });
        }
        if self.now.remade.load(Ordering::SeqCst) {
            info["created"] = json!("2001-02-03T04:05:06.000000007Z");
        }
        info
    }

    fn create(&self, name: &str, body: &Value) -> Value {
        if self.now.refuses_consumers.load(Ordering::SeqCst) {
            return json!({ "error": { "code": 503, "err_code": 10_008, "description": "system temporarily unavailable" } });
        }
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
        self.now.held().await;
        let is_short = (page.len() as u64) < body["batch"].as_u64().unwrap();
        for (sequence, delivery) in page {
            let uid = &self.script.uids[usize::try_from(sequence).unwrap() - 1];
            let pending = self.pending(sequence + 1);
            let place = format!("$JS.ACK.{STREAM}.{name}.1.{sequence}.{delivery}.1700000000000000000.{pending}");
            peer.message(reply, &place, &format!("NATS/1.0\r\nNats-Msg-Id: {uid}\r\n\r\n"), &stored_body());
        }
        if self.script.is_deleting {
            peer.status(reply, "409 Consumer Deleted");
        } else if is_short && !self.script.is_falling_silent {
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
