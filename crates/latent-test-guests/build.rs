//! Builds the components in `guests/` for wasm32-wasip2, into a target directory of its own below `OUT_DIR`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const TARGET: &str = "wasm32-wasip2";

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            instruct(&format!("error={problem}"));
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let crate_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = crate_dir.join("../..");
    for watched in watched(&root)? {
        instruct(&format!("rerun-if-changed={}", watched.display()));
    }
    require_target()?;
    let target_dir = Path::new(&variable("OUT_DIR")?).join("guests");
    let status = cargo(&root.join("guests/Cargo.toml"), &target_dir)?
        .status()
        .map_err(|error| format!("cargo could not be started for the test guests: {error}"))?;
    if !status.success() {
        return Err("the test guests in `guests/` do not build; cargo's messages are above".to_owned());
    }
    instruct(&format!("rustc-env=LATENT_TEST_GUESTS_DIR={}", target_dir.join(TARGET).join("release").display()));
    Ok(())
}

/// What the guests are made of; not the folders that a build makes beside it.
fn watched(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut watched = Vec::new();
    for folder in [root.join("guests"), root.join("sdk/rust")] {
        let entries = folder.read_dir().map_err(|error| format!("{} cannot be listed: {error}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| format!("{} cannot be listed: {error}", folder.display()))?.path();
            if !path.ends_with("target") {
                watched.push(path);
            }
        }
    }
    Ok(watched)
}

/// A build script talks to cargo on its standard output.
#[allow(clippy::print_stdout, reason = "this is how a build script answers")]
fn instruct(line: &str) {
    println!("cargo::{line}");
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name} is not what cargo sets for a build script: {error}"))
}

/// Says what to install instead of letting the guests fail on a missing standard library.
fn require_target() -> Result<(), String> {
    let rustc = variable("RUSTC")?;
    let output = Command::new(&rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .map_err(|error| format!("{rustc} could not be started: {error}"))?;
    let libraries = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && Path::new(libraries.trim()).is_dir() {
        return Ok(());
    }
    Err(format!("the test guests need the Rust target {TARGET}, which is not installed; run `rustup target add {TARGET}`"))
}

/// Cargo as a user would start it: what the outer build set for the host (flags, wrappers, target directory, profile) is not for
/// the guests.
fn cargo(manifest: &Path, target_dir: &Path) -> Result<Command, String> {
    let mut command = Command::new(variable("CARGO")?);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let disturbs = ["CARGO_ENCODED_", "CARGO_BUILD_", "CARGO_TARGET_", "CARGO_PROFILE_", "CARGO_FEATURE_", "CARGO_CFG_"];
        if disturbs.iter().any(|prefix| text.starts_with(prefix)) || text == "RUSTFLAGS" || text == "RUSTC_WORKSPACE_WRAPPER" {
            command.env_remove(&name);
        }
    }
    command.args(["build", "--release", "--locked", "--target", TARGET, "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(target_dir);
    Ok(command)
}
