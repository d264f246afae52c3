//! What a bus on a broker is opened with: where the broker is, who we are there, what is trusted, and the bounds. Opens nothing; reads
//! the environment only where that is asked for.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_nats::ServerAddr;
use latent_core::{Clock, SystemClock};

use super::environment;
use crate::BusError;
use crate::cold::ArchiveOptions;

/// Everything but the manifest.
#[derive(Clone)]
pub struct NatsOptions {
    /// `nats://host:port` or `tls://host:port`, at least one. No other server is ever dialled: what a broker announces is ignored.
    pub servers: Vec<String>,
    /// Who we are; `None`: nobody, on a broker without users.
    pub credentials: Option<NatsCredentials>,
    /// Roots for the broker's certificate. Anything but [`NatsRoots::System`], or credentials, force TLS (B-049).
    pub roots: NatsRoots,
    /// The name that the certificate must be of; `None`: the host of the server that is dialled.
    pub server_name: Option<String>,
    /// TLS before the broker says anything.
    pub tls_first: bool,
    /// Gives `stored_at` and the time in minted uids.
    pub clock: Arc<dyn Clock>,
    /// Folders in which a manifest's `schema_ref` is looked for, in this order.
    pub schema_roots: Vec<PathBuf>,
    /// How the broker lists the connection.
    pub connection_name: String,
    /// The archive of topics with a `cold_uri`. None: such topics are read and not published to, and no outbox is touched.
    pub archive: Option<ArchiveOptions>,
}

/// Whom the broker's certificate is checked against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NatsRoots {
    /// Those of the system.
    #[default]
    System,
    /// A file of certificates in PEM form, and no others.
    Pem(PathBuf),
    /// Certificates in DER form, and no others.
    Der(Vec<Vec<u8>>),
}

/// A user of the broker.
#[derive(Clone, PartialEq, Eq)]
pub enum NatsCredentials {
    /// A name and its password.
    UserPassword {
        /// The name.
        user: String,
        /// The password; shown nowhere.
        password: String,
    },
    /// A token.
    Token(String),
}

impl fmt::Debug for NatsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserPassword { user, .. } => f.debug_struct("UserPassword").field("user", user).finish_non_exhaustive(),
            Self::Token(_) => f.write_str("Token"),
        }
    }
}

impl NatsOptions {
    /// Options for one server, without credentials.
    pub fn new(server: &str) -> Self {
        Self {
            servers: vec![server.to_owned()],
            credentials: None,
            roots: NatsRoots::System,
            server_name: None,
            tls_first: false,
            clock: Arc::new(SystemClock::start()),
            schema_roots: vec![PathBuf::from(".")],
            connection_name: "latent-bridge".to_owned(),
            archive: Some(ArchiveOptions::default()),
        }
    }

    /// Looks for schemas in the manifest's folder before anywhere else.
    #[must_use]
    pub fn with_manifest_folder(mut self, folder: &Path) -> Self {
        self.schema_roots.insert(0, folder.to_owned());
        self
    }
    /// Options for `url`, one server or several separated by commas, with what `AV_NATS_CA_FILE`, `AV_NATS_USER`, `AV_NATS_PASSWORD` and
    /// `AV_NATS_TLS_FIRST` say.
    ///
    /// # Errors
    /// [`BusError::Config`] for a server that cannot be dialled or has credentials in it, a variable that is empty or not UTF-8, and half
    /// a credential.
    pub fn from_environment(url: &str) -> Result<Self, BusError> {
        Self::from_lookup(url, |name| std::env::var_os(name))
    }

    /// As [`NatsOptions::from_environment`], with another environment.
    ///
    /// # Errors
    /// As [`NatsOptions::from_environment`].
    pub fn from_lookup(url: &str, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, BusError> {
        let servers = url.split(',').map(|server| server.trim().to_owned()).collect();
        let options = environment::read(Self { servers, ..Self::new("") }, lookup)?;
        options.server_addrs()?;
        Ok(options)
    }

    /// The servers, checked.
    pub(super) fn server_addrs(&self) -> Result<Vec<ServerAddr>, BusError> {
        if self.servers.is_empty() {
            return Err(config("no server is named; write nats://host:port or tls://host:port".to_owned()));
        }
        self.servers.iter().map(|server| server_addr(server)).collect()
    }

    /// Whether no byte may pass outside TLS (B-049).
    pub(super) fn forces_tls(&self, servers: &[ServerAddr]) -> bool {
        self.tls_first || self.credentials.is_some() || self.roots != NatsRoots::System || servers.iter().any(ServerAddr::tls_required)
    }
}

fn config(problem: String) -> BusError {
    BusError::Config { problem }
}

/// An address with a scheme that we speak and nothing but host and port. What may hold a password is not shown.
fn server_addr(server: &str) -> Result<ServerAddr, BusError> {
    if server.contains('@') {
        let problem = "credentials do not belong in the address of a server; set AV_NATS_USER and AV_NATS_PASSWORD";
        return Err(config(problem.to_owned()));
    }
    let refused =
        |problem: &str| config(format!("the server {server:?} cannot be dialled: {problem}; write nats://host:port or tls://host:port"));
    let address: ServerAddr = server.parse().map_err(|error: std::io::Error| refused(&error.to_string()))?;
    if !matches!(address.scheme(), "nats" | "tls") {
        return Err(refused("its scheme is not spoken here"));
    }
    if address.host().is_empty() {
        return Err(refused("it names no host"));
    }
    let url = address.clone().into_inner();
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(refused("it has more than host and port"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<NatsOptions, BusError> {
        NatsOptions::from_lookup(url, |_| None)
    }

    #[test]
    fn servers_are_separated_by_commas_and_each_has_its_own_scheme() {
        let options = of("nats://a:1, tls://b ,c:3").unwrap();
        let servers = options.server_addrs().unwrap();
        let shown: Vec<_> = servers.iter().map(|server| (server.scheme(), server.host(), server.port())).collect();
        assert_eq!(shown, [("nats", "a", 1), ("tls", "b", 4222), ("nats", "c", 3)]);
        assert!(options.forces_tls(&servers), "one server with TLS is enough");
        assert_eq!(of("nats://[::1]:4222").unwrap().server_addrs().unwrap()[0].host(), "::1");
    }

    /// B-049.
    #[test]
    fn roots_credentials_and_the_order_of_tls_force_it() {
        let forced = |change: fn(&mut NatsOptions)| {
            let mut options = NatsOptions::new("nats://a");
            change(&mut options);
            options.forces_tls(&options.server_addrs().unwrap())
        };
        assert!(!forced(|_| ()));
        assert!(forced(|options| options.credentials = Some(NatsCredentials::Token("t".to_owned()))));
        assert!(forced(|options| options.roots = NatsRoots::Pem(PathBuf::from("x"))));
        assert!(forced(|options| options.roots = NatsRoots::Der(Vec::new())));
        assert!(forced(|options| options.tls_first = true));
        assert!(forced(|options| options.servers = vec!["tls://a".to_owned()]));
    }

    #[test]
    fn what_cannot_be_dialled_is_refused_and_named() {
        let table = [
            ("", ""),
            ("nats://a,", "\"\""),
            ("http://a", "http"),
            ("ws://a", "its scheme is not spoken here"),
            ("nats://", ""),
            ("nats://a:99999", "port"),
            ("nats://a:1/path", "more than host and port"),
            ("nats://a?x=1", "more than host and port"),
        ];
        for (url, told) in table {
            let error = of(url).map(drop).unwrap_err();
            assert!(matches!(&error, BusError::Config { problem } if problem.contains(told)), "{url}: {error}");
        }
        let none = NatsOptions { servers: Vec::new(), ..NatsOptions::new("x") };
        assert!(none.server_addrs().is_err());
    }

    #[test]
    fn credentials_in_an_address_are_refused_and_not_shown() {
        for url in ["nats://user:hunter2@a", "nats://hunter2@a", "user:hunter2@a", "nats://a,tls://:hunter2@b"] {
            let error = of(url).map(drop).unwrap_err().to_string();
            assert!(error.contains("AV_NATS_USER and AV_NATS_PASSWORD") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let password = NatsCredentials::UserPassword { user: "u".to_owned(), password: "hunter2".to_owned() };
        for credentials in [password, NatsCredentials::Token("hunter2".to_owned())] {
            assert!(!format!("{credentials:?}").contains("hunter2"));
        }
    }
}
