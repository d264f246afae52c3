//! What one pass of maintenance did, and what it learned of stores and of the log. No I/O.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::fault::Fault;
use super::put::PutFault;
use super::store::ColdError;
use super::target::Target;
use crate::{BusError, limits};

/// What is learned of stores in one pass: one that fails is left alone after a few calls.
#[derive(Default)]
pub(crate) struct Pass {
    failures: Mutex<BTreeMap<String, u32>>,
    pub(super) resolver_failures: AtomicU32,
    pub(super) completed: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Topics whose store was left alone.
    pub(super) unreachable: Mutex<HashSet<String>>,
    /// In words, the first of them.
    problems: Mutex<Vec<String>>,
}

impl Pass {
    /// Whether its store is left alone for the rest of the pass.
    pub(super) fn is_given_up(&self, target: &Target) -> bool {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(&target.uri).is_some_and(|failures| u64::from(*failures) >= limits::COLD_STORE_FAILURES.default)
    }

    /// Takes in how a call of its store ended.
    pub(super) fn note(&self, target: &Target, result: &Result<(), Fault>) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = failures.entry(target.uri.clone()).or_default();
        match result {
            Err(Fault::Put(PutFault::Store(ColdError::Timeout { .. }))) => *failures = u32::MAX,
            Err(Fault::Put(fault)) if fault.is_of_store() => *failures = failures.saturating_add(1),
            _ => *failures = 0,
        }
    }

    /// Keeps what went wrong, in words.
    pub(crate) fn keep_problem(&self, problem: String) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < limits::ARCHIVE_PROBLEMS.default_usize() && !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Keeps why something stays, unless that was said of anything. What was said.
    pub(crate) fn tell(&self, what: &str, error: &BusError) -> String {
        let reason = match error {
            BusError::Backend(reason) | BusError::NotSent { reason } | BusError::Config { problem: reason } => reason.clone(),
            error => error.to_string(),
        };
        if let Some(told) = self.problems().into_iter().find(|problem| problem.ends_with(&reason)) {
            return told;
        }
        let told = format!("{what}: {reason}");
        self.keep_problem(told.clone());
        told
    }

    /// What went wrong, in words.
    pub(super) fn problems(&self) -> Vec<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Intents finished.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Intents that could not be.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Topics whose store was left alone, sorted.
    pub(crate) fn unreachable(&self) -> Vec<String> {
        let mut topics: Vec<_> = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        topics.sort_unstable();
        topics
    }
}
