//! Why there is no connection, in words that name the broker, the reason and what to do next. Pure.

use std::error::Error;

use async_nats::{ConnectError, ConnectErrorKind, ServerAddr, ServerError};

use super::shown;
use crate::BusError;
use crate::nats_bus::options::{NatsCredentials, NatsOptions};
use crate::nats_bus::words::told as told_of;

/// How an operator says that TLS comes first, and that it does not: to programs and `latent bus`, and to a node.
const FIRST: &str = "AV_NATS_TLS_FIRST=true, or tls_first = true of a node's [engine]";
const NOT_FIRST: &str = "AV_NATS_TLS_FIRST=false, or tls_first = false of a node's [engine]";

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
            format!("TLS came first, which it may not expect ({NOT_FIRST})")
        } else {
            format!("it may expect TLS first ({FIRST})")
        };
        BusError::Timeout {
            operation: format!("connecting to the broker at {}, which is not reachable or says nothing; {order}: that", self.servers),
        }
    }

    fn no_tls(&self, why: &str) -> BusError {
        let order = if self.tls_first {
            format!("does not begin with TLS, as was said; if it speaks first, say {NOT_FIRST}")
        } else {
            "does not speak TLS; the address, a file of roots, or credentials ask for it, and it is never left out".to_owned()
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
            problem: format!(
                "the broker at {servers} refuses {}; check user and password (AV_NATS_USER and AV_NATS_PASSWORD, or the credential of a node)",
                attempt.who
            ),
        },
        ConnectErrorKind::TimedOut => attempt.timed_out(),
        ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => {
            BusError::Config { problem: format!("the broker at {servers} cannot be dialled: {}", told_of(error)) }
        }
        ConnectErrorKind::Dns => {
            BusError::NotSent { reason: format!("the name of the broker at {servers} cannot be looked up: {}", told_of(error)) }
        }
        ConnectErrorKind::Io | ConnectErrorKind::MaxReconnects => of_io(attempt, error),
    }
}

fn of_tls(attempt: &Attempt, error: &rustls::Error) -> BusError {
    match error {
        rustls::Error::InvalidMessage(_) => attempt.no_tls(&error.to_string()),
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented | rustls::Error::UnsupportedNameType => {
            let problem = format!(
                "the certificate of the broker at {} is not accepted: {}; check the roots (AV_NATS_CA_FILE, or roots of a node's [engine]) and that it is of the broker's name",
                attempt.servers,
                told_of(error)
            );
            BusError::Config { problem }
        }
        _ => BusError::Config { problem: format!("TLS with the broker at {} fails: {}", attempt.servers, told_of(error)) },
    }
}

fn of_io(attempt: &Attempt, error: &ConnectError) -> BusError {
    let servers = &attempt.servers;
    if let Some(refusal) = cause::<ServerError>(error) {
        return BusError::NotSent { reason: format!("the broker at {servers} refuses the connection: {}", told_of(refusal)) };
    }
    // The text of the client for an end before the broker's greeting: one that waits for TLS ends like that.
    let hint = if attempt.forced && !attempt.tls_first { format!("; if it expects TLS first, say {FIRST}") } else { String::new() };
    BusError::NotSent { reason: format!("the broker at {servers} is not reachable: {}{hint}", told_of(error)) }
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn attempt(tls_first: bool) -> Attempt {
        let mut options = NatsOptions::new("nats://a:1,tls://b:2");
        options.servers = vec!["nats://a:1".to_owned(), "tls://b:2".to_owned()];
        options.credentials = Some(NatsCredentials::UserPassword { user: "u".to_owned(), password: "hunter2".to_owned() });
        options.tls_first = tls_first;
        Attempt::of(&options, &options.server_addrs().unwrap(), true)
    }

    fn of(kind: ConnectErrorKind, source: impl Into<async_nats::Error>) -> BusError {
        told(&attempt(false), &ConnectError::with_source(kind, source))
    }

    #[test]
    fn each_reason_is_told_with_the_servers_and_what_to_do() {
        let tls = |error: rustls::Error| of(ConnectErrorKind::Io, io::Error::new(io::ErrorKind::InvalidData, error));
        let table = [
            (of(ConnectErrorKind::AuthorizationViolation, ServerError::AuthorizationViolation), "config", "refuses user \"u\"; check"),
            (of(ConnectErrorKind::Dns, "no such host"), "not-sent", "cannot be looked up"),
            (of(ConnectErrorKind::TimedOut, "x"), "timeout", "AV_NATS_TLS_FIRST=true"),
            (of(ConnectErrorKind::Tls, "no platform certs"), "config", "no platform certs"),
            (of(ConnectErrorKind::Io, io::Error::from(io::ErrorKind::ConnectionRefused)), "not-sent", "not reachable"),
            (of(ConnectErrorKind::Io, ServerError::Other("maximum connections exceeded".to_owned())), "not-sent", "maximum connections"),
            (of(ConnectErrorKind::Io, ServerError::Other("a\x1b[2Jb".to_owned())), "not-sent", "a\\u{1b}[2Jb"),
            (tls(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)), "config", "does not speak TLS"),
            (tls(rustls::Error::InvalidCertificate(rustls::CertificateError::Expired)), "config", "AV_NATS_CA_FILE"),
            (tls(rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure)), "config", "TLS with the broker"),
        ];
        for (error, kind, text) in table {
            let shown = error.to_string();
            assert_eq!(error.kind(), kind, "{shown}");
            assert!(shown.contains("nats://a:1, tls://b:2") && shown.contains(text) && !shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn the_other_order_of_tls_is_named_where_the_given_one_may_be_wrong() {
        let garbled =
            || io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        let error = told(&attempt(true), &ConnectError::with_source(ConnectErrorKind::Io, garbled()));
        assert!(error.to_string().contains("AV_NATS_TLS_FIRST=false"), "{error}");
        let ended = of(ConnectErrorKind::Io, "expected INFO, got nothing");
        assert!(ended.to_string().contains("AV_NATS_TLS_FIRST=true"), "{ended}");
        assert!(attempt(true).timed_out().to_string().contains("AV_NATS_TLS_FIRST=false"));
    }
}
