//! The key that a store is sealed under, and where an operator gives it.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use zeroize::Zeroizing;

use crate::access::{self, Kind};
use crate::{AccessProblem, KeyProblem, SecretError};

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;
/// The longest file with a key: its digits and one end of line, and a byte to see that there is more.
const FILE_BYTES: usize = KEY_BYTES * 2 + 2;
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// A key of 32 bytes, wiped when it is dropped. `Debug` does not show it.
pub struct SealingKey(Box<Zeroizing<[u8; KEY_BYTES]>>);

impl SealingKey {
    /// Takes the key from a regular file that is its owner's alone: 32 bytes as they are, or 64 hexadecimal digits with or without
    /// an end of line.
    ///
    /// # Errors
    /// [`SecretError::Key`] saying what is wrong and what to run.
    pub fn from_file(file: &Path) -> Result<Self, SecretError> {
        let origin = format!("file {}", file.display());
        Self::of_owner_only(file).map_err(|problem| SecretError::Key { origin, problem })
    }

    fn of_owner_only(file: &Path) -> Result<Self, KeyProblem> {
        read(file, |metadata| access::owner_only(file, metadata, Kind::File))
    }

    /// Takes the key from the credential `name` that systemd gives to a service (`LoadCredential=`, `LoadCredentialEncrypted=`).
    ///
    /// # Errors
    /// [`SecretError::Key`]; without `CREDENTIALS_DIRECTORY` too.
    pub fn from_systemd_credential(name: &str) -> Result<Self, SecretError> {
        Self::from_credential_in(env::var_os(CREDENTIALS_DIRECTORY).as_deref(), name)
    }

    /// As [`SealingKey::from_systemd_credential`], with the variable as an argument.
    pub(crate) fn from_credential_in(directory: Option<&OsStr>, name: &str) -> Result<Self, SecretError> {
        let problem = |problem| SecretError::Key { origin: format!("credential {name:?}"), problem };
        let directory = directory.ok_or_else(|| problem(KeyProblem::NoCredentials("is not set")))?;
        let directory = PathBuf::from(directory);
        if !directory.is_absolute() {
            return Err(problem(KeyProblem::NoCredentials("is not an absolute path")));
        }
        if name.is_empty() || name.len() > 255 || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(problem(KeyProblem::Name));
        }
        let file = directory.join(name);
        read(&file, |metadata| credential_access(&file, metadata)).map_err(problem)
    }

    /// A key that the caller has from elsewhere.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        let mut key = Self::blank();
        key.0.copy_from_slice(bytes);
        key
    }

    fn blank() -> Self {
        Self(Box::new(Zeroizing::new([0; KEY_BYTES])))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let mut key = Self::blank();
        if content.len() == KEY_BYTES {
            key.0.copy_from_slice(content);
            return Some(key);
        }
        let digits = content.strip_suffix(b"\n").unwrap_or(content);
        let digits = digits.strip_suffix(b"\r").unwrap_or(digits);
        if digits.len() != KEY_BYTES * 2 {
            return None;
        }
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().try_fold(0, |value, digit| Some(value << 4 | hex_value(*digit)?))?;
        }
        Some(key)
    }
}

/// Reads a control key of the archive, with every care that a sealing key is read with: a regular file that is its owner's alone, 32 bytes or
/// 64 hexadecimal digits, and neither zeros nor 0xFF alone.
///
/// # Errors
/// [`SecretError::ControlKey`] saying what is wrong and what to run.
pub fn control_key_from_file(file: &Path) -> Result<Zeroizing<[u8; KEY_BYTES]>, SecretError> {
    let unusable = |problem| SecretError::ControlKey { file: file.to_owned(), problem };
    let key = SealingKey::of_owner_only(file).map_err(unusable)?;
    // Refused here, where it is known which file it is.
    if [0, 0xff].iter().any(|byte| key.bytes().iter().all(|other| other == byte)) {
        return Err(unusable(KeyProblem::Weak));
    }
    Ok(Zeroizing::new(*key.bytes()))
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey")
    }
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn read(file: &Path, allowed: impl Fn(&Metadata) -> Result<(), AccessProblem>) -> Result<SealingKey, KeyProblem> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(CWD, file, flags, Mode::empty());
    let opened = opened.map_err(|errno| match access::refused(file, errno, Kind::File) {
        Some(problem) => KeyProblem::Access(problem),
        None => KeyProblem::Unreadable { reason: errno.to_string() },
    })?;
    let unreadable = |error: std::io::Error| KeyProblem::Unreadable { reason: error.to_string() };
    let mut opened = File::from(opened);
    allowed(&opened.metadata().map_err(unreadable)?).map_err(KeyProblem::Access)?;
    let mut content = Zeroizing::new([0; FILE_BYTES + 1]);
    let mut bytes = 0;
    while let Some(rest) = content.get_mut(bytes..).filter(|rest| !rest.is_empty()) {
        match opened.read(rest) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    content.get(..bytes).and_then(SealingKey::parse).ok_or(KeyProblem::Form)
}

/// systemd keeps credentials for the service's user alone, on a file system of their own. Where the user has no right over the
/// file's owner it grants the right by an access list, which shows as the group's right to read.
fn credential_access(file: &Path, metadata: &Metadata) -> Result<(), AccessProblem> {
    let ours = rustix::process::geteuid().as_raw();
    if !metadata.is_file() {
        return Err(AccessProblem::Kind { expected: "regular file" });
    }
    let owner = metadata.uid();
    if owner != ours && owner != 0 {
        return Err(AccessProblem::Owner { owner, ours, command: format!("chown {ours} {}", file.display()) });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o037 != 0 {
        return Err(AccessProblem::Mode { mode, command: format!("chmod 400 {}", file.display()) });
    }
    Ok(())
}
