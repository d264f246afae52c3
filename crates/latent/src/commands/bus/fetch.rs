//! `latent bus fetch`.

use clap::Args;

use super::event::EventPrinter;
use super::location::LocationArgs;
use super::topic;
use crate::access::{Access, unexpected};
use crate::control::{Answer, Event, Fault, Request};
use crate::error::CliError;
use crate::output::{Form, Output, report};

/// Arguments of `latent bus fetch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus fetch triage.results
  latent bus fetch triage.results --partition 0 --offset 0 --max 10 --json

Without --partition every partition is read, one after the other; --offset and --max apply to each. A damaged record ends its \
partition alone: the others are printed, the error of each such place says where to go on, and the status is 1. People see keys and \
uids cut to their columns and text as text; with --json they come whole.")]
pub(crate) struct FetchArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Topic
    topic: String,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// First offset wanted, in each partition; on a broker an offset is the sequence in the topic's stream, and those of a partition have gaps
    #[arg(long, value_name = "K", default_value_t = 0)]
    offset: u64,
    /// Print at most so many events of each partition
    #[arg(long, value_name = "M", default_value_t = 100)]
    max: u64,
}

/// Prints partition after partition. A damaged record ends its partition, after everything before that record was printed.
pub(super) fn fetch(args: &FetchArgs, output: &mut Output) -> Result<(), CliError> {
    let mut access = args.location.access_to_read("latent bus fetch")?;
    let mut printer = EventPrinter::new(&args.topic, output);
    let mut damaged = None;
    let mut rest = Rest::default();
    for partition in topic::partitions(&mut access, &args.topic, args.partition)? {
        let mut cursor = Cursor { topic: args.topic.clone(), partition, offset: args.offset };
        let error = match print_partition(&mut cursor, args.max, &mut access, (&mut printer, output)) {
            Ok(Ended::AtMax) if output.form() == Form::Human => rest.look_at(&cursor, &mut access).err(),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        let Some(error) = error else { continue };
        let is_damage = matches!(error, CliError::Damaged { .. });
        // The last error is how the command ends; those before it are told now.
        if let Some(earlier) = damaged.replace(error) {
            report(output.form(), &earlier);
        }
        if !is_damage {
            break;
        }
    }
    if let Some(words) = rest.words(args.max) {
        output.hint(words);
    }
    damaged.map_or(Ok(()), Err)
}

/// Why no more of a partition is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// There is nothing more, or nobody reads on.
    WithIt,
    /// As many as were asked for were printed.
    AtMax,
}

fn print_partition(
    cursor: &mut Cursor,
    max: u64,
    access: &mut Access,
    (printer, output): (&mut EventPrinter<'_>, &mut Output),
) -> Result<Ended, CliError> {
    let mut left = max;
    while left > 0 && !output.is_closed() {
        let page = cursor.page(access, left)?;
        if page.is_empty() {
            return Ok(Ended::WithIt);
        }
        for event in &page {
            printer.print(output, event)?;
        }
        left = left.saturating_sub(page.len() as u64);
        // What was printed is seen even if the next page fails.
        output.flush()?;
    }
    Ok(if left == 0 { Ended::AtMax } else { Ended::WithIt })
}

/// Partitions that people are told to have more.
const REST_NAMED_MAX: usize = 3;

/// What lies behind the events that were printed.
#[derive(Debug, Default)]
struct Rest {
    /// Partitions and where to go on, at most [`REST_NAMED_MAX`].
    named: Vec<(u32, u64)>,
    others: u32,
}

impl Rest {
    /// Whether there is more is told by the log and not by offsets: on a broker those between two events may be of other partitions.
    fn look_at(&mut self, cursor: &Cursor, access: &mut Access) -> Result<(), CliError> {
        let mut ahead = Cursor { topic: cursor.topic.clone(), ..*cursor };
        match ahead.page(access, 1) {
            Ok(page) => page.first().into_iter().for_each(|event| self.add(cursor.partition, event.offset)),
            // A record that cannot be read is more, too.
            Err(CliError::Damaged { .. }) => self.add(cursor.partition, cursor.offset),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn add(&mut self, partition: u32, offset: u64) {
        if self.named.len() < REST_NAMED_MAX {
            self.named.push((partition, offset));
        } else {
            self.others = self.others.saturating_add(1);
        }
    }

    fn words(&self, max: u64) -> Option<String> {
        let others = if self.others == 0 { String::new() } else { format!(", and more of {} other partitions", self.others) };
        match self.named[..] {
            [] => None,
            [(partition, offset)] => {
                Some(format!("more from offset {offset}: --partition {partition} --offset {offset}, or a larger --max than {max}"))
            }
            _ => {
                let named: Vec<_> = self.named.iter().map(|(partition, offset)| format!("p{partition} from offset {offset}")).collect();
                Some(format!("more of {}{others}: --partition and --offset, or a larger --max than {max}", named.join(", ")))
            }
        }
    }
}

/// A place in a partition that moves on with what was read.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) topic: String,
    pub(crate) partition: u32,
    /// The next offset to be read.
    pub(crate) offset: u64,
}

impl Cursor {
    /// The next events, at most `max`; none at the end.
    ///
    /// # Errors
    /// [`CliError::Damaged`] at a record that cannot be read.
    pub(crate) fn page(&mut self, access: &mut Access, max: u64) -> Result<Vec<Event>, CliError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_with_more_are_named_up_to_three() {
        let words = |partitions: u32| {
            let mut rest = Rest::default();
            (0..partitions).for_each(|partition| rest.add(partition, 100));
            rest.words(100).unwrap_or_default()
        };
        assert_eq!(words(0), "");
        assert_eq!(words(1), "more from offset 100: --partition 0 --offset 100, or a larger --max than 100");
        assert!(words(3).contains("p1 from offset 100, p2 from offset 100: "), "{}", words(3));
        assert!(words(4).contains("p2 from offset 100, and more of 1 other partitions: "), "{}", words(4));
    }
}
