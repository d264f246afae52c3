//! Plain functions: every type there and back through a real guest, and every way a call ends.

use bytes::Bytes;
use latent_core::{ActivationOutcome, BudgetKind, ContractName, FunctionName};
use latent_test_guests::PLAIN;
use latent_wasmtime::{ActivationReport, FunctionCall};

use crate::bench::Bench;

const SHAPES: &str = "demo:plain/shapes@1.0.0";
const WORK: &str = "demo:plain/work@1.0.0";
const WORSE: &str = "demo:plain/worse@1.0.0";

pub(crate) async fn call(bench: &Bench, contract: &str, function: &str, arguments: &str) -> ActivationReport {
    let call = FunctionCall {
        contract: ContractName::parse(contract).unwrap(),
        function: FunctionName::parse(function).unwrap(),
        arguments: Bytes::copy_from_slice(arguments.as_bytes()),
        session: bench.session(),
        budget: bench.budget,
        trace: Bench::trace(),
    };
    bench.engine.run_function(&bench.component, call).await
}

fn text(report: &ActivationReport) -> &str {
    report.result.as_ref().map_or("", |result| std::str::from_utf8(result).unwrap())
}

#[tokio::test]
async fn each_type_comes_back_as_it_was_given() {
    let bench = Bench::of(PLAIN.component);
    let cases = [
        ("boolean", "[true]"),
        ("narrow", "[255,65535,4294967295,-128,-32768,-2147483648]"),
        ("wide", r#"["18446744073709551615","-9223372036854775808"]"#),
        ("floats", r#"["0.1","-0"]"#),
        ("floats", r#"["nan","-inf"]"#),
        ("text", r#"["𝄞","zeile\nzwei\u0000"]"#),
        ("bytes", "[[0,127,255]]"),
        ("points", r#"[[{"x":-1,"label":"a","tags":[]},{"x":2,"label":"","tags":["b","c"]}]]"#),
        ("shape-of", r#"[{"case":"circle","value":"1.5"}]"#),
        ("shape-of", r#"[{"case":"nothing"}]"#),
        ("colour-of", r#"["green"]"#),
        ("rights-of", r#"[["read","run"]]"#),
        ("rights-of", "[[]]"),
        ("maybe", r#"[{"some":{"none":null}}]"#),
        ("maybe", r#"[{"none":null}]"#),
        ("nested", r#"[{"ok":7}]"#),
        ("nested", r#"[{"err":"no"}]"#),
    ];
    for (function, arguments) in cases {
        let report = call(&bench, SHAPES, function, arguments).await;
        // An `err` that is not the whole result is data.
        assert_eq!(report.outcome, ActivationOutcome::Success, "{function} {arguments}");
        let given = arguments.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap();
        let expected = match function {
            // More than one result is one tuple.
            "narrow" | "wide" | "floats" | "text" | "nested" => format!("[[{given}]]"),
            _ => format!("[{given}]"),
        };
        assert_eq!(text(&report), expected, "{function}");
    }
}

#[tokio::test]
async fn a_declared_failure_is_the_sole_result_and_carries_the_whole_array() {
    let bench = Bench::of(PLAIN.component);
    let cases = [
        ("divide", "[6,3]", ActivationOutcome::Success, r#"[{"ok":2}]"#),
        ("divide", "[1,0]", ActivationOutcome::DeclaredFailure, r#"[{"err":"1 / 0"}]"#),
        ("refuse", "[]", ActivationOutcome::DeclaredFailure, r#"[{"err":null}]"#),
        ("nothing", "[]", ActivationOutcome::Success, "[]"),
    ];
    for (function, arguments, outcome, result) in cases {
        let report = call(&bench, WORK, function, arguments).await;
        assert_eq!((&report.outcome, text(&report)), (&outcome, result), "{function}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_run_no_guest_and_say_where() {
    let bench = Bench::of(PLAIN.component);
    for (arguments, place) in
        [("[1]", "$"), ("[1,2,3]", "$"), ("[1,\"2\"]", "$[1]"), ("[1.0,2]", "$[0]"), ("{}", "$"), ("", "$"), ("[1,2] x", "$")]
    {
        let report = call(&bench, WORK, "divide", arguments).await;
        let ActivationOutcome::InvalidArguments { reason } = &report.outcome else { panic!("{arguments}: {report:?}") };
        assert!(reason.starts_with(place), "{arguments}: {reason}");
        assert_eq!((report.fuel_used, report.result), (0, None));
    }
}

#[tokio::test]
async fn what_is_not_exported_is_an_incompatible_contract_that_names_it() {
    let bench = Bench::of(PLAIN.component);
    for (contract, function) in [(WORK, "multiply"), ("demo:plain/other@1.0.0", "divide"), ("demo:plain/work@2.0.0", "divide")] {
        let report = call(&bench, contract, function, "[]").await;
        let ActivationOutcome::IncompatibleContract { reason } = &report.outcome else { panic!("{report:?}") };
        assert!(reason.contains(&format!("{contract}#{function}")), "{reason}");
    }
}

#[tokio::test]
async fn a_result_beyond_a_limit_is_result_exhaustion_and_takes_no_memory() {
    let bench = Bench::of(PLAIN.component).with_budget(|budget| {
        budget.cpu_fuel = 1_000_000_000;
        budget.memory_bytes = 256 << 20;
    });
    let exhausted = ActivationOutcome::BudgetExhausted(BudgetKind::Result);
    for (function, arguments, fits) in [
        ("numbers", "[4096]", true),
        ("numbers", "[4097]", false),
        ("strings", "[1,262144]", true),
        ("strings", "[1,262145]", false),
        // 1 MiB of document: four strings of 256 KiB do not fit with their quotes.
        ("strings", "[3,262144]", true),
        ("strings", "[4,262144]", false),
    ] {
        let report = call(&bench, WORK, function, arguments).await;
        assert_eq!(report.outcome, if fits { ActivationOutcome::Success } else { exhausted.clone() }, "{function} {arguments}");
    }
    // Far beyond: the host stops before it has taken what the guest offers.
    for (function, arguments) in [("numbers", "[100000000]"), ("strings", "[30,4000000]")] {
        let report = call(&bench, WORK, function, arguments).await;
        assert_eq!(report.outcome, exhausted, "{function}");
    }
    assert_eq!(call(&bench, WORK, "divide", "[4,2]").await.outcome, ActivationOutcome::Success);
}

#[tokio::test]
async fn a_function_that_does_not_end_or_fails_ends_as_a_handler_does() {
    let bench = Bench::of(PLAIN.component).with_budget(|budget| budget.cpu_fuel = 100_000);
    let spun = call(&bench, WORK, "spin", "[]").await;
    assert_eq!(spun.outcome, ActivationOutcome::BudgetExhausted(BudgetKind::Fuel));
    let failed = call(&bench, WORK, "fail", r#"["told why"]"#).await;
    assert!(matches!(failed.outcome, ActivationOutcome::Trap { .. }), "{:?}", failed.outcome);
    assert!(failed.log.iter().any(|line| line.text.contains("told why")), "{:?}", failed.log);
}

#[tokio::test]
async fn a_function_waits_in_the_host_until_its_time_is_over_and_takes_no_more_memory_than_it_may() {
    let bench = Bench::of(PLAIN.component).with_budget(|budget| budget.wall_time_millis = 20);
    assert_eq!(call(&bench, WORSE, "sleep", "[600000]").await.outcome, ActivationOutcome::Timeout);
    let bench = Bench::of(PLAIN.component).with_budget(|budget| budget.memory_bytes = 4 << 20);
    assert_eq!(call(&bench, WORSE, "sleep", "[1]").await.outcome, ActivationOutcome::Success);
    assert_eq!(call(&bench, WORSE, "grow", "[1000000]").await.outcome, ActivationOutcome::Success);
    let grown = call(&bench, WORSE, "grow", "[8000000]").await;
    assert_eq!(grown.outcome, ActivationOutcome::BudgetExhausted(BudgetKind::Memory));
}

#[tokio::test]
async fn a_function_publishes_as_a_handler_does_and_the_attempt_is_counted() {
    let bench = Bench::of(PLAIN.component);
    let report = call(&bench, WORK, "announce", r#"["out"]"#).await;
    assert_eq!((text(&report), report.outbound_requests), (r#"[{"ok":"0"}]"#, 1));
    let refused = call(&bench, WORK, "announce", r#"["elsewhere"]"#).await;
    assert_eq!((refused.outcome, refused.outbound_requests), (ActivationOutcome::DeclaredFailure, 0));
    let named = call(&bench, WORSE, "announce-as", r#"["out","another"]"#).await;
    assert_eq!((text(&named), named.outbound_requests), (r#"[{"ok":"1"}]"#, 1));
}

#[tokio::test]
async fn one_function_ends_in_every_way() {
    let bench = Bench::of(PLAIN.component).with_budget(|budget| budget.wall_time_millis = 50);
    let cases = [
        ("well", "success"),
        ("loop", "fuel-exhausted"),
        ("sleep", "timeout"),
        ("trap", "trap"),
        ("grow", "memory-exhausted"),
        ("an-event", "success"),
    ];
    for (how, kind) in cases {
        assert_eq!(call(&bench, WORSE, "act", &format!("[\"{how}\"]")).await.outcome.kind(), kind, "{how}");
    }
}

#[tokio::test]
async fn a_function_in_steps_publishes_each_or_fails() {
    let bench = Bench::of(PLAIN.component);
    let report = call(&bench, WORSE, "in-steps", r#"["out","m",1]"#).await;
    assert_eq!((report.outcome, report.outbound_requests), (ActivationOutcome::Success, 2));
    let refused = call(&bench, WORSE, "in-steps", r#"["elsewhere","m",1]"#).await;
    assert!(matches!(refused.outcome, ActivationOutcome::Trap { .. }), "{:?}", refused.outcome);
}

#[test]
fn its_contracts_are_what_it_exports() {
    let bench = Bench::of(PLAIN.component);
    let contracts = bench.component.contracts();
    assert_eq!(contracts.keys().map(ContractName::as_str).collect::<Vec<_>>(), [SHAPES, WORK, WORSE]);
    assert_eq!(contracts[&ContractName::parse(SHAPES).unwrap()].len(), 12);
    assert!(!bench.component.exports_handler());
}
