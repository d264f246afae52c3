//! What guests need: the wasm target, and their own workspaces built for it.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::process::{capture, cargo, run_step};
use crate::tree::Tree;

/// The target that guests are compiled for.
pub(crate) const TARGET: &str = "wasm32-wasip2";

/// Adds the wasm target when the toolchain does not have it.
///
/// # Errors
/// [`Failure::Missing`] when it is not there and cannot be added.
pub(crate) fn ensure_target(root: &Path) -> Result<(), Failure> {
    if has_target(root)? {
        return Ok(());
    }
    let missing = Failure::Missing { what: "the Rust target wasm32-wasip2", install: "rustup target add wasm32-wasip2" };
    run_step("adding the wasm target", Command::new("rustup").args(["target", "add", TARGET]).current_dir(root)).map_err(|_| missing)
}

fn has_target(root: &Path) -> Result<bool, Failure> {
    let mut rustc = Command::new("rustc");
    let folder = capture(rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(root))?;
    Ok(Path::new(folder.trim()).is_dir())
}

/// Builds every guest workspace for the wasm target.
///
/// # Errors
/// The first that does not build.
pub(crate) fn build_all(root: &Path) -> Result<(), Failure> {
    ensure_target(root)?;
    for folder in Tree::read(root)?.workspace_folders().iter().skip(1) {
        build(root, folder)?;
    }
    Ok(())
}

/// Builds one guest workspace for the wasm target, optimised, into its own `target` folder: configurations name components there,
/// wherever the product itself is built.
pub(crate) fn build(root: &Path, folder: &str) -> Result<(), Failure> {
    let mut command = cargo(&root.join(folder));
    command.args(["build", "--release", "--locked", "--target", TARGET, "--target-dir", "target"]);
    run_step(&format!("building {folder} for {TARGET}"), &mut command)
}
