//! `latent bus maintain`.

use clap::Args;

use super::location::LocationArgs;
use crate::access::unexpected;
use crate::control::{Answer, ControlError, Maintained, Request};
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent bus maintain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent bus maintain
  latent bus maintain --engine embedded:data --json

Removes what is older than its topic's `hot_hours`, segment by segment. A running node does it by itself, every \
`maintenance_interval_seconds`; then this command asks the node, which does it once more at once.

On a broker there is nothing to do: it removes what is old by itself.

Exit status: 1 if a topic was skipped or a file could not be removed, else 0.")]
pub(crate) struct MaintainArgs {
    #[command(flatten)]
    location: LocationArgs,
}

/// Prints what was done, then fails if something was left.
pub(super) fn maintain(args: &MaintainArgs, output: &mut Output) -> Result<(), CliError> {
    let doing = "the maintenance".to_owned();
    let mut access = args.location.access("latent bus maintain")?;
    let done = match access.try_ask(Request::Maintain) {
        Ok(Answer::Maintained(done)) => done,
        Ok(_) => return Err(unexpected(&doing)),
        Err(ControlError::Refused(fault)) => return Err(CliError::Log { doing, fault }),
        Err(source) if source.may_have_happened() => return Err(CliError::Unanswered { doing, source }),
        Err(source) => return Err(CliError::Control { doing, source }),
    };
    output.line(&done, || sentence(&done))?;
    if done.is_complete() { Ok(()) } else { Err(CliError::Unmaintained { done: Box::new(done) }) }
}

/// What was done, for people.
fn sentence(done: &Maintained) -> String {
    let Maintained { expired_records, expired_segments, intents_completed, intents_pending, archive_holes, .. } = done;
    let mut parts = Vec::new();
    if *expired_records > 0 || *expired_segments > 0 {
        parts.push(format!(
            "{} expired and removed with {}",
            counted(*expired_records, "event"),
            counted(*expired_segments, "segment file")
        ));
    }
    if *intents_completed > 0 || *intents_pending > 0 {
        parts.push(format!("{} to the archive finished, {intents_pending} pending", counted(*intents_completed, "export")));
    }
    if *archive_holes > 0 {
        let holes = counted(*archive_holes, "hole");
        parts.push(format!("{holes} in archives: the broker removed events before they were archived (`latent archive status`)"));
    }
    if parts.is_empty() { "nothing has expired".to_owned() } else { parts.join("; ") }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_in_a_sentence() {
        let done = |expired_records, expired_segments, intents_completed, intents_pending| Maintained {
            expired_records,
            expired_segments,
            intents_completed,
            intents_pending,
            ..Maintained::default()
        };
        let cases = [
            (done(0, 0, 0, 0), "nothing has expired"),
            (done(1, 1, 0, 0), "1 event expired and removed with 1 segment file"),
            (done(120, 2, 0, 0), "120 events expired and removed with 2 segment files"),
            (done(0, 0, 1, 3), "1 export to the archive finished, 3 pending"),
            (done(2, 0, 0, 1), "2 events expired and removed with 0 segment files; 0 exports to the archive finished, 1 pending"),
        ];
        let holes = Maintained { archive_holes: 2, ..Maintained::default() };
        let told = "2 holes in archives: the broker removed events before they were archived (`latent archive status`)";
        for (done, expected) in cases.into_iter().chain([(holes, told)]) {
            assert_eq!(sentence(&done), expected);
        }
    }
}
