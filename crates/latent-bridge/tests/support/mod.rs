//! Fixtures and doubles of the crate's own traits.

pub(crate) mod counting;
pub(crate) mod crash;
pub(crate) mod fixtures;
pub(crate) mod history;
pub(crate) mod logs;
pub(crate) mod storage;
