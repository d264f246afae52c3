//! Nodes of this program, as processes of their own, that do nothing: how soon each is ready, and what it holds then.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::failed;
use super::guest::variant;
use crate::error::CliError;

/// What a node has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    /// Services, each a publication of its own.
    pub(super) publications: u32,
    /// Triggers on a topic without events.
    pub(super) bindings: u32,
    /// Different components, which the services share in turns.
    pub(super) components: u32,
}

/// The folder of a node.
pub(super) struct IdleNode {
    folder: PathBuf,
}

/// A node that is ready. Stopped and waited for when dropped.
pub(super) struct Ready {
    process: Child,
    /// From its start to the moment in which it said so.
    pub(super) ready_after: Duration,
}

/// What a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Memory of its own, files mapped by others too left out.
    pub(super) memory_bytes: u64,
    pub(super) threads: u64,
    /// Open files, sockets and timers.
    pub(super) files: usize,
}

impl IdleNode {
    /// Writes configuration, manifest and components.
    pub(super) fn prepare(folder: &Path, shape: Shape) -> Result<Self, CliError> {
        let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).map_err(failed(format!("writing {name}")));
        for number in 0..shape.components {
            write(&format!("{number}.wasm"), &variant(number))?;
        }
        write("bridge.yaml", MANIFEST.as_bytes())?;
        write("latent.toml", configuration(shape).as_bytes())?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Starts the node and waits until it is ready.
    pub(super) fn start(&self) -> Result<Ready, CliError> {
        let program = std::env::current_exe().map_err(failed("finding this program"))?;
        let mut command = Command::new(program);
        command.args(["run", "-c"]).arg(self.folder.join("latent.toml")).env("LATENT_LOG", "error");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let started = Instant::now();
        let process = command.spawn().map_err(failed("starting a node"))?;
        let mut ready = Ready { process, ready_after: Duration::ZERO };
        let mut line = String::new();
        let stdout = ready.process.stdout.as_mut();
        stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line)).map_err(failed("waiting for a node"))?;
        ready.ready_after = started.elapsed();
        if line.is_empty() {
            return Err(CliError::Bench { doing: "starting a node".to_owned(), reason: "it ended; its messages are above".to_owned() });
        }
        Ok(ready)
    }
}

impl Ready {
    /// What it holds now.
    pub(super) fn held(&self) -> Result<Held, CliError> {
        let proc = PathBuf::from(format!("/proc/{}", self.process.id()));
        let status = fs::read_to_string(proc.join("status")).map_err(failed("reading a process's status"))?;
        let number = |key: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(key)).and_then(|rest| rest.split_whitespace().next());
            value.and_then(|value| value.parse::<u64>().ok()).unwrap_or_default()
        };
        let files = fs::read_dir(proc.join("fd")).map_err(failed("listing a process's files"))?.count();
        Ok(Held { memory_bytes: number("RssAnon:").saturating_mul(1_024), threads: number("Threads:"), files })
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // A node that is gone already needs no signal.
        let stopped = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, Signal::TERM));
        if !matches!(stopped, Some(Ok(()))) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

const MANIFEST: &str = "\
manifest_version: 1
name: bench
topics:
  - name: t
    partitions: 1
";

/// Tables on one line each: many of them have to fit into a configuration file.
fn configuration(shape: Shape) -> String {
    let mut text = "service = [\n".to_owned();
    // Writing to a string cannot fail.
    for number in 0..shape.publications {
        let _ = writeln!(text, "{{name=\"s{number}\",tenant=\"a\",component=\"{}.wasm\"}},", number % shape.components.max(1));
    }
    text.push_str("]\ntrigger = [\n");
    for number in 0..shape.bindings {
        let _ = writeln!(text, "{{id=\"b{number}\",tenant=\"a\",service=\"s{}\",topic=\"t\"}},", number % shape.publications.max(1));
    }
    text.push_str("]\n");
    text.push_str("topic = [{name=\"t\",tenant=\"a\"}]\n[node]\nname = \"bench\"\ndata_dir = \"data\"\n");
    text.push_str("[engine]\nkind = \"embedded\"\nmanifest = \"bridge.yaml\"\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_twenty_thousand_parts_fits_into_a_configuration_file() {
        let text = configuration(Shape { publications: 10_000, bindings: 10_000, components: 1 });
        assert!((text.len() as u64) < crate::limits::CONFIG_FILE_BYTES.max, "{}", text.len());
    }
}
