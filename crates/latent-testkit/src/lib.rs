//! What tests of every crate share, and `cargo xtask` with them. A dev-dependency: nothing here may reach the product.
//!
//! - [`ManualClock`]: time that moves only when a test says so.
//! - [`ChildGuard`]: a child process that is ended and reaped however its owner ends.
//! - [`CliEnv`]: a program run with nothing of the developer's machine in its environment.
//! - [`wait_until`]: the one way to wait for a state that only another process or thread can reach.
//! - [`skip!`]: the one way to leave a test early, counted by `cargo xtask test`.
//!
//! With the feature `broker`:
//!
//! - [`broker`]: the pinned NATS server as a fixture, with certificates made at run time and a provisioning path of its own.
//! - [`proxy`]: a TLS proxy that cuts, stalls, garbles and withholds at an exact plaintext byte.
//! - [`StandingTime`]: virtual time that does not jump while a socket is waited for.
//! - [`fake_peer`]: a TLS server that follows a script, for what no real broker would send.
//!
//! Of the workspace it uses `latent-core` alone, so that every other crate can use it without a cycle.

#[cfg(feature = "broker")]
pub mod broker;
mod child;
mod cli;
mod clock;
#[cfg(feature = "broker")]
pub mod fake_peer;
#[cfg(feature = "broker")]
mod observed;
#[cfg(feature = "broker")]
mod own_thread;
#[cfg(feature = "broker")]
pub mod proxy;
mod skip;
#[cfg(feature = "broker")]
mod standing_time;
#[cfg(feature = "broker")]
mod tls;
mod wait;

pub use child::{ChildGuard, StillRunning};
pub use cli::{CliEnv, CliOutput};
pub use clock::ManualClock;
pub use skip::{Missing, REQUIRE_BROKER_VAR, SKIPS_FILE_VAR, SkipPolicy, test_name_of};
#[cfg(feature = "broker")]
pub use standing_time::StandingTime;
#[cfg(feature = "broker")]
pub use wait::until_some;
pub use wait::wait_until;
