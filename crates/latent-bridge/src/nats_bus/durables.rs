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
    /// Every setting that the trigger needs exactly so, in the broker's own form.
    pub settings: Map<String, Value>,
    /// Settings that may be more than this, with what they are made with.
    pub least: Vec<Least>,
    /// Where it begins when it is made. `None`: the settings say so, and it must have begun there.
    pub beginning: Option<Beginning>,
    /// Settings that must be absent, or as good as absent.
    pub absent: &'static [&'static str],
}

/// A setting of which the trigger needs at least so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Least {
    /// Which.
    pub field: &'static str,
    /// How much.
    pub value: u64,
    /// What it is made with, and changed to: at least as much.
    pub made: u64,
    /// Whether it may be without bound, too.
    pub or_unbounded: bool,
}

/// The first message of a consumer that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// The earliest that the stream has.
    Earliest,
    /// The first one after it was made.
    Latest,
    /// The one with this sequence, or the first one behind it.
    At(u64),
}

impl Beginning {
    fn settings(self) -> Vec<(&'static str, Value)> {
        match self {
            Self::Earliest => vec![(DELIVER_POLICY, json!("all"))],
            Self::Latest => vec![(DELIVER_POLICY, json!("new"))],
            Self::At(sequence) => vec![(DELIVER_POLICY, json!("by_start_sequence")), ("opt_start_seq", json!(sequence))],
        }
    }
}

const DELIVER_POLICY: &str = "deliver_policy";
/// Those that say where a consumer began and nothing more: from there on it has everything.
const BEGINNINGS: &[&str] = &["all", "new", "by_start_sequence", "by_start_time"];

impl Durable {
    /// What it is made with.
    fn made_with(&self) -> Map<String, Value> {
        let mut settings = self.settings.clone();
        settings.extend(self.least.iter().map(|least| (least.field.to_owned(), json!(least.made))));
        let beginning = self.beginning.into_iter().flat_map(Beginning::settings);
        settings.extend(beginning.map(|(field, value)| (field.to_owned(), value)));
        settings
    }
}

impl Least {
    fn is_met_by(&self, found: &Value) -> bool {
        match found.as_i64() {
            Some(number) if number > 0 => u64::try_from(number).is_ok_and(|number| number >= self.value),
            _ => self.or_unbounded && (found.is_null() || found.is_number()),
        }
    }
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
    /// It may be more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
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
    /// Where it begins if it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins_at: Option<u64>,
    /// Whether it begins with what comes after it was made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begins_behind: bool,
    /// With which sequence one that is made anew goes on where this one is: everything before it is settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goes_on_at: Option<u64>,
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
            .map(|(difference, why)| format!("consumer {consumer} of stream {stream}: {}: {why}", difference.told()))
            .chain(self.way_on())
            .collect()
    }

    /// What lets a consumer that has to be made anew go on where it was.
    fn way_on(&self) -> Option<String> {
        let Self { stream, consumer, goes_on_at, .. } = self;
        let sequence = (*goes_on_at)?;
        let is_fixed = |difference: &DurableDifference| difference.refused == Some(ANEW);
        self.differences.iter().any(is_fixed).then(|| {
            format!(
                "to go on where consumer {consumer} is, stop the nodes that have its trigger, delete it (`nats consumer rm {stream} \
                 {consumer}`), and make it anew with `latent broker provision --apply --begin {consumer}={sequence}`"
            )
        })
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
        match (action, self.begins_at) {
            (DurableAction::Create, Some(sequence)) => write!(f, ", beginning with sequence {sequence}")?,
            (DurableAction::Create, None) if self.begins_behind => write!(f, ", beginning with what is published from then on")?,
            (DurableAction::Create, None) => write!(f, ", beginning with the earliest message that the stream has")?,
            _ => {}
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

impl DurableDifference {
    /// Both values in words.
    pub fn told(&self) -> String {
        let Self { field, from, to, at_least, .. } = self;
        format!("{field} is {} and must be {}{}", shown(from), if *at_least { "at least " } else { "" }, shown(to))
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
    /// Everything up to here is settled.
    #[serde(default)]
    pub ack_floor: AckFloor,
    /// Everything up to here was delivered.
    #[serde(default)]
    pub delivered: AckFloor,
}

impl FoundDurable {
    /// The sequences among which are the messages that the broker has given up on: delivered, not settled, and not to be delivered again. None
    /// while something is unsettled, because it may be that.
    pub fn stranded(&self) -> Option<std::ops::RangeInclusive<u64>> {
        let (settled, delivered) = (self.ack_floor.stream_seq, self.delivered.stream_seq);
        (self.num_ack_pending == 0 && settled < delivered).then(|| settled.saturating_add(1)..=delivered)
    }
}

/// A place of a consumer, see [`FoundDurable`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct AckFloor {
    /// In the stream.
    #[serde(default)]
    pub stream_seq: u64,
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
    let goes_on_at = found.filter(|_| wanted.beginning.is_some()).map(|found| found.ack_floor.stream_seq.saturating_add(1));
    let plan = |action, differences| DurablePlan {
        stream: wanted.stream.clone(),
        consumer: wanted.consumer.clone(),
        action,
        differences,
        stream_missing: false,
        begins_at: wanted.beginning.and_then(|beginning| if let Beginning::At(sequence) = beginning { Some(sequence) } else { None }),
        begins_behind: wanted.beginning == Some(Beginning::Latest),
        goes_on_at,
    };
    let Some(found) = found else { return plan(DurableAction::Create, Vec::new()) };
    let differences = differences(wanted, found);
    let action = match differences.iter().any(|difference| difference.refused.is_some()) {
        true => DurableAction::Refuse,
        false if differences.is_empty() => DurableAction::Keep,
        false => DurableAction::Update,
    };
    plan(action, differences)
}

fn differences(wanted: &Durable, found: &FoundDurable) -> Vec<DurableDifference> {
    let is = |field: &str| found.config.get(field).cloned().unwrap_or(Value::Null);
    let exact = wanted.settings.iter().filter(|(field, to)| is(field) != **to);
    let exact = exact.map(|(field, to)| (field.as_str(), to.clone(), false));
    let least = wanted.least.iter().filter(|least| !least.is_met_by(&is(least.field)));
    let least = least.map(|least| (least.field, json!(least.value), true));
    let unwanted = wanted.absent.iter().filter(|field| is_set(&is(field))).map(|field| (*field, Value::Null, false));
    // Where it began matters only where it would have passed over something since.
    let began = wanted.beginning.filter(|_| !is(DELIVER_POLICY).as_str().is_some_and(|policy| BEGINNINGS.contains(&policy)));
    let began = began.and_then(|beginning| beginning.settings().into_iter().next()).map(|(field, to)| (field, to, false));
    let difference = |(field, to, at_least): (&str, Value, bool)| {
        let refused = found.refusal(field, &to);
        DurableDifference { field: field.to_owned(), from: is(field), to, at_least, refused }
    };
    exact.chain(least).chain(unwanted).chain(began).map(difference).collect()
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
    let (executor, time) = executor_for(wanted.len())?;
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

/// What the broker has of each consumer, given with its stream; `None` where it is not there. Looks and changes nothing.
///
/// # Errors
/// What keeps the broker from being asked, and what it says.
pub fn found_durables(options: NatsOptions, named: Vec<(String, String)>) -> Result<Vec<Option<FoundDurable>>, BusError> {
    let (executor, time) = executor_for(named.len())?;
    let found = executor.submit_within(time, async move {
        let api = connected(&options).await?;
        let mut all = Vec::with_capacity(named.len());
        for (stream, consumer) in &named {
            match api.read::<FoundDurable>(&format!("CONSUMER.INFO.{stream}.{consumer}"), &Value::Null).await {
                Ok(found) => all.push(Some(found)),
                Err(fault) if fault.is(CONSUMER_NOT_FOUND) || fault.is(STREAM_NOT_FOUND) => all.push(None),
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(all)
    });
    found.wait().map_err(|fault| of_fault(fault, "looking at consumers"))?
}

/// Makes and changes consumers until they are what is wanted. What cannot be is refused before anything is changed.
///
/// # Errors
/// [`BusError::Config`] for refusals; what keeps the broker from being asked, and what it says.
pub fn apply_durables(options: NatsOptions, wanted: Vec<Durable>) -> Result<(), BusError> {
    let (executor, time) = executor_for(wanted.len())?;
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
        let mut done: Vec<&str> = Vec::new();
        for (durable, (plan, found)) in &looked {
            let written = match plan.action {
                DurableAction::Create => write(&api, durable, durable.made_with(), "create").await,
                DurableAction::Update => write(&api, durable, updated(durable, plan, found.as_ref()), "update").await,
                DurableAction::Keep | DurableAction::Refuse => continue,
            };
            written.map_err(|error| half_way(error, durable, &done))?;
            done.push(&durable.consumer);
        }
        Ok(())
    });
    applied.wait().map_err(|fault| of_fault(fault, "making consumers"))?
}

/// What differs is set; settings that are nobody's business here stay as they are.
fn updated(durable: &Durable, plan: &DurablePlan, found: Option<&FoundDurable>) -> Map<String, Value> {
    let mut settings = found.map(|found| found.config.clone()).unwrap_or_default();
    durable.absent.iter().for_each(|field| _ = settings.remove(*field));
    if durable.absent.contains(&"priority_groups") {
        // They mean nothing without groups, and the broker takes them only with some.
        ["priority_policy", "priority_timeout"].iter().for_each(|field| _ = settings.remove(*field));
    }
    let made = durable.made_with();
    let changed = plan.differences.iter().filter_map(|difference| made.get_key_value(&difference.field));
    settings.extend(changed.map(|(field, value)| (field.clone(), value.clone())));
    settings
}

/// An error in the middle says which consumers were written before it: a repetition goes on behind them.
fn half_way(error: BusError, durable: &Durable, done: &[&str]) -> BusError {
    let done =
        if done.is_empty() { "no consumer was changed before it".to_owned() } else { format!("done before it: {}", done.join(", ")) };
    let told = |text: String| format!("consumer {} of stream {}: {text}; {done}", durable.consumer, durable.stream);
    match error {
        BusError::Config { problem } => BusError::Config { problem: told(problem) },
        BusError::Backend(text) => BusError::Backend(told(text)),
        other => other,
    }
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
fn executor_for(consumers: usize) -> Result<(ConnectorExecutor, Duration), BusError> {
    let requests = u32::try_from(consumers).unwrap_or(u32::MAX).saturating_mul(3).saturating_add(1);
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
            least: Vec::new(),
            beginning: None,
            absent: &["headers_only", "backoff", "deliver_subject"],
        }
    }

    /// As the second profile has it.
    fn pinned() -> Durable {
        let settings = json!({ "durable_name": "c", "filter_subject": "in.a", "max_ack_pending": 8 });
        let least = |field, value, or_unbounded| Least { field, value, made: value + 1, or_unbounded };
        Durable {
            settings: settings.as_object().cloned().unwrap_or_default(),
            least: vec![least("max_deliver", 13, true), least("max_waiting", 8, false)],
            beginning: Some(Beginning::Earliest),
            absent: &["headers_only"],
            ..durable()
        }
    }

    fn pinned_against(change: &Value) -> DurablePlan {
        let mut config = pinned().made_with();
        config.extend(change.as_object().cloned().unwrap_or_default());
        let ack_floor = AckFloor { stream_seq: 41 };
        let delivered = ack_floor;
        compare_durable(&pinned(), Some(&FoundDurable { config, num_ack_pending: 0, ack_floor, delivered }))
    }

    #[test]
    fn what_may_be_more_is_kept_when_it_is_and_told_as_the_least_when_it_is_not() {
        for kept in [
            json!({}),
            json!({ "max_deliver": 14, "max_waiting": 512 }),
            json!({ "max_deliver": -1 }),
            json!({ "max_deliver": null }),
            json!({ "deliver_policy": "new" }),
            json!({ "deliver_policy": "by_start_sequence", "opt_start_seq": 7 }),
        ] {
            assert_eq!(pinned_against(&kept).action, DurableAction::Keep, "{kept}");
        }
        let plan = pinned_against(&json!({ "max_deliver": 12, "max_ack_pending": 9 }));
        assert_eq!(plan.action, DurableAction::Update);
        let told: Vec<_> = plan.differences.iter().map(DurableDifference::told).collect();
        assert_eq!(told, ["max_ack_pending is 9 and must be 8", "max_deliver is 12 and must be at least 13"]);
        let (ack_floor, delivered) = Default::default();
        let found = FoundDurable { config: pinned().made_with(), num_ack_pending: 0, ack_floor, delivered };
        let settings = updated(&pinned(), &plan, Some(&found));
        assert_eq!((&settings["max_deliver"], &settings["max_ack_pending"]), (&json!(14), &json!(8)));
    }

    /// A consumer of the first profile takes one pull at a time, which the broker does not change: the way on keeps its place.
    #[test]
    fn what_has_to_be_made_anew_can_go_on_where_it_was() {
        let plan = pinned_against(&json!({ "max_waiting": 1 }));
        let refusals = plan.refusals();
        assert_eq!((plan.action, plan.goes_on_at), (DurableAction::Refuse, Some(42)));
        assert!(refusals[0].contains("max_waiting is 1 and must be at least 8") && refusals[1].contains("--begin c=42"), "{refusals:?}");
        let last = pinned_against(&json!({ "deliver_policy": "last_per_subject" }));
        assert!(last.refusals()[0].contains("deliver_policy is last_per_subject and must be all"), "{:?}", last.refusals());
        // One that is refused for what it reads would not go on where it was.
        assert_eq!(pinned_against(&json!({ "filter_subject": "in.b" })).refusals().len(), 1);
    }

    #[test]
    fn what_a_broker_gave_up_lies_between_what_is_settled_and_what_was_delivered() {
        for (num_ack_pending, settled, delivered, expected) in
            [(0, 4, 7, Some(5..=7)), (1, 4, 7, None), (0, 7, 7, None), (0, 0, 1, Some(1..=1))]
        {
            let (ack_floor, delivered) = (AckFloor { stream_seq: settled }, AckFloor { stream_seq: delivered });
            let found = FoundDurable { config: Map::new(), num_ack_pending, ack_floor, delivered };
            assert_eq!(found.stranded(), expected, "{found:?}");
        }
    }

    #[test]
    fn where_one_begins_that_is_made_is_said() {
        let made = |beginning| {
            let wanted = Durable { beginning: Some(beginning), ..pinned() };
            (compare_durable(&wanted, None).to_string(), wanted.made_with()["deliver_policy"].clone())
        };
        let (told, policy) = made(Beginning::At(42));
        assert!(told.contains("beginning with sequence 42") && policy == json!("by_start_sequence"), "{told}");
        let (told, policy) = made(Beginning::Latest);
        assert!(told.contains("published from then on") && policy == json!("new"), "{told}");
        assert_eq!(made(Beginning::Earliest).1, json!("all"));
    }

    #[test]
    fn an_error_in_the_middle_says_what_was_done_before_it() {
        let error = half_way(BusError::Backend("no answer".to_owned()), &durable(), &["a", "b"]).to_string();
        assert!(error.contains("consumer c of stream IN: no answer; done before it: a, b"), "{error}");
        let first = half_way(BusError::Config { problem: "refused".to_owned() }, &durable(), &[]).to_string();
        assert!(first.contains("no consumer was changed"), "{first}");
    }

    fn compared(change: &Value) -> DurablePlan {
        with_unsettled(0, change)
    }

    fn with_unsettled(num_ack_pending: u64, change: &Value) -> DurablePlan {
        let mut config = durable().settings;
        config.insert("num_replicas".to_owned(), json!(1));
        config.extend(change.as_object().cloned().unwrap_or_default());
        compare_durable(
            &durable(),
            Some(&FoundDurable { config, num_ack_pending, ack_floor: AckFloor::default(), delivered: AckFloor::default() }),
        )
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
