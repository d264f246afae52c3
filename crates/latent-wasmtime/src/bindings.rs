//! Where the bindings generator runs, and nothing else.

#![allow(missing_docs, unreachable_pub, reason = "generated from the WIT, which carries the documentation")]

wasmtime::component::bindgen!({
    world: "latent:events/function",
    path: ["../../wit/latent-context", "../../wit/latent-log", "../../wit/latent-events"],
    // The one call that waits. Everything else answers at once.
    imports: { "latent:events/publisher.publish": async },
    exports: { default: async },
});
