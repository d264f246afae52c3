//! The loop by hand: the smallest host that gives each event a fresh store, on the engine itself with the best settings found. It bounds
//! nothing, records nothing and knows no tenant, but waits as a host must: a guest that waits blocks no thread.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime;
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use self::bindings::FunctionPre;
use self::bindings::exports::latent::events::handler::DeliveredEvent;
use super::super::failed;
use super::super::figure::Slice;
use super::guest::NOTHING;
use super::rows::{CELLS, PAYLOAD, engine_failed, joined};
use crate::error::CliError;

mod bindings {
    #![allow(missing_docs, unreachable_pub, reason = "generated from the WIT, which carries the documentation")]

    wasmtime::component::bindgen!({
        world: "latent:events/function",
        path: ["../../wit/latent-context", "../../wit/latent-log", "../../wit/latent-events"],
        exports: { default: async },
    });
}

const DOING: &str = "running the loop by hand";
/// Bytes of each memory that stay in place for the next store.
const KEPT_BYTES: usize = 2 << 20;
/// The same of each table.
const KEPT_TABLE_BYTES: usize = 16 << 10;

struct Data {
    wasi: WasiCtx,
    resources: ResourceTable,
}

impl WasiView for Data {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.resources }
    }
}

/// See the module.
pub(in super::super) struct RawLoop {
    engine: Engine,
    handler: FunctionPre<Data>,
}

impl RawLoop {
    pub(in super::super) fn new() -> Result<Self, CliError> {
        Self::prepared().map_err(|error| engine_failed("preparing the loop by hand", &format!("{error:#}")))
    }

    fn prepared() -> wasmtime::Result<Self> {
        let engine = Engine::new(&configuration())?;
        let component = Component::from_binary(&engine, NOTHING)?;
        let mut linker = Linker::<Data>::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        // What the guest imports beside WASI and never calls.
        linker.define_unknown_imports_as_traps(&component)?;
        let handler = FunctionPre::new(linker.instantiate_pre(&component)?)?;
        Ok(Self { engine, handler })
    }

    /// One loop on each of so many threads, for so long.
    pub(in super::super) fn slice(&self, threads: usize, time: Duration) -> Result<Slice, CliError> {
        let slices = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.one_thread(time))).collect();
            let ended = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|_| Err(engine_failed(DOING, &"a thread panicked")));
            running.into_iter().map(ended).collect::<Result<Vec<_>, _>>()
        });
        slices.map(joined)
    }

    fn one_thread(&self, time: Duration) -> Result<Slice, CliError> {
        let runtime = runtime::Builder::new_current_thread().build().map_err(failed("making a runtime"))?;
        runtime.block_on(async {
            let started = Instant::now();
            let (mut now, mut latencies) = (started, Vec::new());
            while now.duration_since(started) < time {
                self.call().await.map_err(|error| engine_failed(DOING, &format!("{error:#}")))?;
                let done = Instant::now();
                latencies.push(done.duration_since(now));
                now = done;
            }
            Ok(Slice { units: latencies.len() as u64, elapsed: now.duration_since(started), latencies })
        })
    }

    async fn call(&self) -> wasmtime::Result<()> {
        let mut store = Store::new(&self.engine, Data { wasi: WasiCtxBuilder::new().build(), resources: ResourceTable::new() });
        let function = self.handler.instantiate_async(&mut store).await?;
        let handled = function.latent_events_handler().call_handle(&mut store, &event()).await?;
        handled.map_err(|error| wasmtime::Error::msg(format!("{error:?}")))
    }
}

fn event() -> DeliveredEvent {
    DeliveredEvent {
        topic: "in".to_owned(),
        partition: 0,
        offset: 1,
        uid: None,
        key: Some("key".to_owned()),
        media_type: "application/json".to_owned(),
        attributes: Vec::new(),
        payload: PAYLOAD.to_vec(),
        delivery_count: 1,
        stored_at_unix_millis: 1,
    }
}

fn configuration() -> Config {
    let cells = u32::try_from(CELLS).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(cells)
        .total_stacks(cells)
        .total_core_instances(cells.saturating_mul(8))
        .total_memories(cells)
        .total_tables(cells.saturating_mul(4))
        .pagemap_scan(Enabled::Auto)
        .linear_memory_keep_resident(KEPT_BYTES)
        .table_keep_resident(KEPT_TABLE_BYTES);
    let mut config = Config::new();
    config.wasm_component_model(true).concurrency_support(false).allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}
