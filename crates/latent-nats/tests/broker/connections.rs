//! Connections: reuse, closing, rotation, replacement, outage, names and roots.

use std::sync::Arc;

use latent_capabilities::{PoolSettings, limits};
use latent_core::{Clock as _, KnownFailure};
use latent_nats::{InstallError, NatsDraft, RootsDraft};
use latent_secrets::{SecretName, TlsBinding};
use latent_testkit::broker::{Admin, Broker, BrokerAuth, BrokerSpec, Connection, TestCa};
use latent_testkit::require_broker;

use crate::bench::{Bench, STREAM, Setup, binding, event, failure, password, receipt, spec};

fn unavailable(outcome: latent_core::PublicationOutcome) -> String {
    match failure(outcome) {
        KnownFailure::Unavailable { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// The one connection of a user.
fn one_of(admin: &Admin, user: &str) -> Connection {
    let mut connections = admin.connections();
    connections.retain(|connection| connection.user == user);
    assert_eq!(connections.len(), 1);
    connections.remove(0)
}

fn set_password(spec: &mut BrokerSpec, user: &str, password: &str) {
    if let BrokerAuth::Users(users) = &mut spec.auth {
        users.iter_mut().filter(|known| known.name == user).for_each(|known| known.password = password.to_owned());
    }
}

#[tokio::test]
async fn an_installed_provider_has_no_connection_and_calls_of_one_tenant_share_one() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let admin = bench.broker.admin().await;
    assert!(admin.connections_of("shop") + admin.connections_of("bank") == 0);
    for call in 0..20 {
        receipt(bench.publish("shop", &format!("k-{call}")).await);
    }
    receipt(bench.publish("bank", "k").await);
    let snapshot = bench.publisher.snapshot();
    assert_eq!((snapshot.connected, snapshot.connections, snapshot.running), (2, 2, 0));
    assert_eq!((admin.connections_of("shop"), admin.connections_of("bank")), (1, 1), "each with its own");
    // One subscription below its own inbox, for however many publications.
    assert_eq!(one_of(&admin, "shop").subscriptions.len(), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_noticed_and_dialled_anew() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    receipt(bench.publish("shop", "k-1").await);
    for round in 2..6_u64 {
        let admin = bench.broker.admin().await;
        admin.kick("shop").await;
        assert_eq!(receipt(bench.publish("shop", &format!("k-{round}")).await).sequence, round);
        let snapshot = bench.publisher.snapshot();
        assert_eq!((snapshot.connected, snapshot.parked_lost, snapshot.uncertain), (round, round - 1, 0));
    }
}

#[tokio::test]
async fn a_stopped_broker_is_unavailable_and_a_later_call_finds_it_again() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    receipt(bench.publish("shop", "k-1").await);
    bench.broker.stop();
    let reason = unavailable(bench.publish("shop", "k-2").await);
    assert!(reason.contains("cannot be reached"), "{reason}");
    let reason = unavailable(bench.publish("shop", "k-3").await);
    assert!(reason.contains("no further one is made for") || reason.contains("cannot be reached"), "{reason}");
    bench.broker.restart();
    // Nothing but the pool's backoff stands between the broker's return and the next receipt.
    bench.until_receipt("shop", "k-4").await;
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 1);
    assert!(bench.pools.pools.snapshot().totals.refused_backoff > 0);
}

#[tokio::test]
async fn a_rotated_credential_ends_a_parked_connection_before_anything_rides_on_it() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    receipt(bench.publish("shop", "k-1").await);
    let old = one_of(&bench.broker.admin().await, "shop").id;
    let name = SecretName::parse("shop").unwrap();
    // The broker still takes the old password: it is the store that says it is not current any more.
    bench.secrets.rotate(&name, b"wrong for the broker", None, bench.clock.unix()).unwrap();
    let reason = unavailable(bench.publish("shop", "k-2").await);
    assert!(reason.contains("refused the credentials"), "{reason}");
    assert!(bench.broker.admin().await.connections().iter().all(|connection| connection.id != old));
    bench.broker.reload(|spec| set_password(spec, "shop", "right for both"));
    bench.secrets.rotate(&name, b"right for both", None, bench.clock.unix()).unwrap();
    bench.until_receipt("shop", "k-3").await;
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 2);
}

#[tokio::test]
async fn an_expired_or_revoked_credential_publishes_nothing() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    receipt(bench.publish("shop", "k-1").await);
    let name = SecretName::parse("shop").unwrap();
    let now = bench.clock.unix();
    bench.secrets.rotate(&name, password("shop").as_bytes(), Some(latent_core::UnixMillis(now.0 + 1)), now).unwrap();
    while bench.clock.unix().0 <= now.0 + 1 {
        tokio::task::yield_now().await;
    }
    let dials = bench.pools.pools.snapshot().totals.dials;
    assert!(unavailable(bench.publish("shop", "k-2").await).contains("expired"));
    bench.secrets.revoke(&name, bench.clock.unix()).unwrap();
    assert!(unavailable(bench.publish("shop", "k-3").await).contains("revoked"));
    assert_eq!(bench.publisher.snapshot().connected, 1, "no socket was opened for it: {dials} leases");
    receipt(bench.publish("bank", "k").await);
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 2);
}

#[tokio::test]
async fn a_token_authenticates_where_there_is_no_user_name() {
    require_broker!();
    let mut bench = Bench::start(Setup::default());
    drop(std::mem::replace(&mut bench, Bench::start(Setup { spec: token_spec(), ..Setup::default() })));
    let publisher = bench.install_with_tokens(2, Some(1), "a token of the tests").unwrap();
    bench.grant_through(&publisher, &["out"]);
    assert_eq!(receipt(bench.publish("shop", "k").await).sequence, 1);
    let wrong = bench.install_with_tokens(3, Some(2), "another token").unwrap();
    bench.grant_through(&wrong, &["out"]);
    assert!(unavailable(bench.publish("shop", "k").await).contains("refused the credentials"));
}

fn token_spec() -> BrokerSpec {
    let with_token = BrokerSpec::with_token("a token of the tests");
    BrokerSpec { streams: spec().streams, ..with_token }
}

#[tokio::test]
async fn a_certificate_for_another_name_another_root_or_another_time_is_unavailable() {
    require_broker!();
    let refused = |bench: Bench| async move {
        let reason = unavailable(bench.publish("shop", "k").await);
        assert_eq!(bench.publisher.snapshot().connected, 0);
        reason
    };
    let draft = |draft: &mut NatsDraft| {
        draft.endpoint.as_mut().unwrap().server_name = Some("another.latent.test".to_owned());
    };
    let reason = refused(Bench::start_named(Setup { draft, ..Setup::default() }, "another.latent.test")).await;
    assert!(reason.contains("not valid for the configured server name"), "{reason}");
    let draft = |draft: &mut NatsDraft| draft.roots = Some(RootsDraft::only(&TestCa::new().root_der()));
    let reason = refused(Bench::start(Setup { draft, ..Setup::default() })).await;
    assert!(reason.contains("none of the configured roots") || reason.contains("not acceptable"), "{reason}");
    let ca = TestCa::new();
    let expired = BrokerSpec { certificate: Some(ca.issue_expired(&spec().server_name)), streams: Vec::new(), ..spec() };
    let broker = Broker::start_with_ca(expired, ca);
    let reason = refused(Bench::on(broker, Setup::default())).await;
    assert!(reason.contains("expired"), "{reason}");
}

#[tokio::test]
async fn a_broker_that_speaks_before_tls_is_unavailable() {
    require_broker!();
    let bench = Bench::start(Setup { spec: BrokerSpec { handshake_first: false, streams: Vec::new(), ..spec() }, ..Setup::default() });
    let reason = unavailable(bench.publish("shop", "k").await);
    assert!(reason.contains("handshake_first"), "{reason}");
}

#[tokio::test]
async fn a_replaced_epoch_publishes_nothing_new_and_its_connections_are_closed() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    receipt(bench.publish("shop", "k-1").await);
    assert!(matches!(bench.install(2, None), Err(InstallError::Epoch(_))), "another epoch is in force than expected");
    assert!(matches!(bench.install(1, Some(1)), Err(InstallError::Pools(_) | InstallError::Epoch(_))), "not above the one in force");
    receipt(bench.publish("shop", "k-2").await);
    let second = bench.install(2, Some(1)).unwrap();
    assert_eq!(bench.publisher.snapshot().connections, 0, "what was parked is closed");
    // The plan in force still names the old epoch: nothing of it is sent.
    unavailable(bench.publish("shop", "k-3").await);
    bench.grant_through(&second, &["out"]);
    assert_eq!(receipt(bench.publish("shop", "k-3").await).sequence, 3);
    assert_eq!((second.snapshot().epoch.0, second.snapshot().mappings), (2, 4));
}

#[tokio::test]
async fn a_grant_revoked_while_the_call_waits_stops_it() {
    require_broker!();
    let settings = PoolSettings::default().set(&limits::POOL_CALLS_RUNNING, 1).unwrap();
    let bench = Arc::new(Bench::start(Setup { settings, ..Setup::default() }));
    receipt(bench.publish("shop", "k-1").await);
    bench.broker.pause();
    let running = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.publish("shop", "k-2").await }
    });
    bench.until(|snapshot| snapshot.running == 1).await;
    let waiting = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.publish("bank", "k").await }
    });
    bench.until(|snapshot| snapshot.queued == 1).await;
    bench.grant(&[]);
    bench.broker.resume();
    // What had started keeps its outcome; what waited is stopped.
    receipt(running.await.unwrap());
    assert_eq!(failure(waiting.await.unwrap()), KnownFailure::PermissionDenied);
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 2);
    assert_eq!(bench.broker.admin().await.connections_of("bank"), 0, "and opened no connection");
}

#[tokio::test]
async fn a_credential_rotated_while_the_call_waits_is_the_new_one_when_it_leaves() {
    require_broker!();
    let settings = PoolSettings::default().set(&limits::POOL_CALLS_RUNNING, 1).unwrap();
    let bench = Arc::new(Bench::start(Setup { settings, ..Setup::default() }));
    receipt(bench.publish("shop", "k-1").await);
    bench.broker.pause();
    let running = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.publish("shop", "k-2").await }
    });
    bench.until(|snapshot| snapshot.running == 1).await;
    let waiting = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.publish("shop", "k-3").await }
    });
    bench.until(|snapshot| snapshot.queued == 1).await;
    bench.secrets.revoke(&SecretName::parse("shop").unwrap(), bench.clock.unix()).unwrap();
    bench.broker.resume();
    receipt(running.await.unwrap());
    assert!(unavailable(waiting.await.unwrap()).contains("revoked"), "it is a known failure from before the publication");
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 2);
}

#[tokio::test]
async fn sixty_four_calls_at_once_share_eight_connections_and_every_account_returns_to_zero() {
    require_broker!();
    let bench = Arc::new(Bench::start(Setup::default()));
    let calls: Vec<_> = (0..64)
        .map(|call| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { bench.publish("shop", &format!("k-{call}")).await })
        })
        .collect();
    for call in calls {
        receipt(call.await.unwrap());
    }
    let snapshot = bench.pools.pools.snapshot();
    assert!(snapshot.connections <= 8 && snapshot.connections == snapshot.parked, "{snapshot:?}");
    assert_eq!((snapshot.running, snapshot.queued), (0, 0));
    assert_eq!(snapshot.bytes, snapshot.connections * limits::CONNECTION_BYTES.default);
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 64);
    bench.pools.pools.shut_down();
    assert_eq!(bench.pools.pools.snapshot().bytes, 0);
}

#[tokio::test]
async fn a_flooding_tenant_is_refused_at_its_queue_and_the_other_one_is_served() {
    require_broker!();
    let settings = PoolSettings::default().set(&limits::POOL_CALLS_QUEUED_PER_TENANT, 4).unwrap();
    let settings = settings.set(&limits::POOL_CONNECTIONS_PER_TENANT, 1).unwrap();
    let bench = Arc::new(Bench::start(Setup { settings, ..Setup::default() }));
    receipt(bench.publish("shop", "first").await);
    receipt(bench.publish("bank", "first").await);
    bench.broker.pause();
    let call = |tenant: &'static str, key: String| {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move { bench.publish(tenant, &key).await })
    };
    let calls: Vec<_> = (0..20).map(|number| call("shop", format!("k-{number}"))).collect();
    bench.until(|snapshot| snapshot.failures == 15).await;
    let other = call("bank", "k".to_owned());
    bench.until(|snapshot| snapshot.running == 2).await;
    bench.broker.resume();
    receipt(other.await.unwrap());
    let mut receipts = 0;
    for call in calls {
        match call.await.unwrap() {
            latent_core::PublicationOutcome::Receipt(_) => receipts += 1,
            other => assert!(unavailable(other).contains(limits::POOL_CALLS_QUEUED_PER_TENANT.name)),
        }
    }
    assert_eq!(receipts, 5, "one that ran and four that waited");
}

#[tokio::test]
async fn a_credential_bound_elsewhere_or_missing_or_too_many_is_refused_at_install() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let config = bench.publisher.config().clone();
    let install = |credentials| {
        latent_nats::NatsPublisher::install(
            &bench.pools,
            crate::bench::provider(),
            latent_core::Epoch(2),
            Some(latent_core::Epoch(1)),
            config.clone(),
            credentials,
        )
        .map(|_| ())
        .unwrap_err()
    };
    let good = || crate::bench::credentials(&bench.secrets, &config, bench.clock.as_ref());
    assert!(matches!(install(good()[..1].to_vec()), InstallError::NoCredential { .. }));
    let twice = [good(), good()[..1].to_vec()].concat();
    assert!(matches!(install(twice), InstallError::TwoCredentials { .. }));
    let name = SecretName::parse("elsewhere").unwrap();
    let elsewhere = TlsBinding { port: 1, ..binding("shop", config.address(), config.server_name()) };
    bench.secrets.put(latent_secrets::NewSecret::tls(&name, &elsewhere, b"x", None), bench.clock.unix()).unwrap();
    let handle = bench.secrets.bind_tls_credential(&name, &elsewhere, bench.clock.unix()).unwrap();
    let mut credentials = good();
    credentials[0] = latent_nats::NatsCredential::password(crate::bench::tenant("shop"), "shop", handle.clone());
    assert!(matches!(install(credentials), InstallError::OtherBinding { .. }));
    let mut credentials = good();
    credentials.push(latent_nats::NatsCredential::token(crate::bench::tenant("stranger"), handle));
    assert!(matches!(install(credentials), InstallError::UnknownTenant { .. }));
    receipt(bench.publish_draft("shop", event("k")).await);
}
