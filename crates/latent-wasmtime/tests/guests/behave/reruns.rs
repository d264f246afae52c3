//! A function that can derive keys does the same again on the same event, whatever it asks of chance and of the time of day.

use bytes::Bytes;
use latent_capabilities::Origin;
use latent_core::{Clock, ContractName, FunctionName, MonoTime, Offset, SystemClock, UnixMillis};
use latent_wasmtime::{FunctionCall, HANDLER_CONTRACT};

use crate::bench::{Bench, origin};

fn on(offset: u64, stored_at: u64) -> Bench {
    let origin = Origin { offset: Offset(offset), stored_at: Some(UnixMillis(stored_at)), ..origin() };
    Bench { origin: Some(origin), ..Bench::behave() }
}

#[tokio::test]
async fn the_same_event_finds_the_same_chance_and_the_same_time_on_each_run() {
    let (first, second) = (on(7, 1_000).seen("chance").await, on(7, 1_000).seen("chance").await);
    assert_eq!(first, second);
    assert!(first.ends_with("[1000000, 1000001, 1000002])"), "{first}");
}

/// What a rerun after an upgrade of the node must find as well: a change here makes conflicts of all events that are under way.
#[tokio::test]
async fn what_an_event_finds_is_pinned() {
    let random = "[94, 164, 144, 169, 167, 39, 14, 52]";
    let insecure = "[64, 104, 163, 136, 72, 217, 6, 201]";
    let insecure_seed = "(7135966950137148043, 7551408687387256126)";
    let expected = format!("({random}, {insecure}, {insecure_seed}, [1000000, 1000001, 1000002])");
    assert_eq!(on(7, 1_000).seen("chance").await, expected);
}

#[tokio::test]
async fn another_event_finds_other_chance_and_its_own_time() {
    let parts = |seen: &str| seen.split_inclusive(['[', ']', '(', ')']).map(str::to_owned).collect::<Vec<_>>();
    let (one, other) = (parts(&on(7, 1_000).seen("chance").await), parts(&on(8, 2_000).seen("chance").await));
    assert_eq!(one.len(), other.len());
    let values = |parts: &[String]| parts.iter().filter(|part| part.starts_with(|c: char| c.is_ascii_digit())).cloned().collect::<Vec<_>>();
    let (one, other) = (values(&one), values(&other));
    assert_eq!(one.len(), 4, "{one:?}");
    assert!(one.iter().zip(&other).all(|(one, other)| one != other), "{one:?} {other:?}");
}

#[tokio::test]
async fn without_an_event_or_a_name_chance_is_chance() {
    let bench = Bench { origin: None, ..Bench::behave() };
    assert_ne!(bench.seen("chance").await, bench.seen("chance").await);
}

#[tokio::test]
async fn what_is_published_under_a_derived_key_is_the_same_on_a_rerun_although_it_was_drawn() {
    for source in ["random", "time", "fixed"] {
        let bench = on(7, 1_000);
        for _ in 0..2 {
            assert_eq!(bench.seen(&format!("publish-content:out:{source}")).await, "Ok(false)");
        }
        let given = bench.provider.given.lock().unwrap();
        assert_eq!((given.len(), &given[0]), (2, &given[1]), "{source}");
    }
}

/// Time that stands still.
struct Fixed(SystemClock);

impl Clock for Fixed {
    fn mono(&self) -> MonoTime {
        self.0.mono()
    }

    fn unix(&self) -> UnixMillis {
        UnixMillis(1_234)
    }
}

#[tokio::test]
async fn a_call_under_a_name_finds_the_same_chance_and_the_real_time() {
    let call = async |name: Option<Origin>| {
        let clock = std::sync::Arc::new(Fixed(SystemClock::start()));
        let bench = Bench { origin: name, clock, ..Bench::behave() };
        let payload: Vec<_> = "chance".bytes().map(|byte| byte.to_string()).collect();
        let event = format!(
            r#"[{{"topic":"in","partition":0,"offset":"0","uid":{{"none":null}},"key":{{"none":null}},"media-type":"text/plain","attributes":[],"payload":[{}],"delivery-count":1,"stored-at-unix-millis":"0"}}]"#,
            payload.join(",")
        );
        let call = FunctionCall {
            contract: ContractName::parse(HANDLER_CONTRACT).unwrap(),
            function: FunctionName::parse("handle").unwrap(),
            arguments: Bytes::from(event),
            session: bench.session(),
            budget: bench.budget,
            trace: Bench::trace(),
        };
        let report = bench.engine.run_function(&bench.component, call).await;
        assert_eq!(report.outcome.kind(), "declared-failure", "{report:?}");
        String::from_utf8(report.result.unwrap().to_vec()).unwrap()
    };
    let named = || Some(Origin { stored_at: None, ..origin() });
    let (first, second) = (call(named()).await, call(named()).await);
    assert_eq!(first, second);
    assert!(first.contains("[1234000, 1234000, 1234000]"), "{first}");
    assert_ne!(call(None).await, call(None).await);
}
