//! `latent bus topics`.

use clap::Args;

use super::location::LocationArgs;
use crate::access::unexpected;
use crate::control::{Answer, Request, TopicInfo};
use crate::error::CliError;
use crate::output::{Form, Output};
use crate::table::Table;

/// Arguments of `latent bus topics`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  latent bus topics -c latent.toml")]
pub(crate) struct TopicsArgs {
    #[command(flatten)]
    location: LocationArgs,
}

pub(super) fn topics(args: &TopicsArgs, output: &mut Output) -> Result<(), CliError> {
    const DOING: &str = "listing the topics";
    let mut access = args.location.access_to_read("latent bus topics")?;
    let Answer::Topics(topics) = access.ask(DOING, Request::Topics)? else { return Err(unexpected(DOING)) };
    match output.form() {
        Form::Json => topics.iter().try_for_each(|topic| output.json(topic)),
        Form::Human => table(&topics).lines().try_for_each(|line| output.text(line)),
    }
}

fn table(topics: &[TopicInfo]) -> String {
    let mut table = Table::new(&["TOPIC", "PARTITIONS", "EVENTS"]);
    for topic in topics {
        table.push(vec![topic.topic.clone(), topic.partitions.to_string(), topic.events.to_string()]);
    }
    table.to_string()
}
