//! The task of each tenant: it keeps one connection, moves the bytes of its session, and has the carrier work. It decides nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use latent_capabilities::{Lease, PoolRefusal};
use latent_core::{Deadline, MonoTime};
use latent_nats_proto::Ended;
use latent_nats_proto::limits::{SESSION_MESSAGES, SESSION_OPERATIONS, SESSION_OUTGOING_BYTES};
use latent_nats_proto::session::SessionBounds;
use tokio::sync::watch;

use super::carrier::Carrier;
use super::install::{Installed, NatsLanes};
use super::limits;
use crate::Connection;
use crate::deadline::{Timer, sleep};
use crate::triggers::StepFault;
use crate::triggers::stop::Stop;
use crate::triggers::trouble::{Trouble, of_connect, of_pool};

/// Time for one attempt to connect.
const CONNECT_MILLIS: u64 = 10_000;
/// Wait after an attempt that the pools or the credential refused.
const REFUSED_WAIT_MILLIS: u64 = 500;
/// How often the credential of a standing connection is looked at.
const CREDENTIAL_MILLIS: u64 = 1_000;

impl NatsLanes {
    /// Drives all lanes until `stop` says true or its sender is gone, and returns when every connection is closed. Sources are answered
    /// until then, and refuse by themselves afterwards: to drain, stop whoever uses them first.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let tenants = self.installed.tenants.len();
        let mut tasks = tokio::task::JoinSet::new();
        for place in 0..tenants {
            let installed = Arc::clone(&self.installed);
            tasks.spawn(drive(installed, place, Stop::on(stop.clone())));
        }
        // One that panicked has been told by the runtime; the others go on.
        while tasks.join_next().await.is_some() {}
    }
}

async fn drive(installed: Arc<Installed>, place: usize, mut stop: Stop) {
    let Some(tenant) = installed.tenants.get(place) else { return };
    let clock = Arc::clone(&installed.client.clock);
    let (cells, bell) = (tenant.cells.clone(), Arc::clone(&tenant.bell));
    let carrier =
        Carrier::new(cells, bell, Arc::clone(&installed.topics), Arc::clone(&installed.journal), (clock, installed.config.hot_max()));
    let mut driver = Driver { installed: &installed, place, carrier };
    // It ends by the signal alone.
    let _ = stop.race(driver.drive()).await;
}

struct Driver<'i> {
    installed: &'i Installed,
    place: usize,
    carrier: Carrier,
}

impl Drop for Driver<'_> {
    /// However it ends: nobody who waits for a source is left waiting.
    fn drop(&mut self) {
        self.carrier.close();
    }
}

impl Driver<'_> {
    async fn drive(&mut self) {
        loop {
            match self.connect().await {
                Ok(lease) => self.serve(lease).await,
                Err(wait_millis) => self.tend(tokio::time::sleep(Duration::from_millis(wait_millis))).await,
            }
        }
    }

    /// Has the carrier work while something else is waited for.
    async fn tend<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            self.carrier.work();
            let wait = wait_until(self.carrier.next_deadline(), self.now());
            let bell = &self.installed.tenants[self.place].bell;
            tokio::select! {
                value = &mut future => return value,
                () = bell.rung() => {}
                () = rest(wait) => {}
            }
        }
    }

    /// A connection with its charge, or how long to wait before the next attempt.
    async fn connect(&mut self) -> Result<Lease<Connection>, u64> {
        let installed = self.installed;
        let staged = bounds().connection_bytes(installed.config.body_bytes_max()) as u64 + limits::MESSAGE_BYTES.default;
        let call = installed.registration.call(self.place, staged);
        let granted = match call {
            Ok(call) => self.tend(call).await,
            Err(refusal) => Err(refusal),
        };
        let mut lease = granted.map_err(|refusal| self.refused(refusal))?;
        let deadline = Deadline::after(self.now(), CONNECT_MILLIS);
        let sleep = pin!(sleep(deadline, &*installed.client.clock));
        let mut timer = Timer::new(sleep, deadline);
        let connected = self.tend(installed.client.connect(self.place, &mut lease, &mut timer)).await;
        if let Err(fault) = connected {
            let trouble = of_connect(&fault);
            self.carrier.cannot_connect(trouble.fault, &trouble.why);
            return Err(REFUSED_WAIT_MILLIS);
        }
        Ok(lease)
    }

    fn refused(&mut self, refusal: PoolRefusal) -> u64 {
        let Trouble { fault, why, .. } = of_pool(refusal);
        // Inside a backoff the cause is what the last attempt said.
        if fault != StepFault::Backoff {
            self.carrier.cannot_connect(fault, &why);
        }
        REFUSED_WAIT_MILLIS
    }

    /// Moves bytes until the connection is over.
    async fn serve(&mut self, mut lease: Lease<Connection>) {
        let Some(session) = lease.connection().and_then(|connection| connection.begin_session(bounds())) else { return };
        self.carrier.connected(session);
        let mut looked_at = self.now();
        loop {
            self.carrier.work();
            if self.carrier.session().is_none() {
                return;
            }
            let now = self.now();
            if now.since(looked_at).as_millis() >= u128::from(CREDENTIAL_MILLIS) {
                looked_at = now;
                // What was authenticated with material that is not current any more carries nothing again.
                if self.installed.client.current(self.place, &mut lease).is_err() {
                    self.carrier.disconnected(Ended::Cancelled);
                    return;
                }
            }
            let look_at = looked_at.plus_millis(CREDENTIAL_MILLIS);
            let deadline = self.carrier.next_deadline().map_or(look_at, |at| at.min(look_at));
            let wait = wait_until(Some(deadline), now);
            let bell = &self.installed.tenants[self.place].bell;
            let (Some(connection), Some(session)) = (lease.connection(), self.carrier.session()) else { return };
            let moved = tokio::select! {
                moved = connection.move_session(session) => moved,
                () = bell.rung() => {
                    // What else is ready to run may ring, too: then it all leaves in one write.
                    tokio::task::yield_now().await;
                    Ok(())
                }
                () = rest(wait) => Ok(()),
            };
            if let Err(how) = moved {
                self.carrier.disconnected(how);
                return;
            }
        }
    }

    fn now(&self) -> MonoTime {
        self.installed.client.clock.mono()
    }
}

/// What a session of a tenant keeps at most.
fn bounds() -> SessionBounds {
    SessionBounds {
        operations: SESSION_OPERATIONS.max_usize(),
        outgoing_bytes: SESSION_OUTGOING_BYTES.default_usize() * 4,
        messages: SESSION_MESSAGES.max_usize(),
        message_bytes: limits::MESSAGE_BYTES.default_usize(),
    }
}

fn wait_until(deadline: Option<MonoTime>, now: MonoTime) -> Option<Duration> {
    // Rounded up, so that a timer that is a little early does not make a busy loop.
    deadline.map(|at| at.since(now).max(Duration::from_millis(1)))
}

async fn rest(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
