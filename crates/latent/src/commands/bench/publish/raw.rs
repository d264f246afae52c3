//! The loop by hand: publish, wait for the answer, publish. On one thread, which waits in the system's own poll: nothing is handed over.

use std::cell::RefCell;
use std::time::Instant;

use tokio::runtime::{self, Runtime};

use super::super::failed;
use super::super::figure::Slice;
use super::target::Target;
use super::wire::Wire;
use super::{broken, rows};
use crate::error::CliError;

/// Connections with one publication in flight on each.
pub(super) struct RawLoop {
    runtime: Runtime,
    wires: RefCell<Vec<Wire>>,
    ids: RefCell<rows::Ids>,
}

impl RawLoop {
    pub(super) fn connect(target: &Target, connections: usize) -> Result<Self, CliError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed("making a runtime"))?;
        let wires = (0..connections).map(|number| runtime.block_on(Wire::connect(target, number))).collect::<Result<_, _>>();
        let wires = wires.map_err(failed(format!("connecting to {} by hand", target.address)))?;
        Ok(Self { runtime, wires: RefCell::new(wires), ids: RefCell::new(rows::Ids::new()?) })
    }

    /// One round trip without a message.
    pub(super) fn ping(&self) -> Result<(), CliError> {
        let mut wires = self.wires.borrow_mut();
        let Some(wire) = wires.first_mut() else { return Ok(()) };
        self.runtime.block_on(wire.ping()).map_err(failed("asking for a PONG"))
    }

    /// So many publications in total, one after the other on each connection.
    pub(super) fn slice(&self, payload: &[u8], publications: u32) -> Result<Slice, CliError> {
        let mut wires = self.wires.borrow_mut();
        let share = publications / u32::try_from(wires.len()).unwrap_or(1).max(1);
        let mut ids = self.ids.borrow_mut();
        let mut work: Vec<_> = wires.drain(..).map(|wire| (wire, ids.take(share))).collect();
        drop(ids);
        let running = async {
            let started = Instant::now();
            let one = |(wire, ids): (Wire, Vec<String>)| tokio::spawn(one_by_one(wire, ids, payload.to_vec()));
            let running: Vec<_> = work.drain(..).map(one).collect();
            let mut latencies = Vec::new();
            for task in running {
                let (wire, times) = task.await.map_err(|error| broken("publishing by hand", &error))??;
                wires.push(wire);
                latencies.extend(times);
            }
            Ok(Slice { units: latencies.len() as u64, elapsed: started.elapsed(), latencies })
        };
        self.runtime.block_on(running)
    }
}

async fn one_by_one(mut wire: Wire, ids: Vec<String>, payload: Vec<u8>) -> Result<(Wire, Vec<std::time::Duration>), CliError> {
    let mut latencies = Vec::with_capacity(ids.len());
    let mut now = Instant::now();
    for id in ids {
        wire.publish(&id, &payload).await.map_err(failed("publishing by hand"))?;
        let done = Instant::now();
        latencies.push(done.duration_since(now));
        now = done;
    }
    Ok((wire, latencies))
}
