//! A proxy between a client and the real broker that does what networks do, at an exact byte.
//!
//! It ends TLS on both sides with the certificates of the tests and counts *plaintext* bytes, so that the place of a fault is a place in
//! the protocol; a raw proxy passes the ciphertext on and counts that. It lives on a thread of its own and ends with its owner. Bounded:
//! connections, bytes taken in ahead, bytes kept for reading.

mod connection;
mod lane;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;

use crate::broker::{Broker, Issued, TestCa};
use crate::observed::{LOOK_AGAIN_EVERY, Observed};
use crate::own_thread::OwnThread;
use connection::Sides;
use lane::{Lane, Rule};

/// Connections that one proxy accepts in its life; further ones are closed at once.
const CONNECTIONS_MAX: usize = 4096;

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the broker.
    ToBroker,
    /// From the broker to the client.
    ToClient,
}

/// Where in one direction of a connection a fault happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// After exactly this many bytes; 0 is before the first one, as soon as both sides are connected.
    Byte(u64),
    /// Before the first of these bytes, where they come first from now on. Bytes that may be their beginning wait for the rest.
    Before(Vec<u8>),
    /// After the last of these bytes, where they come first from now on.
    After(Vec<u8>),
    /// As [`At::Before`], where they come for the time after this many.
    BeforeNext(Vec<u8>, u64),
}

/// What happens there, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Both connections end, without a farewell of TLS.
    Cut,
    /// Only the connection to the broker ends; the client's stays open and silent.
    CutBrokerSide,
    /// Only the connection to the client ends; the broker's stays open and silent.
    CutClientSide,
    /// Nothing more passes in this direction until [`FaultProxy::release`].
    Stall,
    /// The next byte is another one: exclusive or with this value.
    Garble(u8),
    /// Nothing passes in this direction for this long.
    Delay(Duration),
}

/// One injected fault, to be waited for.
#[derive(Debug, Clone)]
pub struct FaultWatch {
    spent: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl FaultWatch {
    /// True when the fault has happened.
    pub fn is_reached(&self) -> bool {
        let _seen_with_its_effect = self.shared.state();
        self.spent.load(Ordering::SeqCst)
    }

    /// Waits until the fault has happened: all bytes before its place have left the proxy.
    ///
    /// # Panics
    /// When it has not happened in two minutes.
    pub async fn reached(&self) {
        self.shared.changes.until("the fault happens", || self.is_reached()).await;
    }
}

/// A running proxy.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddrV4,
    shared: Arc<Shared>,
    _thread: OwnThread,
}

/// What the proxy's thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changes: Observed,
}

#[derive(Debug, Default)]
struct State {
    connections: Vec<Lanes>,
    /// With the connection each is for, if it is for one alone.
    rules: Vec<(Option<usize>, Direction, Rule)>,
    withheld: [bool; 2],
}

/// Both directions of one connection.
#[derive(Debug, Default)]
struct Lanes {
    lanes: [Lane; 2],
    client_open: bool,
    broker_open: bool,
}

impl Direction {
    const fn index(self) -> usize {
        match self {
            Self::ToBroker => 0,
            Self::ToClient => 1,
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, if there is room for one more.
    fn accept(&self) -> Option<usize> {
        let mut state = self.state();
        let index = state.connections.len();
        if index >= CONNECTIONS_MAX {
            return None;
        }
        let lanes = [Direction::ToBroker, Direction::ToClient].map(|direction| {
            let rules = state.rules.iter().filter(|(of, to, _)| of.is_none_or(|of| of == index) && *to == direction);
            let mut lane = Lane::new(rules.map(|(_, _, rule)| rule.clone()).collect());
            if state.withheld[direction.index()] {
                lane.stall();
            }
            lane
        });
        state.connections.push(Lanes { lanes, client_open: true, broker_open: false });
        drop(state);
        self.changes.changed();
        Some(index)
    }
}

impl FaultProxy {
    /// A proxy before `broker`, with a certificate of the broker's authority and name.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(broker: &Broker) -> Self {
        let server_name = broker.server_name();
        Self::start_before(broker.address(), broker.ca(), &broker.ca().issue(&server_name))
    }

    /// A proxy before any TLS server that `ca` certified for the name of `identity`, which is what clients are shown.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start_before(upstream: SocketAddrV4, ca: &TestCa, identity: &Issued) -> Self {
        Self::launch(upstream, Sides::tls(ca, identity))
    }

    /// A proxy that passes TLS on as it is and counts its bytes.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start_raw(broker: &Broker) -> Self {
        Self::start_raw_before(broker.address())
    }

    /// [`FaultProxy::start_raw`] before any server, whatever it speaks.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start_raw_before(upstream: SocketAddrV4) -> Self {
        Self::launch(upstream, Sides::Raw)
    }

    #[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
    fn launch(upstream: SocketAddrV4, sides: Sides) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let thread = OwnThread::spawn("fault-proxy", move || serve(listener, upstream, sides, for_thread));
        Self { address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), shared, _thread: thread }
    }

    /// Where clients connect.
    pub const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Lets `fault` happen once: on the connection of this number (0 is the first), or with `None` on the first to come to its place.
    pub fn inject(&self, connection: Option<usize>, direction: Direction, at: At, fault: Fault) -> FaultWatch {
        let rule = Rule { at, fault, spent: Arc::default(), seen: 0 };
        let spent = Arc::clone(&rule.spent);
        let mut state = self.shared.state();
        let present = state.connections.iter_mut().enumerate().filter(|(index, _)| connection.is_none_or(|of| of == *index));
        present.for_each(|(_, lanes)| lanes.lanes[direction.index()].add(rule.clone()));
        state.rules.push((connection, direction, rule));
        drop(state);
        self.shared.changes.changed();
        FaultWatch { spent, shared: Arc::clone(&self.shared) }
    }

    /// [`FaultProxy::inject`] on the first connection that gets there, at a byte.
    pub fn at(&self, direction: Direction, byte: u64, fault: Fault) -> FaultWatch {
        self.inject(None, direction, At::Byte(byte), fault)
    }

    /// From now on nothing passes in this direction, on no connection, until [`FaultProxy::release`].
    pub fn withhold(&self, direction: Direction) {
        let mut state = self.shared.state();
        state.withheld[direction.index()] = true;
        state.connections.iter_mut().for_each(|lanes| lanes.lanes[direction.index()].stall());
        drop(state);
        self.shared.changes.changed();
    }

    /// Nothing passes in this direction from the next occurrence of these bytes on, on the connection where they come first.
    pub fn withhold_from(&self, direction: Direction, pattern: &[u8]) -> FaultWatch {
        self.inject(None, direction, At::Before(pattern.to_vec()), Fault::Stall)
    }

    /// Lets pass everything that is stalled or withheld. Faults that have not happened yet stay.
    pub fn release(&self) {
        let mut state = self.shared.state();
        state.withheld = [false; 2];
        state.connections.iter_mut().flat_map(|lanes| &mut lanes.lanes).for_each(Lane::release);
        drop(state);
        self.shared.changes.changed();
    }

    /// Waits until every fault injected so far has happened.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn reached(&self) {
        let spent: Vec<Arc<AtomicBool>> = self.shared.state().rules.iter().map(|(_, _, rule)| Arc::clone(&rule.spent)).collect();
        let all = || {
            let _seen_with_its_effect = self.shared.state();
            spent.iter().all(|spent| spent.load(Ordering::SeqCst))
        };
        self.shared.changes.until("all faults happen", all).await;
    }

    /// Bytes that have left in this direction, on all connections.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.shared.state().connections.iter().map(|lanes| lanes.lanes[direction.index()].sent()).sum()
    }

    /// Bytes that have left in this direction on one connection.
    pub fn bytes_of(&self, connection: usize, direction: Direction) -> u64 {
        self.shared.state().connections.get(connection).map_or(0, |lanes| lanes.lanes[direction.index()].sent())
    }

    /// Bytes that have come in this direction and have not left, on all connections.
    pub fn held(&self, direction: Direction) -> usize {
        self.shared.state().connections.iter().map(|lanes| lanes.lanes[direction.index()].pending()).sum()
    }

    /// What left in this direction on the first connection: its first 64 KiB.
    pub fn transcript(&self, direction: Direction) -> Vec<u8> {
        self.transcript_of(0, direction)
    }

    /// What left in this direction on one connection: its first 64 KiB.
    pub fn transcript_of(&self, connection: usize, direction: Direction) -> Vec<u8> {
        let state = self.shared.state();
        state.connections.get(connection).map_or_else(Vec::new, |lanes| lanes.lanes[direction.index()].transcript().to_vec())
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.state().connections.len()
    }

    /// How many clients are connected now: neither has the client closed, nor the proxy cut.
    pub fn open_connections(&self) -> usize {
        self.shared.state().connections.iter().filter(|lanes| lanes.client_open).count()
    }

    /// How many connections to the broker are open now.
    pub fn open_to_broker(&self) -> usize {
        self.shared.state().connections.iter().filter(|lanes| lanes.broker_open).count()
    }

    /// Waits until `count` connections or more were accepted.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn until_connections(&self, count: usize) {
        self.shared.changes.until("connections come", || self.connections() >= count).await;
    }

    /// Waits until exactly `count` clients are connected.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn until_open(&self, count: usize) {
        self.shared.changes.until("connections open or close", || self.open_connections() == count).await;
    }

    /// Waits until `count` bytes or more have left in this direction.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn until_bytes(&self, direction: Direction, count: u64) {
        self.shared.changes.until("bytes leave", || self.bytes(direction) >= count).await;
    }

    /// Waits until `count` bytes or more have come in this direction and are held.
    ///
    /// # Panics
    /// When that takes more than two minutes.
    pub async fn until_held(&self, direction: Direction, count: usize) {
        self.shared.changes.until("bytes are held", || self.held(direction) >= count).await;
    }
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
async fn serve(listener: std::net::TcpListener, upstream: SocketAddrV4, sides: Sides, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("a listener of the runtime");
    let mut tick = tokio::time::interval(LOOK_AGAIN_EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => shared.changes.changed(),
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                if let Some(index) = shared.accept() {
                    tokio::spawn(connection::run(index, client, upstream, sides.clone(), Arc::clone(&shared)));
                }
            }
        }
    }
}
