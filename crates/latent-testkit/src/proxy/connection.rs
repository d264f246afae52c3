//! One connection through the proxy: two streams, two lanes, one task that moves what the lanes allow.
//!
//! Nothing here waits for one direction while the other could move, and a side that ended is noticed while its bytes are held.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddrV4;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::lane::Next;
use super::{Direction, Fault, Shared, State};
use crate::broker::{Issued, TestCa};
use crate::tls;

const READ_BYTES: usize = 16 << 10;
/// How long a side that is left in order may take to hear of it.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// How both sides speak.
#[derive(Clone)]
pub(super) enum Sides {
    Tls { acceptor: TlsAcceptor, connector: TlsConnector, server_name: ServerName<'static> },
    Raw,
}

impl Sides {
    #[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
    pub(super) fn tls(ca: &TestCa, identity: &Issued) -> Self {
        Self::Tls {
            acceptor: TlsAcceptor::from(Arc::new(tls::server(identity))),
            connector: TlsConnector::from(Arc::new(tls::client(ca))),
            server_name: ServerName::try_from(identity.server_name.clone()).expect("a server name"),
        }
    }

    /// The client's handshake comes first: a client that turns away never reaches the broker.
    async fn connect(self, client: TcpStream, upstream: SocketAddrV4) -> io::Result<[Box<dyn Stream>; 2]> {
        client.set_nodelay(true)?;
        match self {
            Self::Raw => Ok([Box::new(client), Box::new(dial(upstream).await?)]),
            Self::Tls { acceptor, connector, server_name } => {
                let client = acceptor.accept(client).await?;
                let broker = connector.connect(server_name, dial(upstream).await?).await?;
                Ok([Box::new(client), Box::new(broker)])
            }
        }
    }
}

async fn dial(upstream: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Runs the connection to its end.
pub(super) async fn run(index: usize, client: TcpStream, upstream: SocketAddrV4, sides: Sides, shared: Arc<Shared>) {
    let open = Open { index, shared: Arc::clone(&shared) };
    if let Ok([client, broker]) = sides.connect(client, upstream).await {
        open.mark(CLIENT, true);
        open.mark(BROKER, true);
        let mut pump = Pump { index, shared, sides: [Side::new(client), Side::new(broker)], flushed: [true; 2], delays: [None, None] };
        poll_fn(|context| pump.poll(context, &open)).await;
        for side in &mut pump.sides {
            if let Some(stream) = &mut side.stream {
                let _ = tokio::time::timeout(FAREWELL_TIME_MAX, stream.shutdown()).await;
            }
        }
    }
    drop(open);
}

const CLIENT: usize = 0;
const BROKER: usize = 1;
/// Each direction with the side its bytes come from and the one they go to.
const DIRECTIONS: [(Direction, usize, usize); 2] = [(Direction::ToBroker, CLIENT, BROKER), (Direction::ToClient, BROKER, CLIENT)];

/// Keeps the counts of open sides true, however the task ends.
struct Open {
    index: usize,
    shared: Arc<Shared>,
}

impl Open {
    fn mark(&self, side: usize, open: bool) {
        let mut state = self.shared.state();
        let Some(lanes) = state.connections.get_mut(self.index) else { return };
        let flag = if side == CLIENT { &mut lanes.client_open } else { &mut lanes.broker_open };
        let before = std::mem::replace(flag, open);
        drop(state);
        if before != open {
            self.shared.changes.changed();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.mark(CLIENT, false);
        self.mark(BROKER, false);
    }
}

struct Side {
    /// `None` once it was cut.
    stream: Option<Box<dyn Stream>>,
    /// No more bytes come from it.
    ended: bool,
}

impl Side {
    fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream: Some(stream), ended: false }
    }
}

struct Pump {
    index: usize,
    shared: Arc<Shared>,
    sides: [Side; 2],
    /// By direction: everything given to the stream has left it.
    flushed: [bool; 2],
    delays: [Option<Pin<Box<Sleep>>>; 2],
}

impl Pump {
    /// Moves everything that can be moved; ready when the connection is over.
    fn poll(&mut self, context: &mut Context<'_>, open: &Open) -> Poll<()> {
        self.shared.changes.register(context.waker());
        loop {
            let mut moved = false;
            for (direction, from, to) in DIRECTIONS {
                moved |= self.take_in(context, direction, from);
                moved |= self.pass_on(context, direction, to);
            }
            for (side, state) in self.sides.iter().enumerate() {
                if state.ended || state.stream.is_none() {
                    open.mark(side, false);
                }
            }
            if !moved {
                // Only now: a fault after the very last byte still happens.
                return if self.is_over() { Poll::Ready(()) } else { Poll::Pending };
            }
            self.shared.changes.changed();
            self.shared.changes.register(context.waker());
        }
    }

    /// Reads what the lane has room for. True when something came, be it the end.
    fn take_in(&mut self, context: &mut Context<'_>, direction: Direction, from: usize) -> bool {
        let side = &mut self.sides[from];
        let Some(stream) = side.stream.as_mut().filter(|_| !side.ended) else { return false };
        let room = self.shared.state().connections[self.index].lanes[direction.index()].room().min(READ_BYTES);
        if room == 0 {
            return false;
        }
        let mut bytes = [0; READ_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes[..room]);
        match Pin::new(stream).poll_read(context, &mut buffer) {
            Poll::Pending => false,
            Poll::Ready(read) => {
                side.ended = read.is_err() || buffer.filled().is_empty();
                self.shared.state().connections[self.index].lanes[direction.index()].push(buffer.filled());
                true
            }
        }
    }

    /// Does what the lane says. True when something was done.
    fn pass_on(&mut self, context: &mut Context<'_>, direction: Direction, to: usize) -> bool {
        let number = direction.index();
        if let Some(delay) = &mut self.delays[number] {
            if delay.as_mut().poll(context).is_pending() {
                return false;
            }
            self.delays[number] = None;
        }
        if !self.flushed[number] {
            self.flush(context, number, to);
        }
        let ended = self.sides[1 - to].ended;
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let next = state.connections[self.index].lanes[number].next(self.flushed[number], ended);
        match next {
            Next::Wait => false,
            Next::Send(count) => self.send(context, &mut state, number, to, count),
            Next::Happen(fault) => {
                // Under the lock, so that whoever sees that it was reached sees what it did.
                self.happen(number, fault);
                true
            }
        }
    }

    fn send(&mut self, context: &mut Context<'_>, state: &mut State, number: usize, to: usize, count: usize) -> bool {
        let lane = &mut state.connections[self.index].lanes[number];
        let written = match &mut self.sides[to].stream {
            Some(stream) => Pin::new(stream).poll_write(context, lane.front(count)),
            None => Poll::Ready(Ok(0)),
        };
        match written {
            Poll::Pending => return false,
            Poll::Ready(Ok(written)) if written > 0 => {
                lane.advance(written);
                self.flush(context, number, to);
            }
            Poll::Ready(_) => {
                // Nobody is there to take it.
                lane.discard(count);
                self.sides[to].ended = self.sides[to].stream.is_some();
            }
        }
        true
    }

    fn flush(&mut self, context: &mut Context<'_>, number: usize, to: usize) {
        let flushed = self.sides[to].stream.as_mut().is_none_or(|stream| Pin::new(stream).poll_flush(context).is_ready());
        self.flushed[number] = flushed;
    }

    fn happen(&mut self, number: usize, fault: Fault) {
        match fault {
            Fault::Cut => self.sides.iter_mut().for_each(|side| side.stream = None),
            Fault::CutBrokerSide => self.sides[BROKER].stream = None,
            Fault::CutClientSide => self.sides[CLIENT].stream = None,
            Fault::Delay(time) => self.delays[number] = Some(Box::pin(tokio::time::sleep(time))),
            Fault::Stall | Fault::Garble(_) => {}
        }
    }

    /// Over when both sides were cut, or one ended by itself and what it said before has been passed on.
    fn is_over(&self) -> bool {
        let state = self.shared.state();
        let Some(lanes) = state.connections.get(self.index) else { return true };
        let left = |(direction, from, to): (Direction, usize, usize)| {
            let number = direction.index();
            self.sides[from].ended && (self.sides[to].ended || (lanes.lanes[number].pending() == 0 && self.flushed[number]))
        };
        self.sides.iter().all(|side| side.stream.is_none() || side.ended) || DIRECTIONS.into_iter().any(left)
    }
}
