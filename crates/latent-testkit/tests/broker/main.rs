//! The fixture against the real broker, the proxy before it, and the scripted peer.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the failure")]

mod cluster;
mod facts;
mod fixture;
mod proxy;
mod scripted;
mod wire;
