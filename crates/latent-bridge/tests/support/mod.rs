//! Fixtures and doubles of the crate's own traits.

pub(crate) mod cold;
pub(crate) mod counting;
pub(crate) mod crash;
#[path = "../../src/cold/doubles.rs"]
pub(crate) mod doubles;
pub(crate) mod fixtures;
pub(crate) mod history;
pub(crate) mod logs;
pub(crate) mod storage;

/// What the doubles of cold stores name.
mod store {
    pub(crate) use latent_bridge::cold::{ColdError, ColdStore, Listed, PutEnd};
}
