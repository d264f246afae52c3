//! The component that publishes.

/// `guests/repeat`, built: this program carries it, because whoever measures has no toolchain.
pub(super) const REPEAT: &[u8] = include_bytes!("repeat.wasm");

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols hold a hash of where the sources lie, so the bytes of two builds are not the same; everything that a host sees is.
    #[test]
    fn the_carried_component_is_what_its_source_gives() {
        let built = latent_test_guests::REPEAT.component;
        let engine = latent_wasmtime::WasmEngine::new(latent_wasmtime::EngineOptions::default()).unwrap();
        let [carried, made] = [REPEAT, built].map(|component| engine.prepare(component).unwrap());
        let hint = "copy the built guests/repeat over crates/latent/src/commands/bench/publish/repeat.wasm";
        assert!(carried.imports().eq(made.imports()) && carried.contracts() == made.contracts(), "{hint}");
        assert!(REPEAT.len().abs_diff(built.len()) <= built.len() / 100, "{} and {} bytes: {hint}", REPEAT.len(), built.len());
    }
}
