//! One TLS connection and what moves an exchange over it. It owns no task, no timer and no subscription of its own: while nobody uses
//! it, nothing runs.

use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use latent_core::MonoTime;
use latent_nats_proto::session::{Session, SessionBounds};
use latent_nats_proto::triggers::Delivery;
use latent_nats_proto::{Checkout, CheckoutError, Ended, Exchange, Handshake, HandshakeError, Link, Want};
use latent_secrets::Stamp;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::deadline::Timer;

/// How much is read at once. A receipt and its header fit many times.
const READ_BYTES: usize = 4_096;
/// The same for a session, which is delivered much at a time.
const SESSION_READ_BYTES: usize = 32_768;
/// A connection that was parked for less is believed after a look at its socket; one parked for longer is asked with a PING.
const PROBE_AFTER_MILLIS: u128 = 1_000;

/// A connection to the broker, authenticated with one tenant's credential. Dropping it closes the socket.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    link: Link,
    read: Box<[u8]>,
    stamp: Stamp,
    used_at: MonoTime,
    /// Whether nothing that was written waits in the stream.
    is_flushed: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(stream: TlsStream<TcpStream>, link: Link, stamp: Stamp, now: MonoTime) -> Self {
        Self { stream, link, read: vec![0; READ_BYTES].into(), stamp, used_at: now, is_flushed: true }
    }

    /// What it authenticated with.
    pub(crate) fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// The protocol state, and what is needed to move an exchange on it.
    pub(crate) fn parts(&mut self) -> (&mut Link, Wire<'_>) {
        (&mut self.link, Wire { stream: &mut self.stream, read: &mut self.read })
    }

    /// The message that the last pull on it brought, until it is settled.
    pub(crate) fn delivery(&mut self) -> Option<Delivery<'_>> {
        self.link.delivery()
    }

    /// Whether it may be parked.
    pub(crate) fn is_in_step(&self) -> bool {
        self.link.is_established()
    }

    /// Whether something is half-read, so that it must be checked before a publication.
    pub(crate) fn is_half_read(&self) -> bool {
        !self.link.is_reusable()
    }

    pub(crate) fn set_used(&mut self, now: MonoTime) {
        self.used_at = now;
    }

    pub(crate) async fn handshake(
        &mut self,
        credential: latent_nats_proto::Credential<'_>,
        timer: &mut Timer<'_>,
    ) -> Result<(), HandshakeError> {
        let (link, mut wire) = self.parts();
        let mut handshake = Handshake::begin(link, credential);
        wire.drive(&mut handshake, timer).await;
        handshake.finish()
    }

    /// How it looks after it was parked, without waiting for anything. Without bytes that wait and soon after its last use,
    /// one look at the socket is enough and there is no round trip.
    pub(crate) fn look(&self, now: MonoTime) -> Parked {
        let is_recent = now.since(self.used_at).as_millis() < PROBE_AFTER_MILLIS;
        if is_recent && self.link.is_reusable() && self.is_silent() { Parked::Good } else { Parked::Doubtful }
    }

    /// Reads what is there and asks with a PING.
    pub(crate) async fn probe(&mut self, timer: &mut Timer<'_>) -> Result<(), CheckoutError> {
        let (link, mut wire) = self.parts();
        let mut checkout = Checkout::begin(link);
        wire.drive(&mut checkout, timer).await;
        checkout.finish()
    }

    /// Begins a session on what the handshake left, and gives it to the caller; `None` when that is not possible any more. The connection is
    /// nothing but a stream from then on.
    pub(crate) fn begin_session(&mut self, bounds: SessionBounds) -> Option<Session> {
        if self.read.len() < SESSION_READ_BYTES {
            self.read = vec![0; SESSION_READ_BYTES].into();
        }
        Session::begin(self.link.take(), bounds).ok()
    }

    /// Moves bytes of a session until some were moved, or the connection ends.
    pub(crate) async fn move_session(&mut self, session: &mut Session) -> Result<(), Ended> {
        std::future::poll_fn(|context| self.poll_session(session, context)).await
    }

    fn poll_session(&mut self, session: &mut Session, context: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let mut moved = false;
        // Reading first: a peer that takes nothing more may have said why before it closed.
        let mut buffer = ReadBuf::new(&mut self.read);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(Err(Ended::PeerClosed)),
            Poll::Ready(Ok(())) => {
                session.received(buffer.filled());
                moved = true;
            }
            Poll::Ready(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Poll::Ready(Err(Ended::PeerClosed)),
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Ended::TransportFailed)),
            Poll::Pending => {}
        }
        while session.wants().write {
            session.offering();
            match Pin::new(&mut self.stream).poll_write(context, session.outgoing()) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Ended::TransportFailed)),
                Poll::Ready(Ok(bytes)) => {
                    session.wrote(bytes);
                    self.is_flushed = false;
                }
                Poll::Pending => break,
            }
        }
        if !self.is_flushed {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Ready(Ok(())) => self.is_flushed = true,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Ended::TransportFailed)),
                Poll::Pending => {}
            }
        }
        if moved { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Whether the kernel holds nothing for the socket, no end either, without reading it and whatever the runtime has noticed so far.
    fn is_silent(&self) -> bool {
        let (socket, _) = self.stream.get_ref();
        let mut byte = [0_u8; 1];
        matches!(rustix::net::recv(socket.as_fd(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN | Errno::INTR))
    }
}

/// How a parked connection looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parked {
    /// It can be used.
    Good,
    /// It has to be asked: something waits on it, an end perhaps, or it was left alone for long.
    Doubtful,
}

/// The moving half of a connection.
pub(crate) struct Wire<'c> {
    stream: &'c mut TlsStream<TcpStream>,
    read: &'c mut [u8],
}

impl Wire<'_> {
    /// Moves bytes until the exchange is done, the connection ends, or the time is over.
    pub(crate) async fn drive<E: Exchange>(&mut self, exchange: &mut E, timer: &mut Timer<'_>) {
        let moved = timer.race(self.exchange(exchange)).await;
        if moved.is_none() {
            exchange.ended(Ended::DeadlineExceeded);
        }
    }

    async fn exchange<E: Exchange>(&mut self, exchange: &mut E) {
        loop {
            let ended = match exchange.want() {
                Want::Done => return,
                Want::Write => match self.write(exchange).await {
                    Ok(()) => None,
                    Err(_) => Some(self.read_rest(exchange).await),
                },
                Want::Read => self.read(exchange).await,
            };
            if let Some(how) = ended {
                exchange.ended(how);
                return;
            }
        }
    }

    /// A peer that takes nothing more may have said why before it closed.
    async fn read_rest<E: Exchange>(&mut self, exchange: &mut E) -> Ended {
        while exchange.want() != Want::Done {
            if let Some(how) = self.read(exchange).await {
                return how;
            }
        }
        Ended::TransportFailed
    }

    async fn write<E: Exchange>(&mut self, exchange: &mut E) -> std::io::Result<()> {
        while exchange.want() == Want::Write {
            exchange.offering();
            let taken = std::future::poll_fn(|context| {
                let slices = exchange.outgoing().map(std::io::IoSlice::new);
                Pin::new(&mut *self.stream).poll_write_vectored(context, &slices)
            })
            .await?;
            if taken == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            exchange.wrote(taken);
        }
        self.stream.flush().await
    }

    async fn read<E: Exchange>(&mut self, exchange: &mut E) -> Option<Ended> {
        let read = std::future::poll_fn(|context| {
            let mut buffer = ReadBuf::new(self.read);
            match Pin::new(&mut *self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(buffer.filled().len())),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        match read {
            Ok(0) => Some(Ended::PeerClosed),
            Ok(bytes) => {
                exchange.received(self.read.get(..bytes).unwrap_or_default());
                None
            }
            // A peer that ends TLS without saying so has closed the connection all the same.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Some(Ended::PeerClosed),
            Err(_) => Some(Ended::TransportFailed),
        }
    }
}
