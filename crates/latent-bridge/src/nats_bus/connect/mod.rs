//! The connection to the broker: who is dialled, in what time, under which TLS, and what is said when there is none. Once there, the
//! connection mends itself. Credentials appear in nothing that is said.

mod backoff;
mod refused;
mod telling;
mod tls;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, Event, ServerAddr};

use super::options::{NatsCredentials, NatsOptions};
use crate::{BusError, limits};
use backoff::Reconnects;
use refused::{Attempt, told};
use telling::Telling;

/// One server's share of the time is no larger than this.
const SERVER_TIME_MAX: Duration = Duration::from_secs(5);
/// Begins every inbox; the broker's permissions name it.
pub(super) const INBOX_PREFIX: &str = "_INBOX.LSF";

/// Connects once: to the first server that takes us, within `connect_millis` over all of them. `events` hears what happens afterwards.
/// Servers are tried in an order of chance, those that failed last: so the clients of a cluster spread, and leave a server that is down.
///
/// # Errors
/// [`BusError::Config`] for what stays wrong until somebody changes it (options, certificates, credentials), [`BusError::NotSent`] and
/// [`BusError::Timeout`] for what may be over soon. Then no connection and no task is left.
pub(super) async fn connect(options: &NatsOptions, events: impl Fn(Event) + Send + Sync + 'static) -> Result<Client, BusError> {
    let servers = options.server_addrs()?;
    let forced = options.forces_tls(&servers);
    let tls = tls::client_config(options, forced)?;
    let limit = Duration::from_millis(limits::CONNECT_MILLIS.default);
    let reconnects = Arc::new(Reconnects::default());
    let attempt = Attempt::of(options, &servers, forced);
    let mut connecting = ConnectOptions::new()
        .name(&options.connection_name)
        .require_tls(forced)
        .tls_client_config(tls)
        .ignore_discovered_servers()
        .custom_inbox_prefix(inbox_prefix()?)
        .connection_timeout(server_time(limit, servers.len()))
        .request_timeout(Some(Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default)));
    if options.tls_first {
        connecting = connecting.tls_first();
    }
    connecting = match &options.credentials {
        None => connecting,
        Some(NatsCredentials::UserPassword { user, password }) => connecting.user_and_password(user.clone(), password.clone()),
        Some(NatsCredentials::Token(token)) => connecting.token(token.clone()),
    };
    let delays = Arc::clone(&reconnects);
    let connecting = connecting.reconnect_delay_callback(move |_| delays.next()).event_callback({
        let (servers, telling) = (attempt.servers.clone(), Mutex::new(Telling::new()));
        move |event| {
            let line = telling.lock().unwrap_or_else(PoisonError::into_inner).hear(&event, Instant::now());
            line.iter().for_each(|line| line.log(&servers));
            events(event);
            std::future::ready(())
        }
    });
    let connected = tokio::time::timeout(limit, connecting.connect(servers)).await;
    let client = connected.map_err(|_| attempt.timed_out())?.map_err(|error| told(&attempt, &error))?;
    reconnects.begin();
    Ok(client)
}

impl NatsOptions {
    /// Looks at what can be looked at without a connection: the servers, the roots, the certificate's name.
    ///
    /// # Errors
    /// [`BusError::Config`] naming what cannot be used.
    pub fn check(&self) -> Result<(), BusError> {
        let servers = self.server_addrs()?;
        tls::client_config(self, self.forces_tls(&servers)).map(drop)
    }
}

/// One prefix for each connection, which nobody can guess: what is answered to one is read by no other.
fn inbox_prefix() -> Result<String, BusError> {
    let mut token = [0_u8; 16];
    getrandom::fill(&mut token).map_err(|error| BusError::Backend(format!("no random bytes from the system: {error}")))?;
    let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{INBOX_PREFIX}.{token}"))
}

/// So that one server that says nothing leaves time for the next.
fn server_time(limit: Duration, servers: usize) -> Duration {
    let share = limit / u32::try_from(servers.max(1)).unwrap_or(u32::MAX);
    share.min(SERVER_TIME_MAX)
}

/// The servers as texts show them: scheme, host and port, which hold no credentials.
fn shown(servers: &[ServerAddr]) -> String {
    servers.iter().map(|server| format!("{}://{}:{}", server.scheme(), server.host(), server.port())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inboxes_of_two_connections_differ() {
        let (one, other) = (inbox_prefix().unwrap(), inbox_prefix().unwrap());
        assert!(one != other && one.starts_with("_INBOX.LSF.") && one.len() == "_INBOX.LSF.".len() + 32, "{one}");
    }

    #[test]
    fn every_server_has_its_share_of_the_time() {
        let limit = Duration::from_secs(9);
        let seconds = |servers| server_time(limit, servers).as_secs();
        assert_eq!([0, 1, 2, 3, 9].map(seconds), [5, 5, 4, 3, 1]);
    }
}
