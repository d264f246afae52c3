//! Installing: what is missing or does not belong is refused, what is in force stays, and nothing is opened (T-010, T-014, T-033, T-059).

use latent_capabilities::PoolSettings;
use latent_core::{ProviderId, TenantId};
use latent_secrets::TlsBinding;
use latent_testkit::fake_peer::{FakePeer, INFO};

use super::bench::{Half, at, binding, draft, root, small_node};
use crate::InstallError;
use crate::triggers::{StepOutcome, TriggerConfig, TriggerDraft};

struct Place {
    half: Half,
    peer: FakePeer,
}

impl Place {
    fn new() -> Self {
        Self { half: Half::new(PoolSettings::default(), small_node()), peer: FakePeer::start_cleartext(INFO) }
    }

    fn config(&self, change: impl FnOnce(&mut TriggerDraft)) -> TriggerConfig {
        let mut draft = draft();
        change(&mut draft);
        at(draft, self.peer.address())
    }

    /// Installs as the first one, in vain.
    fn refused(&self, config: &TriggerConfig, credentials: Vec<crate::NatsCredential>) -> InstallError {
        let refused = self.half.install(1, None, config.clone(), credentials).map(drop).unwrap_err();
        assert_eq!((self.peer.accepted(), self.half.pools.pools.snapshot().clients), (0, 0), "{refused}");
        assert_eq!(self.half.pools.pools.snapshot().metadata_bytes, 0, "{refused}");
        refused
    }
}

/// T-010, X-009.
#[tokio::test]
async fn each_tenant_has_one_credential_that_is_bound_to_this_provider() {
    let place = Place::new();
    let config = place.config(|_| ());
    let of = |tenant: &str| place.half.credential(tenant, &config);
    assert!(matches!(place.refused(&config, vec![]), InstallError::NoCredential { .. }));
    assert!(matches!(place.refused(&config, vec![of("shop")]), InstallError::NoCredential { tenant } if tenant.as_str() == "bank"));
    assert!(matches!(place.refused(&config, vec![of("shop"), of("bank"), of("bank")]), InstallError::TwoCredentials { .. }));
    assert!(matches!(place.refused(&config, vec![of("shop"), of("bank"), of("t1")]), InstallError::UnknownTenant { .. }));
    assert!(matches!(place.refused(&config, vec![of("shop"); 9]), InstallError::TooManyCredentials(_)));
    let right = place.half.bound_to(&config, "bank");
    let elsewhere = [
        TlsBinding { tenant: TenantId::parse("shop").unwrap(), ..right.clone() },
        TlsBinding { provider: ProviderId::parse("other").unwrap(), ..right.clone() },
        TlsBinding { server_name: "other.latent.test".to_owned(), ..right.clone() },
        TlsBinding { port: right.port ^ 1, ..right.clone() },
    ];
    for binding in elsewhere {
        let refused = place.refused(&config, vec![of("shop"), place.half.bound("bank", &binding)]);
        assert!(matches!(refused, InstallError::OtherBinding { tenant } if tenant.as_str() == "bank"));
    }
    let (_, monitor) = place.half.install(1, None, config.clone(), vec![of("bank"), of("shop")]).unwrap();
    let snapshot = monitor.snapshot();
    assert_eq!((snapshot.epoch.0, snapshot.bindings, snapshot.tenants, place.peer.accepted()), (1, 2, 2, 0));
}

/// T-014, X-021, T-023: 256 bindings of eight tenants are metadata and nothing else.
#[tokio::test]
async fn an_installation_of_256_bindings_opens_and_starts_nothing() {
    let place = Place::new();
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let many = |n: usize| binding(&format!("t{}", n % 8), &format!("b{n}"));
    let config = place.config(|draft| draft.bindings = Some((0..256).map(many).collect()));
    let (triggers, monitor) = place.half.install_all(config);
    let snapshot = monitor.snapshot();
    assert_eq!((snapshot.bindings, snapshot.tenants, snapshot.connections, snapshot.running), (256, 8, 0, 0));
    assert_eq!(place.peer.accepted(), 0);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), tasks);
    place.half.assert_nothing_is_held();
    let pools = &place.half.pools.pools;
    // T-033: charged for what it keeps, to the byte, and given back.
    assert_eq!(pools.snapshot().metadata_bytes, 65_536 + 2_048 * 256 + 6 * root().len() as u64);
    assert_eq!(pools.snapshot().clients, 8);
    // Once another one is in force and nobody holds it any more.
    drop((triggers, monitor));
    let one = place.config(|draft| draft.bindings = Some(vec![binding("shop", "a")]));
    let credential = place.half.credential("shop", &one);
    let _second = place.half.install(2, Some(1), one, vec![credential]).unwrap();
    assert_eq!((pools.snapshot().metadata_bytes, pools.snapshot().clients), (65_536 + 2_048 + 6 * root().len() as u64, 1));
}

/// T-033: without room for it nothing is installed.
#[tokio::test]
async fn an_installation_that_the_pools_have_no_room_for_is_refused() {
    let needed = Place::new().config(|_| ()).installation_bytes();
    for (room, fits) in [(needed, true), (needed - 1, false)] {
        let settings = PoolSettings::default().set(&latent_capabilities::limits::POOL_METADATA_BYTES, room).unwrap();
        let place = Place { half: Half::new(settings, small_node()), peer: FakePeer::start_cleartext(INFO) };
        let config = place.config(|_| ());
        let credentials = vec![place.half.credential("shop", &config), place.half.credential("bank", &config)];
        if fits {
            assert!(place.half.install(1, None, config, credentials).is_ok());
        } else {
            assert!(matches!(place.refused(&config, credentials), InstallError::Pools(_)));
        }
    }
}

/// T-059, X-019: what is in force stays, and the pools hold nothing of what was refused.
#[tokio::test]
async fn another_epoch_than_the_expected_one_is_a_conflict_and_changes_nothing() {
    let place = Place::new();
    let config = place.config(|_| ());
    let install = |epoch, expected| {
        let credentials = vec![place.half.credential("shop", &config), place.half.credential("bank", &config)];
        place.half.install(epoch, expected, config.clone(), credentials)
    };
    assert!(matches!(install(1, Some(7)).map(drop), Err(InstallError::Epoch(_))));
    let (mut first, monitor) = install(3, None).unwrap();
    let before = place.half.pools.pools.snapshot();
    for (epoch, expected) in [(4, None), (4, Some(2)), (4, Some(4))] {
        assert!(matches!(install(epoch, expected).map(drop), Err(InstallError::Epoch(_))), "{epoch} {expected:?}");
    }
    for epoch in [3, 2, 0] {
        assert!(matches!(install(epoch, Some(3)).map(drop), Err(InstallError::Epoch(_) | InstallError::Pools(_))), "{epoch}");
    }
    assert_eq!(place.half.pools.pools.snapshot(), before);
    // The one in force still works: it is turned away by its peer, and says in which epoch.
    assert!(matches!(first.step(&place.half.manager).await, StepOutcome::Reported(step) if step.epoch.0 == 3));
    let (mut second, _) = install(4, Some(3)).unwrap();
    assert_eq!(first.step(&place.half.manager).await, StepOutcome::Retired);
    assert_eq!(monitor.last_step().unwrap().epoch.0, 3, "what it reported last stays readable");
    assert!(matches!(second.step(&place.half.manager).await, StepOutcome::Reported(step) if step.epoch.0 == 4));
}
