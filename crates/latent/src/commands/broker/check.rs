//! `latent broker check`: what of a broker is unsafe, in plain words. It looks and changes nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use latent_bridge::nats_bus::{Change, DurableAction, DurableDifference, DurablePlan, NatsOptions, Plan, PlannedAction, TopicPlan, probe};
use latent_bridge::{BridgeManifest, NatsBus};
use serde::Serialize;

use super::provision::{Wanted, durables_of, plan_of_durables, raw_streams, wanted};
use super::raw::Compared;
use crate::broker::Place;
use crate::error::CliError;
use crate::output::Output;

/// Arguments of `latent broker check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent broker check -c latent.toml
  latent broker check --manifest bridge.yaml --json

It connects as `latent broker provision` does, as the operator that AV_NATS_USER and AV_NATS_PASSWORD name, and changes nothing. `unsafe` \
breaks what the configuration or the manifest promises; `risk` is a decision that should be one; `unknown` cannot be seen from a client.

Exit status: 1 when something is unsafe.")]
pub(crate) struct CheckArgs {
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml", conflicts_with = "manifest")]
    config: PathBuf,
    /// The manifest alone, without a configuration
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Unsafe,
    Risk,
    Unknown,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Unsafe => "unsafe",
            Self::Risk => "risk",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    level: Level,
    object: String,
    finding: String,
    next: String,
}

fn finding(level: Level, object: &str, finding: impl Into<String>, next: &str) -> Finding {
    Finding { level, object: object.to_owned(), finding: finding.into(), next: next.to_owned() }
}

pub(super) fn check(args: &CheckArgs, output: &mut Output) -> Result<(), CliError> {
    let Wanted { config, manifest, options } = wanted(&args.config, args.manifest.as_deref())?;
    let place = Place::named_in(&options);
    let failed = |error| CliError::Broker { doing: "checking the broker".to_owned(), source: Box::new(place.failed(error)) };
    let plan = manifest.as_ref().map(|manifest| NatsBus::plan(options.clone(), manifest)).transpose().map_err(failed)?;
    let (raw, _) = config.as_ref().map_or_else(|| Ok(Default::default()), |config| raw_streams(config, &options, &place))?;
    let mut findings = of_connection(&options);
    findings.extend(manifest.iter().zip(&plan).flat_map(|(manifest, plan)| of_topics(manifest, plan)));
    findings.extend(raw.iter().flat_map(of_raw));
    let (durables, _) = durables_of(config.as_ref());
    findings.extend(plan_of_durables(&durables, &options, &place)?.iter().flat_map(of_consumer));
    findings.push(finding(
        Level::Unknown,
        BROKER,
        "sync_interval cannot be seen by a client: unless it is `always`, a server acknowledges before it has synced, and a power cut can lose \
         what it acknowledged since the last time (two minutes by default)",
        "set `sync_interval: always` in jetstream {} of the server, or keep three replicas on machines that do not fail together",
    ));
    for found in &findings {
        let Finding { level, object, finding, next } = found;
        output.line(found, || format!("{}: {object}: {finding}\n  next: {next}", level.word()))?;
    }
    let count = findings.iter().filter(|finding| finding.level == Level::Unsafe).count();
    if count == 0 { Ok(()) } else { Err(CliError::UnsafeBroker { count }) }
}

const BROKER: &str = "the broker";
const BY_PROVISIONING: &str = "run `latent broker provision --apply`";

/// Whether it speaks before TLS, and to whom.
fn of_connection(options: &NatsOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let tls_last = NatsOptions { tls_first: false, ..options.clone() };
    if !options.tls_first || probe(tls_last, Vec::new()).is_ok() {
        findings.push(finding(
            Level::Unsafe,
            BROKER,
            "a client that does not begin with TLS is greeted outside it, where whoever is in between can read and change what is said",
            "set `handshake_first: true` in tls {} of the server, and tls_first = true (or AV_NATS_TLS_FIRST=true) here",
        ));
    }
    let nobody = NatsOptions { credentials: None, ..options.clone() };
    if probe(nobody, Vec::new()).is_ok() {
        findings.push(finding(
            Level::Unsafe,
            BROKER,
            "a client without a user gets in",
            "take no_auth_user away and give every client a user: `latent broker permissions` prints them",
        ));
    }
    findings
}

fn of_topics(manifest: &BridgeManifest, plan: &Plan) -> Vec<Finding> {
    let mut findings: Vec<_> = plan.topics.iter().flat_map(of_topic).collect();
    if manifest.replication_factor == 1 {
        findings.push(finding(
            Level::Risk,
            "every topic",
            "one replica: with the disk of one server every event is lost",
            "use a cluster of three servers and replication_factor: 3, or accept it",
        ));
    }
    findings
}

fn of_topic(topic: &TopicPlan) -> Vec<Finding> {
    let object = format!("topic {}", topic.topic);
    if topic.action == PlannedAction::Create {
        let missing = format!("its stream {} is not there: nothing can be published to it", topic.stream);
        return vec![finding(Level::Unsafe, &object, missing, BY_PROVISIONING)];
    }
    let refusals = topic.refusals.iter().map(|refusal| {
        let words = format!("{} of stream {} is {} and has to be {}", refusal.field, refusal.stream, refusal.found, refusal.wanted);
        finding(Level::Unsafe, &object, words, &refusal.advice)
    });
    let changes = topic.changes.iter().map(|change| of_change(&object, change));
    let notes = topic.notes.iter().map(|note| {
        let level = if note.starts_with("persist_mode") { Level::Unsafe } else { Level::Risk };
        finding(level, &object, note.clone(), "change it on the stream with the broker's own tools, or accept it")
    });
    refusals.chain(changes).chain(notes).collect()
}

/// A setting that is the manifest's and is not so.
fn of_change(object: &str, change: &Change) -> Finding {
    let (is, wanted) = (change.from.as_u64().unwrap_or_default(), change.to.as_u64().unwrap_or_default());
    let (shown_is, shown_wanted) = (Duration::from_nanos(is), Duration::from_nanos(wanted));
    let (level, words) = match change.field {
        "duplicate_window" if is < wanted => (
            Level::Unsafe,
            format!(
                "uids are forgotten after {shown_is:?} and the manifest says {shown_wanted:?}: in between an event that is sent again is stored again"
            ),
        ),
        "max_age" if is < wanted && is > 0 => {
            (Level::Unsafe, format!("events are removed after {shown_is:?} and the manifest says {shown_wanted:?}"))
        }
        "num_replicas" if is < wanted => (Level::Unsafe, format!("it has {is} replicas and the manifest says {wanted}")),
        field => (Level::Risk, format!("{field} is more than the manifest says: {change}")),
    };
    finding(level, object, words, BY_PROVISIONING)
}

/// A consumer that a trigger needs and that is not there, or another one: nothing is pulled from it.
fn of_consumer(plan: &DurablePlan) -> Vec<Finding> {
    let object = format!("consumer {} of stream {}", plan.consumer, plan.stream);
    let told = |words: String, next: &str| finding(Level::Unsafe, &object, words, next);
    if plan.stream_missing || plan.action == DurableAction::Refuse {
        return plan
            .refusals()
            .into_iter()
            .map(|refusal| told(refusal, "change it with the broker's own tools, or correct the [[trigger]]"))
            .collect();
    }
    match plan.action {
        DurableAction::Create => vec![told("it is not there: its trigger is not woken".to_owned(), BY_PROVISIONING)],
        // The one setting that a node does not insist on.
        DurableAction::Update if plan.differences.iter().all(|difference| difference.field == "priority_timeout") => {
            let differences = plan.differences.iter().map(DurableDifference::told).collect::<Vec<_>>().join("; ");
            let words = format!("{differences} (ns): a partition can move to another node, or away and back, while its runs take long");
            vec![finding(Level::Risk, &object, words, BY_PROVISIONING)]
        }
        DurableAction::Update => vec![told(format!("its trigger does not pull from it: {plan}"), BY_PROVISIONING)],
        DurableAction::Keep | DurableAction::Refuse => Vec::new(),
    }
}

fn of_raw(stream: &Compared) -> Vec<Finding> {
    let object = format!("stream {}", stream.name());
    let next = "change it with the broker's own tools, or correct the [[provider]]";
    let problems = stream.problems.iter().map(|problem| finding(Level::Unsafe, &object, problem.clone(), next));
    problems.chain(stream.notes.iter().map(|note| finding(Level::Risk, &object, note.clone(), next))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(field: &'static str, from: u64, to: u64) -> Finding {
        of_change("topic t", &Change { field, from: json!(from), to: json!(to), consequence: None })
    }

    #[test]
    fn less_than_the_manifest_says_is_unsafe_and_more_is_a_risk() {
        let second = 1_000_000_000;
        let table = [
            ("duplicate_window", second, 2 * second, Level::Unsafe, "after 1s and the manifest says 2s"),
            ("duplicate_window", 2 * second, second, Level::Risk, "more than the manifest"),
            ("max_age", second, 2 * second, Level::Unsafe, "removed after 1s"),
            ("max_age", 0, second, Level::Risk, "more than the manifest"),
            ("num_replicas", 1, 3, Level::Unsafe, "1 replicas"),
            ("num_replicas", 3, 1, Level::Risk, "more than the manifest"),
        ];
        for (field, from, to, level, words) in table {
            let found = change(field, from, to);
            assert!(found.level == level && found.finding.contains(words), "{found:?}");
        }
    }

    #[test]
    fn acknowledgements_before_a_write_are_unsafe_and_other_notes_are_risks() {
        let topic = TopicPlan {
            topic: "t".to_owned(),
            stream: "av_t".to_owned(),
            action: PlannedAction::Keep,
            changes: Vec::new(),
            refusals: Vec::new(),
            notes: vec!["persist_mode is async: x".to_owned(), "max_msgs is 5: y".to_owned()],
        };
        let levels: Vec<_> = of_topic(&topic).into_iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Unsafe, Level::Risk]);
        let missing = of_topic(&TopicPlan { action: PlannedAction::Create, ..topic });
        assert!(missing.len() == 1 && missing[0].finding.contains("av_t is not there"), "{missing:?}");
    }
}
