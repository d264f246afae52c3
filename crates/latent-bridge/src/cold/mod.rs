//! The cold archive: what leaves hot storage is first durable and complete somewhere else. `docs/design/cold-archive.md` says why it is so.
//!
//! Public is only the seam to a store ([`ColdStore`]); what is archived, when and how is the engines' business.

#[cfg(test)]
pub(crate) mod doubles;
mod store;

pub use store::{ColdError, ColdStore, Listed, PutEnd};
