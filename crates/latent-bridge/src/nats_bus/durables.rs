//! Durable consumers that wake functions: what they must be, what they are, and what an operator changes of them. The comparison is pure;
//! the two calls at the end ask the broker, with the operator's own user.
//!
//! An update loses nothing: a setting whose change would lose the consumer's position, or messages that it has not delivered, is refused
//! with both sides.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::api::{Api, ApiFault, STREAM_NOT_FOUND};
use super::options::NatsOptions;
use super::provision::{connected, of_fault};
use crate::connector::ConnectorExecutor;
use crate::{BusError, limits};

/// `err_code` of a consumer that is not there.
const CONSUMER_NOT_FOUND: u16 = 10_014;

/// A durable consumer as a trigger needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable {
    /// Its stream.
    pub stream: String,
    /// Its name.
    pub consumer: String,
    /// Every setting that the trigger needs, in the broker's own form.
    pub settings: Map<String, Value>,
    /// Settings that must be absent, or as good as absent.
    pub absent: &'static [&'static str],
}

/// What is to be done about one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurableAction {
    /// It is as it must be.
    Keep,
    /// It is not there.
    Create,
    /// Some settings are to be changed.
    Update,
    /// It cannot become what it must be without losing something, or its stream is not there.
    Refuse,
}

/// A setting that is another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DurableDifference {
    /// Which.
    pub field: String,
    /// As it is.
    pub from: Value,
    /// As it must be.
    pub to: Value,
    /// Why it is not changed; `None`: it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<&'static str>,
}

/// What is to be done about one, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DurablePlan {
    /// Its stream.
    pub stream: String,
    /// Its name.
    pub consumer: String,
    /// What is done.
    pub action: DurableAction,
    /// Both sides of every setting that differs.
    pub differences: Vec<DurableDifference>,
    /// The stream is not there.
    pub stream_missing: bool,
}

impl DurablePlan {
    /// Why it cannot be done, each in a sentence.
    pub fn refusals(&self) -> Vec<String> {
        let Self { stream, consumer, .. } = self;
        if self.stream_missing {
            return vec![format!(
                "consumer {consumer}: its stream {stream} is not there; make it first, what it keeps is the operator's decision"
            )];
        }
        let refused = self.differences.iter().filter_map(|difference| Some((difference, difference.refused?)));
        refused
            .map(|(DurableDifference { field, from, to, .. }, why)| {
                format!("consumer {consumer} of stream {stream}: {field} is {} and must be {}: {why}", shown(from), shown(to))
            })
            .collect()
    }
}

impl std::fmt::Display for DurablePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { stream, consumer, action, differences, .. } = self;
        let word = match action {
            DurableAction::Keep => "keep",
            DurableAction::Create => "create",
            DurableAction::Update => "update",
            DurableAction::Refuse => "refuse",
        };
        write!(f, "{word} consumer {consumer} of stream {stream}")?;
        if *action == DurableAction::Create {
            write!(f, ", beginning with the earliest message that the stream has")?;
        }
        for refusal in self.refusals() {
            write!(f, "\n  {refusal}")?;
        }
        for DurableDifference { field, from, to, .. } in differences.iter().filter(|difference| difference.refused.is_none()) {
            write!(f, "\n  {field}: {} → {}", shown(from), shown(to))?;
        }
        Ok(())
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "absent".to_owned(),
        Value::String(text) => super::words::told(text),
        other => super::words::told(other),
    }
}

/// What the broker cannot change of a consumer, or what would lose messages.
const FIXED: &[(&str, &str)] = &[
    ("deliver_policy", ANEW),
    ("ack_policy", ANEW),
    ("replay_policy", ANEW),
    ("deliver_subject", ANEW),
    ("deliver_group", ANEW),
    ("flow_control", ANEW),
    ("max_waiting", ANEW),
    ("filter_subject", "messages of the other subject that were not delivered yet would be passed over; make a consumer of another name"),
    ("filter_subjects", "messages of the other subjects that were not delivered yet would be passed over; make a consumer of another name"),
];
const FEWER: &str =
    "messages that were delivered as often already would never come again, and some are unsettled; wait until none is, then do this again";
const ANEW: &str = "the broker cannot change it; delete the consumer, with its position, or make one of another name";

/// What the broker has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FoundDurable {
    /// Its settings, in the broker's own form.
    pub config: Map<String, Value>,
    /// Messages that were delivered and not settled.
    #[serde(default)]
    pub num_ack_pending: u64,
}

impl FoundDurable {
    /// Why a setting of it is not changed; `None`: it can be.
    fn refusal(&self, field: &str, to: &Value) -> Option<&'static str> {
        let most = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or(u64::MAX);
        let is_fewer = field == "max_deliver" && most(Some(to)) < most(self.config.get(field));
        let fixed = FIXED.iter().find(|(fixed, _)| *fixed == field).map(|(_, why)| *why);
        fixed.or((is_fewer && self.num_ack_pending > 0).then_some(FEWER))
    }
}

/// Compares one with what the broker has. Pure.
pub fn compare_durable(wanted: &Durable, found: Option<&FoundDurable>) -> DurablePlan {
    let plan = |action, differences| DurablePlan {
        stream: wanted.stream.clone(),
        consumer: wanted.consumer.clone(),
        action,
        differences,
        stream_missing: false,
    };
    let Some(found) = found else { return plan(DurableAction::Create, Vec::new()) };
    let is = |field: &str| found.config.get(field).cloned().unwrap_or(Value::Null);
    let needed = wanted.settings.iter().filter(|(field, to)| is(field) != **to).map(|(field, to)| (field.as_str(), is(field), to.clone()));
    let unwanted = wanted.absent.iter().map(|field| (*field, is(field), Value::Null)).filter(|(_, from, _)| is_set(from));
    let differences: Vec<_> = needed
        .chain(unwanted)
        .map(|(field, from, to)| {
            let refused = found.refusal(field, &to);
            DurableDifference { field: field.to_owned(), from, to, refused }
        })
        .collect();
    let action = match differences.iter().any(|difference| difference.refused.is_some()) {
        true => DurableAction::Refuse,
        false if differences.is_empty() => DurableAction::Keep,
        false => DurableAction::Update,
    };
    plan(action, differences)
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_u64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Bool(true) | Value::Object(_) => true,
    }
}

/// What would be done about each. Looks and changes nothing.
///
/// # Errors
/// What keeps the broker from being asked, and what it says.
pub fn plan_durables(options: NatsOptions, wanted: Vec<Durable>) -> Result<Vec<DurablePlan>, BusError> {
    let (executor, time) = executor_for(&wanted)?;
    let planned = executor.submit_within(time, async move {
        let api = connected(&options).await?;
        let mut plans = Vec::with_capacity(wanted.len());
        for durable in &wanted {
            plans.push(look(&api, durable).await?.0);
        }
        Ok(plans)
    });
    planned.wait().map_err(|fault| of_fault(fault, "looking at consumers"))?
}

/// Makes and changes consumers until they are what is wanted. What cannot be is refused before anything is changed.
///
/// # Errors
/// [`BusError::Config`] for refusals; what keeps the broker from being asked, and what it says.
pub fn apply_durables(options: NatsOptions, wanted: Vec<Durable>) -> Result<(), BusError> {
    let (executor, time) = executor_for(&wanted)?;
    let applied = executor.submit_within(time, async move {
        let api = connected(&options).await?;
        let mut looked = Vec::with_capacity(wanted.len());
        for durable in &wanted {
            looked.push((durable, look(&api, durable).await?));
        }
        let refusals: Vec<_> = looked.iter().flat_map(|(_, (plan, _))| plan.refusals()).collect();
        if !refusals.is_empty() {
            return Err(BusError::Config { problem: format!("nothing was changed: {}", refusals.join("; ")) });
        }
        for (durable, (plan, found)) in looked {
            match plan.action {
                DurableAction::Create => write(&api, durable, durable.settings.clone(), "create").await?,
                DurableAction::Update => {
                    // Settings that are nobody's business here stay as they are.
                    let mut settings = found.map(|found| found.config).unwrap_or_default();
                    durable.absent.iter().for_each(|field| _ = settings.remove(*field));
                    if durable.absent.contains(&"priority_groups") {
                        // They mean nothing without groups, and the broker takes them only with some.
                        ["priority_policy", "priority_timeout"].iter().for_each(|field| _ = settings.remove(*field));
                    }
                    settings.extend(durable.settings.clone());
                    write(&api, durable, settings, "update").await?;
                }
                DurableAction::Keep | DurableAction::Refuse => {}
            }
        }
        Ok(())
    });
    applied.wait().map_err(|fault| of_fault(fault, "making consumers"))?
}

async fn look(api: &Api, durable: &Durable) -> Result<(DurablePlan, Option<FoundDurable>), BusError> {
    let Durable { stream, consumer, .. } = durable;
    match api.read::<FoundDurable>(&format!("CONSUMER.INFO.{stream}.{consumer}"), &Value::Null).await {
        Ok(found) => Ok((compare_durable(durable, Some(&found)), Some(found))),
        Err(fault) if fault.is(CONSUMER_NOT_FOUND) => Ok((compare_durable(durable, None), None)),
        Err(fault) if fault.is(STREAM_NOT_FOUND) => {
            let plan = compare_durable(durable, None);
            Ok((DurablePlan { action: DurableAction::Refuse, stream_missing: true, ..plan }, None))
        }
        Err(fault) => Err(fault.into()),
    }
}

/// A repeated write of the same settings changes nothing, so one whose answer was lost is looked at again.
async fn write(api: &Api, durable: &Durable, settings: Map<String, Value>, action: &str) -> Result<(), BusError> {
    let Durable { stream, consumer, .. } = durable;
    let filter = settings.get("filter_subject").and_then(Value::as_str).unwrap_or_default().to_owned();
    let request = json!({ "stream_name": stream, "config": settings, "action": action });
    let written = api.ask::<FoundDurable>(&format!("CONSUMER.CREATE.{stream}.{consumer}.{filter}"), &request).await;
    match written {
        Ok(_) => {}
        Err(fault @ ApiFault::Refused { .. }) => return Err(fault.into()),
        Err(fault) => tracing::debug!(%fault, stream, consumer, "looking whether the consumer was written"),
    }
    match look(api, durable).await?.0 {
        DurablePlan { action: DurableAction::Keep, .. } => Ok(()),
        plan => Err(BusError::Backend(format!("the broker took the settings and has others: {plan}"))),
    }
}

/// Enough for every request, each of which has its own limit: connecting, and three for each consumer.
fn executor_for(wanted: &[Durable]) -> Result<(ConnectorExecutor, Duration), BusError> {
    let requests = u32::try_from(wanted.len()).unwrap_or(u32::MAX).saturating_mul(3).saturating_add(1);
    let time = Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default).saturating_mul(requests);
    Ok((ConnectorExecutor::new("latent-nats-bus")?, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable() -> Durable {
        let settings = json!({ "durable_name": "c", "filter_subject": "in.a", "ack_policy": "explicit", "max_deliver": 5, "ack_wait": 9, "max_waiting": 8 });
        Durable {
            stream: "IN".to_owned(),
            consumer: "c".to_owned(),
            settings: settings.as_object().cloned().unwrap_or_default(),
            absent: &["headers_only", "backoff", "deliver_subject"],
        }
    }

    fn compared(change: &Value) -> DurablePlan {
        with_unsettled(0, change)
    }

    fn with_unsettled(num_ack_pending: u64, change: &Value) -> DurablePlan {
        let mut config = durable().settings;
        config.insert("num_replicas".to_owned(), json!(1));
        config.extend(change.as_object().cloned().unwrap_or_default());
        compare_durable(&durable(), Some(&FoundDurable { config, num_ack_pending }))
    }

    /// A message that was delivered as often as it may be from now on would never come again.
    #[test]
    fn fewer_deliveries_wait_until_nothing_is_unsettled() {
        for (from, unsettled, action) in [
            (json!(7), 0, DurableAction::Update),
            (json!(7), 1, DurableAction::Refuse),
            (json!(-1), 1, DurableAction::Refuse),
            (json!(4), 1, DurableAction::Update),
        ] {
            assert_eq!(with_unsettled(unsettled, &json!({ "max_deliver": from })).action, action, "{from} {unsettled}");
        }
        let refusals = with_unsettled(1, &json!({ "max_deliver": 7 })).refusals();
        assert!(refusals[0].contains("max_deliver is 7 and must be 5: messages that were delivered as often already"), "{refusals:?}");
    }

    #[test]
    fn what_differs_is_changed_and_told_with_both_sides() {
        let created = compare_durable(&durable(), None);
        assert_eq!(created.action, DurableAction::Create);
        assert!(created.to_string().contains("the earliest message"), "{created}");
        for same in [json!({}), json!({ "headers_only": false, "backoff": [], "deliver_subject": "", "description": "of a person" })] {
            assert_eq!(compared(&same).action, DurableAction::Keep, "{same}");
        }
        let plan = compared(&json!({ "max_deliver": 7, "headers_only": true, "ack_wait": null }));
        assert_eq!(plan.action, DurableAction::Update);
        let told = plan.to_string();
        assert!(
            told.contains("max_deliver: 7 → 5") && told.contains("headers_only: true → absent") && told.contains("ack_wait: absent → 9"),
            "{told}"
        );
    }

    #[test]
    fn what_would_lose_something_is_refused_with_both_sides() {
        let cases = [
            (json!({ "filter_subject": "in.b" }), "filter_subject is in.b and must be in.a"),
            (json!({ "max_waiting": 512 }), "max_waiting is 512 and must be 8"),
            (json!({ "ack_policy": "none" }), "ack_policy is none and must be explicit"),
            (json!({ "deliver_subject": "push.here" }), "deliver_subject is push.here and must be absent"),
        ];
        for (change, words) in cases {
            let plan = compared(&change);
            assert_eq!((plan.action, plan.refusals().len()), (DurableAction::Refuse, 1), "{change}");
            assert!(plan.refusals()[0].contains(words), "{:?}", plan.refusals());
        }
        let missing = DurablePlan { action: DurableAction::Refuse, stream_missing: true, ..compare_durable(&durable(), None) };
        assert!(missing.refusals()[0].contains("stream IN is not there"), "{:?}", missing.refusals());
    }
}
