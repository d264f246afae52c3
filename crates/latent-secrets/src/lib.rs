//! Secrets at rest, and handles that show them for one purpose, tenant, provider and destination only.
//!
//! [`LocalSecretStore`] is one directory for its owner alone; `docs/formats/secrets.md` has its format. A value is in memory while
//! it is sealed or resolved, in buffers that are wiped. No value, hash of a value or length of a value is in an error, a `Debug`,
//! a file's size or anything else that leaves this crate, but for [`ResolvedSecret::value`]. Time is an argument.
//!
//! Every call looks at the directory anew, so what another process changed is seen by the next call. Calls block for the time of
//! a few file operations.

mod access;
mod binding;
mod directory;
mod error;
mod handle;
mod info;
mod key;
pub mod limits;
mod lock;
mod name;
mod record;
mod replace;
mod seal;
mod sight;
mod store;
mod store_file;
#[cfg(test)]
mod tests;

pub use binding::{BindMismatch, BusBinding, NewSecret, SecretProtocol, SecretPurpose, TlsBinding};
pub use error::{AccessProblem, KeyProblem, SecretError};
pub use handle::{BindError, NotCurrent, ResolveError, ResolvedSecret, Stamp, TlsProviderCredential};
pub use info::{SecretInfo, SecretState, Survey};
pub use key::{SealingKey, control_key_from_file};
pub use name::{SecretName, SecretNameError};
pub use store::LocalSecretStore;
