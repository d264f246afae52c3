//! What a component holds, counted before it is compiled: components inside each other, everything declared in them, written out, and
//! the code of each function.
//!
//! A component that instantiates another twice, which instantiates another twice, is a hundred bytes for each doubling, and the compiler
//! writes all of it out; and what it keeps for components inside each other grows with the square of their depth. Its own bounds are
//! looked at afterwards. So a kilobyte could take hours and all memory, were it not refused here, after one walk over the sections.
//!
//! What is not counted is left to validation: a component that is not sound passes or fails here and fails there.

use latent_core::{Limit, LimitError};
use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Encoding,
    Instance, Parser, Payload,
};

use crate::activation_log::harmless;
use crate::{WasmError, limits};

/// Counts `component` and checks it against `limits::COMPONENT_DEPTH`, `limits::COMPONENT_ITEMS` and `limits::FUNCTION_BYTES`.
pub(crate) fn check(component: &[u8]) -> Result<(), WasmError> {
    let mut outline = Outline { open: Vec::new() };
    for payload in Parser::new(0).parse_all(component) {
        outline.take(payload?)?;
    }
    Ok(())
}

impl From<BinaryReaderError> for WasmError {
    fn from(error: BinaryReaderError) -> Self {
        Self::Invalid { detail: harmless(&error.to_string(), limits::TRAP_DETAIL_BYTES.max_usize()).0 }
    }
}

/// Components and modules that have begun and not ended, outermost first.
struct Outline {
    open: Vec<Open>,
}

/// One that has begun.
struct Open {
    encoding: Encoding,
    /// The components it can name, by index.
    components: Vec<Known>,
    /// Itself and everything in it, written out.
    items: u64,
}

/// What is known of a component that can be named.
#[derive(Clone, Copy)]
enum Known {
    /// So many items, written out.
    Items(u64),
    /// It is handed in or taken out of an instance: nobody can say here what it will be.
    Nothing,
}

fn bounded(limit: &Limit, value: u64) -> Result<(), LimitError> {
    limit.check(value).map(drop)
}

impl Outline {
    fn take(&mut self, payload: Payload<'_>) -> Result<(), WasmError> {
        match payload {
            Payload::Version { encoding, .. } => {
                self.open.push(Open { encoding, components: Vec::new(), items: 1 });
                bounded(&limits::COMPONENT_DEPTH, self.open.len() as u64)?;
            }
            Payload::End(_) => self.close(),
            Payload::CodeSectionEntry(body) => bounded(&limits::FUNCTION_BYTES, body.range().len() as u64)?,
            Payload::ComponentTypeSection(types) => self.count(types.count().into())?,
            Payload::CoreTypeSection(types) => self.count(types.count().into())?,
            Payload::ComponentCanonicalSection(functions) => self.count(functions.count().into())?,
            Payload::ComponentImportSection(imports) => {
                self.count(imports.count().into())?;
                for import in imports {
                    if matches!(import?.ty, ComponentTypeRef::Component(_)) {
                        self.name(Known::Nothing);
                    }
                }
            }
            Payload::ComponentExportSection(exports) => {
                self.count(exports.count().into())?;
                // An export gives what it exports an index of its own.
                for export in exports {
                    let export = export?;
                    if export.kind == ComponentExternalKind::Component {
                        self.name(self.known(0, export.index));
                    }
                }
            }
            Payload::ComponentAliasSection(aliases) => {
                self.count(aliases.count().into())?;
                for alias in aliases {
                    self.alias(&alias?);
                }
            }
            Payload::ComponentInstanceSection(instances) => {
                for instance in instances {
                    self.instance(&instance?)?;
                }
            }
            Payload::InstanceSection(instances) => {
                for instance in instances {
                    self.core_instance(&instance?)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the innermost; a component can be named by the one around it from now on.
    fn close(&mut self) {
        if let Some(Open { encoding: Encoding::Component, items, .. }) = self.open.pop() {
            self.name(Known::Items(items));
        }
    }

    fn name(&mut self, component: Known) {
        if let Some(open) = self.open.last_mut() {
            open.components.push(component);
        }
    }

    /// The component of this index in the component so many levels further out.
    fn known(&self, levels: u32, index: u32) -> Known {
        let outwards = self.open.iter().rev().nth(levels as usize);
        outwards.and_then(|open| open.components.get(index as usize)).copied().unwrap_or(Known::Nothing)
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) {
        match alias {
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => self.name(self.known(*count, *index)),
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => self.name(Known::Nothing),
            _ => {}
        }
    }

    fn instance(&mut self, instance: &ComponentInstance<'_>) -> Result<(), WasmError> {
        let (known, parts) = match instance {
            ComponentInstance::Instantiate { component_index, args } => (self.known(0, *component_index), args.len()),
            ComponentInstance::FromExports(exports) => (Known::Items(1), exports.len()),
        };
        let Known::Items(items) = known else {
            let detail = "it instantiates a component that it is handed or takes out of an instance; define that component in it";
            return Err(WasmError::Invalid { detail: detail.to_owned() });
        };
        Ok(self.count(items.saturating_add(parts as u64))?)
    }

    fn core_instance(&mut self, instance: &Instance<'_>) -> Result<(), LimitError> {
        let parts = match instance {
            Instance::Instantiate { args, .. } => args.len(),
            Instance::FromExports(exports) => exports.len(),
        };
        self.count(1 + parts as u64)
    }

    fn count(&mut self, items: u64) -> Result<(), LimitError> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        open.items = open.items.saturating_add(items);
        bounded(&limits::COMPONENT_ITEMS, open.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), WasmError> {
        check(&wat::parse_str(text).unwrap())
    }

    fn over(text: &str) -> Option<(&'static str, u64)> {
        match checked(text) {
            Ok(()) => None,
            Err(WasmError::Limit(limit)) => Some((limit.name, limit.value)),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn components_inside_each_other_are_bounded_at_their_edge() {
        let nested = |depth: usize| "(component ".repeat(depth) + &")".repeat(depth);
        for (depth, expected) in [(31, None), (32, None), (33, Some(("component_depth", 33)))] {
            assert_eq!(over(&nested(depth)), expected, "{depth}");
        }
        // Side by side they are not inside each other.
        assert_eq!(over(&format!("(component {})", "(component)".repeat(200))), None);
    }

    fn types(count: usize) -> String {
        "(type u8)".repeat(count)
    }

    #[test]
    fn items_are_bounded_at_their_edge() {
        for (count, expected) in [(262_142, None), (262_143, None), (262_144, Some(("component_items", 262_145)))] {
            assert_eq!(over(&format!("(component {})", types(count))), expected, "{count}");
        }
        // What is instantiated a thousand times is there a thousand times, however cheap it is to say so.
        let many =
            |instances: usize| format!("(component (component $c {}) {})", types(999), "(instance (instantiate $c))".repeat(instances));
        for (instances, expected) in [(262, None), (263, Some(("component_items", 263_001)))] {
            assert_eq!(over(&many(instances)), expected, "{instances}");
        }
    }

    #[test]
    fn the_code_of_a_function_is_bounded_at_its_edge() {
        // Two bytes say that it has no locals and that it ends.
        let function = |bytes: usize| over(&format!("(component (core module (func {})))", "nop ".repeat(bytes - 2)));
        for (bytes, expected) in [(1_048_575, None), (1_048_576, None), (1_048_577, Some(("function_bytes", 1_048_577)))] {
            assert_eq!(function(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn every_kind_of_item_counts() {
        let module = "(core module $m (func (export \"f\"))) (core instance $i (instantiate $m))";
        let table = [
            ("(type u8) (core type (func))", 2),
            ("(import \"a\" (func)) (import \"b\" (func))", 4),
            ("(component $c) (instance (instantiate $c))", 1),
            ("(component $c (import \"a\" (func))) (import \"a\" (func $f)) (instance (instantiate $c (with \"a\" (func $f))))", 6),
            ("(core module $m) (core instance (instantiate $m))", 1),
            (&*format!("{module} (core instance (export \"g\" (func $i \"f\")))"), 4),
            (&*format!("{module} (func $f (canon lift (core func $i \"f\"))) (export \"f\" (func $f))"), 5),
            (&*format!("{module} (func $f (canon lift (core func $i \"f\"))) (instance (export \"f\" (func $f)))"), 6),
        ];
        for (text, expected) in table {
            let mut outline = Outline { open: Vec::new() };
            let component = wat::parse_str(format!("(component {text})")).unwrap();
            let mut items = 0;
            for payload in Parser::new(0).parse_all(&component) {
                items = outline.open.first().map_or(items, |outermost| outermost.items);
                outline.take(payload.unwrap()).unwrap();
            }
            assert_eq!(items - 1, expected, "{text}");
        }
    }

    /// Each level instantiates the one inside it twice, which the compiler would write out.
    fn doubling(levels: usize) -> String {
        (0..levels).fold("(component $c)".to_owned(), |inner, _| {
            format!("(component $c {inner} (instance (instantiate $c)) (instance (instantiate $c)))")
        })
    }

    #[test]
    fn instances_of_instances_are_counted_as_if_written_out() {
        // 1, 3, 7, …: twice what is inside, and itself.
        assert_eq!(over(&doubling(17)), None);
        assert_eq!(over(&doubling(18)), Some(("component_items", 524_287)));
        assert_eq!(over(&doubling(31)), Some(("component_items", 524_287)));
    }

    #[test]
    fn a_component_is_counted_by_whatever_name_it_is_instantiated() {
        let twice = |name: &str| format!("(instance (instantiate {name})) (instance (instantiate {name}))");
        let definitions: String = (1..=20)
            .map(|level| {
                let before = level - 1;
                format!("(component $c{level} (alias outer $root $c{before} (component $a)) {})", twice("$a"))
            })
            .collect();
        let refused = |definitions| over(&format!("(component $root (component $c0) {definitions})")).map(|(name, _)| name);
        assert_eq!(refused(definitions), Some("component_items"));
        let exported: String = (1..=20)
            .map(|level| {
                let before = level - 1;
                format!(
                    "(component $d{level} (alias outer $root $c{before} (component $a)) {}) (export $c{level} \"c{level}\" (component $d{level}))",
                    twice("$a")
                )
            })
            .collect();
        assert_eq!(refused(exported), Some("component_items"));
    }

    #[test]
    fn a_component_that_nobody_knows_is_not_instantiated() {
        let handed = "(component (component (import \"c\" (component $c)) (instance (instantiate $c))))";
        let taken = "(component (component $c (component $d) (export \"d\" (component $d))) (instance $i (instantiate $c))
            (alias export $i \"d\" (component $e)) (instance (instantiate $e)))";
        for text in [handed, taken] {
            assert!(matches!(checked(text), Err(WasmError::Invalid { .. })), "{text}");
        }
    }

    #[test]
    fn real_components_are_far_below_the_bounds() {
        for guest in latent_test_guests::ALL {
            assert_eq!(check(guest.component), Ok(()), "{}", guest.name);
        }
    }

    #[test]
    fn what_is_torn_is_invalid() {
        let component = latent_test_guests::BEHAVE.component;
        for length in [9, 100, component.len() / 2, component.len() - 1] {
            assert!(matches!(check(&component[..length]), Err(WasmError::Invalid { .. })), "{length}");
        }
    }
}
