//! A run that writes down that it began and that it ended, so that what ran when can be read from a topic.

use latent_sdk::{Event, Handled, Reject, Retry, context, publish};

/// The attempt at which an event of the kind `late` succeeds.
const LATE_SUCCEEDS_AT: u32 = 3;

/// `kind:…`: `once` and `late` publish `done`, under a key that is derived from the event; `reject` and `fail` never do.
pub(crate) fn witness(event: &Event, rest: &str) -> Handled {
    note(event, "begun")?;
    let handled = match rest.split(':').next().unwrap_or_default() {
        "once" => done(event),
        "late" if event.delivery_count >= LATE_SUCCEEDS_AT => done(event),
        "late" | "fail" => Err(Retry::because("of its kind")),
        _ => Err(Reject::because("of its kind")),
    };
    note(event, "ended")?;
    handled
}

/// One for each run: its key is the run's own.
fn note(event: &Event, what: &str) -> Handled {
    let run = context::activation_id();
    let text = format!("{what} {} {} {run}", event.offset, event.delivery_count);
    Ok(publish("out").key(key(event)).text(text).idempotency_key(format!("{what}-{run}")).send().map(drop)?)
}

fn done(event: &Event) -> Handled {
    Ok(publish("out").key(key(event)).text(format!("done {}", event.offset)).send().map(drop)?)
}

fn key(event: &Event) -> &str {
    event.key.as_deref().unwrap_or_default()
}
