//! Classifies GitHub webhooks: reads `github.events`, publishes one compact event for each good one to `triage.results`.
//!
//! The host's part is in this file; what a webhook is and what is said about it (`webhook`, `class`) knows no host and is tested
//! with plain `cargo test`.

mod class;
mod webhook;

use latent_sdk::{Event, Handled, Reject, log, publish};

use webhook::Webhook;

const RESULTS: &str = "triage.results";

latent_sdk::handler!(handle);

fn handle(event: Event) -> Handled {
    let webhook = Webhook::parse(&event.payload).map_err(|problem| Reject::because(problem.to_string()))?;
    let result = webhook.triage();
    let receipt = publish(RESULTS).key(result.repository).json(&result).idempotency_key(webhook.idempotency_key()).send()?;
    if receipt.duplicate {
        log::info!("{} was classified before", receipt.event_id);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::webhook::{NoWebhook, Webhook};

    /// What the README says of the example's own events.
    #[test]
    fn the_example_s_events_are_what_its_readme_says() {
        let mut counts = BTreeMap::<&str, usize>::new();
        let mut keys = BTreeSet::new();
        for line in include_str!("../events.jsonl").lines() {
            let kind = match Webhook::parse(line.as_bytes()) {
                Err(NoWebhook::TooLarge { .. }) => "too large",
                Err(_) => "malformed",
                Ok(webhook) if !keys.insert(webhook.idempotency_key()) => "repeated",
                Ok(_) => "good",
            };
            *counts.entry(kind).or_default() += 1;
        }
        let readme = include_str!("../README.md");
        for (kind, count) in counts {
            assert!(readme.contains(&format!("| {kind} | {count} |")), "{kind}: {count}");
        }
    }
}
