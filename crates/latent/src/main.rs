//! The `latent` command: a node, and everything a person does with one.
//!
//! `cli` has the words, `commands` one file for each, `config` the settings, `control` the talk with a running node, `access` the way
//! to the data, `component_file` how a component is read, `engine` which engines there are and how the embedded one is opened, `broker` how the other is, `late_bus` what stands for one that is not there yet, `log` either of them, `maintenance` how it is kept in order, `host` what a node keeps of itself, `administration` what may be called and where calls lead, `node` the assembly that `latent run` starts. How a command ends is decided in `error` and `exit` alone.

mod access;
mod administration;
mod archive_keys;
mod broker;
mod cli;
mod commands;
mod component_file;
mod config;
mod control;
mod data_dir;
mod engine;
mod error;
mod exit;
mod host;
mod late_bus;
mod limits;
mod log;
mod logging;
mod maintenance;
mod node;
mod output;
mod secret_store;
mod stop;
mod table;
mod timestamp;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};
use error::CliError;
use exit::ExitStatus;
use output::{Form, Output};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let form = form_of(cli.json);
    let mut output = Output::new(form);
    let done = run(&cli.command, &mut output).and_then(|()| output.flush());
    // What was printed before a failure is part of the result.
    let flushed = output.flush();
    match done.and(flushed) {
        Ok(()) => ExitStatus::Done.into(),
        Err(error) => {
            output::report(form, &error);
            error.status().into()
        }
    }
}

fn run(command: &Command, output: &mut Output) -> Result<(), CliError> {
    match command {
        Command::Run(args) => commands::run::run(args, output),
        Command::Dev(args) => commands::dev::dev(args, output),
        Command::Check(args) => commands::check::check(args, output),
        Command::New(args) => commands::new::new(args, output),
        Command::Invoke(args) => commands::invoke::invoke(args, output),
        Command::Reload(args) => commands::reload::reload(args, output),
        Command::Bus(command) => commands::bus::bus(command, output),
        Command::Trigger(command) => commands::trigger::trigger(command, output),
        Command::Deadletter(command) => commands::deadletter::deadletter(command, output),
        Command::Why(args) => commands::why::why(args, output),
        Command::Service(command) => commands::service::service(command, output),
        Command::Secret(command) => commands::secret::secret(command, output),
        Command::Broker(command) => commands::broker::broker(command, output),
        Command::Clock(command) => commands::clock::clock(command, output),
        Command::Archive(command) => commands::archive::archive(command, output),
        Command::Bench(command) => commands::bench::bench(command, output),
        Command::Completions(args) => commands::completions::completions(args, output),
        Command::Later(later) => {
            Err(CliError::NotBuilt { what: format!("latent {}", later.word()), instead: "see `latent --help` for what there is" })
        }
    }
}

/// What the parser saw, or what stands there although it could not make sense of the whole.
fn form_of(json_was_parsed: bool) -> Form {
    let stands_there = || std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json");
    if json_was_parsed || stands_there() { Form::Json } else { Form::Human }
}

/// Help and version are answers; anything else is a wrong command.
fn usage(error: &clap::Error) -> ExitStatus {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            // A reader that has gone away wanted no more of it.
            let _ = error.print();
            ExitStatus::Done
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitStatus::Wrong
        }
        _ => {
            let form = form_of(false);
            let error = cli::usage_error(error, std::env::args_os().map(|word| word.to_string_lossy().into_owned()));
            output::report(form, &error);
            error.status()
        }
    }
}
