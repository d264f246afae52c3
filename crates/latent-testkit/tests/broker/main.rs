//! The fixture against the real broker.

mod facts;
mod fixture;
mod wire;
