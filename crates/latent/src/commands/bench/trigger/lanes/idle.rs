//! what bindings cost that have nothing to do, as the system counts it.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::super::activation::NOTHING;
use super::super::super::measure::interrupted;
use super::super::super::publish::{Target, sockets};
use super::super::pull::idle::cpu_time;
use super::node::Node;
use crate::error::CliError;
use crate::stop::StopSignal;

/// What was held, and used in a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) sockets: usize,
    pub(super) tasks: usize,
    /// Time of all processors in a second.
    pub(super) cpu: Duration,
}

/// Starts a node with these lanes and looks at it for so long, after its first round. `folder` is new.
pub(super) fn held(target: &Target, folder: &Path, lanes: Range<usize>, time: Duration, stop: &StopSignal) -> Result<Held, CliError> {
    let node = Node::start(NOTHING, target, folder, lanes)?;
    node.until_inspected(stop)?;
    let (started, cpu) = (Instant::now(), cpu_time());
    while started.elapsed() < time {
        interrupted(stop)?;
        std::thread::sleep(time / 50);
    }
    let cpu = cpu_time().saturating_sub(cpu).div_f64(started.elapsed().as_secs_f64());
    let held = Held { sockets: sockets()?, tasks: node.half.tasks(), cpu };
    node.stop(0)?;
    Ok(held)
}
