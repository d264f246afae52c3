//! One connection of the scripted peer: a reader that records, and the script beside it.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::{Handshake, RECEIVED_BYTES_MAX, Report, Shared, Step};

const PING: &[u8] = b"PING\r\n";
const PONG: &[u8] = b"PONG\r\n";

/// How the peer treats its connections.
#[derive(Clone)]
pub(super) enum Manners {
    Tls { config: Arc<ServerConfig>, scripts: Arc<[Vec<Step>]> },
    Cleartext { first: Arc<[u8]> },
}

/// Where `pattern` first stands at or after `from`.
pub(super) fn find(bytes: &[u8], from: usize, pattern: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(pattern.len().max(1)).position(|window| window == pattern).map(|start| from + start)
}

/// Runs one connection to its end.
pub(super) async fn run(index: usize, client: TcpStream, manners: Manners, shared: Arc<Shared>) {
    serve(index, client, manners, &shared).await;
    shared.report(index, |report| report.peer_ended = true);
}

async fn serve(index: usize, mut client: TcpStream, manners: Manners, shared: &Shared) {
    let _ = client.set_nodelay(true);
    match manners {
        Manners::Cleartext { first } => {
            let _ = client.write_all(&first).await;
            record(index, &mut client, shared).await;
        }
        Manners::Tls { config, scripts } => match TlsAcceptor::from(config).accept(client).await {
            Err(error) => shared.report(index, |report| {
                report.handshake_failure = Some(error.to_string());
                report.client_ended = true;
            }),
            Ok(mut stream) => {
                introduce(index, &mut stream, shared);
                let steps = scripts.get(index).or_else(|| scripts.last()).cloned().unwrap_or_default();
                follow(index, stream, &steps, shared).await;
            }
        },
    }
}

fn introduce(index: usize, stream: &mut tokio_rustls::server::TlsStream<TcpStream>, shared: &Shared) {
    let connection = stream.get_mut().1;
    let early_data = connection.early_data().is_some();
    let handshake = match connection.handshake_kind() {
        Some(HandshakeKind::Resumed) => Some(Handshake::Resumed),
        Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest) => Some(Handshake::Full),
        None => None,
    };
    let server_name = connection.server_name().map(str::to_owned);
    shared.report(index, |report| {
        report.early_data = early_data;
        report.handshake = handshake;
        report.server_name = server_name;
    });
}

/// Reads until the client ends, and notes all of it.
async fn record(index: usize, stream: &mut (impl AsyncRead + Unpin), shared: &Shared) {
    let mut chunk = [0; 16 << 10];
    loop {
        let count = stream.read(&mut chunk).await.unwrap_or(0);
        if count == 0 {
            return shared.report(index, |report| report.client_ended = true);
        }
        shared.report(index, |report| {
            let room = RECEIVED_BYTES_MAX - report.received.len();
            report.received.extend_from_slice(&chunk[..count.min(room)]);
            report.received_bytes += u64::try_from(count).unwrap_or(u64::MAX);
        });
    }
}

async fn follow(index: usize, stream: impl AsyncRead + AsyncWrite, steps: &[Step], shared: &Shared) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let script = async {
        let mut cursor = 0;
        for step in steps {
            if let Step::CloseAbruptly = step {
                return shared.report(index, |report| report.script_done = true);
            }
            if let Step::Close = step {
                break;
            }
            if do_step(index, step, &mut cursor, &mut writer, shared).await.is_err() {
                // A step fails when nobody is there to take it, whether the reader has seen that already or not.
                return shared.report(index, |report| report.client_ended = true);
            }
        }
        shared.report(index, |report| report.script_done = true);
        let _ = writer.shutdown().await;
    };
    let reading = async {
        record(index, &mut reader, shared).await;
        // The script notices by itself; a step that only sends may still be under way.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = script => {}
        () = reading => {}
    }
}

async fn do_step(index: usize, step: &Step, cursor: &mut usize, writer: &mut (impl AsyncWrite + Unpin), shared: &Shared) -> io::Result<()> {
    match step {
        Step::Send(bytes) => send(writer, bytes).await,
        Step::SendBytewise(bytes) => {
            for byte in bytes {
                send(writer, &[*byte]).await?;
            }
            Ok(())
        }
        Step::Reply(answer) => {
            let received = shared.state().reports[index].received.clone();
            send(writer, &answer(&received)).await
        }
        Step::ExpectUntil(pattern) => {
            *cursor = until(index, shared, |report| find(&report.received, *cursor, pattern)).await? + pattern.len();
            Ok(())
        }
        Step::ServeUntil(pattern) => serve_until(index, pattern, cursor, writer, shared).await,
        Step::Gate => {
            let open = |gates: &mut usize| gates.checked_sub(1).map(|left| *gates = left);
            wait(index, shared, |state| open(&mut state.open_gates)).await
        }
        Step::Hold => until(index, shared, |report| report.client_ended.then_some(0)).await.map(drop),
        Step::Close | Step::CloseAbruptly => Ok(()),
    }
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Answers every PING before the pattern. What lies between a PING and the pattern decides by which comes first.
async fn serve_until(
    index: usize,
    pattern: &[u8],
    cursor: &mut usize,
    writer: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
) -> io::Result<()> {
    loop {
        let first = |report: &Report| {
            let (wanted, ping) = (find(&report.received, *cursor, pattern), find(&report.received, *cursor, PING));
            match (wanted, ping) {
                (Some(wanted), ping) if ping.is_none_or(|ping| wanted <= ping) => Some((wanted + pattern.len(), true)),
                (_, Some(ping)) => Some((ping + PING.len(), false)),
                _ => None,
            }
        };
        let (next, is_wanted) = until(index, shared, first).await?;
        *cursor = next;
        if is_wanted {
            return Ok(());
        }
        send(writer, PONG).await?;
    }
}

/// Waits until the report of the connection shows something, or fails when the client ends before that.
async fn until<T>(index: usize, shared: &Shared, look: impl Fn(&Report) -> Option<T>) -> io::Result<T> {
    wait(index, shared, |state| look(&state.reports[index])).await
}

async fn wait<T>(index: usize, shared: &Shared, mut look: impl FnMut(&mut super::State) -> Option<T>) -> io::Result<T> {
    poll_fn(|context| {
        shared.changes.register(context.waker());
        let mut state = shared.state();
        match look(&mut state) {
            Some(seen) => Poll::Ready(Ok(seen)),
            None if state.reports[index].client_ended => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            None => Poll::Pending,
        }
    })
    .await
}
