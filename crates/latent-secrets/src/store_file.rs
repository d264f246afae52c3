//! The file `store`: what this directory is, and a known text that tells a wrong key from a damaged file.

use std::path::Path;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::directory::Directory;
use crate::seal::{self, Nonce};
use crate::{SealingKey, SecretError};

/// The file's name.
pub(crate) const STORE: &str = "store";
const FORMAT: &str = "latent-secret-store 1\n";
const KNOWN: &[u8] = b"the key of this store";

/// The file for a new store.
pub(crate) fn encode(key: &SealingKey, nonce: &Nonce) -> Option<Vec<u8>> {
    let sealed = seal::seal(key, nonce, FORMAT.as_bytes(), Zeroizing::new(KNOWN.to_vec()))?;
    let text = format!("{FORMAT}key-check {sealed}\n");
    Some(format!("{text}sum {}\n", sum(&text)).into_bytes())
}

/// Checks the key against the file; `false` when there is no such file.
///
/// # Errors
/// [`SecretError::WrongKey`] when the file is as it was written, by its sum, and the key does not open it.
pub(crate) fn check(directory: &Directory, key: &SealingKey) -> Result<bool, SecretError> {
    let Some(content) = directory.read(STORE)? else { return Ok(false) };
    check_content(directory.path(), &content, key).map(|()| true)
}

fn check_content(directory: &Path, content: &[u8], key: &SealingKey) -> Result<(), SecretError> {
    let damaged = |problem| SecretError::Damaged { file: directory.join(STORE), problem };
    let text = std::str::from_utf8(content).map_err(|_| damaged("it is not text"))?;
    let Some(body) = text.strip_prefix(FORMAT) else { return Err(damaged("it is not a store of format version 1")) };
    let parts = body.strip_prefix("key-check ").and_then(|rest| rest.strip_suffix('\n')).and_then(|rest| rest.split_once("\nsum "));
    let (sealed, written) = parts.ok_or_else(|| damaged("its lines are not those of a store"))?;
    if sum(&format!("{FORMAT}key-check {sealed}\n")) != written {
        return Err(damaged("its sum is not that of its lines"));
    }
    match seal::unseal(key, FORMAT.as_bytes(), sealed) {
        Some(known) if known.as_slice() == KNOWN => Ok(()),
        _ => Err(SecretError::WrongKey { directory: directory.to_owned() }),
    }
}

/// The first 8 bytes of the SHA-256, in hexadecimal digits. Against accidents only: it needs no key.
fn sum(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
