//! A node's half without a node: an activation manager, pools, sealed secrets, and triggers to install.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, PoolSettings, ProviderPools};
use latent_core::{Clock, ComponentDigest, ContractName, Epoch, FunctionName, PublicationId, ServiceName};
use latent_nats::triggers::{NatsTriggers, TriggerDraft, TriggerMonitor};
use latent_nats::{NatsCredential, NatsPools};
use latent_node::{Catalog, Contracts, LocalActivationManager, ManagerOptions, NewPublication, NodeLimits, RouteKey};
use latent_secrets::{LocalSecretStore, NewSecret, SealingKey, SecretError, SecretName, TlsBinding};

use super::scripted::{Backend, JumpingClock, Scripted};
use super::{CONTRACT, TENANTS, password, provider, tenant};

/// A node's half: a manager whose one service `work` has one function `run`, for both tenants.
pub(crate) struct Half {
    pub(crate) manager: Arc<LocalActivationManager>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) publication: PublicationId,
    pub(crate) scripted: Arc<Scripted>,
    pub(crate) clock: Arc<JumpingClock>,
    pub(crate) pools: NatsPools,
    pub(crate) secrets: Arc<LocalSecretStore>,
    _folder: tempfile::TempDir,
}

pub(crate) fn publication(component: &[u8]) -> NewPublication {
    NewPublication {
        service: ServiceName::parse("work").unwrap(),
        tenants: TENANTS.map(tenant).into_iter().collect::<BTreeSet<_>>().into(),
        contracts: Contracts::from([(ContractName::parse(CONTRACT).unwrap(), BTreeSet::from([FunctionName::parse("run").unwrap()]))])
            .into(),
        digest: ComponentDigest::of(component),
    }
}

pub(crate) fn route(of: &str) -> RouteKey {
    RouteKey { tenant: tenant(of), service: ServiceName::parse("work").unwrap(), route: None }
}

impl Half {
    pub(crate) fn new(settings: PoolSettings, limits: NodeLimits) -> Self {
        let clock = Arc::new(JumpingClock::start());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
        let catalog = Arc::new(Catalog::default());
        let publication = catalog.add(publication(b"one")).unwrap();
        for of in TENANTS {
            catalog.point_route(route(of), publication).unwrap();
        }
        let (scripted, next) = (Arc::new(Scripted::default()), AtomicU64::new(1));
        let manager = LocalActivationManager::new(ManagerOptions {
            backend: Arc::new(Backend(Arc::clone(&scripted))),
            catalog: Arc::clone(&catalog),
            capabilities: Arc::clone(&capabilities),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(move || u128::from(next.fetch_add(1, Ordering::Relaxed)).to_be_bytes()),
            limits,
            runtime: tokio::runtime::Handle::current(),
        });
        let pools = ProviderPools::new(settings, Arc::clone(&clock) as Arc<dyn Clock>);
        let pools = NatsPools { capabilities, pools, clock: Arc::clone(&clock) as _ };
        let folder = tempfile::tempdir().unwrap();
        let secrets = store(folder.path());
        Self { manager: manager.unwrap(), catalog, publication, scripted, clock, pools, secrets, _folder: folder }
    }

    /// Installs a configuration, each tenant with its own credential.
    pub(crate) fn install(&self, draft: &TriggerDraft, epoch: u64, expected: Option<u64>) -> (NatsTriggers, TriggerMonitor) {
        let config = draft.clone().check().unwrap();
        let (address, server_name) = (config.peer().address(), config.peer().server_name().to_owned());
        let credentials = config.tenants().iter().map(|tenant| {
            self.put_secret(tenant.as_str(), address, &server_name, &password(tenant.as_str()));
            self.credential(tenant.as_str(), address, &server_name)
        });
        let credentials = credentials.collect();
        NatsTriggers::install(&self.pools, provider(), Epoch(epoch), expected.map(Epoch), config, credentials).unwrap()
    }

    pub(crate) fn put_secret(&self, tenant_name: &str, address: SocketAddrV4, server_name: &str, value: &str) {
        let name = SecretName::parse(tenant_name).unwrap();
        let binding = tls_binding(tenant_name, address, server_name);
        let put = self.secrets.put(NewSecret::tls(&name, &binding, value.as_bytes(), None), self.clock.unix());
        // Another installation of the same tenant has it already.
        assert!(matches!(put, Ok(_) | Err(SecretError::Exists { .. })), "{put:?}");
    }

    pub(crate) fn credential(&self, tenant_name: &str, address: SocketAddrV4, server_name: &str) -> NatsCredential {
        let (name, binding) = (SecretName::parse(tenant_name).unwrap(), tls_binding(tenant_name, address, server_name));
        let handle = self.secrets.bind_tls_credential(&name, &binding, self.clock.unix()).unwrap();
        NatsCredential::password(tenant(tenant_name), tenant_name, handle)
    }
}

fn store(folder: &std::path::Path) -> Arc<LocalSecretStore> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    Arc::new(LocalSecretStore::open(folder, SealingKey::from_bytes(&[7; 32])).unwrap())
}

fn tls_binding(tenant_name: &str, address: SocketAddrV4, server_name: &str) -> TlsBinding {
    TlsBinding { tenant: tenant(tenant_name), provider: provider(), server_name: server_name.to_owned(), port: address.port() }
}
