//! The host side of what components import: one file per interface, each of them thin: check, call, convert.

pub(crate) mod context;
pub(crate) mod events;
pub(crate) mod log;
mod rerun;
pub(crate) mod wasi;

use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker};

use crate::bindings::latent::{self, events::publisher};
use crate::store::StoreData;

/// Everything that a component may import, linked once for the engine.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<StoreData>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    publisher::add_to_linker::<_, HasSelf<_>>(&mut linker, |data| data)?;
    latent::log::log::add_to_linker::<_, HasSelf<_>>(&mut linker, |data| data)?;
    context::add_to_linker(&mut linker)?;
    Ok(linker)
}
