//! Code that comes from disk behaves like code compiled just now.

use latent_core::{ActivationOutcome, ComponentDigest};
use latent_test_guests::BEHAVE;
use latent_wasmtime::{CompiledCache, CompiledCacheOptions, EngineOptions, WasmEngine};

use crate::bench::Bench;

#[tokio::test]
async fn a_component_loaded_by_its_digest_runs_and_traps_as_if_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let engine = || WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).unwrap();
    let cache = || CompiledCache::open(&folder.path().join("compiled"), CompiledCacheOptions::default()).unwrap();
    engine().prepare_cached(&cache(), BEHAVE.component).unwrap();

    let engine = engine();
    let component = engine.load_cached(&cache(), ComponentDigest::of(BEHAVE.component)).unwrap().unwrap();
    let (loaded, compiled) = (Bench::on(engine, component), Bench::behave());
    for payload in ["ok", "trap", "recurse", "exit:0", "reject:because"] {
        let (loaded, compiled) = (loaded.run(payload).await, compiled.run(payload).await);
        assert_eq!((&loaded.outcome, loaded.fuel_used), (&compiled.outcome, compiled.fuel_used), "{payload}");
        assert_eq!(loaded.outcome == ActivationOutcome::Success, payload == "ok", "{payload}");
    }
    loaded.assert_healthy().await;
}
