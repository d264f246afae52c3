//! The one place where bytes become code without being compiled. Nothing else may live here.

use wasmtime::Engine;
use wasmtime::component::Component;

use super::entry::VerifiedCode;

/// Loads code that this cache wrote.
#[allow(unsafe_code, reason = "the engine cannot check compiled code; the proof that it may be trusted is `VerifiedCode`")]
pub(super) fn load(engine: &Engine, code: &VerifiedCode<'_>) -> wasmtime::Result<Component> {
    // SAFETY: `Component::deserialize` is sound for bytes that `Component::serialize` gave and nobody changed; it refuses bytes of another
    // engine version or configuration by itself.
    // - They are such bytes: a `VerifiedCode` exists only where an HMAC-SHA-256 over label and code held under the key of the cache
    //   directory, and the only call that makes such an HMAC for an entry gives it to the output of `Component::serialize`.
    // - Nobody else can make one: key and entries lie in a directory that was opened as ours and closed to all others, and the key file
    //   itself is closed to all others. Whoever can still read it is root or runs as this user, and could change this process instead.
    // - They cannot change in between: the HMAC was computed over this very buffer in private memory, and the engine copies from it.
    //   `deserialize_file` would map a file that may change after the check, so it is not used.
    unsafe { Component::deserialize(engine, code.bytes()) }
}
