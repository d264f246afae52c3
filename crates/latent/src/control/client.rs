//! The asking shell: blocking, one request at a time, every wait bounded.

use std::io::{self, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::frame::{FrameError, frame, read_line};
use super::protocol::{Answer, Fault, ProtocolError, Request, decode_answer, encode_request};
use crate::limits;

/// What went wrong between a command and a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// Nobody listens: no socket, or one whose node is gone.
    #[error("nobody listens on the control socket")]
    NotListening,
    /// The socket is there and cannot be used.
    #[error("the control socket cannot be used: {0}")]
    Unusable(io::Error),
    /// The request did not leave.
    #[error("the request could not be sent: {0}")]
    NotSent(FrameError),
    /// The request left and no answer came in time.
    #[error("no answer within {millis} ms")]
    NoAnswer {
        /// How long was waited.
        millis: u64,
    },
    /// The request left and the connection ended.
    #[error("the connection ended before the answer: {0}")]
    Ended(FrameError),
    /// The request left and the node closed the connection.
    #[error("the node closed the connection before the answer")]
    Closed,
    /// The answer is not of this protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The node refused the request.
    #[error("{}", .0.message)]
    Refused(Fault),
    /// The answer belongs to another request.
    #[error("the node answered something else than was asked")]
    Unexpected,
}

impl ControlError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::NotListening => "control-not-listening",
            Self::Unusable(_) => "control-unusable",
            Self::NotSent(_) => "control-not-sent",
            Self::NoAnswer { .. } => "control-no-answer",
            Self::Ended(_) | Self::Closed => "control-closed",
            Self::Protocol(error) => error.kind(),
            Self::Unexpected => "control-malformed",
            Self::Refused(fault) => &fault.kind,
        }
    }

    /// What to do about it.
    pub(crate) const fn next_step(&self) -> &'static str {
        match self {
            Self::NotListening => "start the node, or wait until it has started",
            Self::Unusable(_) => "run the command as the user who runs the node",
            Self::NotSent(_) | Self::Ended(_) | Self::Closed => "see whether the node still runs, then run the command again",
            Self::NoAnswer { .. } => "the node is there and does not answer: look at its log, or stop it",
            Self::Protocol(ProtocolError::Version(_)) => "use the `latent` of the same version as the running node",
            Self::Protocol(ProtocolError::Malformed(_)) | Self::Unexpected => {
                "see what listens on the socket: it is not a node of this version"
            }
            Self::Refused(_) => "run the command again later, or change what the message names",
        }
    }

    /// True when a node that answered before does so no more.
    pub(crate) const fn is_lost_connection(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::Ended(_) | Self::Closed)
    }

    /// True when the request may have been carried out.
    pub(crate) const fn may_have_happened(&self) -> bool {
        match self {
            Self::NoAnswer { .. } | Self::Ended(_) | Self::Closed | Self::Protocol(_) | Self::Unexpected => true,
            Self::NotListening | Self::Unusable(_) | Self::NotSent(_) | Self::Refused(_) => false,
        }
    }
}

/// A connection to a running node.
#[derive(Debug)]
pub(crate) struct ControlClient {
    stream: BufReader<UnixStream>,
    answer_millis: u64,
}

impl ControlClient {
    /// Waits for each answer as long as this, from now on.
    pub(crate) fn wait_for_answers(&mut self, patience: Duration) {
        self.answer_millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    }

    /// Connects. Each answer is waited for `answer_millis`.
    ///
    /// # Errors
    /// [`ControlError::NotListening`] when there is certainly no node; [`ControlError::NoAnswer`] when one does not accept.
    pub(super) fn connect_within(socket: &Path, answer_millis: u64) -> Result<Self, ControlError> {
        let stream = match connect_bounded(socket, answer_millis)? {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Err(ControlError::NotListening);
            }
            Err(error) => return Err(ControlError::Unusable(error)),
        };
        stream.set_write_timeout(Some(Duration::from_millis(answer_millis))).map_err(ControlError::Unusable)?;
        Ok(Self { stream: BufReader::new(stream), answer_millis })
    }

    /// Connects and makes sure that a node of this version answers.
    ///
    /// # Errors
    /// As [`ControlClient::call`], and [`ControlError::NotListening`] when there is certainly no node. It waits less long than for other answers.
    pub(crate) fn greet(socket: &Path) -> Result<Self, ControlError> {
        let mut client = Self::connect_within(socket, limits::CONTROL_GREETING_MILLIS.default)?;
        match client.call(Request::Ping)? {
            Answer::Node(_) => {
                client.answer_millis = limits::CONTROL_ANSWER_MILLIS.default;
                Ok(client)
            }
            _ => Err(ControlError::Unexpected),
        }
    }

    /// Asks and waits for the answer. After an error the connection is spent.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::may_have_happened`] tells whether the request can have had an effect.
    pub(crate) fn call(&mut self, request: Request) -> Result<Answer, ControlError> {
        let line = frame(encode_request(request)).map_err(ControlError::NotSent)?;
        if let Err(error) = self.stream.get_mut().write_all(&line) {
            // A line without its break is never carried out. A node that closes early may have said why.
            return Err(self.parting_words().unwrap_or_else(|| ControlError::NotSent(error.into())));
        }
        let line = self.read_answer()?.ok_or(ControlError::Closed)?;
        match decode_answer(&line)? {
            Answer::Fault(fault) => Err(ControlError::Refused(fault)),
            answer => Ok(answer),
        }
    }

    fn parting_words(&mut self) -> Option<ControlError> {
        let line = self.read_answer().ok()??;
        if let Ok(Answer::Fault(fault)) = decode_answer(&line) { Some(ControlError::Refused(fault)) } else { None }
    }

    fn read_answer(&mut self) -> Result<Option<Vec<u8>>, ControlError> {
        let millis = self.answer_millis;
        let deadline = Instant::now() + Duration::from_millis(millis);
        match read_line(&mut Timed { stream: &mut self.stream, deadline }) {
            Ok(line) => Ok(line),
            Err(FrameError::Io(error)) if is_timeout(&error) => Err(ControlError::NoAnswer { millis }),
            Err(error) => Err(ControlError::Ended(error)),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Connecting can wait for ever on a stopped process whose backlog is full, and has no timeout of its own.
fn connect_bounded(socket: &Path, millis: u64) -> Result<io::Result<UnixStream>, ControlError> {
    let (sender, receiver) = mpsc::channel();
    let path = socket.to_owned();
    let connect = move || {
        let _ = sender.send(UnixStream::connect(path));
    };
    let spawned = std::thread::Builder::new().name("latent-connect".to_owned()).spawn(connect);
    spawned.map_err(ControlError::Unusable)?;
    receiver.recv_timeout(Duration::from_millis(millis)).map_err(|_| ControlError::NoAnswer { millis })
}

/// A reader whose reads together end at one deadline.
struct Timed<'s> {
    stream: &'s mut BufReader<UnixStream>,
    deadline: Instant,
}

impl io::Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.read(buffer)
    }
}

impl io::BufRead for Timed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.arm()?;
        self.stream.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.stream.consume(amount);
    }
}

impl Timed<'_> {
    fn arm(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.get_ref().set_read_timeout(Some(left))
    }
}
