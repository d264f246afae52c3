//! `latent broker provision`.

use std::path::{Path, PathBuf};

use clap::Args;
use latent_bridge::nats_bus::{
    Beginning, Durable, DurableAction, DurablePlan, NatsOptions, Plan, PlannedAction, apply_durables, plan_durables, stream_settings,
};
use latent_bridge::{BridgeManifest, BusError, NatsBus};
use serde_json::json;

use super::durables;
use super::place;
use super::raw::{self, Compared};
use super::users::Site;
use crate::broker::Place;
use crate::config::{self, Config, NamedFiles, read_manifest};
use crate::error::CliError;
use crate::output::{Form, Output};

/// Arguments of `latent broker provision`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  latent broker provision -c latent.toml
  latent broker provision -c latent.toml --apply
  latent broker provision --manifest bridge.yaml --apply
  latent broker provision -c latent.toml --apply --begin latent_triage-github_p0=4711

Without --apply it shows what it would do and changes nothing (`latent bus provision` is the other way round: it acts unless --plan is given). \
It connects as the operator that AV_NATS_USER and AV_NATS_PASSWORD name: the node's own user must not be able to make streams. With -c the \
broker is the one of the configuration, unless AV_NATS_URL names it otherwise (then AV_NATS_CA_FILE and AV_NATS_TLS_FIRST hold, too); with \
--manifest it is that of AV_NATS_URL. What would lose events is refused, with both sides, and then nothing is done. Streams of raw subjects \
([[provider]]) are compared and never made: what they keep is the operator's decision. The durable consumers that wake the triggers are made \
and changed as these need them, each by itself: when one fails, those before it are done, and the same command goes on behind them. None is \
deleted.

Exit status: 1 when something is refused or a stream of raw subjects does not fit, 0 otherwise, also when there is something to do.")]
pub(crate) struct ProvisionArgs {
    /// Configuration file of the node
    #[arg(short, long, value_name = "FILE", default_value = "latent.toml", conflicts_with = "manifest")]
    config: PathBuf,
    /// The manifest alone, without a configuration
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Make and change what the plan says
    #[arg(long)]
    apply: bool,
    /// Let a consumer that is made begin with this sequence of its stream, instead of where its trigger's `start` says; may be repeated
    #[arg(long, value_name = "CONSUMER=SEQUENCE", value_parser = beginning)]
    begin: Vec<(String, u64)>,
}

fn beginning(text: &str) -> Result<(String, u64), String> {
    let (consumer, sequence) = text.split_once('=').ok_or("write CONSUMER=SEQUENCE")?;
    let sequence = sequence.parse().ok().filter(|sequence| *sequence > 0).ok_or("the sequence is a number from 1 on")?;
    Ok((consumer.to_owned(), sequence))
}

/// What is to be on the broker.
pub(super) struct Wanted {
    /// Where there is one.
    pub(super) config: Option<Config>,
    /// Its topics, when they are on a broker; or those of the manifest alone.
    pub(super) manifest: Option<BridgeManifest>,
    /// How the operator connects.
    pub(super) options: NatsOptions,
}

const PLANNING: &str = "planning the streams on the broker";

pub(super) fn provision(args: &ProvisionArgs, output: &mut Output) -> Result<(), CliError> {
    let Wanted { config, manifest, options } = wanted(&args.config, args.manifest.as_deref())?;
    let place = Place::named_in(&options);
    let failed = |doing: &str, error| CliError::Broker { doing: doing.to_owned(), source: Box::new(place.failed(error)) };
    let plan = manifest.as_ref().map(|manifest| NatsBus::plan(options.clone(), manifest));
    let plan = plan.transpose().map_err(|error| failed(PLANNING, error))?.unwrap_or(Plan { topics: Vec::new() });
    let (raw, elsewhere) = config.as_ref().map_or_else(|| Ok(Default::default()), |config| raw_streams(config, &options, &place))?;
    let (mut durables, far) = durables_of(config.as_ref());
    begin_at(&mut durables, &args.begin)?;
    let mut consumers = plan_of_durables(&durables, &options, &place)?;
    // A stream that is made first keeps nobody from making its consumers.
    let made = |stream: &str| plan.topics.iter().any(|topic| topic.action == PlannedAction::Create && topic.stream == stream);
    for consumer in consumers.iter_mut().filter(|consumer| consumer.stream_missing && made(&consumer.stream)) {
        (consumer.action, consumer.stream_missing) = (DurableAction::Create, false);
    }
    let elsewhere: Vec<_> = elsewhere.into_iter().chain(far).collect();
    if output.form() == Form::Human {
        show(&plan, &raw, &consumers, &elsewhere, output)?;
    }
    let refusals: Vec<_> = plan.refusals().into_iter().chain(consumers.iter().flat_map(DurablePlan::refusals)).collect();
    let refused = (!refusals.is_empty()).then(|| BusError::Config { problem: format!("nothing was changed: {}", refusals.join("; ")) });
    let mut done = refused.map_or(Ok(false), |error| Err(failed(PLANNING, error)));
    let of_consumers = consumers.iter().any(|consumer| consumer.action != DurableAction::Keep);
    let changes_anything = plan.changes_anything() || of_consumers;
    if done.is_ok() && args.apply {
        let applied = apply(&plan, manifest.as_ref(), if of_consumers { durables } else { Vec::new() }, options);
        done = applied.map_err(|error| failed("provisioning the broker", error));
    }
    let document = json!({
        "topics": plan.topics, "streams": raw, "consumers": consumers, "elsewhere": elsewhere, "applied": matches!(done, Ok(true)),
    });
    let summary = match (&done, changes_anything) {
        (Ok(true), _) => "done".to_owned(),
        (_, true) => "nothing was changed; run it with --apply to do this".to_owned(),
        (_, false) => "nothing to do".to_owned(),
    };
    if output.form() == Form::Json || done.is_ok() {
        output.line(&document, || summary)?;
    }
    done?;
    let unfit: Vec<_> = raw.iter().filter(|stream| !stream.problems.is_empty()).collect();
    if unfit.is_empty() {
        return Ok(());
    }
    let told = |stream: &&Compared| format!("{}: {}", stream.name(), stream.problems.join("; "));
    Err(CliError::UnfitStreams { problems: unfit.iter().map(told).collect() })
}

/// Each consumer that is named is one that could begin anywhere.
fn begin_at(durables: &mut [Durable], begin: &[(String, u64)]) -> Result<(), CliError> {
    for (consumer, sequence) in begin {
        let named = durables.iter_mut().find(|durable| durable.consumer == *consumer && durable.beginning.is_some());
        let Some(durable) = named else {
            let reason = format!("no trigger of the configuration has a consumer {consumer:?} by nats-jetstream-pull-v2");
            return Err(CliError::Value { option: "--begin", reason });
        };
        durable.beginning = Some(Beginning::At(*sequence));
    }
    Ok(())
}

pub(super) fn wanted(config: &Path, manifest: Option<&Path>) -> Result<Wanted, CliError> {
    if let Some(file) = manifest {
        // The environment first: without it no file is worth a look.
        let options = place::options(None, file)?;
        let manifest = read_manifest(file).map_err(|refusal| CliError::Manifest { file: file.to_owned(), reason: refusal.to_string() })?;
        return Ok(Wanted { config: None, manifest: Some(manifest), options });
    }
    let config = config::load(config, NamedFiles::NotNeeded)?.config;
    if config.engine.broker().is_none() && config.providers.is_empty() && config.streams.is_none() && config.lanes.is_empty() {
        place::site(&config)?;
    }
    let options = place::options(Some(&config), &config.engine.manifest_path)?;
    let manifest = config.engine.broker().is_some().then(|| config.engine.manifest.clone());
    Ok(Wanted { config: Some(config), manifest, options })
}

/// Makes and changes what the plans say; true when there was something.
fn apply(plan: &Plan, manifest: Option<&BridgeManifest>, durables: Vec<Durable>, options: NatsOptions) -> Result<bool, BusError> {
    let mut applied = false;
    if let Some(manifest) = manifest.filter(|_| plan.changes_anything()) {
        NatsBus::provision_with(options.clone(), manifest)?;
        applied = true;
    }
    if !durables.is_empty() {
        apply_durables(options, durables)?;
        applied = true;
    }
    Ok(applied)
}

/// The consumers that triggers need at the configuration's broker, and a word on triggers elsewhere.
pub(super) fn durables_of(config: Option<&Config>) -> (Vec<Durable>, Vec<String>) {
    // A broker that the environment names is taken for the configuration's.
    let site = config.and_then(|config| place::site(config).ok());
    site.zip(config).map_or_else(Default::default, |(site, config)| durables::expected(config, &site))
}

/// What would be done about them.
pub(super) fn plan_of_durables(durables: &[Durable], options: &NatsOptions, place: &Place) -> Result<Vec<DurablePlan>, CliError> {
    if durables.is_empty() {
        return Ok(Vec::new());
    }
    let plans = plan_durables(options.clone(), durables.to_vec());
    plans.map_err(|error| CliError::Broker { doing: "looking at consumers".to_owned(), source: Box::new(place.failed(error)) })
}

/// The streams of raw subjects there, compared, and the providers elsewhere.
pub(super) fn raw_streams(config: &Config, options: &NatsOptions, place: &Place) -> Result<(Vec<Compared>, Vec<String>), CliError> {
    let site = config.engine.broker().map(Site::of_engine);
    let site = site.or_else(|| config.providers.first().map(|provider| Site::of_provider(&provider.nats)));
    let Some(site) = site else { return Ok(Default::default()) };
    let (expected, elsewhere) = raw::expected(&config.providers, &site);
    if expected.is_empty() {
        return Ok((Vec::new(), elsewhere));
    }
    let names = expected.iter().map(|expected| expected.stream.clone()).collect();
    let found = stream_settings(options.clone(), names);
    let found =
        found.map_err(|error| CliError::Broker { doing: "looking at streams".to_owned(), source: Box::new(place.failed(error)) })?;
    let compared = expected.into_iter().zip(&found).map(|(expected, found)| raw::compare(expected, found.as_ref())).collect();
    Ok((compared, elsewhere))
}

fn show(plan: &Plan, raw: &[Compared], consumers: &[DurablePlan], elsewhere: &[String], output: &mut Output) -> Result<(), CliError> {
    let plan = plan.to_string();
    let lines = plan.lines().map(str::to_owned).chain(raw.iter().map(Compared::text));
    let lines = lines.chain(consumers.iter().map(ToString::to_string)).chain(elsewhere.iter().cloned());
    lines.collect::<Vec<_>>().iter().try_for_each(|line| output.text(line))
}
