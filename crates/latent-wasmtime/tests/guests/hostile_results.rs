//! Functions that return what is no value of their type, or more than anybody can hold: each has its own typed end, and the function
//! beside it still answers.

use latent_core::{ActivationOutcome, BudgetKind, TrapCode};

use crate::bench::Bench;
use crate::plain::call;
use crate::written::component;

const CONTRACT: &str = "acme:test/functions";

/// A component whose function `f` returns `wit`, and that has this number of memory pages. Its core function is `body` and returns an
/// address, or the value itself where it is one number. From 1024 on lie these 32-bit words.
fn bench(wit: &str, words: &[u32], pages: u32, body: &str) -> Bench {
    let words: String = words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("\\{byte:02x}")).collect();
    let wit = format!("package acme:test; interface functions {{ {wit} sound: func() -> string; }} world test {{ export functions; }}");
    let module = format!(
        r#"(module
            (memory (export "memory") {pages})
            (data (i32.const 64) "\48\00\00\00\04\00\00\00fine\ff\fe")
            (data (i32.const 1024) "{words}")
            (func (export "{CONTRACT}#sound") (result i32) (i32.const 64))
            (func (export "{CONTRACT}#f") (result i32) {body}))"#
    );
    Bench::of(&component(&wit, &module))
}

async fn outcome(bench: &Bench) -> ActivationOutcome {
    let report = call(bench, CONTRACT, "f", "[]").await;
    let sound = call(bench, CONTRACT, "sound", "[]").await;
    assert_eq!((sound.outcome, sound.result.as_deref()), (ActivationOutcome::Success, Some(&b"[\"fine\"]"[..])));
    assert!(report.result.is_none() || report.outcome == ActivationOutcome::Success, "{report:?}");
    report.outcome
}

/// A function that returns the words as `wit`.
async fn of_words(wit: &str, words: &[u32]) -> ActivationOutcome {
    outcome(&bench(wit, words, 1, "(i32.const 1024)")).await
}

#[tokio::test]
async fn a_result_that_is_no_value_of_its_type_is_a_trap() {
    let list = "f: func() -> list<u32>;";
    let table = [
        ("a char that is a surrogate", "f: func() -> list<char>;", vec![1_032, 1, 0xd800]),
        ("a char beyond Unicode", "f: func() -> list<char>;", vec![1_032, 1, 0x0011_0000]),
        ("an enum without that name", "enum e { a, b } f: func() -> list<e>;", vec![1_032, 1, 2]),
        ("a variant without that case", "variant v { a, b(u32) } f: func() -> v;", vec![7, 0]),
        ("an option that is neither", "f: func() -> option<u32>;", vec![2, 0]),
        ("a result that is neither", "f: func() -> result<u32, u32>;", vec![9, 0]),
        ("a list of nearly 4 GiB elements", list, vec![1_032, 0xffff_ffff]),
        ("a list whose size wraps around", list, vec![1_032, 0x4000_0001]),
        ("a list outside the memory", list, vec![0xffff_fff0, 2]),
        ("a list over the end", list, vec![65_532, 2]),
        ("a list at an odd place", list, vec![1_033, 1]),
        ("a string of nearly 4 GiB", "f: func() -> string;", vec![64, 0xffff_ffff]),
        ("a string that is not UTF-8", "f: func() -> string;", vec![76, 2]),
        ("a bad string deep inside", "f: func() -> list<list<string>>;", vec![1_032, 1, 1_040, 1, 76, 2]),
    ];
    for (what, wit, words) in table {
        let outcome = of_words(wit, &words).await;
        assert!(matches!(outcome, ActivationOutcome::Trap { code: TrapCode::Unlisted, .. }), "{what}: {outcome:?}");
    }
}

#[tokio::test]
async fn numbers_beyond_their_type_lose_what_is_beyond() {
    // The rules of the component model, which leave nothing to blame: a boolean is any number, a narrow integer its low bits.
    for (wit, number, expected) in [("bool", 256, "[true]"), ("u8", 0x1ff, "[255]"), ("s16", 0x0001_8000, "[-32768]")] {
        let bench = bench(&format!("f: func() -> {wit};"), &[], 1, &format!("(i32.const {number})"));
        assert_eq!(call(&bench, CONTRACT, "f", "[]").await.result.as_deref(), Some(expected.as_bytes()), "{wit}");
    }
}

/// A function that returns `list<u8>` of so many bytes.
async fn bytes(count: u32) -> ActivationOutcome {
    outcome(&bench("f: func() -> list<u8>;", &[0, count], 1, "(i32.const 1024)")).await
}

#[tokio::test]
async fn a_list_is_returned_up_to_its_bound_and_refused_beyond_before_it_fills_the_host() {
    assert_eq!(bytes(4_096).await, ActivationOutcome::Success);
    for count in [4_097, 50_000] {
        assert_eq!(bytes(count).await, ActivationOutcome::BudgetExhausted(BudgetKind::Result), "{count}");
    }
    // 100 MiB of the guest would be four GiB of the host; it is refused before the first of them.
    for count in [1_000_000, 100 << 20] {
        let bench = bench("f: func() -> list<u8>;", &[0, count], 1_700, "(i32.const 1024)");
        let bench = bench.with_budget(|budget| budget.memory_bytes = 128 << 20);
        assert_eq!(outcome(&bench).await, ActivationOutcome::BudgetExhausted(BudgetKind::Result), "{count}");
    }
}

#[tokio::test]
async fn a_string_is_returned_up_to_its_bound_and_refused_beyond() {
    // Zeros are escaped, so the text is six times as long.
    for (count, expected) in [
        (170_000, ActivationOutcome::Success),
        (180_000, ActivationOutcome::BudgetExhausted(BudgetKind::Result)),
        (262_145, ActivationOutcome::BudgetExhausted(BudgetKind::Result)),
    ] {
        let bench = bench("f: func() -> string;", &[131_072, count], 16, "(i32.const 1024)");
        assert_eq!(outcome(&bench).await, expected, "{count}");
    }
}

#[tokio::test]
async fn values_that_weigh_more_on_the_host_than_in_the_guest_are_bounded_too() {
    // Four bytes of the guest are thirty-two strings of the host.
    let names: Vec<String> = (0..32).map(|index| format!("n{index}")).collect();
    let wit = format!("flags many {{ {} }} f: func() -> list<many>;", names.join(", "));
    let set = "(memory.fill (i32.const 2048) (i32.const 255) (i32.const 900000)) (i32.const 1024)";
    for (count, expected) in [(400, "success"), (600, "budget-exhausted"), (200_000, "budget-exhausted")] {
        let bench = bench(&wit, &[2_048, count], 16, set).with_budget(|budget| budget.cpu_fuel = 10_000_000);
        let outcome = outcome(&bench).await;
        let kind = match &outcome {
            ActivationOutcome::Success => "success",
            ActivationOutcome::BudgetExhausted(BudgetKind::Result) => "budget-exhausted",
            other => panic!("{count}: {other:?}"),
        };
        assert_eq!(kind, expected, "{count}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_start_no_guest() {
    let bench = bench("f: func() -> u32;", &[], 1, "unreachable");
    for arguments in ["", "null", "[1]", "[[]]", "{}", "[", "[]x"] {
        let report = call(&bench, CONTRACT, "f", arguments).await;
        assert!(matches!(report.outcome, ActivationOutcome::InvalidArguments { .. }), "{arguments}: {:?}", report.outcome);
        assert_eq!((report.fuel_used, report.result), (0, None), "{arguments}");
    }
}
