//! The engines behind [`crate::EventBus`].

pub mod embedded;
