//! WASI 0.2, linked whole and confined.
//!
//! A guest gets: clocks, randomness, and stdout and stderr that end in the activation's log. It does not get: environment,
//! arguments, a preopened folder, input, sockets, names. `exit` ends the activation. For guests that can derive keys, randomness and the
//! wall clock follow from the event (`rerun`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use latent_capabilities::Origin;
use latent_core::Clock;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder, async_trait};

use crate::activation_log::OutputKind;
use crate::host::rerun;
use crate::limits;
use crate::store::SharedLog;

/// A context that grants what the file head says and nothing else. The refusals are spelled out although they are the library's
/// defaults: a default that changes must not open a door. With an `origin`, what a rerun must find again follows from it.
pub(crate) fn confined(log: &SharedLog, clock: &Arc<dyn Clock>, origin: Option<&Origin>) -> WasiCtx {
    let mut context = WasiCtxBuilder::new();
    context
        .stdout(Output { log: log.clone(), kind: OutputKind::Stdout })
        .stderr(Output { log: log.clone(), kind: OutputKind::Stderr })
        .wall_clock(GuestClock(Arc::clone(clock)))
        .monotonic_clock(GuestClock(Arc::clone(clock)))
        .max_random_size(limits::RANDOM_BYTES.default)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .socket_addr_check(|_, _| Box::pin(std::future::ready(false)));
    if let Some(origin) = origin {
        rerun::from_origin(&mut context, origin);
    }
    context.build()
}

/// The node's clock, as guests see it.
struct GuestClock(Arc<dyn Clock>);

impl HostWallClock for GuestClock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.0.unix().0)
    }
}

impl HostMonotonicClock for GuestClock {
    fn resolution(&self) -> u64 {
        1_000
    }

    fn now(&self) -> u64 {
        self.0.mono().as_micros().saturating_mul(1_000)
    }
}

/// A guest's stdout or stderr. It never blocks and never fails: what is beyond the budget is cut and counted by the log.
#[derive(Clone)]
struct Output {
    log: SharedLog,
    kind: OutputKind,
}

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Output {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > limits::OUTPUT_WRITE_BYTES.default_usize() {
            return Err(StreamError::trap("more was written than the stream had permitted"));
        }
        self.log.lock().write_output(self.kind, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(limits::OUTPUT_WRITE_BYTES.default_usize())
    }
}

#[async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.log.lock().write_output(self.kind, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation_log::ActivationLog;

    #[test]
    fn one_write_is_bounded_at_its_edge() {
        let mut output = Output { log: SharedLog::new(ActivationLog::new(0)), kind: OutputKind::Stdout };
        let permitted = output.check_write().unwrap();
        assert_eq!(permitted as u64, limits::OUTPUT_WRITE_BYTES.default);
        let mut write = |bytes: usize| output.write(vec![0; bytes].into());
        assert!(write(permitted - 1).is_ok() && write(permitted).is_ok());
        assert!(matches!(write(permitted + 1), Err(StreamError::Trap(_))));
    }
}
