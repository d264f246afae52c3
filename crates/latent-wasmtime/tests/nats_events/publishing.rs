//! The list of P-058, one named test each.

use std::time::Duration;

use latent_capabilities::ProviderOutcome;
use latent_core::Clock as _;
use latent_secrets::SecretName;
use latent_testkit::broker::{BrokerAuth, BrokerSpec, BrokerUser, StreamSpec};
use latent_testkit::require_broker;

use crate::host::seen;
use crate::nats::{Bench, STREAM, Setup, password, spec};

impl Bench {
    async fn guest(&self, payload: &str) -> String {
        seen(self.session("shop", 30_000), payload).await
    }
}

#[tokio::test]
async fn a_guest_has_the_receipt_of_its_publication() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let before = bench.clock.unix().0;
    let told = bench.guest("publish:out:repo:key-1").await;
    let start = "Ok(Receipt { event_id: \"ORD:1\", stream: \"ORD\", sequence: 1, accepted_at_unix_millis: ";
    let rest = told.strip_prefix(start).unwrap_or_else(|| panic!("{told}"));
    let (millis, rest) = rest.split_once(',').unwrap();
    assert!((before..=bench.clock.unix().0).contains(&millis.parse().unwrap()), "{told}");
    assert_eq!(rest, " duplicate: false })");
    let stored = &bench.broker.admin().await.messages(STREAM).await[0];
    assert_eq!((stored.subject.as_str(), &stored.payload[..]), ("shop.out", &b"from behave"[..]));
    assert_eq!(stored.header("Lsf-Attr-Kind"), Some("test"));
    assert_eq!(stored.header("Lsf-Event-Key"), Some("repo"));
    assert_eq!(bench.audit.records()[0].observed, ProviderOutcome::Acknowledged { duplicate: false });
}

#[tokio::test]
async fn a_duplicate_charges_a_request_like_any_other_and_stores_nothing() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let session = bench.session("shop", 30_000);
    let left = session.requests_left();
    assert!(seen(session.clone(), "publish:out:repo:key-1").await.contains("duplicate: false"));
    assert!(seen(session.clone(), "publish:out:repo:key-1").await.contains("sequence: 1,"));
    assert_eq!(left - session.requests_left(), 2);
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 1);
}

#[tokio::test]
async fn a_guest_is_told_of_the_brokers_permission_refusal() {
    require_broker!();
    let user = BrokerUser::publisher("shop", &password("shop"), ["shop.another"]);
    let spec = BrokerSpec::with_users([user]).stream(StreamSpec::new(STREAM, ["shop.>"]));
    let bench = Bench::start(Setup { spec, ..Setup::default() });
    assert!(bench.guest("publish:out:k:i").await.starts_with("Err(PermissionDenied"));
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 0);
    assert_eq!(bench.audit.records()[0].observed, ProviderOutcome::Rejected { reason: "permission-denied" });
}

#[tokio::test]
async fn a_key_is_a_duplicate_inside_the_brokers_window_and_new_after_it() {
    require_broker!();
    let stream = StreamSpec::new(STREAM, ["shop.out"]).duplicate_window(Duration::from_secs(1));
    let bench = Bench::start(Setup { spec: BrokerSpec { streams: vec![stream], ..spec() }, ..Setup::default() });
    assert!(bench.guest("publish:out:k:i").await.contains("sequence: 1,"));
    assert!(bench.guest("publish:out:k:i").await.contains("duplicate: true"));
    let publish = || async { Some(bench.guest("publish:out:k:i").await).filter(|told| told.contains("duplicate: false")) };
    let told = latent_testkit::until_some("the end of the broker's window", publish).await;
    assert!(told.contains("sequence: 2,"), "{told}");
}

#[tokio::test]
async fn a_guest_publishes_with_the_credential_that_is_current() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    assert!(bench.guest("publish:out:k:i-1").await.starts_with("Ok("));
    let name = SecretName::parse("shop").unwrap();
    bench.broker.reload(|spec| {
        if let BrokerAuth::Users(users) = &mut spec.auth {
            users.iter_mut().filter(|user| user.name == "shop").for_each(|user| user.password = "the next one".to_owned());
        }
    });
    assert_eq!(bench.guest("publish:out:k:i-2").await, "Err(Unavailable)", "the old password opens nothing any more");
    bench.secrets.rotate(&name, b"the next one", None, bench.clock.unix()).unwrap();
    bench.until_receipt("shop", "i-3").await;
    assert!(bench.guest("publish:out:k:i-4").await.starts_with("Ok("));
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 3);
}

#[tokio::test]
async fn a_broker_with_a_certificate_for_another_name_is_unavailable_to_the_guest() {
    require_broker!();
    let draft = |draft: &mut latent_nats::NatsDraft| {
        draft.endpoint.as_mut().unwrap().server_name = Some("another.latent.test".to_owned());
    };
    let bench = Bench::start_named(Setup { draft, ..Setup::default() }, "another.latent.test");
    assert_eq!(bench.guest("publish:out:k:i").await, "Err(Unavailable)");
    assert_eq!(bench.broker.admin().await.connections_of("shop"), 0);
}

#[tokio::test]
async fn requests_beyond_the_guests_budget_reach_no_broker() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let budget = latent_core::Budget { outbound_requests: 2, ..crate::host::budget() };
    let session = bench.session_with_requests("shop", 30_000, 2);
    let report = crate::host::run(session, budget, "publish-many:out:4").await;
    let told = format!("{:?}", report.outcome);
    assert!(told.contains("[Ok(1), Ok(2), Err(BudgetExhausted), Err(BudgetExhausted)]"), "{told}");
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 2);
    assert_eq!((bench.publisher.snapshot().attempts, bench.pools.pools.snapshot().totals.dials), (2, 1));
}

#[tokio::test]
async fn a_spent_budget_opens_no_connection() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let session = bench.session_with_requests("shop", 30_000, 0);
    assert_eq!(seen(session, "publish:out:k:i").await, "Err(BudgetExhausted)");
    assert_eq!((bench.pools.pools.snapshot().totals.dials, bench.publisher.snapshot().attempts), (0, 0));
}

#[tokio::test]
async fn a_revoked_grant_stops_the_guests_next_publication() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    assert!(bench.guest("publish:out:k:i-1").await.starts_with("Ok("));
    bench.grant(&[]);
    assert!(bench.guest("publish:out:k:i-2").await.starts_with("Err(PermissionDenied"));
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 1);
}

#[tokio::test]
async fn a_guest_finds_the_broker_again_after_an_outage() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    assert!(bench.guest("publish:out:k:i-1").await.starts_with("Ok("));
    bench.broker.stop();
    assert_eq!(bench.guest("publish:out:k:i-2").await, "Err(Unavailable)");
    bench.broker.restart();
    let publish = || async {
        let told = bench.guest("publish:out:k:i-3").await;
        assert!(told.starts_with("Ok(") || told == "Err(Unavailable)", "{told}");
        told.starts_with("Ok(").then_some(())
    };
    latent_testkit::until_some("the broker after its outage", publish).await;
    assert_eq!(bench.broker.admin().await.count(STREAM).await, 1);
}

#[tokio::test]
async fn activations_of_one_tenant_share_a_connection() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    for number in 0..10 {
        assert!(bench.guest(&format!("publish:out:k:i-{number}")).await.starts_with("Ok("));
    }
    assert_eq!((bench.publisher.snapshot().connected, bench.broker.admin().await.connections_of("shop")), (1, 1));
}

#[tokio::test]
async fn no_secret_no_content_and_no_key_is_in_the_audit_or_the_answers() {
    require_broker!();
    let bench = Bench::start(Setup::default());
    let told = bench.guest("publish:out:MARK-key:MARK-idempotency").await;
    let refused = bench.guest("publish:unknown:MARK-key:MARK-idempotency").await;
    let written = format!(
        "{told} {refused} {:?} {:?} {:?} {}",
        bench.audit.records(),
        bench.publisher.snapshot(),
        bench.pools.pools.snapshot(),
        bench.publisher.config().to_json()
    );
    for marker in ["MARK-key", "MARK-idempotency", "from behave", &password("shop"), "pw of shop"] {
        assert!(!written.contains(marker), "{marker}: {written}");
    }
}
