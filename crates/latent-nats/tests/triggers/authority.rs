//! What the broker's user may do, and that everything is done with that (X-016, T-011, T-036).

use latent_testkit::broker::BrokerUser;
use latent_testkit::proxy::Direction;
use latent_testkit::require_broker;

use crate::bench::{Bench, STREAM, Setup, password};

/// X-016: exactly four subjects for each consumer and the private inboxes; every outcome is reached with them, and the broker's log has no
/// violation. What is sent is the three operations and nothing else.
#[tokio::test]
async fn the_least_authority_is_enough_for_every_outcome_and_nothing_else_is_asked_for() {
    require_broker!();
    let user = BrokerUser::trigger("shop", &password("shop"), [(STREAM, "one")]);
    assert_eq!((user.publish.len(), user.subscribe.clone()), (4, vec!["_INBOX.LSF.>".to_owned()]));
    assert!(user.publish.iter().all(|subject| subject.contains(&format!("{STREAM}.one"))));
    let (mut bench, proxy) = Bench::behind_proxy(Setup::default()).await;
    let driver = bench.drive();
    for payload in [r#"["ok"]"#, r#"["fail"]"#, r#"["trap"]"#, "no values", r#"["timeout"]"#] {
        bench.publish("one", payload).await;
    }
    bench.until(|snapshot| snapshot.acknowledged == 1 && snapshot.terminated == 2 && snapshot.exhausted == 2).await;
    bench.stop(driver).await;
    let snapshot = bench.monitor.snapshot();
    let said = String::from_utf8_lossy(&proxy.transcript(Direction::ToBroker)).into_owned();
    let of = |subject: &str| said.matches(&format!("PUB {subject}")).count() as u64;
    let (inspections, pulls, settlements) =
        (of("$JS.API.CONSUMER.INFO.IN.one "), of("$JS.API.CONSUMER.MSG.NEXT.IN.one "), of("$JS.ACK.IN.one."));
    assert_eq!(settlements, snapshot.delivered, "one for each delivery");
    assert!(pulls >= snapshot.delivered && inspections >= pulls, "{inspections} {pulls}");
    let commands = said.lines().filter(|line| ["PUB ", "HPUB ", "SUB ", "UNSUB "].iter().any(|verb| line.starts_with(verb)));
    let other: Vec<_> = commands.filter(|line| !line.starts_with("PUB $JS.") && !line.starts_with("SUB _INBOX.LSF.")).collect();
    assert!(other.is_empty(), "{other:?}");
    let log = bench.broker.log();
    assert!(!log.contains("Violation"), "{log}");
}
