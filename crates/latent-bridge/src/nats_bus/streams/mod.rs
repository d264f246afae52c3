//! The streams of a manifest's topics: planned, made and changed, or only looked at (B-050 to B-053). Requests stand here and in
//! `survey`; what to do is decided in `compare` and `overlap`, which know no broker.
//!
//! Nothing is written before every topic has been looked at and none is refused. What is written is read again.

mod compare;
mod desired;
mod info;
mod overlap;
mod plan;
mod survey;

use serde_json::Value;

use super::api::{Api, ApiFault};
use crate::{BridgeManifest, BusError};
use compare::{compare, merged};
use desired::Desired;
pub use desired::{stream_name, subject};
pub(super) use info::StreamInfo;
pub use plan::{Change, Plan, PlannedAction, Refusal, TopicPlan};
use survey::{Surveyed, plan_of, read, survey};

/// What the bus needs to know of a topic's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopicStream {
    /// The topic.
    pub(super) name: String,
    pub(super) stream: String,
    pub(super) partitions: u32,
    pub(super) replicas: u32,
    /// The broker's text: another one later means another stream of the same name.
    pub(super) created: String,
    pub(super) last_seq: u64,
}

/// `err_code` of a number of replicas that a broker alone cannot have.
const REPLICAS_WITHOUT_CLUSTER: u16 = 10_074;
/// `err_code` of a cluster that is too small.
const NO_SUITABLE_PEERS: u16 = 10_005;

/// A stream as the broker describes it now.
pub(super) async fn info(api: &Api, stream: &str) -> Result<StreamInfo, ApiFault> {
    api.read(&format!("STREAM.INFO.{stream}"), &Value::Null).await
}

/// A stream's settings; `None`: there is no such stream.
pub(super) async fn settings(api: &Api, stream: &str) -> Result<Option<serde_json::Map<String, Value>>, BusError> {
    Ok(read(api, stream).await?.map(|info| info.config))
}

/// Looks at every stream and changes nothing.
pub(super) async fn plan(api: &Api, manifest: &BridgeManifest) -> Result<Plan, BusError> {
    Ok(plan_of(&survey(api, manifest).await?))
}

/// Makes and changes streams until they are the manifest's. What cannot be is refused before anything of any topic is changed.
pub(super) async fn apply(api: &Api, manifest: &BridgeManifest) -> Result<Vec<TopicStream>, BusError> {
    let surveyed = survey(api, manifest).await?;
    let refusals = plan_of(&surveyed).refusals();
    if !refusals.is_empty() {
        return Err(BusError::Config { problem: format!("nothing was changed: {}", refusals.join("\n")) });
    }
    let mut streams = Vec::new();
    for Surveyed { desired, found, plan } in surveyed {
        let info = match (found, plan.action) {
            (Some(found), PlannedAction::Keep) => found,
            (found, _) => write(api, &desired, found.as_ref(), &plan).await?,
        };
        warn(&desired, &info);
        streams.push(topic_stream(&desired, &info));
    }
    Ok(streams)
}

const BY_PROVISIONING: &str = "bring the broker to the manifest by provisioning it, or change the manifest";

/// Checks that every stream is the manifest's. Changes nothing.
pub(super) async fn verify(api: &Api, manifest: &BridgeManifest) -> Result<Vec<TopicStream>, BusError> {
    let (mut streams, mut differences, mut is_refused) = (Vec::new(), Vec::new(), false);
    for desired in Desired::all(manifest)? {
        let Some(info) = read(api, &desired.stream).await? else {
            differences.push(format!("topic {:?} has no stream {:?} on the broker", desired.topic, desired.stream));
            continue;
        };
        let compared = compare(&desired, Some(&info));
        is_refused |= compared.action == PlannedAction::Refuse;
        differences.extend(compared.differences());
        warn(&desired, &info);
        streams.push(topic_stream(&desired, &info));
    }
    if differences.is_empty() {
        return Ok(streams);
    }
    let next = if is_refused { "change the manifest, since provisioning would not change that" } else { BY_PROVISIONING };
    let problem = format!("{}; {next}", differences.join("\n"));
    Err(BusError::Config { problem })
}

/// Writes, reads again and compares (B-052): what the broker makes of a request is its own decision.
async fn write(api: &Api, desired: &Desired, found: Option<&StreamInfo>, plan: &TopicPlan) -> Result<StreamInfo, BusError> {
    let (verb, config) = found.map_or_else(|| ("CREATE", desired.new_config()), |found| ("UPDATE", merged(desired, found)));
    let written: Result<Value, ApiFault> = api.ask(&format!("STREAM.{verb}.{}", desired.stream), &config).await;
    written.map_err(|fault| not_written(desired, &fault))?;
    for change in &plan.changes {
        tracing::info!(topic = desired.topic, stream = desired.stream, %change, "a setting of a stream was written");
    }
    let info = read(api, &desired.stream).await?;
    let differences = match &info {
        Some(info) => compare(desired, Some(info)).differences(),
        None => vec!["the stream is not there".to_owned()],
    };
    match info {
        Some(info) if differences.is_empty() => Ok(info),
        _ => {
            let told = differences.join("\n");
            Err(BusError::Backend(format!("JetStream stream does not match Bridge manifest after it was written: {told}")))
        }
    }
}

/// Without an answer it may have been done. Doing it again does no harm.
fn not_written(desired: &Desired, fault: &ApiFault) -> BusError {
    let Desired { topic, stream, replicas, .. } = desired;
    let next = match fault {
        _ if fault.is(REPLICAS_WITHOUT_CLUSTER) || fault.is(NO_SUITABLE_PEERS) => {
            format!("the manifest wants {replicas} replicas: lower replication_factor or add servers, then provision again")
        }
        ApiFault::NoAnswer { .. } => "it may have been done; provision again to learn".to_owned(),
        _ => "topics before it in the manifest are done; provision again when this is mended".to_owned(),
    };
    BusError::Backend(format!("topic {topic:?}: stream {stream:?} was not written: {fault}; {next}"))
}

fn warn(desired: &Desired, info: &StreamInfo) {
    for note in compare::notes(info) {
        tracing::warn!(topic = desired.topic, stream = desired.stream, "{note}");
    }
}

fn topic_stream(desired: &Desired, info: &StreamInfo) -> TopicStream {
    TopicStream {
        name: desired.topic.clone(),
        stream: desired.stream.clone(),
        partitions: desired.partitions,
        replicas: desired.replicas,
        created: info.created.clone(),
        last_seq: info.state.last_seq,
    }
}
