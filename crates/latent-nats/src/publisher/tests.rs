//! The publisher before scripted peers: everything that a broker could say and the pinned one never does. No broker is needed;
//! time that matters is virtual.

mod bench;
mod certificates;
mod dialling;
mod installing;
mod parked;
mod refusals;
mod rejections;
mod replies;
mod session;
mod time;
mod wire;
