//! `latent bus find`.

use clap::Args;

use super::event::EventPrinter;
use super::location::LocationArgs;
use super::topic;
use crate::access::unexpected;
use crate::control::{Answer, Request};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent bus find`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus find triage.results 0192f0c1-5c1e-7b6e-8a43-000000000000 --json
  latent bus find triage.results order-17 --key customer-4

Without --key every partition of a topic on a broker is looked through, some at a time; the embedded engine knows where a uid is and needs no \
key. The key chooses a partition and is compared with nothing: whether the event has it is what is printed.")]
pub(crate) struct FindArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Topic
    topic: String,
    /// The event's uid
    uid: String,
    /// Look only in the partition that this key chooses: spares a broker the others. An event there with another key is found all the same
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Prints the event. That no readable event has the uid is certain, and an error.
pub(super) fn find(args: &FindArgs, output: &mut Output) -> Result<(), CliError> {
    let doing = format!("looking for uid {:?} in {}", args.uid, args.topic);
    let absent = || CliError::NotFound { topic: args.topic.clone(), uid: args.uid.clone() };
    let mut access = args.location.access_to_read("latent bus find")?;
    let find = Request::Find { topic: args.topic.clone(), key: args.key.clone(), uid: args.uid.clone() };
    let Answer::Found(place) = topic::ask(&mut access, &args.topic, &doing, find)? else { return Err(unexpected(&doing)) };
    let place = place.ok_or_else(absent)?;
    let read = Request::Fetch { topic: args.topic.clone(), partition: place.partition, offset: place.offset, max: 1 };
    let Answer::Events(events) = access.ask(&doing, read)? else { return Err(unexpected(&doing)) };
    // Retention may have taken it between the two questions.
    let event = events.iter().find(|event| event.uid == args.uid).ok_or_else(absent)?;
    EventPrinter::new(&args.topic, output).print(output, event)
}
