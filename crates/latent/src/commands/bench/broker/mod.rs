//! `latent bench broker`: what topics on a NATS broker cost against `async-nats` by hand, on a stream of its own with the same messages.
//!
//! The broker is the one that `AV_NATS_URL` and its companions name. `ours` is the bus, `peer` the loops by hand; `rows` says what is
//! compared with which target. Streams are made for the run and stay until the broker ends or they are deleted by hand: what is
//! measured must not be removed under a reader's feet.

#[cfg(feature = "bench-peers")]
mod ours;
#[cfg(feature = "bench-peers")]
mod peer;
#[cfg(feature = "bench-peers")]
mod rows;

use clap::Args;

use crate::error::CliError;
use crate::limits;
use crate::output::Output;

/// Arguments of `latent bench broker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench broker
  AV_NATS_URL=tls://nats.example.net:4222 AV_NATS_USER=bench AV_NATS_PASSWORD=… latent bench broker
  latent bench broker --records 100000 --json

The broker is not started here: `cargo xtask bench broker` starts the pinned one and runs this command on it. It makes the streams \
`av_bench_large`, `av_bench_small`, `av_bench_batches` and `BENCH_BY_HAND`, which take about 1 GB for a million records, and refuses to \
begin where they are. A target that is missed is told in the row and is no failure of the command.")]
pub(crate) struct BrokerArgs {
    /// Records in the large stream; the small one has a tenth
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(limits::BENCH_RECORDS.min..=limits::BENCH_RECORDS.max))]
    records: Option<u64>,
    /// Slices of each side
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(limits::BENCH_ROUNDS.min..=limits::BENCH_ROUNDS.max))]
    rounds: Option<u64>,
    /// Everything once, with as little as can be: whether it works. Nothing is judged
    #[arg(long)]
    quick: bool,
}

#[cfg(not(feature = "bench-peers"))]
pub(super) fn broker(_: &BrokerArgs, _: &mut Output) -> Result<(), CliError> {
    Err(CliError::Usage {
        what: "the loops by hand are not in this build".to_owned(),
        why: "they are built with the feature `bench-peers` alone".to_owned(),
        next: "run `cargo xtask bench broker` in the project's folder".to_owned(),
    })
}

#[cfg(feature = "bench-peers")]
pub(super) use measured::broker;

#[cfg(feature = "bench-peers")]
mod measured {
    use super::super::measure::Session;
    use super::super::plan::Plan;
    use super::super::scratch::Memory;
    use super::super::{print_heading, print_row};
    use super::rows::Bench;
    use super::{BrokerArgs, CliError, Output, limits};

    impl BrokerArgs {
        fn plan(&self) -> Plan {
            let plan = if self.quick { Plan::quick() } else { Plan::full(self.records.unwrap_or(limits::BENCH_RECORDS.default)) };
            let rounds = self.rounds.and_then(|rounds| usize::try_from(rounds).ok()).unwrap_or(plan.rounds);
            Plan { records: self.records.unwrap_or(plan.records), rounds, ..plan }
        }
    }

    /// Measures row after row and prints each as soon as it is known.
    pub(in super::super) fn broker(args: &BrokerArgs, output: &mut Output) -> Result<(), CliError> {
        let mut session = Session::in_new_folder(args.plan(), None, Memory::Allowed)?;
        print_heading(&session, &format!(", {} records in the large stream", session.plan.records), output)?;
        let mut bench = Bench::prepare(&session)?;
        bench.measure(&mut session, &mut |row| print_row(row, output))
    }
}
