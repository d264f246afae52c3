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
/// Description of a trap, with its frames; what is beyond is cut.
pub const TRAP_DETAIL_BYTES: Limit =
    Limit { name: "trap_detail_bytes", unit: "bytes", default: 2_048, min: 64, max: 2_048, bounds: "description of a trap" };
/// Time between two looks at the deadline while a guest computes.
pub const TICK_MILLIS: Limit =
    Limit { name: "tick_millis", unit: "ms", default: 2, min: 1, max: 5, bounds: "time between two looks at the deadline" };

/// Every limit of this crate.
pub const ALL: &[Limit] = &[
    CELLS,
    CELL_MEMORY_BYTES,
    COMPONENT_BYTES,
    CORE_INSTANCES,
    MEMORIES,
    TABLES,
    TABLE_ELEMENTS,
    HOST_RESOURCES,
    HOST_CALL_BYTES,
    OUTPUT_WRITE_BYTES,
    RANDOM_BYTES,
    REASON_BYTES,
    TRAP_DETAIL_BYTES,
    TICK_MILLIS,
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
