//! `latent bus fetch`.

use clap::Args;

use super::event::print;
use super::location::LocationArgs;
use crate::access::{Access, unexpected};
use crate::control::{Answer, Event, Request};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent bus fetch`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  latent bus fetch triage.results --partition 0 --offset 0 --max 10 --json")]
pub(crate) struct FetchArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Topic
    topic: String,
    /// Partition
    #[arg(long, value_name = "N", default_value_t = 0)]
    partition: u32,
    /// First offset wanted
    #[arg(long, value_name = "K", default_value_t = 0)]
    offset: u64,
    /// Print at most so many events
    #[arg(long, value_name = "M", default_value_t = 100)]
    max: u64,
}

/// Prints page after page. A damaged record ends it after everything before that record was printed.
pub(super) fn fetch(args: &FetchArgs, output: &mut Output) -> Result<(), CliError> {
    let mut access = args.location.access("latent bus fetch")?;
    let mut cursor = Cursor { topic: args.topic.clone(), partition: args.partition, offset: args.offset };
    let mut left = args.max;
    while left > 0 && !output.is_closed() {
        let page = cursor.page(&mut access, left)?;
        if page.is_empty() {
            break;
        }
        for event in &page {
            print(output, &args.topic, event)?;
        }
        left = left.saturating_sub(page.len() as u64);
        // What was printed is seen even if the next page fails.
        output.flush()?;
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
    pub(super) fn page(&mut self, access: &mut Access, max: u64) -> Result<Vec<Event>, CliError> {
        let doing = format!("reading {}/p{} from offset {}", self.topic, self.partition, self.offset);
        let request = Request::Fetch { topic: self.topic.clone(), partition: self.partition, offset: self.offset, max };
        let Answer::Events(page) = access.ask(&doing, request)? else { return Err(unexpected(&doing)) };
        if let Some(last) = page.last() {
            // A page that does not move on would be read for ever.
            self.offset = last.offset.checked_add(1).filter(|next| *next > self.offset).ok_or_else(|| unexpected(&doing))?;
        }
        Ok(page)
    }
}
