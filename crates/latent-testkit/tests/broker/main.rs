//! The fixture against the real broker, the proxy before it, and the scripted peer.

mod facts;
mod fixture;
mod proxy;
mod scripted;
mod wire;
