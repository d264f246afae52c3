//! What there is on the broker, and beside each topic what would be done. Only reads.

use serde::Deserialize;
use serde_json::{Value, json};

use super::compare::compare;
use super::desired::Desired;
use super::info::StreamInfo;
use super::overlap::{filter, overlap};
use super::plan::{Plan, PlannedAction, Refusal, TopicPlan};
use crate::nats_bus::api::{Api, ApiFault, STREAM_NOT_FOUND};
use crate::{BridgeManifest, BusError};

/// A topic, its stream as it is, and what is to be done.
pub(super) struct Surveyed {
    pub(super) desired: Desired,
    pub(super) found: Option<StreamInfo>,
    pub(super) plan: TopicPlan,
}

/// Looks at the streams of all topics.
pub(super) async fn survey(api: &Api, manifest: &BridgeManifest) -> Result<Vec<Surveyed>, BusError> {
    let mut all = Vec::new();
    for desired in Desired::all(manifest)? {
        let found = read(api, &desired.stream).await?;
        let mut plan = compare(&desired, found.as_ref());
        if found.is_none() {
            plan.refuse(overlaps(api, &desired).await?);
        }
        all.push(Surveyed { desired, found, plan });
    }
    Ok(all)
}

/// The plans alone.
pub(super) fn plan_of(surveyed: &[Surveyed]) -> Plan {
    Plan { topics: surveyed.iter().map(|surveyed| surveyed.plan.clone()).collect() }
}

/// A stream as it is; `None`: there is none.
pub(super) async fn read(api: &Api, stream: &str) -> Result<Option<StreamInfo>, ApiFault> {
    match api.ask::<StreamInfo>(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
        Ok(info) => Ok(Some(info)),
        Err(fault) if fault.is(STREAM_NOT_FOUND) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Other streams that keep subjects of the topic. Their stream would be refused when it is made; here that is known before anything is.
async fn overlaps(api: &Api, desired: &Desired) -> Result<Vec<Refusal>, BusError> {
    let mut refusals = Vec::new();
    for name in names(api, &filter(&desired.topic)).await? {
        let Some(other) = read(api, &name).await? else { continue };
        refusals.extend(overlap(desired, &name, &other.subjects()));
    }
    Ok(refusals)
}

#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    total: u64,
    streams: Option<Vec<String>>,
}

/// The names of the streams with a subject that fits, page by page.
async fn names(api: &Api, subject: &str) -> Result<Vec<String>, BusError> {
    let mut names = Vec::new();
    loop {
        let page: Names = api.ask("STREAM.NAMES", &json!({ "subject": subject, "offset": names.len() })).await?;
        let streams = page.streams.unwrap_or_default();
        let last = streams.is_empty();
        names.extend(streams);
        if last || names.len() as u64 >= page.total {
            return Ok(names);
        }
    }
}

impl TopicPlan {
    fn refuse(&mut self, refusals: Vec<Refusal>) {
        if !refusals.is_empty() {
            self.action = PlannedAction::Refuse;
            self.refusals.extend(refusals);
        }
    }
}
