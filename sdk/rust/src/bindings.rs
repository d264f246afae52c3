//! Where the bindings generator runs, and nothing else.

#![allow(missing_docs, unreachable_pub, reason = "generated from the WIT, which carries the documentation")]

wit_bindgen::generate!({
    world: "latent:events/function",
    path: ["wit/latent-context", "wit/latent-log", "wit/latent-events"],
    generate_all,
    pub_export_macro: true,
    export_macro_name: "__export_latent_function",
    default_bindings_module: "::latent_sdk::__private::bindings",
    runtime_path: "::latent_sdk::__private::wit_bindgen::rt",
});
