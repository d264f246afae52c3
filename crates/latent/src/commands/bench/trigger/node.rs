//! The node that is measured: one trigger, whose function publishes each event of the topic `in` to the topic `out`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use latent_bridge::{EmbeddedBroker, EventBus};
use latent_core::Partition;

use super::super::{failed, log_failed};
use super::guest::FORWARD;
use crate::config::{self, NamedFiles};
use crate::error::CliError;
use crate::node::InProcessNode;

/// Where events go in.
pub(super) const IN: &str = "in";
/// Where they come out.
const OUT: &str = "out";
/// Partitions of each of the two topics.
pub(super) const PARTITIONS: u32 = 16;

/// How many activations the node runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cells {
    /// As many as one that is not told.
    Default,
    /// So many.
    Set(u32),
}

/// Writes configuration, manifest and component into `folder` and starts a node on it. Every setting but the cells is left at its
/// default.
pub(super) fn start(
    folder: &Path,
    cells: Cells,
    publishing: impl FnOnce(&Arc<EmbeddedBroker>) -> Arc<dyn EventBus>,
) -> Result<InProcessNode, CliError> {
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).map_err(failed(format!("writing {name}")));
    write("forward.wasm", FORWARD)?;
    write("bridge.yaml", manifest().as_bytes())?;
    write("latent.toml", configuration(cells).as_bytes())?;
    let loaded = config::load(&folder.join("latent.toml"), NamedFiles::ComponentsMustExist)?;
    InProcessNode::start(loaded.config, publishing)
}

/// Events that have come out.
pub(super) fn came_out(node: &InProcessNode) -> Result<u64, CliError> {
    let ends = (0..PARTITIONS).map(|partition| node.log().bounds(OUT, Partition(partition)).map(|(_, end)| end.0));
    ends.sum::<Result<u64, _>>().map_err(log_failed("counting what came out"))
}

fn manifest() -> String {
    let topic = |name: &str| format!("  - name: {name}\n    partitions: {PARTITIONS}\n");
    format!("manifest_version: 1\nname: bench\ntopics:\n{}{}", topic(IN), topic(OUT))
}

fn configuration(cells: Cells) -> String {
    let cells = match cells {
        Cells::Default => String::new(),
        Cells::Set(cells) => format!("\n[limits]\ncells = {cells}\n"),
    };
    format!("{CONFIGURATION}{cells}")
}

const CONFIGURATION: &str = "\
topic = [{ name = \"in\", tenant = \"a\" }, { name = \"out\", tenant = \"a\" }]

[node]
name = \"bench\"
data_dir = \"data\"

[engine]
kind = \"embedded\"
manifest = \"bridge.yaml\"

[[service]]
name = \"forward\"
tenant = \"a\"
component = \"forward.wasm\"
grants = [{ capability = \"latent:events/publisher@0.2.0\", topics = [\"out\"] }]

[[trigger]]
id = \"forward\"
tenant = \"a\"
service = \"forward\"
topic = \"in\"
";
