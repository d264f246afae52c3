//! The cold archive: what leaves hot storage is first durable and complete somewhere else. `docs/design/cold-archive.md` says why it is so.
//!
//! Public is only the seam to a store ([`ColdStore`], [`ColdStores`]) and what can be chosen ([`ArchiveOptions`]); what is archived, when
//! and how is the engines' business.

pub(crate) mod archive;
pub(crate) mod beginnings;
#[cfg(feature = "cold-store")]
mod bounded;
mod control_keys;
#[cfg(test)]
pub(crate) mod doubles;
pub mod export;
mod fault;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz_bodies;
pub(crate) mod intent;
mod keys;
mod local;
mod local_listing;
pub(crate) mod object;
mod options;
pub(crate) mod outbox;
mod owner;
mod pass;
pub(crate) mod places;
mod probe;
mod put;
pub mod restore;
#[cfg(feature = "cold-store-aws")]
mod s3;
pub mod segment;
#[cfg(feature = "nats")]
pub(crate) mod stager;
mod store;
mod target;
#[cfg(test)]
mod tests;
pub(crate) mod trouble;
pub mod verify;

pub use control_keys::ControlKeys;
pub use options::{ArchiveOptions, ArchiveStatistics};
pub use places::{ColdStores, is_same_place, open_existing as open_archive, open_to_read};
pub use store::{ColdError, ColdStore, Listed, PutEnd};
