//! `[node]` and `[limits]`.

use std::path::Path;

use latent_core::{CoreError, ServiceName};
use latent_node::limits::CELLS;
use latent_wasmtime::limits::CELL_MEMORY_BYTES;

use super::problem::Fault;
use super::section::{Report, Section};
use super::settings::NodeConfig;
use crate::data_dir::DataDir;
use crate::limits;

const LATER: &[(&str, &str)] = &[("admin", "remove it; read `latent trigger status` instead of the admin page")];

/// Reads both tables.
pub(super) fn read(report: &mut Report<'_>, node: Option<Section<'_>>, limits: Option<Section<'_>>, folder: &Path) -> Option<NodeConfig> {
    let (cells, cell_memory_bytes, drain_millis) =
        limits.map_or((None, None, limits::DRAIN_MILLIS.default), |section| read_limits(report, section));
    let mut section = node?;
    let name = section.required_name(report, "name", "name = \"edge-1\"", parse_node_name);
    let data_dir = section.required_text(report, "data_dir", "data_dir = \"data\"");
    section.refuse_later(report, LATER);
    section.finish(report, LATER);
    let (name, data_dir) = (name?, data_dir?);
    let joined = folder.join(data_dir.value);
    if let Err(limit) = DataDir::new(&joined).check_socket_path() {
        report.push(data_dir.at, Fault::SocketPath { path: DataDir::new(&joined).control_socket().display().to_string(), limit });
    }
    Some(NodeConfig { name: name.value, data_dir: joined, cells, cell_memory_bytes, drain_millis })
}

/// A node's name follows the rule of a service's.
fn parse_node_name(text: &str) -> Result<String, CoreError> {
    match ServiceName::parse(text) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(CoreError::Text { value, problem, .. }) => Err(CoreError::Text { what: "node name", value, problem }),
        Err(other) => Err(other),
    }
}

fn read_limits(report: &mut Report<'_>, mut section: Section<'_>) -> (Option<u64>, Option<u64>, u64) {
    let cells = section.integer(report, "cells", &CELLS).map(|cells| cells.value);
    let cell_memory_bytes = section.integer(report, "cell_memory_bytes", &CELL_MEMORY_BYTES).map(|bytes| bytes.value);
    let drain_millis = section.integer_or_default(report, "drain_millis", &limits::DRAIN_MILLIS).value;
    section.finish(report, &[]);
    (cells, cell_memory_bytes, drain_millis)
}
