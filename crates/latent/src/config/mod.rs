//! The node's configuration file: TOML in, either typed settings or every problem at once.
//!
//! `section` reads one table and knows nothing of its meaning; `component` looks at a component's first bytes; `node`, `engine` (with `broker`), `secrets`, `archive`, `provider`, `topic`, `service`, `trigger`, `stream_trigger`, `profile`, `lanes` and `streams` read theirs into
//! drafts; `links` checks what one table says of another; `problem` holds every fault in words. Nothing here starts anything, and
//! nothing outside reads TOML. Invariant: a key is read, refused as unknown, or refused as not built yet; none is ignored.

mod archive;
mod broker;
mod component;
mod draft;
mod engine;
mod lanes;
mod links;
mod load;
mod node;
mod place;
mod problem;
mod profile;
mod provider;
mod secrets;
mod section;
mod service;
pub(crate) mod settings;
mod stream_trigger;
mod streams;
mod topic;
mod trigger;

#[cfg(test)]
mod tests;

pub(crate) use engine::read_manifest;
#[cfg(test)]
pub(crate) use load::parse as load_text;
pub(crate) use load::{NamedFiles, load, load_for_dev};
pub(crate) use problem::{ConfigError, Warning};
pub(crate) use section::nearest;
pub(crate) use settings::{Config, EngineConfig};
