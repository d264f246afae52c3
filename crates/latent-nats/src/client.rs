//! Who dials a configured broker, for each tenant with its own credential: what the publisher and the triggers have in common.

use std::sync::Arc;

use latent_capabilities::Lease;
use latent_core::{Clock, KnownFailure, ProviderId, TenantId};
use latent_nats_proto::{CheckoutError, Evidence, InstanceInbox};
use latent_secrets::NotCurrent;

use crate::connection::Parked;
use crate::counters::Counter;
use crate::deadline::Timer;
use crate::dial::{Delivers, DialError, Dialler};
use crate::outcome::failure_of;
use crate::{Connection, InstallError, NatsCredential, Peer, limits, tls};

/// The socket, its credentials, and what became of the dials.
pub(crate) struct Client {
    dialler: Dialler,
    /// In the order of the configuration's tenants.
    credentials: Vec<NatsCredential>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The next connection's number, below the instance's inbox.
    connections: Counter,
    pub(crate) connected: Counter,
    pub(crate) connects_failed: Counter,
    pub(crate) parked_lost: Counter,
}

/// Why there is no connection. Nothing that the caller asked for was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectFault {
    /// The tenant has no credential.
    NoCredential,
    /// It could not be made.
    Dial(DialError),
    /// It was there and turned out unusable.
    Parked(CheckoutError),
    /// The credential changed meanwhile.
    NotCurrent(NotCurrent),
    /// It was lost, or cannot be told from others any more.
    Lost,
}

impl ConnectFault {
    /// What a publication is told.
    pub(crate) fn failure(&self) -> KnownFailure {
        match self {
            Self::NoCredential => KnownFailure::PermissionDenied,
            Self::Dial(error) => error.failure(),
            Self::Parked(error) => failure_before_write(error.evidence()),
            Self::NotCurrent(error) => KnownFailure::Unavailable { reason: format!("the credential is not current: {error}") },
            Self::Lost => KnownFailure::Unavailable { reason: "the connection was lost before the publication began".to_owned() },
        }
    }
}

impl Client {
    pub(crate) fn new(
        peer: &Peer,
        public_roots: bool,
        credentials: Vec<NatsCredential>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, InstallError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| InstallError::Random { problem: error.to_string() })?;
        let dialler = Dialler {
            address: peer.address(),
            server_name: peer.server_name.clone(),
            tls: tls::client_config(peer, public_roots)?,
            inbox: InstanceInbox::new(random),
            delivers: Delivers::Nothing,
        };
        Ok(Self {
            dialler,
            credentials,
            clock,
            connections: Counter::default(),
            connected: Counter::default(),
            connects_failed: Counter::default(),
            parked_lost: Counter::default(),
        })
    }

    /// The same, with connections that are delivered messages of at most this payload.
    pub(crate) fn delivered(mut self, bytes_max: u32) -> Self {
        self.dialler.delivers = Delivers::OneAtATime { bytes_max };
        self
    }

    /// The same, with connections on which sessions begin that are delivered bodies of at most this size.
    pub(crate) fn with_sessions(mut self, bytes_max: u32) -> Self {
        self.dialler.delivers = Delivers::ToSessions { bytes_max };
        self
    }

    pub(crate) const fn address(&self) -> std::net::SocketAddrV4 {
        self.dialler.address
    }

    /// Makes the lease hold a connection that is authenticated with what is current now. At most one dial, also after a parked connection
    /// turned out to be gone (D-15).
    pub(crate) async fn connect(&self, place: usize, lease: &mut Lease<Connection>, timer: &mut Timer<'_>) -> Result<(), ConnectFault> {
        let clock = &*self.clock;
        let credential = self.credentials.get(place).ok_or(ConnectFault::NoCredential)?;
        if let Some(parked) = lease.connection() {
            let look = parked.look(clock.mono());
            // What was authenticated with material that is not current any more carries nothing again.
            let is_current = credential.secret().check(parked.stamp(), clock.unix()).is_ok();
            match look {
                // Nothing is waited for from here on, so this was the last look at the credential too.
                Parked::Good if is_current => return Ok(()),
                Parked::Doubtful if is_current => match parked.probe(timer).await {
                    Ok(()) => return self.current(place, lease),
                    Err(error) if !error.allows_redial() => {
                        lease.discard();
                        self.parked_lost.add_one();
                        return Err(ConnectFault::Parked(error));
                    }
                    Err(_) => self.parked_lost.add_one(),
                },
                Parked::Good | Parked::Doubtful => {}
            }
            lease.discard();
        }
        self.dial(place, credential, lease, timer).await
    }

    async fn dial(
        &self,
        place: usize,
        credential: &NatsCredential,
        lease: &mut Lease<Connection>,
        timer: &mut Timer<'_>,
    ) -> Result<(), ConnectFault> {
        // Its level below the instance's inbox: two connections never share one, whoever dials at the same time (P-009).
        let number = self.connections.take().ok_or(ConnectFault::Lost)?;
        let begun = self.clock.mono();
        match self.dialler.dial(credential, number, &*self.clock, timer).await {
            Ok(connection) => {
                self.connected.add_one();
                lease.fill(connection);
                self.read_on(lease, timer).await?;
                self.current(place, lease)
            }
            Err(error) => {
                self.connects_failed.add_one();
                if error.counts(self.clock.mono().since(begun)) {
                    lease.dial_failed(jitter());
                }
                Err(ConnectFault::Dial(error))
            }
        }
    }

    /// A broker says more of itself right after the handshake, and the beginning of that may be here already.
    async fn read_on(&self, lease: &mut Lease<Connection>, timer: &mut Timer<'_>) -> Result<(), ConnectFault> {
        let Some(connection) = lease.connection() else { return Err(ConnectFault::Lost) };
        if !connection.is_half_read() {
            return Ok(());
        }
        let probed = connection.probe(timer).await;
        probed.map_err(|error| {
            lease.discard();
            self.parked_lost.add_one();
            ConnectFault::Parked(error)
        })
    }

    /// The last look at the credential, with nothing more to wait for. A connection of an older one is closed.
    pub(crate) fn current(&self, place: usize, lease: &mut Lease<Connection>) -> Result<(), ConnectFault> {
        let credential = self.credentials.get(place).ok_or(ConnectFault::NoCredential)?;
        let Some(connection) = lease.connection() else { return Err(ConnectFault::Lost) };
        if let Err(not_current) = credential.secret().check(connection.stamp(), self.clock.unix()) {
            lease.discard();
            return Err(ConnectFault::NotCurrent(not_current));
        }
        Ok(())
    }
}

fn failure_before_write(evidence: Evidence) -> KnownFailure {
    use latent_nats_proto::{Answer, FailureCause, FailureKind, Stage, decide};
    match decide(Stage::BeforeWrite, evidence) {
        Answer::KnownFailure { kind, cause } => failure_of(kind, cause),
        Answer::Receipt { .. } | Answer::Uncertain(_) => failure_of(FailureKind::Unavailable, FailureCause::Protocol),
    }
}

/// Spreads the backoff of clients that lost the same broker. Without random bytes they wait the longest.
fn jitter() -> u16 {
    getrandom::u32().map_or(u16::MAX, |random| (random & 0xffff) as u16)
}

/// The credentials in the order of the configuration's tenants: each tenant one, nobody else's.
pub(crate) fn in_order(
    tenants: &[TenantId],
    provider: &ProviderId,
    peer: &Peer,
    credentials: Vec<NatsCredential>,
) -> Result<Vec<NatsCredential>, InstallError> {
    limits::CREDENTIALS.check(credentials.len().max(1) as u64).map_err(InstallError::TooManyCredentials)?;
    for (index, credential) in credentials.iter().enumerate() {
        let tenant = credential.tenant();
        if !tenants.contains(tenant) {
            return Err(InstallError::UnknownTenant { tenant: tenant.clone() });
        }
        if credentials[..index].iter().any(|other| other.tenant() == tenant) {
            return Err(InstallError::TwoCredentials { tenant: tenant.clone() });
        }
        if !credential.has_usable_username() {
            return Err(InstallError::Username { tenant: tenant.clone() });
        }
        let binding = latent_secrets::TlsBinding {
            tenant: tenant.clone(),
            provider: provider.clone(),
            server_name: peer.server_name().to_owned(),
            port: peer.address().port(),
        };
        if !credential.secret().is_bound_to(&binding) {
            return Err(InstallError::OtherBinding { tenant: tenant.clone() });
        }
    }
    let of = |tenant| credentials.iter().find(|credential| credential.tenant() == tenant).cloned();
    let missing = |tenant: &TenantId| InstallError::NoCredential { tenant: tenant.clone() };
    tenants.iter().map(|tenant| of(tenant).ok_or_else(|| missing(tenant))).collect()
}
