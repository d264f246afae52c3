//! One connection, made: the configured socket, TLS to the configured name, then the protocol's handshake.

use std::sync::Arc;
use std::time::Duration;

use latent_core::{Clock, KnownFailure};
use latent_nats_proto::{Credential, HandshakeError, InstanceInbox, Link};
use latent_secrets::ResolveError;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::connection::Connection;
use crate::credential::NatsCredential;
use crate::deadline::Timer;

/// A dial that took this long before its deadline ended it had its chance: a broker on the other side of the world answers sooner.
const FAIR_TIME: Duration = Duration::from_secs(1);

/// What every dial of a provider needs.
pub(crate) struct Dialler {
    pub(crate) address: std::net::SocketAddrV4,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) inbox: InstanceInbox,
    /// What its connections are for.
    pub(crate) delivers: Delivers,
}

/// What connections are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivers {
    /// They publish.
    Nothing,
    /// One message at a time, of at most this payload.
    OneAtATime {
        /// In bytes.
        bytes_max: u32,
    },
    /// Many, with bodies of at most this size.
    ToSessions {
        /// In bytes.
        bytes_max: u32,
    },
}

/// Why no connection came to be. Nothing of a publication was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DialError {
    /// The socket could not be opened.
    #[error("the broker cannot be reached: {kind}")]
    Connect {
        /// The kind of failure; no text of the system, which could name more than the address.
        kind: std::io::ErrorKind,
    },
    /// TLS did not come to be.
    #[error("TLS with the broker failed: {problem}")]
    Tls {
        /// A closed set of problems.
        problem: TlsProblem,
    },
    /// The credential cannot be read.
    #[error("the credential cannot be used: {0}")]
    Secret(#[from] ResolveError),
    /// The protocol's handshake failed.
    #[error("the broker refused the session: {0}")]
    Handshake(#[from] HandshakeError),
    /// The time was over.
    #[error("the deadline passed while connecting")]
    Deadline,
}

/// What went wrong in TLS, without any text of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TlsProblem {
    #[error("its certificate is not valid for the configured server name")]
    Name,
    #[error("its certificate has expired or is not valid yet")]
    Expired,
    #[error("its certificate comes from none of the configured roots")]
    Issuer,
    #[error("its certificate is not acceptable")]
    Certificate,
    #[error("the peer does not start TLS; the broker needs `handshake_first: true`")]
    NotTls,
    #[error("the connection ended during the TLS handshake")]
    Closed,
    #[error("the handshake failed")]
    Other,
}

impl DialError {
    /// Whether the client's backoff counts it: whatever a second attempt at once would meet again. A deadline that left the dial little
    /// time says nothing of the broker, and an impatient function must not keep its tenant's others out.
    pub(crate) fn counts(&self, took: Duration) -> bool {
        match self {
            Self::Secret(_) => false,
            Self::Deadline | Self::Handshake(HandshakeError::DeadlineExceeded) => took >= FAIR_TIME,
            Self::Connect { .. } | Self::Tls { .. } | Self::Handshake(_) => true,
        }
    }

    /// What the caller is told.
    pub(crate) fn failure(&self) -> KnownFailure {
        match self {
            Self::Deadline | Self::Handshake(HandshakeError::DeadlineExceeded) => KnownFailure::DeadlineExceeded,
            other => KnownFailure::Unavailable { reason: other.to_string() },
        }
    }
}

impl Dialler {
    /// Dials once. The secret is read when the handshake needs it and is gone when it has ended.
    pub(crate) async fn dial(
        &self,
        credential: &NatsCredential,
        number: u64,
        clock: &dyn Clock,
        timer: &mut Timer<'_>,
    ) -> Result<Connection, DialError> {
        // A credential that cannot be used opens no socket. It is read again when the handshake needs it, so that it is held no longer.
        drop(credential.secret().resolve(clock.unix())?);
        let connecting = timer.race(TcpStream::connect(std::net::SocketAddr::V4(self.address))).await.ok_or(DialError::Deadline)?;
        let socket = connecting.map_err(|error| DialError::Connect { kind: error.kind() })?;
        // A publication leaves at once; a failure here only costs time.
        let _ = socket.set_nodelay(true);
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let handshake = timer.race(connector.connect(self.server_name.clone(), socket)).await.ok_or(DialError::Deadline)?;
        let stream = handshake.map_err(|error| DialError::Tls { problem: problem_of(&error) })?;
        let secret = credential.secret().resolve(clock.unix())?;
        let link = match self.delivers {
            Delivers::Nothing => Link::new(&self.inbox, number),
            Delivers::OneAtATime { bytes_max } => Link::for_triggers(&self.inbox, number, bytes_max),
            Delivers::ToSessions { bytes_max } => Link::for_sessions(&self.inbox, number, bytes_max),
        };
        let mut connection = Connection::new(stream, link, secret.stamp().clone(), clock.mono());
        let credential = match credential.username() {
            Some(user) => Credential::Password { user, password: secret.value() },
            None => Credential::Token(secret.value()),
        };
        connection.handshake(credential, timer).await?;
        Ok(connection)
    }
}

fn problem_of(error: &std::io::Error) -> TlsProblem {
    use rustls::CertificateError as Certificate;
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return TlsProblem::Closed;
    };
    match tls {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => TlsProblem::Name,
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. } => TlsProblem::Expired,
            Certificate::UnknownIssuer => TlsProblem::Issuer,
            _ => TlsProblem::Certificate,
        },
        rustls::Error::InvalidMessage(_) => TlsProblem::NotTls,
        _ => TlsProblem::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_counts_for_the_backoff_only_when_the_dial_had_a_fair_time() {
        let late = [DialError::Deadline, DialError::Handshake(HandshakeError::DeadlineExceeded)];
        for error in late {
            let counts = [0, 999, 1_000, 30_000].map(|millis| error.counts(Duration::from_millis(millis)));
            assert_eq!(counts, [false, false, true, true], "{error}");
        }
        let refused = DialError::Connect { kind: std::io::ErrorKind::ConnectionRefused };
        assert!(refused.counts(Duration::ZERO) && DialError::Handshake(HandshakeError::AuthenticationFailed).counts(Duration::ZERO));
    }
}
