//! The project's own commands. They use what a clone has and a Rust toolchain brings; no shell scripts beside them.
//!
//! Progress goes to standard error. Standard output belongs to results, and its last line to machines.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks on its standard streams")]

mod bench;
mod broker;
mod campaign;
mod counts;
mod demo;
mod failure;
mod fuzz;
mod guests;
mod markdown;
mod process;
mod rows;
mod rust_source;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

use crate::failure::Failure;
use crate::tree::Tree;

const USAGE: &str = "\
usage: cargo xtask <command>

  demo [--json]     build everything, start a node, feed it the example's events, show what happened
  test              install what the tests need, then formatting, lints, tidy, rows and all tests
  tidy [--bless]    the rules of the tree; --bless rewrites the table of docs/limits.md from the sources
  rows [--final]    every requirement row has its test or its document; --final allows no open row
  broker            fetch the pinned NATS server that tests run against, check it, print its path
  guests            build every guest for wasm32-wasip2
  fuzz [--seconds N]  seeded mutations of the fuzz corpora, for 60 s or N
  bench [--json]    measure log, activations, deliveries and publications, built with optimisations, as ratios to loops by hand
  bench broker [--json]  only topics on the pinned broker, which is started for it
  bench publish [--json]  only publications, on the pinned broker, which is started for it
  bench trigger [--json]  only triggers, of the log and of the pinned broker, which is started for it
  campaign NAME     a long run whose report goes into docs/reliability.md: activations, bytes, cluster, deliveries or kills

example: cargo xtask demo --json";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.exit_status())
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), Failure> {
    let root = tree::project_root();
    match arguments {
        ["demo"] => demo::run(&root, demo::Output::Readable),
        ["demo", "--json"] => demo::run(&root, demo::Output::Json),
        ["test"] => test::run(&root),
        ["tidy"] => tidy::run(&root),
        ["tidy", "--bless"] => tidy::bless(&root),
        ["rows"] => rows::run(&Tree::read(&root)?, rows::Stage::Underway),
        ["rows", "--final"] => rows::run(&Tree::read(&root)?, rows::Stage::Final),
        ["bench"] => bench::run(&root, bench::Form::Readable),
        ["bench", "--json"] => bench::run(&root, bench::Form::Json),
        ["bench", "broker"] => bench::broker(&root, bench::Form::Readable),
        ["bench", "broker", "--json"] => bench::broker(&root, bench::Form::Json),
        ["bench", "publish"] => bench::publish(&root, bench::Form::Readable),
        ["bench", "publish", "--json"] => bench::publish(&root, bench::Form::Json),
        ["bench", "trigger"] => bench::trigger(&root, bench::Form::Readable),
        ["bench", "trigger", "--json"] => bench::trigger(&root, bench::Form::Json),
        ["campaign", name] => campaign::run(&root, name),
        ["broker"] => {
            broker::ensure_reader(&root)?;
            broker::ensure(&root).map(|server| println!("{}", server.display()))
        }
        ["guests"] => guests::build_all(&root),
        ["fuzz"] => fuzz::run(&root, fuzz::SECONDS_DEFAULT),
        ["fuzz", "--seconds", seconds] => fuzz::run(&root, seconds.parse().map_err(|_| Failure::Usage)?),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Failure::Usage),
    }
}
