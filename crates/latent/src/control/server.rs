//! The serving shell: accepts, bounds, reads lines, writes answers. Decides nothing about requests.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use latent_core::ActivationId;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer::answer_telling;
use super::frame::{FrameError, frame, read_line_async};
use super::protocol::{Answer, Fault, decode_request, encode_answer};
use super::socket::ControlSocket;
use super::target::ControlTarget;
use crate::limits;

/// Bounds of a server, each within its limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerBounds {
    /// `control_connections`.
    pub(crate) connections: usize,
    /// `control_idle_millis`.
    pub(crate) idle_millis: u64,
}

impl Default for ServerBounds {
    fn default() -> Self {
        Self { connections: limits::CONTROL_CONNECTIONS.default_usize(), idle_millis: limits::CONTROL_IDLE_MILLIS.default }
    }
}

/// The control socket in service. [`ControlServer::serve`] is one task of the node; each connection is another.
pub(crate) struct ControlServer {
    /// Removes the file when the server ends.
    _socket: ControlSocket,
    listener: UnixListener,
    bounds: ServerBounds,
}

impl ControlServer {
    /// Takes the socket into service; inside a tokio runtime.
    ///
    /// # Errors
    /// The runtime's, when it cannot watch the socket.
    pub(crate) fn new(socket: ControlSocket) -> std::io::Result<Self> {
        Self::with_bounds(socket, ServerBounds::default())
    }

    /// As [`ControlServer::new`], with narrower bounds.
    pub(super) fn with_bounds(socket: ControlSocket, bounds: ServerBounds) -> std::io::Result<Self> {
        let listener = UnixListener::from_std(socket.listener()?)?;
        Ok(Self { _socket: socket, listener, bounds })
    }

    /// Serves until `stop` becomes true or its sender is dropped. Then the file is removed and requests under way are answered, as far
    /// as `control_idle_millis` allows.
    pub(crate) async fn serve(self, target: Arc<dyn ControlTarget>, mut stop: watch::Receiver<bool>) {
        let free = Arc::new(Semaphore::new(self.bounds.connections));
        let reserved = Arc::new(Semaphore::new(limits::CONTROL_RESERVED_CONNECTIONS.default_usize()));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stopped(&mut stop) => break,
            };
            while connections.try_join_next().is_some() {}
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: others must end before one more can begin.
                    tracing::warn!(%error, "the control socket could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let general = Arc::clone(&free).try_acquire_owned().map(|permit| (permit, Kind::General));
            let Ok((permit, kind)) = general.or_else(|_| Arc::clone(&reserved).try_acquire_owned().map(|permit| (permit, Kind::Reserved)))
            else {
                refuse_one_too_many(stream);
                continue;
            };
            let mut connection =
                Connection { stream: BufReader::new(stream), target: Arc::clone(&target), stop: stop.clone(), bounds: self.bounds, kind };
            connections.spawn(async move {
                let _held = permit;
                connection.run().await;
            });
        }
        let idle = Duration::from_millis(self.bounds.idle_millis);
        drop(self);
        let all_ended = async { while connections.join_next().await.is_some() {} };
        // Dropping those that are left closes their sockets; their peers then know that no answer comes.
        if timeout(idle, all_ended).await.is_err() {
            tracing::warn!("requests on the control socket were not answered before the node stopped");
        }
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The activation of a call, once it has one; `None` for a request that will have none.
async fn begun(activation: &mut watch::Receiver<Option<ActivationId>>) -> Option<ActivationId> {
    activation.wait_for(Option::is_some).await.ok().and_then(|activation| *activation)
}

/// Resolves when the peer has closed. A peer that sends its next request early is still there.
async fn closed(stream: &mut BufReader<UnixStream>) {
    if matches!(stream.fill_buf().await, Ok([_, ..])) {
        std::future::pending::<()>().await;
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Told without waiting: a fresh socket has room for one line, and a peer that does not read gets nothing.
fn refuse_one_too_many(stream: UnixStream) {
    if let (Ok(line), Ok(mut stream)) = (frame(encode_answer(Answer::Fault(one_too_many()))), stream.into_std()) {
        let _ = stream.write_all(&line);
    }
}

fn one_too_many() -> Fault {
    let message =
        format!("{} connections are open, which is the limit control_connections; try again later", limits::CONTROL_CONNECTIONS.max);
    Fault { kind: "busy".to_owned(), permanent: false, uncertain: false, message, continue_at: None }
}

struct Connection {
    stream: BufReader<UnixStream>,
    target: Arc<dyn ControlTarget>,
    stop: watch::Receiver<bool>,
    bounds: ServerBounds,
    kind: Kind,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Everything.
    General,
    /// Administration, when followers and calls have taken every general one: whoever holds such a connection must be able to revoke what
    /// they call.
    Reserved,
}

/// Whether more requests are read from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Read,
    Close,
}

impl Connection {
    async fn run(&mut self) {
        // Whoever administers asks at once and goes.
        let idle_millis = if self.kind == Kind::Reserved { limits::CONTROL_RESERVED_IDLE_MILLIS.default } else { u64::MAX };
        let idle = Duration::from_millis(self.bounds.idle_millis.min(idle_millis));
        loop {
            let read = tokio::select! {
                read = timeout(idle, read_line_async(&mut self.stream)) => read,
                () = stopped(&mut self.stop) => return,
            };
            let (answer, next) = match read {
                Err(_) | Ok(Ok(None) | Err(FrameError::Cut | FrameError::Io(_))) => return,
                // What follows is the rest of that line, which nobody wants to look for.
                Ok(Err(error @ FrameError::TooLong(_))) => (Answer::Fault(Fault::refused(error.kind(), error.to_string())), Next::Close),
                Ok(Ok(Some(line))) => match self.answer_line(&line).await {
                    Some(answered) => answered,
                    None => return,
                },
            };
            let written = timeout(idle, self.write(answer)).await;
            if !matches!(written, Ok(Ok(()))) || next == Next::Close {
                return;
            }
        }
    }

    /// `None` when the peer has gone, so that nobody wants the answer.
    async fn answer_line(&mut self, line: &[u8]) -> Option<(Answer, Next)> {
        let request = match decode_request(line) {
            Ok(request) => request,
            // A peer that speaks something else would misread what follows too.
            Err(error) => return Some((Answer::Fault(Fault::refused(error.kind(), error.to_string())), Next::Close)),
        };
        if self.kind == Kind::Reserved && request.may_take_long() {
            return Some((Answer::Fault(one_too_many()), Next::Close));
        }
        let (handed_over, mut activation) = watch::channel(None);
        let target = Arc::clone(&self.target);
        let answering = answer_telling(&target, request, handed_over);
        tokio::pin!(answering);
        tokio::select! {
            answer = &mut answering => return Some((answer, Next::Read)),
            () = closed(&mut self.stream) => {}
        }
        // What a call has begun stops with its caller; everything else ends by itself.
        tokio::select! {
            _ = &mut answering => {}
            begun = begun(&mut activation) => {
                if let Some(activation) = begun {
                    target.abandon(activation);
                }
                let _ = answering.await;
            }
        }
        None
    }

    async fn write(&mut self, answer: Answer) -> std::io::Result<()> {
        let line = match frame(encode_answer(answer)) {
            Ok(line) => line,
            Err(error) => {
                let fault = Fault::refused(error.kind(), format!("the answer does not fit: {error}; ask for less at once"));
                let mut line = encode_answer(Answer::Fault(fault));
                line.push(b'\n');
                line
            }
        };
        self.stream.get_mut().write_all(&line).await
    }
}
