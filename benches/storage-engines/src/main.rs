//! What could store the embedded event log, measured: raw files, existing stores, and our own engine, at the same durability.
//!
//! Four questions, four subcommands: how fast (`measure`), does it sync what it acknowledges (`trace`), is what it acknowledged there
//! after a kill (`crash`), does it say so when a bit is wrong (`damage`). The decision is in `docs/design/embedded-engine.md`.

mod calm;
mod cli;
mod commit_child;
mod crash;
mod damage;
mod engine;
mod event;
mod failure;
mod group;
mod measure;
mod report;
mod scratch;
mod trace;
mod workload;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("storage-engines: {failure}");
            let mut cause = std::error::Error::source(&failure);
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}
