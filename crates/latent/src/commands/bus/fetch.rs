//! `latent bus fetch`.

use clap::Args;

use super::event::EventPrinter;
use super::location::LocationArgs;
use super::topic;
use crate::access::{Access, unexpected};
use crate::control::{Answer, Event, Fault, Request};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent bus fetch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus fetch triage.results
  latent bus fetch triage.results --partition 0 --offset 0 --max 10 --json

Without --partition every partition is read, one after the other; --offset and --max apply to each. People see keys and \
uids cut to their columns and text as text; with --json they come whole.")]
pub(crate) struct FetchArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Topic
    topic: String,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// First offset wanted, in each partition
    #[arg(long, value_name = "K", default_value_t = 0)]
    offset: u64,
    /// Print at most so many events of each partition
    #[arg(long, value_name = "M", default_value_t = 100)]
    max: u64,
}

/// Prints partition after partition. A damaged record ends it after everything before that record was printed.
pub(super) fn fetch(args: &FetchArgs, output: &mut Output) -> Result<(), CliError> {
    let mut access = args.location.access("latent bus fetch")?;
    let mut printer = EventPrinter::new(&args.topic, output);
    for partition in topic::partitions(&mut access, &args.topic, args.partition)? {
        let mut cursor = Cursor { topic: args.topic.clone(), partition, offset: args.offset };
        let mut left = args.max;
        while left > 0 && !output.is_closed() {
            let page = cursor.page(&mut access, left)?;
            if page.is_empty() {
                break;
            }
            for event in &page {
                printer.print(output, event)?;
            }
            left = left.saturating_sub(page.len() as u64);
            // What was printed is seen even if the next page fails.
            output.flush()?;
        }
    }
    Ok(())
}

/// A place in a partition that moves on with what was read.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) topic: String,
    pub(super) partition: u32,
    /// The next offset to be read.
    pub(super) offset: u64,
}

impl Cursor {
    /// The next events, at most `max`; none at the end.
    ///
    /// # Errors
    /// [`CliError::Damaged`] at a record that cannot be read.
    pub(super) fn page(&mut self, access: &mut Access, max: u64) -> Result<Vec<Event>, CliError> {
        let doing = format!("reading {}/p{} from offset {}", self.topic, self.partition, self.offset);
        let request = Request::Fetch { topic: self.topic.clone(), partition: self.partition, offset: self.offset, max };
        let page = match topic::ask(access, &self.topic, &doing, request) {
            Ok(Answer::Events(page)) => page,
            Ok(_) => return Err(unexpected(&doing)),
            Err(error) => return Err(self.placed(error)),
        };
        if let Some(last) = page.last() {
            // A page that does not move on would be read for ever.
            self.offset = last.offset.checked_add(1).filter(|next| *next > self.offset).ok_or_else(|| unexpected(&doing))?;
        }
        Ok(page)
    }

    fn placed(&self, error: CliError) -> CliError {
        match error {
            CliError::Log { doing, fault: fault @ Fault { continue_at: Some(continue_at), .. } } => {
                CliError::Damaged { doing, partition: self.partition, continue_at, fault }
            }
            error => error,
        }
    }
}
