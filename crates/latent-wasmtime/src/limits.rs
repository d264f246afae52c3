//! Bounds of what a component and an activation may take from the host, beyond the budget.

use latent_core::Limit;

/// Activations that may hold a store at the same time.
pub const CELLS: Limit =
    Limit { name: "cells", unit: "count", default: 4, min: 1, max: 1_024, bounds: "activations that hold a store at the same time" };
/// Linear memory one activation can be given, whatever its budget says. Each cell reserves address space for it, not memory.
pub const CELL_MEMORY_BYTES: Limit = Limit {
    name: "cell_memory_bytes",
    unit: "bytes",
    default: 268_435_456,
    min: 65_536,
    max: 1_073_741_824,
    bounds: "linear memory a cell can hold; the ceiling of every `memory_bytes` budget",
};
/// A component's file.
pub const COMPONENT_BYTES: Limit =
    Limit { name: "component_bytes", unit: "bytes", default: 67_108_864, min: 8, max: 67_108_864, bounds: "one component's file" };
/// Components inside each other in one component, with the modules in them.
pub const COMPONENT_DEPTH: Limit =
    Limit { name: "component_depth", unit: "count", default: 32, min: 1, max: 32, bounds: "components inside each other in one component" };
/// What is declared in one component, written out: what lies in a component that is instantiated twice counts twice. Checked before the
/// compiler writes it out.
pub const COMPONENT_ITEMS: Limit = Limit {
    name: "component_items",
    unit: "count",
    default: 262_144,
    min: 1,
    max: 262_144,
    bounds: "types, imports, aliases, functions, instances, their arguments and exports of one component, written out",
};
/// One function's code. The compiler needs several hundred times as much memory for a function while it works on it, and more than
/// proportionally more time.
pub const FUNCTION_BYTES: Limit = Limit {
    name: "function_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 2,
    max: 1_048_576,
    bounds: "code of one function of a component",
};
/// Compiled components on disk. What is beyond is removed, longest unused first; one component above it is not kept.
pub const COMPILED_CACHE_BYTES: Limit = Limit {
    name: "compiled_cache_bytes",
    unit: "bytes",
    default: 1_073_741_824,
    min: 1_048_576,
    max: 1_099_511_627_776,
    bounds: "compiled components kept on disk",
};
/// Core instances inside one component. Components of dynamically linked languages have dozens.
pub const CORE_INSTANCES: Limit =
    Limit { name: "core_instances", unit: "count", default: 128, min: 1, max: 128, bounds: "core instances inside one component" };
/// Linear memories inside one component.
pub const MEMORIES: Limit = Limit { name: "memories", unit: "count", default: 4, min: 1, max: 4, bounds: "memories inside one component" };
/// Tables inside one component.
pub const TABLES: Limit = Limit { name: "tables", unit: "count", default: 32, min: 1, max: 32, bounds: "tables inside one component" };
/// Elements over all tables of one activation.
pub const TABLE_ELEMENTS: Limit = Limit {
    name: "table_elements",
    unit: "count",
    default: 65_536,
    min: 1,
    max: 65_536,
    bounds: "elements over all tables of one activation",
};
/// Resources such as streams and pollables that one activation holds at the same time.
pub const HOST_RESOURCES: Limit = Limit {
    name: "host_resources",
    unit: "count",
    default: 1_024,
    min: 16,
    max: 1_024,
    bounds: "host resources one activation holds at the same time",
};
/// Bytes a guest hands to the host in one call; a call with more traps. Above a publication's payload, so that one that is only a
/// little too large is told `invalid-event` and not stopped.
pub const HOST_CALL_BYTES: Limit = Limit {
    name: "host_call_bytes",
    unit: "bytes",
    default: 2_097_152,
    min: 524_288,
    max: 2_097_152,
    bounds: "bytes a guest hands to the host in one call",
};
/// What a called function hands over in one call, its result included: its strings, and the host's memory for every other value. A
/// result of more is refused before it takes memory. Not below what the form of values allows, in whatever encoding a guest keeps its text.
pub const RESULT_LIFT_BYTES: Limit = Limit {
    name: "result_lift_bytes",
    unit: "bytes",
    default: 3_145_728,
    min: 3_145_728,
    max: 3_145_728,
    bounds: "host memory for the result of a called function, before it is written as values",
};
/// Bytes of one write to stdout or stderr; a write of more traps.
pub const OUTPUT_WRITE_BYTES: Limit = Limit {
    name: "output_write_bytes",
    unit: "bytes",
    default: 65_536,
    min: 4_096,
    max: 65_536,
    bounds: "bytes of one write of a guest to stdout or stderr",
};
/// Random bytes of one call; a call for more traps.
pub const RANDOM_BYTES: Limit =
    Limit { name: "random_bytes", unit: "bytes", default: 65_536, min: 32, max: 65_536, bounds: "random bytes a guest gets in one call" };
/// Reason that a guest gives for `reject` or `retry`; what is beyond is cut.
pub const REASON_BYTES: Limit =
    Limit { name: "reason_bytes", unit: "bytes", default: 1_024, min: 16, max: 1_024, bounds: "reason a guest gives for reject or retry" };
/// Lines of one activation's log.
pub const LOG_LINES: Limit = Limit {
    name: "log_lines",
    unit: "count",
    default: 4_096,
    min: 4_096,
    max: 4_096,
    bounds: "lines kept of one activation's log, whatever its budget of bytes; each takes the host more than its text",
};
/// Description of a trap, with its frames; what is beyond is cut.
pub const TRAP_DETAIL_BYTES: Limit =
    Limit { name: "trap_detail_bytes", unit: "bytes", default: 2_048, min: 64, max: 2_048, bounds: "description of a trap" };
/// Time between two looks at the deadline while a guest computes.
pub const TICK_MILLIS: Limit =
    Limit { name: "tick_millis", unit: "ms", default: 2, min: 1, max: 5, bounds: "time between two looks at the deadline" };

/// Text of one array of WIT values, in and out. Never above its default, so that the host can hold what a guest may answer.
pub const VALUES_DOCUMENT_BYTES: Limit = Limit {
    name: "values_document_bytes",
    unit: "bytes",
    default: 1_048_576,
    min: 2,
    max: 1_048_576,
    bounds: "one array of WIT values as JSON text, in and out",
};
/// Arrays and objects inside each other; the array of the arguments is the first.
pub const VALUES_DEPTH: Limit = Limit {
    name: "values_depth",
    unit: "count",
    default: 32,
    min: 1,
    max: 32,
    bounds: "arrays and objects inside each other in one array of WIT values",
};
/// Every JSON value counts, the outer array too; keys do not.
pub const VALUES_NODES: Limit =
    Limit { name: "values_nodes", unit: "count", default: 16_384, min: 1, max: 16_384, bounds: "JSON values in one array of WIT values" };
/// Bytes after escapes are resolved; keys are strings as well.
pub const VALUES_STRING_BYTES: Limit = Limit {
    name: "values_string_bytes",
    unit: "bytes",
    default: 262_144,
    min: 1,
    max: 262_144,
    bounds: "UTF-8 bytes of one string or key in an array of WIT values",
};
/// Elements of an array, members of an object.
pub const VALUES_ELEMENTS: Limit = Limit {
    name: "values_elements",
    unit: "count",
    default: 4_096,
    min: 1,
    max: 4_096,
    bounds: "elements of one array or members of one object in an array of WIT values",
};
/// Types inside each other in the signature of a function that is given values; deeper ones are refused when a component is prepared.
pub const VALUES_TYPE_DEPTH: Limit = Limit {
    name: "values_type_depth",
    unit: "count",
    default: 64,
    min: 64,
    max: 64,
    bounds: "types inside each other in a function that takes WIT values",
};
/// Types share structure, so that a small component can describe a huge type: what counts is the type written out in full, with every
/// field, case and flag.
pub const VALUES_TYPE_NODES: Limit = Limit {
    name: "values_type_nodes",
    unit: "count",
    default: 16_384,
    min: 16_384,
    max: 16_384,
    bounds: "types, fields, cases and flags in the signature of a function that takes WIT values, written out in full",
};
/// The same over all functions of one component.
pub const VALUES_COMPONENT_NODES: Limit = Limit {
    name: "values_component_nodes",
    unit: "count",
    default: 65_536,
    min: 65_536,
    max: 65_536,
    bounds: "types, fields, cases and flags in the signatures of one component, written out in full",
};
/// A field's, case's or flag's name in such a signature.
pub const VALUES_NAME_BYTES: Limit = Limit {
    name: "values_name_bytes",
    unit: "bytes",
    default: 256,
    min: 256,
    max: 256,
    bounds: "name of a field, case or flag of a function that takes WIT values",
};
/// A name from a document or a component in an error; what is beyond is cut.
pub const VALUES_SHOWN_BYTES: Limit = Limit {
    name: "values_shown_bytes",
    unit: "bytes",
    default: 64,
    min: 64,
    max: 64,
    bounds: "one name shown in an error about WIT values",
};
/// A place in a document or a type in an error; what is beyond is cut.
pub const VALUES_PATH_BYTES: Limit = Limit {
    name: "values_path_bytes",
    unit: "bytes",
    default: 512,
    min: 512,
    max: 512,
    bounds: "one place shown in an error about WIT values",
};

/// Every limit of this crate.
pub const ALL: &[Limit] = &[
    CELLS,
    CELL_MEMORY_BYTES,
    COMPONENT_BYTES,
    COMPONENT_DEPTH,
    COMPONENT_ITEMS,
    FUNCTION_BYTES,
    COMPILED_CACHE_BYTES,
    CORE_INSTANCES,
    MEMORIES,
    TABLES,
    TABLE_ELEMENTS,
    HOST_RESOURCES,
    HOST_CALL_BYTES,
    RESULT_LIFT_BYTES,
    OUTPUT_WRITE_BYTES,
    RANDOM_BYTES,
    REASON_BYTES,
    LOG_LINES,
    TRAP_DETAIL_BYTES,
    TICK_MILLIS,
    VALUES_DOCUMENT_BYTES,
    VALUES_DEPTH,
    VALUES_NODES,
    VALUES_STRING_BYTES,
    VALUES_ELEMENTS,
    VALUES_TYPE_DEPTH,
    VALUES_TYPE_NODES,
    VALUES_COMPONENT_NODES,
    VALUES_NAME_BYTES,
    VALUES_SHOWN_BYTES,
    VALUES_PATH_BYTES,
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_default_lies_in_its_range() {
        for limit in super::ALL {
            assert!(limit.is_consistent(), "{}", limit.name);
        }
    }

    #[test]
    fn a_payload_just_above_its_bound_reaches_the_check_that_names_it() {
        const { assert!(super::HOST_CALL_BYTES.min > latent_capabilities::limits::PUBLISH_PAYLOAD_BYTES.max) };
    }
}
