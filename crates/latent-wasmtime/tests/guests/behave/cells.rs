//! Cells: how many run, who waits, and that each is given back.

use latent_core::ActivationOutcome;
use latent_test_guests::BEHAVE;
use latent_wasmtime::{EngineOptions, WasmEngine};

use crate::bench::Bench;

fn engine_with(cells: u64) -> Bench {
    let engine = WasmEngine::new(EngineOptions { cells, ..EngineOptions::default() }).unwrap();
    let component = engine.prepare(BEHAVE.component).unwrap();
    Bench::on(engine, component)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_activations_share_two_cells() {
    let bench = engine_with(2);
    let payloads = ["ok", "trap", "recurse", "alloc:1000000", "exit:0"];
    let running: Vec<_> = (0..100).map(|n| tokio::spawn(bench.run(payloads[n % payloads.len()]))).collect();
    let mut ends = std::collections::BTreeMap::<_, usize>::new();
    for end in running {
        *ends.entry(end.await.unwrap().outcome.kind()).or_default() += 1;
    }
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [("success", 40), ("trap", 60)]);
    assert_eq!(bench.engine.free_cells(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_activation_gives_its_cell_back_whether_it_computes_or_waits() {
    let bench = engine_with(1).with_budget(|budget| budget.cpu_fuel = 1_000_000_000_000);
    for payload in ["loop", "sleep:600000"] {
        let running = tokio::spawn(bench.run(payload));
        while bench.engine.free_cells() == 1 {
            tokio::task::yield_now().await;
        }
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled(), "{payload}");
        assert_eq!(bench.engine.free_cells(), 1, "{payload}");
        bench.assert_healthy().await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_cell_counts_against_the_deadline() {
    let mut bench = engine_with(1);
    let mut running = Box::pin(bench.run("sleep:600000"));
    while bench.engine.free_cells() == 1 {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(running.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
    }
    bench.timeout_millis = 20;
    let waiting = bench.run("ok").await;
    assert_eq!((waiting.outcome, waiting.fuel_used), (ActivationOutcome::Timeout, 0));
    drop(running);
    bench.assert_healthy().await;
}
