//! The accounting bound: what a node's memory can add up to, from its configuration. Pure.
//!
//! It counts what the node grants and keeps: it is no promise about the whole process, whose allocator, code and threads come on top
//! . Every addend is a bound that something enforces, named as in `docs/limits.md`.

use serde::{Deserialize, Serialize};

use super::composition::Composition;
use crate::limits;

/// What stays the same whatever is configured: code, runtime, threads, tables of a node with nothing in it.
const RUNTIME_BYTES: u64 = 67_108_864;
/// Of a journal entry, its log apart: ids, names, reason.
const JOURNAL_ENTRY_BYTES: u64 = 2_048;
/// Of an audit record that waits for the disk.
const AUDIT_RECORD_BYTES: u64 = 1_024;
/// Host memory for a byte that a guest's result may hand over, at worst: a short name of a flag takes an allocation of its own.
const VALUE_WEIGHT: u64 = 24;
/// Of a line of a log, its text apart.
const LOG_LINE_BYTES: u64 = 64;
/// Of an element of a table.
const TABLE_ELEMENT_BYTES: u64 = 16;

/// One part of the bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccountingPart {
    /// What it is for.
    pub(crate) name: String,
    /// The most it can be.
    pub(crate) bytes: u64,
}

/// The bound and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccountingBound {
    /// The sum.
    pub(crate) bytes: u64,
    /// Its parts, the largest first.
    pub(crate) parts: Vec<AccountingPart>,
}

impl AccountingBound {
    fn of(parts: impl IntoIterator<Item = (&'static str, u64)>) -> Self {
        let mut parts: Vec<_> = parts.into_iter().map(|(name, bytes)| AccountingPart { name: name.to_owned(), bytes }).collect();
        parts.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
        let bytes = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.bytes));
        Self { bytes, parts }
    }

    /// The bound of a node.
    pub(super) fn of_node(composition: &Composition) -> Self {
        let limits = &composition.limits;
        let cells = u64::from(limits.cells);
        let times = |count: u64, bytes: u64| count.saturating_mul(bytes);
        Self::of([
            ("runtime", RUNTIME_BYTES),
            ("cells: linear memory", times(cells, composition.memory_bytes_max())),
            ("cells: tables", times(cells, times(latent_wasmtime::limits::TABLE_ELEMENTS.max, TABLE_ELEMENT_BYTES))),
            ("cells: values in and out", times(cells, times(latent_wasmtime::limits::RESULT_LIFT_BYTES.default, VALUE_WEIGHT))),
            (
                "cells: logs",
                times(cells, latent_core::limits::BUDGET_LOG_BYTES.max + times(latent_wasmtime::limits::LOG_LINES.max, LOG_LINE_BYTES)),
            ),
            ("pool: kept between activations", composition.resident_bytes_max()),
            ("admission: inputs", limits.input_bytes_bound()),
            // What made room is held on by those that run it.
            ("components: compiled code", times(2, composition.backend.snapshot().bytes_max)),
            ("capabilities: completions", composition.capabilities.completions().bytes_max()),
            ("providers: calls, connections and configurations", composition.providers.accounted_bytes()),
            ("deliveries: read ahead", latent_topics::limits::READ_AHEAD_BYTES.default),
            ("journal", times(limits.journal_entries.into(), JOURNAL_ENTRY_BYTES).saturating_add(limits.journal_log_bytes)),
            ("audit: queue", times(latent_node::limits::AUDIT_QUEUE_RECORDS.default, AUDIT_RECORD_BYTES)),
            ("log: queues", latent_bridge::limits::QUEUE_BYTES.default.saturating_add(latent_bridge::limits::STATE_QUEUE_BYTES.default)),
            ("log: filters", latent_bridge::limits::UID_FILTER_BYTES.default),
            ("control socket", times(limits::CONTROL_CONNECTIONS.default, times(2, limits::CONTROL_LINE_BYTES.default))),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_sum_of_its_parts_and_cannot_wrap() {
        let bound = AccountingBound::of([("a", 3), ("b", 7), ("c", 7)]);
        let names: Vec<_> = bound.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!((bound.bytes, names), (17, vec!["b", "c", "a"]));
        assert_eq!(AccountingBound::of([("a", u64::MAX), ("b", 1)]).bytes, u64::MAX);
    }
}
