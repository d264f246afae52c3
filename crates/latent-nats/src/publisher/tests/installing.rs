//! Installing: what is missing or does not belong is refused, and nothing is dialled (P-003, X-008, X-019, X-037).

use std::sync::Arc;

use latent_capabilities::{ActivationCapabilityRuntime, AuditRing, CompletionAccount, PoolSettings, ProviderPools, limits};
use latent_core::{Clock, Epoch, ProviderId, TenantId};
use latent_secrets::{LocalSecretStore, NewSecret, SecretName, TlsBinding};
use latent_testkit::broker::TestCa;
use latent_testkit::fake_peer::{FakePeer, INFO};

use super::bench::{TestClock, draft, provider, store};
use crate::{InstallError, NatsConfig, NatsCredential, NatsDraft, NatsPools, NatsPublisher};

struct Place {
    pools: NatsPools,
    secrets: Arc<LocalSecretStore>,
    peer: FakePeer,
    root: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let clock = Arc::new(TestClock::start());
        let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::default())));
        let pools = ProviderPools::new(PoolSettings::default(), Arc::clone(&clock) as Arc<dyn Clock>);
        let folder = tempfile::tempdir().unwrap();
        let pools = NatsPools { capabilities, pools, clock };
        let secrets = store(folder.path());
        Self { pools, secrets, peer: FakePeer::start_cleartext(INFO), root: TestCa::new().root_der(), _folder: folder }
    }

    fn config(&self, change: impl FnOnce(&mut NatsDraft)) -> NatsConfig {
        let mut draft = draft(self.peer.address(), &self.root);
        change(&mut draft);
        draft.check().unwrap()
    }

    fn binding(&self, tenant: &str, config: &NatsConfig) -> TlsBinding {
        let (server_name, port) = (config.server_name().to_owned(), config.address().port());
        TlsBinding { tenant: TenantId::parse(tenant).unwrap(), provider: provider(), server_name, port }
    }

    /// A credential for `tenant` whose secret is bound to this.
    fn bound(&self, tenant: &str, binding: &TlsBinding) -> NatsCredential {
        let now = self.pools.clock.unix();
        let name = SecretName::parse(&format!("s-{}", self.secrets.list().unwrap().len())).unwrap();
        self.secrets.put(NewSecret::tls(&name, binding, b"x", None), now).unwrap();
        NatsCredential::password(TenantId::parse(tenant).unwrap(), tenant, self.secrets.bind_tls_credential(&name, binding, now).unwrap())
    }

    fn credential(&self, tenant: &str, config: &NatsConfig) -> NatsCredential {
        self.bound(tenant, &self.binding(tenant, config))
    }

    fn install(
        &self,
        epoch: u64,
        expected: Option<u64>,
        config: NatsConfig,
        credentials: Vec<NatsCredential>,
    ) -> Result<NatsPublisher, InstallError> {
        NatsPublisher::install(&self.pools, provider(), Epoch(epoch), expected.map(Epoch), config, credentials)
    }

    /// Installs as the first one, in vain.
    fn refused(&self, config: NatsConfig, credentials: Vec<NatsCredential>) -> InstallError {
        let refused = self.install(1, None, config, credentials).map(drop).unwrap_err();
        assert_eq!((self.peer.accepted(), self.pools.pools.snapshot().clients), (0, 0), "{refused}");
        refused
    }
}

/// P-014.
#[tokio::test]
async fn each_tenant_has_one_credential_that_is_bound_to_this_provider() {
    let place = Place::new();
    let config = place.config(|_| ());
    let of = |tenant: &str| place.credential(tenant, &config);
    assert!(matches!(place.refused(config.clone(), vec![]), InstallError::NoCredential { .. }));
    assert!(matches!(place.refused(config.clone(), vec![of("shop")]), InstallError::NoCredential { tenant } if tenant.as_str() == "bank"));
    assert!(matches!(place.refused(config.clone(), vec![of("shop"), of("bank"), of("bank")]), InstallError::TwoCredentials { .. }));
    assert!(matches!(place.refused(config.clone(), vec![of("shop"), of("bank"), of("stranger")]), InstallError::UnknownTenant { .. }));
    assert!(matches!(place.refused(config.clone(), vec![of("shop"); 17]), InstallError::TooManyCredentials(_)));
    let right = place.binding("bank", &config);
    let elsewhere = [
        TlsBinding { tenant: TenantId::parse("shop").unwrap(), ..right.clone() },
        TlsBinding { provider: ProviderId::parse("other").unwrap(), ..right.clone() },
        TlsBinding { server_name: "other.latent.test".to_owned(), ..right.clone() },
        TlsBinding { port: right.port ^ 1, ..right.clone() },
    ];
    for binding in elsewhere {
        let refused = place.refused(config.clone(), vec![of("shop"), place.bound("bank", &binding)]);
        assert!(matches!(refused, InstallError::OtherBinding { tenant } if tenant.as_str() == "bank"));
    }
    let publisher = place.install(1, None, config.clone(), vec![of("bank"), of("shop")]).unwrap();
    assert_eq!((publisher.snapshot().epoch.0, publisher.snapshot().mappings, place.peer.accepted()), (1, 2, 0));
}

#[tokio::test]
async fn a_user_name_is_printable_and_at_most_128_bytes() {
    let place = Place::new();
    let config = place.config(|draft| draft.mappings.as_mut().unwrap().truncate(1));
    let named = |name: &str| {
        let handle = place.credential("shop", &config).secret().clone();
        NatsCredential::password(TenantId::parse("shop").unwrap(), name, handle)
    };
    for bad in ["", "a b", "a\r\n", "\0", "\u{fc}", &"u".repeat(129)] {
        assert!(matches!(place.refused(config.clone(), vec![named(bad)]), InstallError::Username { .. }), "{bad:?}");
    }
    assert!(place.install(1, None, config.clone(), vec![named(&"u".repeat(128))]).is_ok());
}

/// P-032: found when it is installed, not when somebody publishes.
#[tokio::test]
async fn a_ceiling_above_the_pools_chunk_limit_is_refused() {
    let place = Place::new();
    let chunk = limits::POOL_CHUNK_BYTES.default;
    let large = place.config(|draft| draft.payload_ceiling_bytes = Some(chunk + 1));
    let credentials = |config: &NatsConfig| vec![place.credential("shop", config), place.credential("bank", config)];
    let refused = place.refused(large.clone(), credentials(&large));
    assert!(matches!(refused, InstallError::Pools(_)) && refused.to_string().contains(limits::POOL_CHUNK_BYTES.name), "{refused}");
    let fitting = place.config(|draft| draft.payload_ceiling_bytes = Some(chunk));
    assert!(place.install(1, None, fitting.clone(), credentials(&fitting)).is_ok());
}

/// X-019, P-003: what is in force stays, and the pools hold nothing of what was refused.
#[tokio::test]
async fn another_epoch_than_the_expected_one_is_a_conflict_and_changes_nothing() {
    let place = Place::new();
    let config = place.config(|_| ());
    let install = |epoch, expected| {
        place.install(epoch, expected, config.clone(), vec![place.credential("shop", &config), place.credential("bank", &config)])
    };
    assert!(matches!(install(1, Some(7)).map(drop), Err(InstallError::Epoch(_))));
    let first = install(3, None).unwrap();
    let clients = place.pools.pools.snapshot().clients;
    for (epoch, expected) in [(4, None), (4, Some(2)), (4, Some(4))] {
        assert!(matches!(install(epoch, expected).map(drop), Err(InstallError::Epoch(_))), "{epoch} {expected:?}");
    }
    for epoch in [3, 2, 0] {
        assert!(matches!(install(epoch, Some(3)).map(drop), Err(InstallError::Epoch(_) | InstallError::Pools(_))), "{epoch}");
    }
    assert_eq!(place.pools.pools.snapshot().clients, clients);
    assert!(place.pools.capabilities.providers().resolve(first.reference()).is_some());
    let second = install(4, Some(3)).unwrap();
    assert!(place.pools.capabilities.providers().resolve(first.reference()).is_none());
    assert!(place.pools.capabilities.providers().resolve(second.reference()).is_some());
    assert_eq!((place.pools.pools.snapshot().clients, place.peer.accepted()), (clients, 0));
}
