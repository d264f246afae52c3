//! What a component offers to callers: its exported interfaces, their functions, and the types of those.
//!
//! Read once, when a component is prepared: a function whose types have no form in [`crate::values`] is refused here, with its name,
//! and not when somebody calls it. Functions that are exported outside an interface have no contract and cannot be named by a call.

use std::collections::BTreeMap;

use latent_core::{ContractName, FunctionName};
use wasmtime::Engine;
use wasmtime::component::types::{self, ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex};

use crate::activation_log::harmless;
use crate::values::{Signature, TypeRoom};
use crate::{WasmError, limits};

/// The functions of one component by contract and name.
pub(crate) type Exports = BTreeMap<ContractName, BTreeMap<FunctionName, ExportedFunction>>;

/// A function that can be called with values.
pub(crate) struct ExportedFunction {
    /// Where it lies in the component.
    pub(crate) index: ComponentExportIndex,
    /// Its parameters and results, as values are read and written for them.
    pub(crate) signature: Signature,
}

/// Every function that a call can name.
///
/// # Errors
/// [`WasmError::UnsupportedType`] for a resource, or a function whose types have no form as values.
pub(crate) fn exports_of(engine: &Engine, component: &Component, kind: &types::Component) -> Result<Exports, WasmError> {
    let (mut exports, mut room) = (Exports::new(), TypeRoom::default());
    for (interface, item) in kind.exports(engine) {
        // What has no name of a contract cannot be called, and does no harm.
        let (ComponentItem::ComponentInstance(items), Ok(contract)) = (item.ty, ContractName::parse(interface)) else { continue };
        let Some(at) = component.get_export_index(None, interface) else { continue };
        let mut functions = BTreeMap::new();
        for (name, item) in items.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(function) => {
                    let (Ok(function_name), Some(index)) = (FunctionName::parse(name), component.get_export_index(Some(&at), name)) else {
                        continue;
                    };
                    functions
                        .insert(function_name, ExportedFunction { index, signature: signature(interface, name, &function, &mut room)? });
                }
                ComponentItem::Resource(_) => return Err(unsupported(interface, name, "it is a resource, which cannot leave its store")),
                _ => {}
            }
        }
        exports.insert(contract, functions);
    }
    Ok(exports)
}

fn signature(interface: &str, name: &str, function: &ComponentFunc, room: &mut TypeRoom) -> Result<Signature, WasmError> {
    Signature::of(name, function, room).map_err(|refusal| unsupported(interface, name, &refusal.to_string()))
}

/// Names come from the component, so they are shown with care.
fn unsupported(interface: &str, name: &str, why: &str) -> WasmError {
    WasmError::UnsupportedType {
        export: harmless(&format!("{interface}#{name}"), limits::REASON_BYTES.max_usize()).0,
        detail: why.to_owned(),
    }
}
