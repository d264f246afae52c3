//! `latent deadletter list`.

use clap::Args;
use latent_core::Place;

use super::walk::Walk;
use super::{ConfigArgs, Letter, Selection, open};
use crate::error::CliError;
use crate::output::{Form, Output};
use crate::table::Table;
use crate::timestamp::timestamp_seconds;

/// Arguments of `latent deadletter list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent deadletter list
  latent deadletter list --trigger triage --reason exhausted --json

PLACE is what `latent deadletter show` and `replay` take; EVENT is where the event itself lies. Topics come in the order of their names, \
the letters of a partition from the oldest on. Without --topic, every dead-letter topic that a trigger of the configuration names is read.")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    selection: Selection,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    /// Begin at this place instead of with the oldest
    #[arg(long, value_name = "TOPIC/PARTITION/OFFSET")]
    from: Option<Place>,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn list(args: &ListArgs, output: &mut Output) -> Result<(), CliError> {
    let (config, mut access) = open(&args.config.config, "latent deadletter list")?;
    let topics = args.selection.topics(&config)?;
    let mut walk = Walk::begin(&mut access, &topics, args.from.as_ref())?;
    let (mut table, mut found, mut next) = (Table::new(HEADINGS), 0, None);
    'walk: while let Some(page) = walk.page(&mut access, output)? {
        for letter in page.iter().filter(|letter| args.selection.includes(letter)) {
            if found == args.limit {
                next = Some(letter.place.clone());
                break 'walk;
            }
            found += 1;
            match output.form() {
                Form::Json => output.json(&letter.document())?,
                Form::Human => table.push(row(letter)),
            }
        }
        if output.is_closed() {
            break;
        }
    }
    if found == 0 && next.is_none() {
        return args.selection.nothing_found(&config, output);
    }
    if output.form() == Form::Human {
        table.to_string().lines().try_for_each(|line| output.text(line))?;
    }
    if let Some(place) = next {
        output.hint(format_args!("there are more: --from {place}, or a larger --limit than {}", args.limit));
    }
    Ok(())
}

const HEADINGS: &[&str] = &["PLACE", "TRIGGER", "REASON", "ATTEMPTS", "EVENT", "KEY", "PARKED AT", "DETAIL"];

/// Characters of a detail that the table shows.
const DETAIL_CHARS: usize = 60;

fn row(shown: &Letter) -> Vec<String> {
    let Letter { place, letter, event } = shown;
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let detail = shown.detail();
    let detail = if detail.chars().count() > DETAIL_CHARS {
        detail.chars().take(DETAIL_CHARS - 1).chain(['…']).collect()
    } else {
        or_dash(detail)
    };
    vec![
        place.to_string(),
        letter.binding.to_string(),
        letter.verdict.reason.kind().to_owned(),
        letter.verdict.attempts.to_string(),
        letter.place.to_string(),
        or_dash(&event.key),
        timestamp_seconds(event.stored_at),
        detail,
    ]
}
