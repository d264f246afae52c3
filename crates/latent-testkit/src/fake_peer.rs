//! A TLS server that follows a script, for what no real broker would send.
//!
//! It lives on a thread of its own and ends with its owner. It offers what a careless server offers (session tickets, early data), and
//! reports for each connection what it got. Bounded: connections, bytes kept of each.

mod nats;
mod script;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;

use crate::broker::Issued;
use crate::observed::{LOOK_AGAIN_EVERY, Observed};
use crate::own_thread::OwnThread;
use crate::tls;
pub use nats::{INFO, message_for, reply_inbox, subscription_id};
use script::Manners;

/// Connections that one peer takes in its life; further ones are closed at once.
const CONNECTIONS_MAX: usize = 4096;
/// Bytes of one connection that are kept; of further ones only the number is.
const RECEIVED_BYTES_MAX: usize = 1 << 20;
/// Early data that the peer would take.
const EARLY_DATA_BYTES_MAX: u32 = 16 << 10;

/// Makes an answer from everything the connection has received so far.
pub type Answer = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// One step of a script. What the client sends is recorded during every step.
#[derive(Clone)]
pub enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes, each in a TLS record of its own.
    SendBytewise(Vec<u8>),
    /// Sends what is made from everything received so far.
    Reply(Answer),
    /// Waits until these bytes have come, after those of earlier steps.
    ExpectUntil(Vec<u8>),
    /// As [`Step::ExpectUntil`], answering every `PING` before them with `PONG`.
    ServeUntil(Vec<u8>),
    /// Waits until the test opens one gate ([`FakePeer::open_gate`]).
    Gate,
    /// Ends the connection in order. A script that has no further step does that too.
    Close,
    /// Ends the connection without a farewell of TLS.
    CloseAbruptly,
    /// Keeps the connection open, silent, until the client ends it.
    Hold,
}

impl Step {
    /// [`Step::Send`] of a text.
    pub fn send(text: impl Into<String>) -> Self {
        Self::Send(text.into().into_bytes())
    }

    /// [`Step::Reply`] with this function.
    pub fn reply(answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::Reply(Arc::new(answer))
    }

    /// A message to the inbox of the last publication, on the last subscription: what a broker answers.
    pub fn reply_message(payload: impl Into<Vec<u8>>) -> Self {
        let payload = payload.into();
        Self::reply(move |received| message_for(received, &payload))
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Send(bytes) => write!(f, "Send({:?})", text(bytes)),
            Self::SendBytewise(bytes) => write!(f, "SendBytewise({:?})", text(bytes)),
            Self::Reply(_) => f.write_str("Reply(…)"),
            Self::ExpectUntil(pattern) => write!(f, "ExpectUntil({:?})", text(pattern)),
            Self::ServeUntil(pattern) => write!(f, "ServeUntil({:?})", text(pattern)),
            Self::Gate => f.write_str("Gate"),
            Self::Close => f.write_str("Close"),
            Self::CloseAbruptly => f.write_str("CloseAbruptly"),
            Self::Hold => f.write_str("Hold"),
        }
    }
}

/// How TLS began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// From nothing.
    Full,
    /// From what an earlier connection left.
    Resumed,
}

/// What is known of one connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What came: plaintext, or raw bytes at a peer without TLS. The first 1 MiB.
    pub received: Vec<u8>,
    /// How many bytes came.
    pub received_bytes: u64,
    /// How TLS began, once it has.
    pub handshake: Option<Handshake>,
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// True when the client sent data before the handshake was done.
    pub early_data: bool,
    /// Why TLS did not begin, in the words of the TLS library.
    pub handshake_failure: Option<String>,
    /// True when the client has ended the connection.
    pub client_ended: bool,
    /// True when the peer has ended the connection.
    pub peer_ended: bool,
    /// True when every step of the script was done.
    pub script_done: bool,
}

/// A running peer.
#[derive(Debug)]
pub struct FakePeer {
    address: SocketAddrV4,
    shared: Arc<Shared>,
    _thread: OwnThread,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changes: Observed,
}

#[derive(Debug, Default)]
struct State {
    reports: Vec<Report>,
    open_gates: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the report of one connection.
    fn report(&self, index: usize, change: impl FnOnce(&mut Report)) {
        self.state().reports.get_mut(index).map(change).unwrap_or_default();
        self.changes.changed();
    }

    fn accept(&self) -> Option<usize> {
        let mut state = self.state();
        let index = state.reports.len();
        if index >= CONNECTIONS_MAX {
            return None;
        }
        state.reports.push(Report::default());
        drop(state);
        self.changes.changed();
        Some(index)
    }
}

impl FakePeer {
    /// A TLS peer with this certificate. Each connection follows the script of its number; those after the last script repeat it.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(identity: &Issued, scripts: Vec<Vec<Step>>) -> Self {
        let mut config = tls::server(identity);
        config.max_early_data_size = EARLY_DATA_BYTES_MAX;
        Self::launch(Manners::Tls { config: Arc::new(config), scripts: scripts.into() })
    }

    /// A peer that sends these bytes in clear as soon as it is connected to, never speaks TLS, and records what comes.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start_cleartext(first: impl Into<Vec<u8>>) -> Self {
        Self::launch(Manners::Cleartext { first: first.into().into() })
    }

    #[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
    fn launch(manners: Manners) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let thread = OwnThread::spawn("fake-peer", move || serve(listener, manners, for_thread));
        Self { address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), shared, _thread: thread }
    }

    /// Where clients connect.
    pub const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// How many connections were accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.state().reports.len()
    }

    /// What is known of a connection now. Empty for one that has not come.
    pub fn report(&self, connection: usize) -> Report {
        self.shared.state().reports.get(connection).cloned().unwrap_or_default()
    }

    /// How many connections neither side has ended.
    pub fn open_connections(&self) -> usize {
        self.shared.state().reports.iter().filter(|report| !report.client_ended && !report.peer_ended).count()
    }

    /// Lets one [`Step::Gate`] pass, now or when one comes.
    pub fn open_gate(&self) {
        self.shared.state().open_gates += 1;
        self.shared.changes.changed();
    }

    /// Waits until `count` connections or more were accepted.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn until_accepted(&self, count: usize) {
        self.shared.changes.until("connections come", || self.accepted() >= count).await;
    }

    /// Waits until these bytes have come on a connection.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn until_received(&self, connection: usize, pattern: &[u8]) {
        let contains = |report: &Report| script::find(&report.received, 0, pattern).is_some();
        self.until_report(connection, "bytes come", contains).await;
    }

    /// Waits until the client has ended a connection.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn until_client_ended(&self, connection: usize) {
        self.until_report(connection, "the client ends the connection", |report| report.client_ended).await;
    }

    /// Waits until every step of a connection's script was done.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn until_script_done(&self, connection: usize) {
        self.until_report(connection, "the script is done", |report| report.script_done).await;
    }

    async fn until_report(&self, connection: usize, awaited: &str, look: impl Fn(&Report) -> bool) {
        self.shared.changes.until(awaited, || self.shared.state().reports.get(connection).is_some_and(&look)).await;
    }
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
async fn serve(listener: std::net::TcpListener, manners: Manners, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("a listener of the runtime");
    let mut tick = tokio::time::interval(LOOK_AGAIN_EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => shared.changes.changed(),
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                if let Some(index) = shared.accept() {
                    tokio::spawn(script::run(index, client, manners.clone(), Arc::clone(&shared)));
                }
            }
        }
    }
}
