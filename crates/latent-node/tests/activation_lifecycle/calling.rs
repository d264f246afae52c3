//! Direct calls: the same admission, queue, checks and journal as for events, with values in and values out.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use latent_core::{ActivationOutcome, Budget, BudgetKind, Clock, ContractName, Deadline, FunctionName, SystemClock, TraceId};
use latent_node::{
    Account, ActivationEnd, CallOrder, Catalog, InboundTarget, LocalActivationManager, NodeError, NodeLimits, RevocationScope, WasmBackend,
};
use latent_test_guests::{BEHAVE, Guest, PLAIN};
use latent_wasmtime::{EngineOptions, HANDLER_CONTRACT, WasmEngine};

use crate::node::{DEADLINE_MILLIS, Node, catalog, ended, limits, manager, publication, route, settle, target};

struct Called {
    manager: Arc<LocalActivationManager>,
    catalog: Arc<Catalog>,
    clock: Arc<SystemClock>,
}

impl Called {
    /// A node whose routes lead to `guest`, with everything that it exports.
    fn running(guest: Guest) -> Self {
        let engine = WasmEngine::new(EngineOptions { cells: limits().cells.into(), ..EngineOptions::default() }).unwrap();
        let backend = Arc::new(WasmBackend::new(engine));
        let contracts = backend.load(guest.component).unwrap().contracts().into();
        let (catalog, _) = catalog(guest.component);
        let whole = latent_node::NewPublication { contracts, ..publication(guest.component) };
        let published = catalog.add(whole).unwrap();
        catalog.point_route(route("a"), published).unwrap();
        let clock = Arc::new(SystemClock::start());
        let manager = manager(backend, &catalog, Arc::clone(&clock) as _, limits()).unwrap();
        Self { manager, catalog, clock }
    }

    async fn call(&self, target: &InboundTarget, arguments: &str) -> ActivationEnd {
        let reservation = self.manager.reserve_inbound(target).unwrap();
        let deadline = Deadline::after(self.clock.mono(), DEADLINE_MILLIS);
        let order = CallOrder { arguments: Bytes::copy_from_slice(arguments.as_bytes()), deadline, origin: None, trace: None };
        let end = ended(self.manager.call(reservation, order)).await;
        assert_eq!(self.manager.snapshot().node, Account::default());
        end
    }
}

fn function(contract: &str, function: &str) -> InboundTarget {
    InboundTarget {
        contract: ContractName::parse(contract).unwrap(),
        function: FunctionName::parse(function).unwrap(),
        input_bytes_max: 100_000,
        ..target("a")
    }
}

fn work(name: &str) -> InboundTarget {
    function("demo:plain/work@1.0.0", name)
}

fn text(result: Option<&Bytes>) -> &str {
    result.map_or("", |bytes| std::str::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn a_call_gives_its_result_and_is_in_the_journal_without_a_delivery() {
    let node = Called::running(PLAIN);
    let end = node.call(&work("divide"), "[7, 2]").await;
    assert_eq!((&end.report.outcome, text(end.report.result.as_ref())), (&ActivationOutcome::Success, r#"[{"ok":3}]"#));
    let entry = node.manager.journal_entry(end.activation).unwrap();
    assert_eq!((entry.function.as_str(), &entry.delivery, entry.ended.kind), ("divide", &None, "success"));
    assert!(entry.fuel_used > 0 && entry.started_at.is_some());
}

#[tokio::test]
async fn a_listener_hears_of_every_end_with_what_the_guest_said_before_the_caller_has_it() {
    let node = Called::running(PLAIN);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hearing = Arc::clone(&heard);
    node.manager.on_end(Arc::new(move |entry| hearing.lock().unwrap().push(entry.clone()))).unwrap();
    assert_eq!(node.manager.on_end(Arc::new(|_| {})), Err(NodeError::EndListenerTaken));
    let end = node.call(&work("fail"), r#"["because"]"#).await;
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].activation, heard[0].ended.kind, &heard[0].log), (end.activation, "trap", &end.report.log));
    assert!(heard[0].log.iter().any(|line| line.text.contains("because")));
    assert_eq!(Some(&heard[0]), node.manager.journal_entry(end.activation).as_deref());
}

#[tokio::test]
async fn each_way_a_call_ends_has_its_outcome() {
    let node = Called::running(PLAIN);
    let failed = node.call(&work("divide"), "[1, 0]").await;
    assert_eq!(
        (&failed.report.outcome, text(failed.report.result.as_ref())),
        (&ActivationOutcome::DeclaredFailure, r#"[{"err":"1 / 0"}]"#)
    );
    let empty = node.call(&work("refuse"), "[]").await;
    assert_eq!((&empty.report.outcome, text(empty.report.result.as_ref())), (&ActivationOutcome::DeclaredFailure, r#"[{"err":null}]"#));
    let nothing = node.call(&work("nothing"), "[]").await;
    assert_eq!((&nothing.report.outcome, text(nothing.report.result.as_ref())), (&ActivationOutcome::Success, "[]"));
    let wrong = node.call(&work("divide"), r#"[1, "0"]"#).await;
    assert!(matches!(&wrong.report.outcome, ActivationOutcome::InvalidArguments { reason } if reason.contains("$[1]")), "{wrong:?}");
    assert_eq!((wrong.report.fuel_used, wrong.report.result), (0, None));
    let trapped = node.call(&work("fail"), r#"["because"]"#).await;
    assert!(matches!(trapped.report.outcome, ActivationOutcome::Trap { .. }));
    assert!(trapped.report.log.iter().any(|line| line.text.contains("because")), "{:?}", trapped.report.log);
    let large = node.call(&work("numbers"), "[4097]").await;
    assert_eq!(large.report.outcome, ActivationOutcome::BudgetExhausted(BudgetKind::Result));
    let spinning = InboundTarget { budget: Budget { cpu_fuel: 100_000, ..Budget::default() }, ..work("spin") };
    assert_eq!(node.call(&spinning, "[]").await.report.outcome, ActivationOutcome::BudgetExhausted(BudgetKind::Fuel));
    assert_eq!(node.call(&work("divide"), "[4, 2]").await.report.outcome, ActivationOutcome::Success);
}

#[tokio::test]
async fn a_call_without_a_delivery_has_no_derived_keys() {
    let node = Called::running(PLAIN);
    let end = node.call(&work("derived"), "[]").await;
    assert_eq!(end.report.outcome, ActivationOutcome::DeclaredFailure);
    assert!(text(end.report.result.as_ref()).contains("err"));
}

#[tokio::test]
async fn a_handler_can_be_called_with_an_event_as_a_value() {
    let node = Called::running(BEHAVE);
    let handle = function(HANDLER_CONTRACT, "handle");
    let event = |payload: &str| {
        let bytes: Vec<_> = payload.bytes().map(|byte| byte.to_string()).collect();
        format!(
            r#"[{{"topic":"in","partition":0,"offset":"7","uid":{{"none":null}},"key":{{"some":"k"}},"media-type":"text/plain","attributes":[],
            "payload":[{}],"delivery-count":1,"stored-at-unix-millis":"5"}}]"#,
            bytes.join(",")
        )
    };
    let handled = node.call(&handle, &event("ok")).await;
    assert_eq!((&handled.report.outcome, text(handled.report.result.as_ref())), (&ActivationOutcome::Success, r#"[{"ok":null}]"#));
    let rejected = node.call(&handle, &event("reject:no")).await;
    let said = r#"[{"err":{"case":"reject","value":"no"}}]"#;
    assert_eq!((&rejected.report.outcome, text(rejected.report.result.as_ref())), (&ActivationOutcome::DeclaredFailure, said));
}

#[tokio::test]
async fn a_revoked_publication_cannot_be_called() {
    let node = Called::running(PLAIN);
    let reservation = node.manager.reserve_inbound(&work("nothing")).unwrap();
    let (published, _) = node.catalog.route(&route("a")).unwrap();
    node.catalog.revoke(published, RevocationScope::Whole).unwrap();
    let deadline = Deadline::after(node.clock.mono(), DEADLINE_MILLIS);
    let end =
        ended(node.manager.call(reservation, CallOrder { arguments: Bytes::from_static(b"[]"), deadline, origin: None, trace: None }))
            .await;
    assert!(matches!(end.report.outcome, ActivationOutcome::PermissionRefused { .. }));
    assert!(node.manager.reserve_inbound(&work("nothing")).is_err());
}

#[tokio::test]
async fn a_trusted_caller_s_trace_goes_on_and_nobody_else_s() {
    let node = Node::new(limits());
    let brought = TraceId::from_random([9; 16]);
    for (trace, continued) in [(Some(brought), true), (None, false)] {
        let deadline = Deadline::after(node.clock.mono(), DEADLINE_MILLIS);
        let order = CallOrder { arguments: Bytes::from_static(b"one"), deadline, origin: None, trace };
        let ticket = node.manager.call(node.reserve("a"), order);
        settle().await;
        node.guests.end("one", ActivationOutcome::Success);
        let end = ended(ticket).await;
        assert_eq!((end.trace == brought, text(end.report.result.as_ref())), (continued, "[]"));
    }
}

#[tokio::test]
async fn calls_and_events_share_queue_accounts_and_turns() {
    let node = Node::new(NodeLimits { cells: 1, ..limits() });
    let (_, first) = node.activate("a", "event");
    let deadline = Deadline::after(node.clock.mono(), DEADLINE_MILLIS);
    let order = CallOrder { arguments: Bytes::from_static(b"call"), deadline, origin: None, trace: None };
    let second = node.manager.call(node.reserve("b"), order);
    let (_, third) = node.activate("a", "later");
    settle().await;
    assert_eq!(node.counts(), (0, 2, 1));
    node.succeed("event", first).await;
    settle().await;
    node.succeed("call", second).await;
    settle().await;
    node.succeed("later", third).await;
    assert_eq!(node.guests.started(), ["event", "call", "later"]);
    node.assert_empty();
}

#[tokio::test]
async fn arguments_beyond_what_was_reserved_end_without_a_start() {
    let node = Node::new(limits());
    for (bytes, fits) in [(999, true), (1_000, true), (1_001, false)] {
        let deadline = Deadline::after(node.clock.mono(), DEADLINE_MILLIS);
        let arguments = "x".repeat(bytes);
        let order = CallOrder { arguments: Bytes::from(arguments.clone()), deadline, origin: None, trace: None };
        let ticket = node.manager.call(node.reserve("a"), order);
        settle().await;
        if fits {
            node.succeed(&arguments, ticket).await;
        } else {
            assert!(matches!(ended(ticket).await.report.outcome, ActivationOutcome::InvalidArguments { .. }));
        }
        node.assert_empty();
    }
}
