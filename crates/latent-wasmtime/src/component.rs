//! Components: checked at the border, compiled once, linked once.
//!
//! The list of what may be imported lives here, and only here. A prepared component authorises nothing: it is code that *can* run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use latent_core::{ComponentDigest, ContractName, FunctionName};
use wasmtime::Engine;
use wasmtime::component::types::{self, ComponentItem};
use wasmtime::component::{Component, InstancePre, Linker};

use crate::activation_log::harmless;
use crate::bindings::FunctionPre;
use crate::bindings::exports::latent::events::handler::{DeliveredEvent, HandlerError};
use crate::contracts::{self, ExportedFunction, Exports};
use crate::store::StoreData;
use crate::{HANDLER_CONTRACT, ImportRefusal, WasmError, limits, outline};

const MAGIC: &[u8] = b"\0asm";
/// Version and layer of a core module, as they follow the magic.
const CORE_LAYER: &[u8] = &[1, 0, 0, 0];

/// What the host offers under `latent:`: interface and version, compared as a whole.
const LATENT: [(&str, &str); 3] = [("latent:events/publisher", "0.2.0"), ("latent:log/log", "0.1.0"), ("latent:context/context", "0.1.0")];

/// The interface with the functions that derive keys, and those.
const CONTEXT_IMPORT: &str = "latent:context/context@0.1.0";
const DERIVATIONS: [&str; 2] = ["derive", "derive-label"];

/// The interfaces of `wasi:cli/imports` 0.2, all linked and all confined (`host::wasi`).
const WASI: [&str; 27] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// A component that can be run. Cheap to clone; the code is shared.
#[derive(Clone)]
pub struct PreparedComponent(Arc<Prepared>);

struct Prepared {
    digest: ComponentDigest,
    imports: Vec<String>,
    code_bytes: usize,
    derives_keys: bool,
    exports: Exports,
    instance: InstancePre<StoreData>,
    handler: Option<FunctionPre<StoreData>>,
}

impl PreparedComponent {
    /// Checks, compiles and links. CPU heavy: milliseconds to seconds, on the calling thread.
    pub(crate) fn prepare(engine: &Engine, linker: &Linker<StoreData>, bytes: &[u8]) -> Result<Self, WasmError> {
        let component = compile(engine, bytes)?;
        Self::link(engine, linker, ComponentDigest::of(bytes), &component)
    }

    /// Checks what the component imports and exports, and links it. Every component passes here, compiled just now or earlier: the code
    /// that comes with a digest authorises nothing.
    pub(crate) fn link(
        engine: &Engine,
        linker: &Linker<StoreData>,
        digest: ComponentDigest,
        component: &Component,
    ) -> Result<Self, WasmError> {
        let kind = component.component_type();
        let imports: Vec<String> = kind.imports(engine).map(|(name, _)| name.to_owned()).collect();
        imports.iter().try_for_each(|name| admit_import(name))?;
        let exports_handler = check_handler(engine, &kind)?;
        let derives_keys = imports_derivation(engine, &kind);
        let exports = contracts::exports_of(engine, component, &kind)?;
        let instance = linker.instantiate_pre(component).map_err(|error| WasmError::InterfaceMismatch { detail: bounded(&error) })?;
        let handler = if exports_handler { Some(handler_of(instance.clone())?) } else { None };
        let image = component.image_range();
        let code_bytes = (image.end as usize).saturating_sub(image.start as usize);
        Ok(Self(Arc::new(Prepared { digest, imports, code_bytes, derives_keys, exports, instance, handler })))
    }

    /// The component's identity.
    pub fn digest(&self) -> ComponentDigest {
        self.0.digest
    }

    /// True when it exports [`HANDLER_CONTRACT`] and so can be woken by events.
    pub fn exports_handler(&self) -> bool {
        self.0.handler.is_some()
    }

    /// The interfaces it imports, by full name.
    pub fn imports(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.imports.iter().map(String::as_str)
    }

    /// True when it imports `derive` or `derive-label`, called or not. Such a component finds the same random numbers and the same time of
    /// day whenever the same event is handled again. With the Rust SDK every function that publishes is one.
    pub fn derives_keys(&self) -> bool {
        self.0.derives_keys
    }

    /// The contracts it offers to callers, each with its functions.
    pub fn contracts(&self) -> BTreeMap<ContractName, BTreeSet<FunctionName>> {
        self.0.exports.iter().map(|(contract, functions)| (contract.clone(), functions.keys().cloned().collect())).collect()
    }

    /// Bytes of compiled code it holds in memory.
    pub fn code_bytes(&self) -> usize {
        self.0.code_bytes
    }

    pub(crate) fn function(&self, contract: &ContractName, function: &FunctionName) -> Option<&ExportedFunction> {
        self.0.exports.get(contract)?.get(function)
    }

    pub(crate) fn instance(&self) -> &InstancePre<StoreData> {
        &self.0.instance
    }

    pub(crate) fn handler(&self) -> Option<&FunctionPre<StoreData>> {
        self.0.handler.as_ref()
    }
}

impl fmt::Debug for PreparedComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedComponent").field(&self.0.digest).finish()
    }
}

/// Turns bytes into code. CPU heavy.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Component, WasmError> {
    check_header(bytes)?;
    outline::check(bytes)?;
    Component::from_binary(engine, bytes).map_err(|error| WasmError::Invalid { detail: bounded(&error) })
}

/// Whether the component exports the handler. One of another shape is an error now: the library would notice it only when the handler
/// is first called. `typecheck` is not part of the library's stable interface; the exact version pin makes that bearable.
fn check_handler(engine: &Engine, kind: &types::Component) -> Result<bool, WasmError> {
    let Some(export) = kind.get_export(engine, HANDLER_CONTRACT) else { return Ok(false) };
    let mismatch = |problem: &str| WasmError::InterfaceMismatch { detail: format!("{HANDLER_CONTRACT}: {problem}") };
    let ComponentItem::ComponentInstance(interface) = export.ty else { return Err(mismatch("is no interface")) };
    let Some(ComponentItem::ComponentFunc(handle)) = interface.get_export(engine, "handle").map(|export| export.ty) else {
        return Err(mismatch("has no function `handle`"));
    };
    handle
        .typecheck::<(DeliveredEvent,), (Result<(), HandlerError>,)>(&kind.instance_type())
        .map_err(|error| mismatch(&format!("`handle` has another type: {}", bounded(&error))))?;
    Ok(true)
}

/// Whether the component can ask for derived keys. Tools that make components leave out of an import what is not used.
fn imports_derivation(engine: &Engine, kind: &types::Component) -> bool {
    let Some(ComponentItem::ComponentInstance(context)) = kind.get_import(engine, CONTEXT_IMPORT).map(|import| import.ty) else {
        return false;
    };
    DERIVATIONS.iter().any(|function| context.get_export(engine, function).is_some())
}

fn handler_of(instance: InstancePre<StoreData>) -> Result<FunctionPre<StoreData>, WasmError> {
    FunctionPre::new(instance).map_err(|error| WasmError::InterfaceMismatch { detail: bounded(&error) })
}

fn check_header(bytes: &[u8]) -> Result<(), WasmError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else { return Err(WasmError::NotWasm) };
    if rest.starts_with(CORE_LAYER) {
        return Err(WasmError::CoreModule);
    }
    limits::COMPONENT_BYTES.check(bytes.len() as u64)?;
    Ok(())
}

/// The outermost message and its cause: enough to name the item, without a page of context.
fn bounded(error: &wasmtime::Error) -> String {
    harmless(&format!("{error:#}"), limits::TRAP_DETAIL_BYTES.max_usize()).0
}

/// Accepts an import's full name if the host offers exactly that.
fn admit_import(name: &str) -> Result<(), WasmError> {
    let (interface, version) = name.split_once('@').unwrap_or((name, ""));
    let refusal = if let Some((_, offered)) = LATENT.iter().find(|(known, _)| *known == interface) {
        if version == *offered {
            return Ok(());
        }
        ImportRefusal::Version { offered }
    } else if WASI.contains(&interface) {
        if is_wasi_0_2(version) {
            return Ok(());
        }
        ImportRefusal::Version { offered: "0.2" }
    } else if interface.starts_with("wasi:http/") {
        ImportRefusal::Http
    } else {
        ImportRefusal::Unknown
    };
    // Names come from the component, so they are shown with care.
    Err(WasmError::ImportRefused { name: harmless(name, limits::REASON_BYTES.max_usize()).0, refusal })
}

/// Patch releases of WASI 0.2 only add; the linker serves every one of them.
fn is_wasi_0_2(version: &str) -> bool {
    version.strip_prefix("0.2.").is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> ImportRefusal {
        match admit_import(name) {
            Err(WasmError::ImportRefused { name: named, refusal }) if named == name => refusal,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn what_the_host_offers_is_admitted_in_its_versions() {
        let latent = LATENT.iter().map(|(interface, version)| format!("{interface}@{version}"));
        let wasi = WASI.iter().flat_map(|name| [format!("{name}@0.2.0"), format!("{name}@0.2.12")]);
        for name in latent.chain(wasi) {
            assert_eq!(admit_import(&name), Ok(()), "{name}");
        }
    }

    #[test]
    fn every_other_import_is_refused_with_its_name_and_the_reason() {
        let table = [
            ("wasi:http/outgoing-handler@0.2.0", ImportRefusal::Http),
            ("wasi:keyvalue/store@0.2.0", ImportRefusal::Unknown),
            ("wasi:cli/run@0.2.0", ImportRefusal::Unknown),
            ("wasi:cli/environment@0.3.0", ImportRefusal::Version { offered: "0.2" }),
            ("wasi:cli/environment@0.2.0-rc", ImportRefusal::Version { offered: "0.2" }),
            ("wasi:cli/environment", ImportRefusal::Version { offered: "0.2" }),
            ("latent:events/publisher@0.3.0", ImportRefusal::Version { offered: "0.2.0" }),
            ("latent:events/handler@0.2.0", ImportRefusal::Unknown),
            ("acme:db/sql@1.0.0", ImportRefusal::Unknown),
            ("helper", ImportRefusal::Unknown),
            ("", ImportRefusal::Unknown),
        ];
        for (name, expected) in table {
            assert_eq!(refusal(name), expected, "{name}");
        }
    }

    #[test]
    fn garbage_and_core_modules_have_errors_of_their_own() {
        for garbage in [&b""[..], b"\0as", b"(component)", b"\x7fELF\x02\x01\x01\0"] {
            assert_eq!(check_header(garbage), Err(WasmError::NotWasm), "{garbage:?}");
        }
        assert_eq!(check_header(b"\0asm\x01\0\0\0"), Err(WasmError::CoreModule));
        assert_eq!(check_header(b"\0asm\x0d\0\x01\0"), Ok(()));
    }

    #[test]
    fn a_component_is_bounded_at_its_edge() {
        let sized = |bytes: u64| {
            let mut file = b"\0asm\x0d\0\x01\0".to_vec();
            file.resize(usize::try_from(bytes).unwrap(), 0);
            check_header(&file)
        };
        let most = limits::COMPONENT_BYTES.max;
        assert_eq!((sized(most - 1), sized(most)), (Ok(()), Ok(())));
        assert!(matches!(sized(most + 1), Err(WasmError::Limit(refused)) if refused.name == "component_bytes"));
    }
}
