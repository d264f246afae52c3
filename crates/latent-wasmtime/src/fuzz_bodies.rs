//! Bodies of the fuzz targets (D-32): plain functions of bytes, which return for every input and fail only where a promise is broken.
//!
//! Compiled for tests and behind the feature `fuzzing` alone. The tests here replay `fuzz-corpus/` and seeded mutations of it on a stable
//! compiler; the workspace `fuzz/` hands the same functions to a fuzzer.

#[cfg(test)]
mod components;
#[cfg(test)]
mod mutations;
mod one_run;
#[cfg(test)]
mod tests;

use crate::values::fuzz_bodies::values;

/// A body and the folder of `fuzz-corpus/` that its inputs lie in.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The folder's name, and the fuzz target's.
    pub name: &'static str,
    /// Takes any bytes.
    pub body: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[Target { name: "values", body: values }, Target { name: "component", body: one_run::component }];

/// Runs the body of this name.
///
/// # Panics
/// When there is none, or when its promise is broken.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    assert!(target.is_some(), "there is no fuzz target {name:?}");
    if let Some(target) = target {
        (target.body)(input);
    }
}
