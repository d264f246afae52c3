//! The component that is measured, and variants of it that only differ in their digest.

/// `guests/nothing`, built: this program carries it, because whoever measures has no toolchain.
pub(in super::super) const NOTHING: &[u8] = include_bytes!("nothing.wasm");

/// The same component with a custom section at its end, which changes its digest and nothing else.
pub(super) fn variant(number: u32) -> Vec<u8> {
    const SECTION: [u8; 4] = [0, 6, 1, b'n'];
    [NOTHING, &SECTION, &number.to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use latent_core::ComponentDigest;

    use super::*;

    /// Symbols hold a hash of where the sources lie, so the bytes of two builds are not the same; everything that a host sees is.
    #[test]
    fn the_carried_component_is_what_its_source_gives() {
        let built = latent_test_guests::NOTHING.component;
        let engine = latent_wasmtime::WasmEngine::new(latent_wasmtime::EngineOptions::default()).unwrap();
        let [carried, made] = [NOTHING, built].map(|component| engine.prepare(component).unwrap());
        let hint = "copy the built guests/nothing over crates/latent/src/commands/bench/activation/nothing.wasm";
        assert!(carried.imports().eq(made.imports()) && carried.contracts() == made.contracts(), "{hint}");
        assert!(NOTHING.len().abs_diff(built.len()) <= built.len() / 100, "{} and {} bytes: {hint}", NOTHING.len(), built.len());
    }

    #[test]
    fn variants_are_components_of_their_own() {
        let engine = latent_wasmtime::WasmEngine::new(latent_wasmtime::EngineOptions::default()).unwrap();
        let digests: BTreeSet<_> = [0, 1, 99].map(|number| ComponentDigest::of(&variant(number))).into();
        assert_eq!(digests.len(), 3);
        assert!(engine.prepare(&variant(99)).unwrap().exports_handler());
    }
}
