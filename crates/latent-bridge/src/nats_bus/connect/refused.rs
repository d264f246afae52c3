//! Why there is no connection, in words that name the broker, the reason and what to do next. Pure.

use std::error::Error;

use async_nats::{ConnectError, ConnectErrorKind, ServerAddr, ServerError};

use super::shown;
use crate::BusError;
use crate::nats_bus::options::{NatsCredentials, NatsOptions};

/// What was tried, as far as errors tell it.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) servers: String,
    who: String,
    tls_first: bool,
    forced: bool,
}

impl Attempt {
    pub(super) fn of(options: &NatsOptions, servers: &[ServerAddr], forced: bool) -> Self {
        let who = match &options.credentials {
            None => "a client without credentials".to_owned(),
            Some(NatsCredentials::UserPassword { user, .. }) => format!("user {user:?}"),
            Some(NatsCredentials::Token(_)) => "the token".to_owned(),
        };
        Self { servers: shown(servers), who, tls_first: options.tls_first, forced }
    }

    pub(super) fn timed_out(&self) -> BusError {
        let order = if self.tls_first {
            "it may not expect TLS first (AV_NATS_TLS_FIRST=true was given)"
        } else {
            "it may expect TLS first (set AV_NATS_TLS_FIRST=true then)"
        };
        BusError::Timeout {
            operation: format!("connecting to the broker at {}: it is not reachable or says nothing; {order}; that", self.servers),
        }
    }

    fn no_tls(&self, why: &str) -> BusError {
        let order = if self.tls_first {
            "does not begin with TLS, as AV_NATS_TLS_FIRST=true says; if it speaks first, say AV_NATS_TLS_FIRST=false"
        } else {
            "does not speak TLS; TLS is asked for by the address, a file of roots, or credentials, and is never left out"
        };
        BusError::Config { problem: format!("the broker at {} {order} ({why})", self.servers) }
    }
}

/// What a failed attempt becomes.
pub(super) fn told(attempt: &Attempt, error: &ConnectError) -> BusError {
    let servers = &attempt.servers;
    if let Some(error) = cause::<rustls::Error>(error) {
        return of_tls(attempt, error);
    }
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => BusError::Config {
            problem: format!("the broker at {servers} refuses {}; check user and password (AV_NATS_USER, AV_NATS_PASSWORD)", attempt.who),
        },
        ConnectErrorKind::TimedOut => attempt.timed_out(),
        ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => {
            BusError::Config { problem: format!("the broker at {servers} cannot be dialled: {error}") }
        }
        ConnectErrorKind::Dns => BusError::NotSent { reason: format!("the name of the broker at {servers} cannot be looked up: {error}") },
        ConnectErrorKind::Io | ConnectErrorKind::MaxReconnects => of_io(attempt, error),
    }
}

fn of_tls(attempt: &Attempt, error: &rustls::Error) -> BusError {
    match error {
        rustls::Error::InvalidMessage(_) => attempt.no_tls(&error.to_string()),
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented | rustls::Error::UnsupportedNameType => {
            let problem = format!(
                "the certificate of the broker at {} is not accepted: {error}; check its roots (AV_NATS_CA_FILE) and that it is of the host's name",
                attempt.servers
            );
            BusError::Config { problem }
        }
        _ => BusError::Config { problem: format!("TLS with the broker at {} fails: {error}", attempt.servers) },
    }
}

fn of_io(attempt: &Attempt, error: &ConnectError) -> BusError {
    let servers = &attempt.servers;
    if let Some(refusal) = cause::<ServerError>(error) {
        return BusError::NotSent { reason: format!("the broker at {servers} refuses the connection: {refusal}") };
    }
    // The text of the client for an end before the broker's greeting: one that waits for TLS ends like that.
    let hint = if attempt.tls_first { "" } else { "; if it expects TLS first, set AV_NATS_TLS_FIRST=true" };
    let hint = if attempt.forced { hint } else { "" };
    BusError::NotSent { reason: format!("the broker at {servers} is not reachable: {error}{hint}") }
}

/// The first cause of this kind. An I/O error holds its own cause where `source` does not look.
fn cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        let inside = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}
