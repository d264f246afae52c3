//! The components of the corpus, as text: small, so that many mutations of them are compiled in a second.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The component for the world `test` of `wit` whose core module is `module`.
fn component(wit: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    for package in ["context", "log", "events"] {
        resolve.push_path(format!("{}/../../wit/latent-{package}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    }
    let package = resolve.push_str("test.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("test")).unwrap();
    let mut module = wat::parse_str(module).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

/// A handler that takes its event, asks, logs, publishes, and is content.
pub(super) fn handler() -> Vec<u8> {
    const WIT: &str = "package acme:test; world test {
        import latent:events/publisher@0.2.0; import latent:log/log@0.1.0; import latent:context/context@0.1.0;
        export latent:events/handler@0.2.0; }";
    const MODULE: &str = r#"(module
        (import "latent:context/context@0.1.0" "tenant" (func $tenant (param i32)))
        (import "latent:log/log@0.1.0" "write" (func $log (param i32 i32 i32)))
        (import "latent:events/publisher@0.2.0" "publish"
            (func $publish (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
        (memory (export "memory") 1)
        (table 4 funcref)
        (elem (i32.const 0) $room)
        (data (i32.const 64) "out text/plain key")
        (global $free (mut i32) (i32.const 4096))
        (func $room (param $bytes i32) (result i32)
            (global.get $free)
            (global.set $free (i32.and (i32.add (i32.add (global.get $free) (local.get $bytes)) (i32.const 15)) (i32.const -16))))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (call_indirect (param i32) (result i32) (local.get 3) (i32.const 0)))
        (func (export "cabi_post_latent:events/handler@0.2.0#handle") (param i32))
        (func (export "latent:events/handler@0.2.0#handle") (param i32) (result i32)
            (call $tenant (i32.const 512))
            (call $log (i32.const 2) (i32.load (i32.const 512)) (i32.load (i32.const 516)))
            (call $publish (i32.const 64) (i32.const 3) (i32.const 1) (i32.const 79) (i32.const 3) (i32.const 64) (i32.const 15)
                (i32.const 68) (i32.const 10) (i32.const 64) (i32.const 0) (i32.const 79) (i32.const 3) (i32.const 512))
            (i32.const 1024)))"#;
    component(WIT, MODULE)
}

/// Functions whose results are values of every kind, laid out in data that mutations change.
pub(super) fn functions() -> Vec<u8> {
    const WIT: &str = "package acme:test; interface functions {
        record entry { count: u8, share: option<f64>, outcome: result<char, string> }
        variant choice { nothing, number(s64), letters(list<char>) }
        flags marks { first, second, third }
        text: func() -> string;
        entries: func() -> list<entry>;
        lists: func() -> list<list<string>>;
        choose: func() -> choice;
        mark: func() -> marks;
        declared: func() -> result<u32, string>; }
        world test { export functions; }";
    const MODULE: &str = r#"(module
        (memory (export "memory") 1)
        (data (i32.const 64) "\48\00\00\00\04\00\00\00textmore")
        (data (i32.const 128) "\88\00\00\00\01\00\00\00"
            "\07\00\00\00\00\00\00\00\01\00\00\00\00\00\00\00\00\00\00\00\00\00\f8\3f\00\00\00\00\41\00\00\00\00\00\00\00\00\00\00\00")
        (data (i32.const 256) "\08\01\00\00\01\00\00\00\10\01\00\00\01\00\00\00\48\00\00\00\04\00\00\00")
        (data (i32.const 320) "\02\00\00\00\00\00\00\00\50\01\00\00\01\00\00\00\41\00\00\00")
        (data (i32.const 384) "\01\00\00\00\4c\00\00\00\04\00\00\00")
        (func (export "acme:test/functions#text") (result i32) (i32.const 64))
        (func (export "acme:test/functions#entries") (result i32) (i32.const 128))
        (func (export "acme:test/functions#lists") (result i32) (i32.const 256))
        (func (export "acme:test/functions#choose") (result i32) (i32.const 320))
        (func (export "acme:test/functions#mark") (result i32) (i32.const 5))
        (func (export "acme:test/functions#declared") (result i32) (i32.const 384)))"#;
    component(WIT, MODULE)
}
