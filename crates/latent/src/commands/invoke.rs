//! `latent invoke`: one activation of one function, its result printed.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::access::{Access, unexpected};
use crate::config::{self, NamedFiles};
use crate::control::{Answer, ControlError, Invocation, InvocationBudget, Invoked, Request};
use crate::data_dir::DataDir;
use crate::error::CliError;
use crate::limits;
use crate::node;
use crate::output::{Form, Output};

/// Arguments of `latent invoke`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent invoke -c latent.toml calc demo:math/calc@1.0.0#add --args '[2, 3]'
  latent invoke calc demo:math/calc@1.0.0#report --args-file arguments.json --json

A call that is interrupted is stopped on the node. Values are JSON in the form application/vnd.latent.wit-values.v1+json (docs/values.md): one array, the parameters in their order; 64-bit \
integers and floats are strings. A running node runs the function; otherwise the command opens the data directory for this one call. What \
the function publishes is published.

Exit status: 0 if the function succeeded, 1 if it did not, 3 if a running node did not answer.")]
pub(crate) struct InvokeArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml")]
    config: PathBuf,
    /// A service of the configuration
    #[arg(value_name = "SERVICE")]
    service: String,
    /// Exported interface and function, such as demo:math/calc@1.0.0#add
    #[arg(value_name = "CONTRACT#FUNCTION", value_parser = contract_and_function)]
    function: Function,
    /// The arguments, as one JSON array
    #[arg(long, value_name = "JSON", default_value = "[]", allow_hyphen_values = true, conflicts_with = "args_file")]
    args: String,
    /// A file that holds the arguments; `-` is standard input
    #[arg(long, value_name = "FILE")]
    args_file: Option<PathBuf>,
    /// Call through a route with a name, instead of the default one
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// A name for this call: under the same name the same keys are derived, so that what it published is not published twice
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,
    /// Fuel it may use
    #[arg(long, value_name = "UNITS")]
    cpu_fuel: Option<u64>,
    /// Memory it may use, in bytes
    #[arg(long, value_name = "BYTES")]
    memory_bytes: Option<u64>,
    /// Time it may take, in milliseconds
    #[arg(long, value_name = "MILLIS")]
    wall_time_millis: Option<u64>,
    /// Publications it may attempt
    #[arg(long, value_name = "COUNT")]
    outbound_requests: Option<u64>,
    /// Log it may write, in bytes
    #[arg(long, value_name = "BYTES")]
    log_bytes: Option<u64>,
}

/// A contract and a function of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    contract: String,
    function: String,
}

fn contract_and_function(text: &str) -> Result<Function, String> {
    match text.split_once('#') {
        Some((contract, function)) if !contract.is_empty() && !function.is_empty() => {
            Ok(Function { contract: contract.to_owned(), function: function.to_owned() })
        }
        _ => Err("it is an interface and a function joined by #, such as demo:math/calc@1.0.0#add".to_owned()),
    }
}

/// What is being done, in errors.
pub(crate) const DOING: &str = "the invocation";

/// Runs `latent invoke`.
///
/// # Errors
/// [`CliError::Invocation`] for a function that did not succeed, after its document was printed; [`CliError`] for a call that was not made.
pub(crate) fn invoke(args: &InvokeArgs, output: &mut Output) -> Result<(), CliError> {
    let config = config::load(&args.config, NamedFiles::NotNeeded)?.config;
    let invocation = invocation(args)?;
    let dir = DataDir::new(&config.node.data_dir);
    let invoked = match Access::try_node(&dir)? {
        Some(client) => ask(Access::Node(client), invocation)?,
        None => node::invoke_stopped(&config, invocation, DOING)?,
    };
    print(&invoked, output)?;
    if invoked.is_success() {
        return Ok(());
    }
    Err(CliError::Invocation { outcome: invoked.outcome, reason: invoked.reason })
}

fn invocation(args: &InvokeArgs) -> Result<Invocation, CliError> {
    let Function { contract, function } = args.function.clone();
    let budget = InvocationBudget {
        cpu_fuel: args.cpu_fuel,
        memory_bytes: args.memory_bytes,
        wall_time_millis: args.wall_time_millis,
        outbound_requests: args.outbound_requests,
        log_bytes: args.log_bytes,
    };
    let wrong = |error: latent_core::LimitError| CliError::Value { option: "a budget", reason: error.to_string() };
    budget.complete().map_err(wrong)?;
    Ok(Invocation {
        service: args.service.clone(),
        route: args.route.clone(),
        contract,
        function,
        arguments: arguments(args)?,
        origin: args.origin.clone(),
        budget,
    })
}

/// The arguments' text, read no further than what a call may carry.
fn arguments(args: &InvokeArgs) -> Result<String, CliError> {
    let Some(file) = &args.args_file else { return Ok(args.args.clone()) };
    let failed = |reason: String| CliError::Input { file: file.clone(), reason };
    let most = latent_wasmtime::limits::VALUES_DOCUMENT_BYTES.max;
    let mut text = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(most + 1).read_to_end(&mut text)
    } else {
        std::fs::File::open(file).and_then(|opened| opened.take(most + 1).read_to_end(&mut text))
    };
    read.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > most {
        return Err(failed(format!("it has more than {most} bytes, which is the limit values_document_bytes")));
    }
    String::from_utf8(text).map_err(|_| failed("it is not UTF-8".to_owned()))
}

fn ask(access: Access, invocation: Invocation) -> Result<Invoked, CliError> {
    let Access::Node(mut client) = access else { return Err(unexpected(DOING)) };
    let wall_time = invocation.budget.complete().map_or(0, |budget| budget.wall_time_millis);
    let patience = wall_time.saturating_add(limits::INVOKE_WAIT_MILLIS.default).saturating_add(limits::CONTROL_ANSWER_MILLIS.default);
    client.wait_for_answers(Duration::from_millis(patience));
    match client.call(Request::Invoke(Box::new(invocation))) {
        Ok(Answer::Invoked(invoked)) => Ok(*invoked),
        Ok(_) => Err(unexpected(DOING)),
        Err(ControlError::Refused(fault)) => Err(CliError::Log { doing: DOING.to_owned(), fault }),
        Err(source) if source.may_have_happened() => Err(CliError::Unanswered { doing: DOING.to_owned(), source }),
        Err(source) => Err(CliError::Control { doing: DOING.to_owned(), source }),
    }
}

/// The stable document.
#[derive(Serialize)]
struct Document<'a> {
    outcome: &'a str,
    result: Option<&'a RawValue>,
    activation: &'a str,
    fuel: u64,
    memory_bytes: u64,
    wall_micros: u64,
    outbound_requests: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    log: &'a [(String, String)],
    log_bytes_cut: u64,
}

/// People get the result on standard output, and what the function wrote on standard error.
fn print(invoked: &Invoked, output: &mut Output) -> Result<(), CliError> {
    let result = invoked.result.as_deref().map(serde_json::from_str::<&RawValue>).transpose();
    let result = result.map_err(|_| unexpected(DOING))?;
    match output.form() {
        Form::Json => output.json(&Document {
            outcome: &invoked.outcome,
            result,
            activation: &invoked.activation,
            fuel: invoked.fuel,
            memory_bytes: invoked.memory_bytes,
            wall_micros: invoked.wall_micros,
            outbound_requests: invoked.outbound_requests,
            reason: &invoked.reason,
            log: &invoked.log,
            log_bytes_cut: invoked.log_bytes_cut,
        }),
        Form::Human => {
            invoked.log.iter().for_each(|(source, text)| output.hint(format_args!("{source}: {text}")));
            if invoked.log_bytes_cut > 0 {
                output.hint(format_args!("{} more bytes of its log are beyond log_bytes", invoked.log_bytes_cut));
            }
            result.map_or(Ok(()), |result| output.text(result.get()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_by_its_interface_and_its_name() {
        let named = |contract: &str, function: &str| Ok(Function { contract: contract.to_owned(), function: function.to_owned() });
        assert_eq!(contract_and_function("demo:math/calc@1.0.0#add"), named("demo:math/calc@1.0.0", "add"));
        for wrong in ["", "#", "add", "#add", "demo:math/calc@1.0.0#"] {
            assert!(contract_and_function(wrong).is_err(), "{wrong:?}");
        }
    }
}
