//! Bounds of the catalog, of admission and of what the node remembers, and [`NodeLimits`]: the values a node runs with.

use latent_core::{Limit, LimitError};

use crate::NodeError;

/// Cells: activations that run at one time on the node.
pub const CELLS: Limit = Limit {
    name: "cells",
    unit: "count",
    default: 8,
    min: 1,
    max: 1_024,
    bounds: "activations running at one time; 2 × cores unless configured",
};
/// Slots: everything admitted on the node at one time.
pub const ADMISSION_SLOTS: Limit = Limit {
    name: "admission_slots",
    unit: "count",
    default: 256,
    min: 2,
    max: 65_536,
    bounds: "activations reserved, queued or running at one time; at least twice the cells",
};
/// Running activations of one tenant.
pub const TENANT_RUNNING: Limit =
    Limit { name: "tenant_running", unit: "count", default: 16, min: 1, max: 1_024, bounds: "running activations of one tenant" };
/// Waiting activations of one tenant.
pub const TENANT_QUEUED: Limit = Limit {
    name: "tenant_queued",
    unit: "count",
    default: 64,
    min: 1,
    max: 4_096,
    bounds: "reserved and queued activations of one tenant",
};
/// Input memory of one tenant.
pub const TENANT_INPUT_BYTES: Limit = Limit {
    name: "tenant_input_bytes",
    unit: "bytes",
    default: 67_108_864,
    min: INPUT_BYTES.max,
    max: 4_294_967_296,
    bounds: "input memory reserved by one tenant's activations together",
};
/// Input memory of one activation.
pub const INPUT_BYTES: Limit = Limit {
    name: "input_bytes",
    unit: "bytes",
    default: 540_672,
    min: 1,
    max: 1_048_576,
    bounds: "payload, key, media type, uid and attributes of one delivered event, or the arguments of one call",
};
/// Activations the journal remembers.
pub const JOURNAL_ENTRIES: Limit =
    Limit { name: "journal_entries", unit: "count", default: 4_096, min: 1, max: 65_536, bounds: "ended activations kept in the journal" };
/// Guest log the journal remembers.
pub const JOURNAL_LOG_BYTES: Limit = Limit {
    name: "journal_log_bytes",
    unit: "bytes",
    default: 16_777_216,
    min: 0,
    max: 1_073_741_824,
    bounds: "guest logs kept in the journal, 64 bytes for each line beside its text; the oldest are dropped first",
};
/// Publications the journal remembers.
pub const JOURNAL_PUBLICATION_BYTES: Limit = Limit {
    name: "journal_publication_bytes",
    unit: "bytes",
    default: 8_388_608,
    min: 0,
    max: 1_073_741_824,
    bounds: "publications named in the journal, 128 bytes for each beside its topic, uid and stream; the oldest are dropped first and counted",
};
/// Text that says why an activation ended.
pub const JOURNAL_DETAIL_BYTES: Limit = Limit {
    name: "journal_detail_bytes",
    unit: "bytes",
    default: 512,
    min: 1,
    max: 512,
    bounds: "reason or trap detail of one journal entry; what is beyond is cut",
};
/// Publications of the catalog.
pub const PUBLICATIONS: Limit = Limit {
    name: "publications",
    unit: "count",
    default: 65_536,
    min: 1,
    max: 65_536,
    bounds: "catalog publications, revoked ones included",
};
/// Routes of the catalog.
pub const ROUTES: Limit = Limit { name: "routes", unit: "count", default: 65_536, min: 1, max: 65_536, bounds: "routes of all tenants" };
/// Revocations that are remembered.
pub const REVOCATIONS: Limit = Limit {
    name: "revocations",
    unit: "count",
    default: 4_096,
    min: 1,
    max: 4_096,
    bounds: "remembered revocations: one for each service and component, or for each of its tenants",
};
/// A jump of the wall clock.
pub const CLOCK_JUMP_MILLIS: Limit = Limit {
    name: "clock_jump_millis",
    unit: "ms",
    default: 300_000,
    min: 300_000,
    max: 300_000,
    bounds: "how far the wall clock may be from where it was expected before retention is held",
};
/// Steering of the wall clock.
pub const CLOCK_DRIFT_PPM: Limit = Limit {
    name: "clock_drift_ppm",
    unit: "ppm",
    default: 1_000,
    min: 1_000,
    max: 1_000,
    bounds: "how fast the wall clock may run away from steady time without being held for a jump in the end",
};
/// Time between two records of the clock.
pub const CLOCK_RECORD_SECONDS: Limit = Limit {
    name: "clock_record_seconds",
    unit: "s",
    default: 60,
    min: 60,
    max: 60,
    bounds: "time after which the next maintenance writes down again what the clock says",
};
/// Contracts of one publication.
pub const PUBLICATION_CONTRACTS: Limit =
    Limit { name: "publication_contracts", unit: "count", default: 64, min: 1, max: 64, bounds: "contracts of one publication" };
/// Functions of one contract.
pub const CONTRACT_FUNCTIONS: Limit = Limit {
    name: "contract_functions",
    unit: "count",
    default: 256,
    min: 1,
    max: 256,
    bounds: "functions of one contract of a publication",
};
/// Tenants of one publication.
pub const PUBLICATION_TENANTS: Limit = Limit {
    name: "publication_tenants",
    unit: "count",
    default: 1_024,
    min: 1,
    max: 1_024,
    bounds: "tenants in the scope of one publication",
};
/// Compiled code a backend keeps.
pub const LOADED_COMPONENT_BYTES: Limit = Limit {
    name: "loaded_component_bytes",
    unit: "bytes",
    default: 268_435_456,
    min: 1,
    max: 4_294_967_296,
    bounds: "compiled code of all components that are loaded at one time",
};
/// Listeners for returned capacity.
pub const CAPACITY_LISTENERS: Limit =
    Limit { name: "capacity_listeners", unit: "count", default: 16, min: 1, max: 16, bounds: "listeners for returned capacity" };
/// Time a backend has for ending by itself.
pub const BACKEND_OVERRUN_MILLIS: Limit = Limit {
    name: "backend_overrun_millis",
    unit: "ms",
    default: 25,
    min: 25,
    max: 25,
    bounds: "time after its deadline in which a backend may still report for itself; lies inside the settle margin",
};

/// Audit files kept, the one being written included.
pub const AUDIT_FILES: Limit =
    Limit { name: "audit_files", unit: "count", default: 8, min: 2, max: 1_024, bounds: "audit files kept; the oldest is removed first" };
/// Size of one audit file.
pub const AUDIT_FILE_BYTES: Limit = Limit {
    name: "audit_file_bytes",
    unit: "bytes",
    default: 16_777_216,
    min: 65_536,
    max: 1_073_741_824,
    bounds: "one audit file; then the next one begins",
};
/// Audit records between those who work and the disk.
pub const AUDIT_QUEUE_RECORDS: Limit = Limit {
    name: "audit_queue_records",
    unit: "count",
    default: 4_096,
    min: 1,
    max: 65_536,
    bounds: "audit records under way to their file; more are dropped and counted",
};
/// Patience with the disk when audit is closed.
pub const AUDIT_CLOSE_MILLIS: Limit = Limit {
    name: "audit_close_millis",
    unit: "ms",
    default: 2_000,
    min: 1,
    max: 30_000,
    bounds: "wait for queued audit records when a node stops",
};

/// Every limit of this crate outside `delivery`.
pub const ALL: &[Limit] = &[
    CELLS,
    ADMISSION_SLOTS,
    TENANT_RUNNING,
    TENANT_QUEUED,
    TENANT_INPUT_BYTES,
    INPUT_BYTES,
    JOURNAL_ENTRIES,
    JOURNAL_LOG_BYTES,
    JOURNAL_PUBLICATION_BYTES,
    JOURNAL_DETAIL_BYTES,
    PUBLICATIONS,
    ROUTES,
    REVOCATIONS,
    CLOCK_JUMP_MILLIS,
    CLOCK_DRIFT_PPM,
    CLOCK_RECORD_SECONDS,
    PUBLICATION_CONTRACTS,
    CONTRACT_FUNCTIONS,
    PUBLICATION_TENANTS,
    LOADED_COMPONENT_BYTES,
    CAPACITY_LISTENERS,
    BACKEND_OVERRUN_MILLIS,
    AUDIT_FILES,
    AUDIT_FILE_BYTES,
    AUDIT_QUEUE_RECORDS,
    AUDIT_CLOSE_MILLIS,
];

/// The limits one node runs with.
///
/// Worst-case input memory is `admission_slots × input_bytes`; see [`NodeLimits::input_bytes_bound`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLimits {
    /// [`CELLS`].
    pub cells: u32,
    /// [`ADMISSION_SLOTS`].
    pub admission_slots: u32,
    /// [`TENANT_RUNNING`].
    pub tenant_running: u32,
    /// [`TENANT_QUEUED`].
    pub tenant_queued: u32,
    /// [`TENANT_INPUT_BYTES`].
    pub tenant_input_bytes: u64,
    /// [`JOURNAL_ENTRIES`].
    pub journal_entries: u32,
    /// [`JOURNAL_LOG_BYTES`].
    pub journal_log_bytes: u64,
    /// [`JOURNAL_PUBLICATION_BYTES`].
    pub journal_publication_bytes: u64,
}

impl NodeLimits {
    /// The defaults for a machine with `cores` cores: twice as many cells, and at least four slots for each cell.
    pub fn for_cores(cores: usize) -> Self {
        let cells = (cores as u64).saturating_mul(2).clamp(CELLS.min, CELLS.max);
        Self {
            cells: narrow(cells),
            admission_slots: narrow(ADMISSION_SLOTS.default.max(cells * 4)),
            tenant_running: narrow(TENANT_RUNNING.default),
            tenant_queued: narrow(TENANT_QUEUED.default),
            tenant_input_bytes: TENANT_INPUT_BYTES.default,
            journal_entries: narrow(JOURNAL_ENTRIES.default),
            journal_log_bytes: JOURNAL_LOG_BYTES.default,
            journal_publication_bytes: JOURNAL_PUBLICATION_BYTES.default,
        }
    }

    /// Checks every field against its limit, and the slots against the cells: with fewer than two slots a cell, a single busy
    /// tenant could not fill the cells (see [`crate::admission`]).
    ///
    /// # Errors
    /// [`NodeError::Limit`] naming the first field out of range, [`NodeError::TooFewSlots`].
    pub fn checked(self) -> Result<Self, NodeError> {
        let fields: [(Limit, u64); 8] = [
            (CELLS, self.cells.into()),
            (ADMISSION_SLOTS, self.admission_slots.into()),
            (TENANT_RUNNING, self.tenant_running.into()),
            (TENANT_QUEUED, self.tenant_queued.into()),
            (TENANT_INPUT_BYTES, self.tenant_input_bytes),
            (JOURNAL_ENTRIES, self.journal_entries.into()),
            (JOURNAL_LOG_BYTES, self.journal_log_bytes),
            (JOURNAL_PUBLICATION_BYTES, self.journal_publication_bytes),
        ];
        fields.iter().try_for_each(|(limit, value)| limit.check(*value).map(drop))?;
        let slots_min = self.cells.saturating_mul(2);
        if self.admission_slots < slots_min {
            return Err(NodeError::TooFewSlots { slots: self.admission_slots, cells: self.cells, slots_min });
        }
        Ok(self)
    }

    /// The most input memory that all admitted activations can hold together, in bytes.
    pub fn input_bytes_bound(&self) -> u64 {
        u64::from(self.admission_slots).saturating_mul(INPUT_BYTES.max)
    }
}

impl From<LimitError> for NodeError {
    fn from(refused: LimitError) -> Self {
        Self::Limit(refused)
    }
}

/// Numbers that are below a limit's 32-bit maximum anyway.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_lies_in_its_range_and_no_name_appears_twice() {
        let mut names = std::collections::BTreeSet::new();
        for limit in ALL {
            assert!(limit.is_consistent() && u32::try_from(limit.default).is_ok(), "{}", limit.name);
            assert!(names.insert(limit.name), "{} is listed twice", limit.name);
        }
    }

    #[test]
    fn an_input_allocation_holds_the_largest_event_with_everything_around_it() {
        use latent_core::limits as core;
        // A dead letter's attributes may fill a header block of 8 KiB.
        let around = core::KEY_BYTES.max + core::UID_BYTES.max + core::MEDIA_TYPE_BYTES.max + 8_192;
        assert!(INPUT_BYTES.default >= core::EVENT_BYTES.max + around);
        assert_eq!(INPUT_BYTES.max, latent_wasmtime::limits::VALUES_DOCUMENT_BYTES.max, "and so do the largest arguments");
    }

    #[test]
    fn the_backend_overrun_lies_inside_every_settle_margin() {
        assert!(BACKEND_OVERRUN_MILLIS.max < latent_core::settle_margin(0));
    }

    #[test]
    fn the_defaults_hold_for_every_machine() {
        for (cores, cells) in [(0, 1), (1, 2), (2, 4), (512, 1_024), (513, 1_024), (usize::MAX, 1_024)] {
            let limits = NodeLimits::for_cores(cores);
            assert_eq!(limits.cells, cells, "{cores} cores");
            assert_eq!(limits.checked(), Ok(limits), "{cores} cores");
        }
    }

    #[test]
    fn each_field_is_checked_at_its_edge() {
        type Set = fn(&mut NodeLimits, u64);
        let fields: [(Limit, Set); 8] = [
            (CELLS, |l, v| l.cells = narrow(v)),
            (ADMISSION_SLOTS, |l, v| l.admission_slots = narrow(v)),
            (TENANT_RUNNING, |l, v| l.tenant_running = narrow(v)),
            (TENANT_QUEUED, |l, v| l.tenant_queued = narrow(v)),
            (TENANT_INPUT_BYTES, |l, v| l.tenant_input_bytes = v),
            (JOURNAL_ENTRIES, |l, v| l.journal_entries = narrow(v)),
            (JOURNAL_LOG_BYTES, |l, v| l.journal_log_bytes = v),
            (JOURNAL_PUBLICATION_BYTES, |l, v| l.journal_publication_bytes = v),
        ];
        for (limit, set) in fields {
            let with = |value| {
                // One cell and as many slots as there can be, so that only the field under test decides.
                let mut limits = NodeLimits { cells: 1, admission_slots: 65_536, ..NodeLimits::for_cores(1) };
                set(&mut limits, value);
                limits.checked()
            };
            assert!(with(limit.min).is_ok() && with(limit.max).is_ok(), "{}", limit.name);
            assert!(matches!(with(limit.max + 1), Err(NodeError::Limit(refused)) if refused.name == limit.name));
            if limit.min > 0 {
                assert!(matches!(with(limit.min - 1), Err(NodeError::Limit(refused)) if refused.name == limit.name));
            }
        }
    }

    #[test]
    fn there_are_at_least_two_slots_for_each_cell() {
        let with = |admission_slots| NodeLimits { cells: 8, admission_slots, ..NodeLimits::for_cores(4) }.checked();
        assert_eq!(with(15), Err(NodeError::TooFewSlots { slots: 15, cells: 8, slots_min: 16 }));
        assert!(with(16).is_ok());
    }
}
