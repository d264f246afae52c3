//! Guests that mean harm while they run: each has its own typed end, and the cell that it had serves the next activation.

use std::sync::LazyLock;

use latent_core::{ActivationOutcome, Budget, BudgetKind, TrapCode};
use latent_wasmtime::{ActivationReport, EngineOptions, PreparedComponent, WasmEngine};

use crate::bench::{Bench, GRANTED};
use crate::written::component;

/// One cell: whatever a hostile guest did to it, the healthy one is given the same. A test that waits for it is only slow.
static ENGINE: LazyLock<(WasmEngine, PreparedComponent)> = LazyLock::new(|| {
    let engine = WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).unwrap();
    let healthy = engine.prepare(&Guest::default().component()).unwrap();
    (engine, healthy)
});

/// A handler in text. What is not said is harmless.
#[derive(Clone, Copy)]
struct Guest<'a> {
    /// Further items of the core module.
    items: &'a str,
    /// Body of `cabi_realloc`, which the host calls to place what it hands over.
    realloc: &'a str,
    /// Body of `handle`: the address of its result. From 1024 on memory is zero, which is `ok`.
    handle: &'a str,
    /// Body of what the host calls when it has read the result.
    post_return: &'a str,
}

impl Default for Guest<'_> {
    fn default() -> Self {
        Self { items: "", realloc: "(i32.const 2048)", handle: "(i32.const 1024)", post_return: "" }
    }
}

impl Guest<'_> {
    fn component(self) -> Vec<u8> {
        let wit = "package acme:test; world test {
            import latent:events/publisher@0.2.0; import latent:log/log@0.1.0; import latent:context/context@0.1.0;
            export latent:events/handler@0.2.0; }";
        let Self { items, realloc, handle, post_return } = self;
        let module = format!(
            r#"(module
                (import "latent:context/context@0.1.0" "tenant" (func $tenant (param i32)))
                (import "latent:log/log@0.1.0" "write" (func $log (param i32 i32 i32)))
                (import "latent:events/publisher@0.2.0" "publish"
                    (func $publish (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
                (memory (export "memory") 1)
                (data (i32.const 64) "{GRANTED}text/plain\ff\fe")
                (global $armed (mut i32) (i32.const 0))
                {items}
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {realloc})
                (func (export "cabi_post_latent:events/handler@0.2.0#handle") (param i32) {post_return})
                (func (export "latent:events/handler@0.2.0#handle") (param i32) (result i32) {handle}))"#
        );
        component(wit, &module)
    }
}

/// Runs the guest, then a healthy one in the same cell.
async fn run(guest: Guest<'_>, change: impl FnOnce(&mut Budget)) -> ActivationReport {
    let (engine, healthy) = ENGINE.clone();
    let bench = Bench::on(engine.clone(), engine.prepare(&guest.component()).unwrap()).with_budget(change);
    let report = bench.run("").await;
    assert!(report.memory_bytes_peak <= bench.budget.memory_bytes && report.fuel_used <= bench.budget.cpu_fuel, "{report:?}");
    let after = Bench::on(engine, healthy).run("").await;
    assert_eq!(after.outcome, ActivationOutcome::Success, "after {:?}", report.outcome);
    report
}

/// How it ends with little fuel.
async fn end(guest: Guest<'_>) -> ActivationOutcome {
    run(guest, |budget| budget.cpu_fuel = 5_000_000).await.outcome
}

async fn trap(guest: Guest<'_>) -> TrapCode {
    match end(guest).await {
        ActivationOutcome::Trap { code, .. } => code,
        other => panic!("{} {}: {other:?}", guest.realloc, guest.handle),
    }
}

const LOOP: &str = "(loop (br 0)) unreachable";
/// `tenant` writes its text to memory that it asks the guest for; `armed` tells that call from the event's.
const ARM_AND_ASK: &str = "(global.set $armed (i32.const 1)) (call $tenant (i32.const 512)) (i32.const 1024)";

/// Everywhere a guest's code runs: its own call, and those that the host makes on its way in and out.
fn loops() -> Vec<(&'static str, Guest<'static>)> {
    let armed = "(if (global.get $armed) (then (loop (br 0)))) (i32.const 2048)";
    vec![
        ("in the handler", Guest { handle: LOOP, ..Guest::default() }),
        ("while the event is handed over", Guest { realloc: LOOP, ..Guest::default() }),
        ("while a host call's result is handed over", Guest { realloc: armed, handle: ARM_AND_ASK, ..Guest::default() }),
        ("after the result", Guest { post_return: LOOP, ..Guest::default() }),
        ("at the start", Guest { items: "(func $start (loop (br 0))) (start $start)", ..Guest::default() }),
    ]
}

#[tokio::test]
async fn an_endless_loop_ends_with_its_fuel_wherever_it_is() {
    for (place, guest) in loops() {
        assert_eq!(end(guest).await, ActivationOutcome::BudgetExhausted(BudgetKind::Fuel), "{place}");
    }
}

#[tokio::test]
async fn an_endless_loop_with_fuel_left_ends_with_its_time_wherever_it_is() {
    for (place, guest) in loops() {
        let report = run(guest, |budget| (budget.cpu_fuel, budget.wall_time_millis) = (1_000_000_000_000, 50)).await;
        assert_eq!(report.outcome, ActivationOutcome::Timeout, "{place}");
    }
}

#[tokio::test]
async fn an_endless_loop_ends_when_its_caller_gives_it_up() {
    let (engine, healthy) = ENGINE.clone();
    for (_, guest) in loops() {
        let bench = Bench::on(engine.clone(), engine.prepare(&guest.component()).unwrap());
        let bench = bench.with_budget(|budget| budget.cpu_fuel = 1_000_000_000_000);
        // It gives its thread back at each tick, so both make progress; the first to end drops the other.
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(20), bench.run("")).await;
        assert!(given_up.is_err());
        let after = Bench::on(engine.clone(), healthy.clone()).run("").await;
        assert_eq!(after.outcome, ActivationOutcome::Success);
    }
}

#[tokio::test]
async fn a_trap_is_a_trap_wherever_it_is() {
    let armed = "(if (global.get $armed) (then unreachable)) (i32.const 2048)";
    let unreachable = [
        Guest { handle: "unreachable", ..Guest::default() },
        Guest { realloc: "unreachable", ..Guest::default() },
        Guest { realloc: armed, handle: ARM_AND_ASK, ..Guest::default() },
        Guest { post_return: "unreachable", ..Guest::default() },
        Guest { items: "(func $start unreachable) (start $start)", ..Guest::default() },
    ];
    for guest in unreachable {
        assert_eq!(trap(guest).await, TrapCode::Unreachable, "{} {}", guest.realloc, guest.handle);
    }
}

#[tokio::test]
async fn a_stack_that_overflows_is_a_trap_wherever_it_is() {
    let items = "(func $deeper (param i32) (result i32) (i32.add (call $deeper (local.get 0)) (i32.const 1)))";
    let deeper = "(call $deeper (i32.const 0))";
    for guest in [
        Guest { items, handle: deeper, ..Guest::default() },
        Guest { items, realloc: deeper, ..Guest::default() },
        Guest { items, post_return: "(drop (call $deeper (i32.const 0)))", ..Guest::default() },
    ] {
        assert_eq!(trap(guest).await, TrapCode::StackOverflow);
    }
}

#[tokio::test]
async fn memory_given_to_the_host_that_is_none_is_a_trap() {
    // Outside, at the last byte, and not aligned as the list of attributes needs it.
    for place in ["(i32.const -1)", "(i32.const 65535)", "(i32.const 0x7fffffff)", "(i32.const 2049)"] {
        assert_eq!(trap(Guest { realloc: place, ..Guest::default() }).await, TrapCode::Unlisted, "{place}");
    }
}

#[tokio::test]
async fn a_guest_may_not_call_the_host_while_the_host_hands_it_something() {
    for guest in [
        Guest { realloc: "(call $tenant (i32.const 512)) (i32.const 2048)", ..Guest::default() },
        Guest { post_return: "(call $tenant (i32.const 512))", ..Guest::default() },
    ] {
        assert_eq!(trap(guest).await, TrapCode::Unlisted, "{}", guest.realloc);
    }
}

/// A result at 1024 with these 32-bit numbers at these distances: at 0 the branch (1 is `err`), at 8 the case, at 16 and 20 place and length
/// of the text, at 24 whether there is a delay.
fn result(at: &[(u32, u32)]) -> String {
    let stores: String = at.iter().map(|(at, number)| format!("(i32.store (i32.const {}) (i32.const {number}))", 1_024 + at)).collect();
    stores + "(i32.const 1024)"
}

#[tokio::test]
async fn a_result_that_is_none_is_a_trap() {
    let table = [
        ("no branch", result(&[(0, 2)])),
        ("no case", result(&[(0, 1), (8, 9)])),
        ("text of nearly 4 GiB", result(&[(0, 1), (16, 64), (20, 0xffff_ffff)])),
        ("text of 2 GiB", result(&[(0, 1), (16, 64), (20, 0x8000_0000)])),
        ("text outside the memory", result(&[(0, 1), (16, 0xffff_fff0), (20, 8)])),
        ("text over the end", result(&[(0, 1), (16, 65_535), (20, 2)])),
        ("text that is not UTF-8", result(&[(0, 1), (16, 77), (20, 2)])),
        ("no place", "(i32.const -4)".to_owned()),
        ("an unaligned place", "(i32.const 1025)".to_owned()),
        ("no option", result(&[(0, 1), (8, 1), (24, 7)])),
    ];
    for (what, handle) in table {
        let outcome = end(Guest { handle: &handle, ..Guest::default() }).await;
        assert!(matches!(outcome, ActivationOutcome::Trap { code: TrapCode::Unlisted, .. }), "{what}: {outcome:?}");
    }
}

/// A publication: topic, key (present, place, bytes), payload, media type, attributes, idempotency key; and the place of its result.
fn publish(arguments: [u32; 13]) -> String {
    let arguments: String = arguments.iter().map(|number| format!("(i32.const {number})")).collect();
    format!("(call $publish {arguments} (i32.const 512)) (i32.const 1024)")
}

/// The granted topic, no key, nothing else.
const PLAIN: [u32; 13] = [64, 3, 0, 0, 0, 64, 0, 67, 10, 64, 0, 64, 1];

fn with<const N: usize>(changes: [(usize, u32); N]) -> String {
    let mut arguments = PLAIN;
    for (at, number) in changes {
        arguments[at] = number;
    }
    publish(arguments)
}

#[tokio::test]
async fn an_event_that_is_none_is_a_trap_and_nothing_is_published() {
    const HUGE: u32 = 0xffff_ffff;
    let table = [
        ("topic of nearly 4 GiB", with([(1, HUGE)])),
        ("topic outside the memory", with([(0, 0xffff_fff0)])),
        ("topic that is not UTF-8", with([(0, 77), (1, 2)])),
        ("no option", with([(2, 2)])),
        ("key of nearly 4 GiB", with([(2, 1), (4, HUGE)])),
        ("payload of nearly 4 GiB", with([(6, HUGE)])),
        ("payload over the end", with([(5, 65_000), (6, 1_000)])),
        ("media type that is not UTF-8", with([(7, 77), (8, 2)])),
        ("attributes without end", with([(10, HUGE)])),
        ("attributes whose size wraps around", with([(10, 0x1000_0001)])),
        ("attributes over the end", with([(10, 4_096)])),
        ("attributes at an odd place", with([(9, 65), (10, 1)])),
        ("idempotency key that is not UTF-8", with([(11, 77), (12, 2)])),
        ("a place for the result that is none", publish(PLAIN).replace("(i32.const 512)", "(i32.const -4)")),
    ];
    let (engine, _) = ENGINE.clone();
    for (what, handle) in &table {
        let guest = Guest { handle, ..Guest::default() };
        let bench = Bench::on(engine.clone(), engine.prepare(&guest.component()).unwrap());
        let outcome = bench.run("").await.outcome;
        assert!(matches!(outcome, ActivationOutcome::Trap { code: TrapCode::Unlisted, .. }), "{what}: {outcome:?}");
        let published = bench.provider.given.lock().unwrap().len();
        // The place of the result is only looked at when there is one.
        assert_eq!(published, usize::from(what.contains("result")), "{what}");
    }
    assert_eq!(end(Guest { handle: &publish(PLAIN), ..Guest::default() }).await, ActivationOutcome::Success);
}

#[tokio::test]
async fn a_topic_that_is_not_granted_is_refused_and_the_guest_lives_on() {
    // The answer's first byte is 1 for an error, its second word says which: 2 is permission-denied.
    let check = "(if (i32.ne (i32.load8_u (i32.const 512)) (i32.const 1)) (then unreachable))
        (if (i32.ne (i32.load8_u (i32.const 520)) (i32.const 2)) (then unreachable))";
    let handle = with([(0, 67), (1, 4)]).replace("(i32.const 1024)", &format!("{check} (i32.const 1024)"));
    assert_eq!(end(Guest { handle: &handle, ..Guest::default() }).await, ActivationOutcome::Success);
}

#[tokio::test]
async fn a_log_line_that_is_none_is_a_trap_and_a_flood_ends_with_the_fuel() {
    for (level, place, bytes) in [(9, 64_u32, 3), (0, 64, 0xffff_ffff_u32), (0, 0xffff_fff0, 3), (0, 77, 2)] {
        let handle = format!("(call $log (i32.const {level}) (i32.const {place}) (i32.const {bytes})) (i32.const 1024)");
        assert_eq!(trap(Guest { handle: &handle, ..Guest::default() }).await, TrapCode::Unlisted, "{level} {place} {bytes}");
    }
    let handle = "(loop (call $log (i32.const 0) (i32.const 4096) (i32.const 60000)) (br 0)) unreachable";
    let report = run(Guest { handle, ..Guest::default() }, |budget| (budget.cpu_fuel, budget.log_bytes) = (20_000, 1_000)).await;
    assert_eq!(report.outcome, ActivationOutcome::BudgetExhausted(BudgetKind::Fuel));
    assert!(report.log.iter().map(|line| line.text.len() + 1).sum::<usize>() <= 1_000 && report.log_bytes_cut > 60_000);
}

/// Grows until it is refused, then aborts.
const MEMORY_BOMB: &str = "(loop (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable)) (br 0)) unreachable";

#[tokio::test]
async fn a_bomb_of_memory_ends_with_the_memory_wherever_it_is() {
    let start = "(func $start (loop (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable)) (br 0))) (start $start)";
    for guest in [
        Guest { handle: MEMORY_BOMB, ..Guest::default() },
        Guest { realloc: MEMORY_BOMB, ..Guest::default() },
        Guest { post_return: MEMORY_BOMB, ..Guest::default() },
        Guest { items: start, ..Guest::default() },
    ] {
        let report = run(guest, |budget| budget.memory_bytes = 4 << 20).await;
        assert_eq!(report.outcome, ActivationOutcome::BudgetExhausted(BudgetKind::Memory), "{} {}", guest.realloc, guest.items);
    }
}

#[tokio::test]
async fn many_memories_share_one_budget() {
    let items = "(memory 16) (memory 16) (memory 16)";
    for (memory_bytes, fits) in [(49 * 65_536 - 1, false), (49 * 65_536, true)] {
        let report = run(Guest { items, ..Guest::default() }, |budget| budget.memory_bytes = memory_bytes).await;
        let expected = if fits { ActivationOutcome::Success } else { ActivationOutcome::BudgetExhausted(BudgetKind::Memory) };
        assert_eq!(report.outcome, expected, "{memory_bytes}");
    }
}

#[tokio::test]
async fn a_bomb_of_tables_ends_with_the_tables() {
    let items = "(table $t 1 funcref)";
    let handle =
        "(loop (if (i32.eq (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable)) (br 0)) unreachable";
    assert_eq!(end(Guest { items, handle, ..Guest::default() }).await, ActivationOutcome::BudgetExhausted(BudgetKind::Tables));
    let many = "(table 60000 funcref) (table 60000 funcref)";
    assert_eq!(end(Guest { items: many, ..Guest::default() }).await, ActivationOutcome::BudgetExhausted(BudgetKind::Tables));
}

#[tokio::test]
async fn work_that_one_instruction_does_costs_fuel_or_time_all_the_same() {
    // Sixteen MiB are filled again and again.
    let items = "(func $start (drop (memory.grow (i32.const 255)))) (start $start)";
    let handle = "(loop (memory.fill (i32.const 0) (i32.const 1) (i32.const 16000000)) (br 0)) unreachable";
    let guest = Guest { items, handle, ..Guest::default() };
    let report = run(guest, |budget| (budget.cpu_fuel, budget.wall_time_millis) = (1_000_000_000_000, 100)).await;
    assert_eq!(report.outcome, ActivationOutcome::Timeout);
}

#[tokio::test]
async fn a_trap_s_description_is_bounded_and_harmless_whatever_functions_are_called() {
    let name = "evil\\1b[2J\\u{202e}".repeat(2_000);
    let items = format!("(func $f (@name \"{name}\") (result i32) unreachable)");
    let outcome = end(Guest { items: &items, handle: "(call $f)", ..Guest::default() }).await;
    let ActivationOutcome::Trap { code: TrapCode::Unreachable, detail } = outcome else { panic!("{outcome:?}") };
    assert!(detail.len() <= 2_048 && !detail.contains('\u{1b}') && !detail.contains('\u{202e}'), "{detail}");
}
