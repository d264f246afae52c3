//! The body of a consumer's info, compared with the profile setting by setting.

use super::{ConsumerProfile, ConsumerState, InspectError, ProfileField, ProfileMismatch};
use crate::json::{JsonError, Rules, Value, array, object};
use crate::limits::RECEIPT_DEPTH;

const EXPIRES_NANOS: u64 = 100_000_000;
/// Characters of a value that is told back.
const FOUND_CHARS: usize = 128;
const RULES: Rules = Rules::Strict { levels: RECEIPT_DEPTH.max_usize() };

/// What a setting must be.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    Text(&'a str),
    Number(u64),
    /// So much or more.
    AtLeast(u64),
    /// So much or more, or no bound at all: absent, 0 or -1.
    AtLeastIfAny(u64),
    /// A list of this text and no other.
    OnlyText(&'a str),
    /// One of these.
    OneOf(&'static [&'static str]),
}

impl Wanted<'_> {
    fn text(self) -> Box<str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Number(number) => number.to_string().into(),
            Self::AtLeast(number) => format!("at least {number}").into(),
            Self::AtLeastIfAny(number) => format!("at least {number}, or absent").into(),
            Self::OnlyText(text) => format!("a list of {text}").into(),
            Self::OneOf(texts) => texts.join(" or ").into(),
        }
    }

    /// Whether `value` is it. A number that is none of ours, -1 for no limit among them, is another setting; another type is no info.
    fn is(self, value: &Value<'_>) -> Result<bool, JsonError> {
        match (self, value) {
            (Self::Text(text), value) => Ok(value.text()?.is(text)),
            (Self::OneOf(texts), value) => value.text().map(|found| texts.iter().any(|text| found.is(text))),
            (Self::Number(number), Value::Number(_)) => Ok(value.integer() == Ok(number)),
            (Self::AtLeastIfAny(_), Value::Number("-1" | "0") | Value::Null) => Ok(true),
            (Self::AtLeast(number) | Self::AtLeastIfAny(number), Value::Number(_)) => Ok(value.integer().is_ok_and(|is| is >= number)),
            (Self::OnlyText(wanted), Value::Array(list)) => {
                let (mut count, mut is_wanted) = (0_u32, false);
                array(list, RULES, |value| {
                    count += 1;
                    is_wanted = value.text()?.is(wanted);
                    Ok(())
                })?;
                Ok(count == 1 && is_wanted)
            }
            (Self::Number(_) | Self::AtLeast(_) | Self::AtLeastIfAny(_) | Self::OnlyText(_), _) => Err(JsonError::Member),
        }
    }
}

/// How a setting was seen.
#[derive(Clone, Default)]
enum Seen {
    #[default]
    Not,
    Right,
    Other(Box<str>),
}

/// Everything that a profile asks of a consumer.
pub(crate) struct Demands<'a> {
    pub(crate) stream: &'a str,
    pub(crate) consumer: &'a str,
    /// What must be said among the settings, in the order in which a mismatch is told.
    pub(crate) settings: &'a [(ProfileField, Wanted<'a>)],
    /// What must be absent, or as good as absent.
    pub(crate) forbidden: &'a [&'a [(&'static str, ProfileField)]],
}

/// Settings of [`Demands::settings`] that v1 has.
const fn settings<'a>(profile: &ConsumerProfile<'a>) -> [(ProfileField, Wanted<'a>); 12] {
    [
        (ProfileField::Consumer, Wanted::Text(profile.consumer)),
        (ProfileField::FilterSubject, Wanted::Text(profile.filter_subject)),
        (ProfileField::AckPolicy, Wanted::Text("explicit")),
        (ProfileField::ReplayPolicy, Wanted::Text("instant")),
        (ProfileField::DeliverPolicy, Wanted::Text("all")),
        (ProfileField::MaxWaiting, Wanted::Number(1)),
        (ProfileField::MaxAckPending, Wanted::Number(1)),
        (ProfileField::MaxBatch, Wanted::Number(1)),
        (ProfileField::MaxExpires, Wanted::Number(EXPIRES_NANOS)),
        (ProfileField::MaxBytes, Wanted::Number(profile.request_bytes_max())),
        (ProfileField::AckWait, Wanted::Number(profile.ack_wait_nanos)),
        (ProfileField::MaxDeliver, Wanted::Number(profile.max_deliver)),
    ]
}

/// What no profile allows.
pub(crate) const FORBIDDEN: &[(&str, ProfileField)] = &[
    ("deliver_subject", ProfileField::DeliverSubject),
    ("deliver_group", ProfileField::DeliverSubject),
    ("headers_only", ProfileField::HeadersOnly),
    ("flow_control", ProfileField::FlowControl),
    ("filter_subjects", ProfileField::FilterSubjects),
    ("backoff", ProfileField::Backoff),
    ("inactive_threshold", ProfileField::InactiveThreshold),
];
/// What only a profile without priority groups forbids.
pub(crate) const NO_GROUPS: &[(&str, ProfileField)] = &[("priority_groups", ProfileField::PriorityGroups)];

/// What is told of a consumer beside what it has to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    pub(crate) state: ConsumerState,
    /// Nothing when it delivers without end.
    pub(crate) max_deliver: Option<u64>,
    pub(crate) priority_timeout_nanos: Option<u64>,
    /// The pin of its one group.
    pub(crate) pin: Option<Box<str>>,
}

#[derive(Default)]
struct Info {
    refused: Option<(Option<u64>, Option<u64>)>,
    /// The names outside of the settings: its stream's and its own.
    stream: Seen,
    name: Seen,
    settings: Vec<Seen>,
    forbidden: Option<(ProfileField, Box<str>)>,
    facts: Facts,
}

/// Reads the body of a consumer's info.
pub(crate) fn read(body: &[u8], profile: &ConsumerProfile<'_>) -> Result<ConsumerState, InspectError> {
    let ConsumerProfile { stream, consumer, .. } = *profile;
    let demands = Demands { stream, consumer, settings: &settings(profile), forbidden: &[FORBIDDEN, NO_GROUPS] };
    read_facts(body, &demands).map(|facts| facts.state)
}

/// The same for whatever is demanded.
pub(crate) fn read_facts(body: &[u8], demands: &Demands<'_>) -> Result<Facts, InspectError> {
    let info = std::str::from_utf8(body).map_err(|_| JsonError::Syntax).and_then(|text| info(text, demands));
    let info = info.map_err(|_| InspectError::Malformed)?;
    if let Some((code, err_code)) = info.refused {
        return Err(InspectError::Refused { code, err_code });
    }
    let mismatch = |field, required, found| Err(InspectError::Profile(Box::new(ProfileMismatch { field, required, found })));
    if let Some((field, found)) = info.forbidden {
        return mismatch(field, "absent".into(), found);
    }
    let named = [(ProfileField::Consumer, Wanted::Text(demands.consumer)), (ProfileField::Stream, Wanted::Text(demands.stream))];
    let seen = [info.name, info.stream].into_iter().zip(named).chain(info.settings.into_iter().zip(demands.settings.iter().copied()));
    for (seen, (field, required)) in seen {
        match (seen, required) {
            (Seen::Right, _) | (Seen::Not, Wanted::AtLeastIfAny(_)) => (),
            (Seen::Not, _) => return mismatch(field, required.text(), "absent".into()),
            (Seen::Other(found), _) => return mismatch(field, required.text(), found),
        }
    }
    Ok(info.facts)
}

fn info(text: &str, demands: &Demands<'_>) -> Result<Info, JsonError> {
    let mut info = Info { settings: vec![Seen::Not; demands.settings.len()], ..Info::default() };
    object(text, RULES, |name, value| {
        let state = &mut info.facts.state;
        if name.is("stream_name") {
            info.stream = compare(Wanted::Text(demands.stream), &value)?;
        } else if name.is("name") {
            info.name = compare(Wanted::Text(demands.consumer), &value)?;
        } else if name.is("config") {
            config(nested(&value)?, demands, &mut info)?;
        } else if name.is("num_pending") {
            state.pending = value.integer()?;
        } else if name.is("num_ack_pending") {
            state.ack_pending = value.integer()?;
        } else if name.is("num_redelivered") {
            state.redelivered = value.integer()?;
        } else if name.is("num_waiting") {
            state.waiting = value.integer()?;
        } else if name.is("delivered") {
            (state.delivered_stream_sequence, state.delivered_consumer_sequence) = sequences(nested(&value)?)?;
        } else if name.is("ack_floor") {
            state.ack_floor_stream_sequence = sequences(nested(&value)?)?.0;
        } else if name.is("priority_groups") {
            info.facts.pin = pin(&value)?;
        } else if name.is("error") {
            info.refused = Some(refusal(nested(&value)?)?);
        }
        Ok(())
    })?;
    Ok(info)
}

fn config(text: &str, demands: &Demands<'_>, info: &mut Info) -> Result<(), JsonError> {
    object(text, RULES, |name, value| {
        if name.is("max_deliver") {
            info.facts.max_deliver = value.integer().ok();
        } else if name.is("priority_timeout") {
            info.facts.priority_timeout_nanos = value.integer().ok();
        }
        let mut known = info.settings.iter_mut().zip(demands.settings);
        if let Some((seen, (_, required))) = known.find(|(_, (field, _))| name.is(field.name())) {
            *seen = compare(*required, &value)?;
        } else if let Some((_, field)) = demands.forbidden.iter().copied().flatten().find(|(forbidden, _)| name.is(forbidden))
            && is_set(&value)
        {
            info.forbidden.get_or_insert_with(|| (*field, shown(&value)));
        }
        Ok(())
    })
}

/// The pin of the only group of this list. Other groups are refused by the settings.
fn pin(value: &Value<'_>) -> Result<Option<Box<str>>, JsonError> {
    let Value::Array(list) = value else { return Ok(None) };
    let mut pin = None;
    array(list, RULES, |group| {
        object(nested(&group)?, RULES, |name, value| {
            if name.is("pinned_client_id") && is_set(&value) {
                pin = Some(value.text()?.raw().into());
            }
            Ok(())
        })
    })?;
    Ok(pin)
}

fn compare(required: Wanted<'_>, value: &Value<'_>) -> Result<Seen, JsonError> {
    Ok(if required.is(value)? { Seen::Right } else { Seen::Other(shown(value)) })
}

fn is_set(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Number("0") => false,
        Value::Text(text) => !text.is(""),
        _ => true,
    }
}

/// A value as it may be told: nothing that a terminal would act upon.
fn shown(value: &Value<'_>) -> Box<str> {
    fn safe(chars: impl Iterator<Item = char>) -> Box<str> {
        let kept = chars.take(FOUND_CHARS).map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
        kept.collect::<String>().into()
    }
    match value {
        Value::Text(text) if text.is("") => "empty".into(),
        Value::Text(text) => safe(text.chars()),
        Value::Number(digits) => safe(digits.chars()),
        Value::Bool(true) => "true".into(),
        Value::Bool(false) => "false".into(),
        Value::Null => "absent".into(),
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "a list".into(),
    }
}

fn nested<'a>(value: &Value<'a>) -> Result<&'a str, JsonError> {
    if let Value::Object(text) = value { Ok(text) } else { Err(JsonError::Member) }
}

/// In the stream, and of the consumer's deliveries.
fn sequences(text: &str) -> Result<(u64, u64), JsonError> {
    let (mut of_stream, mut of_consumer) = (0, 0);
    object(text, RULES, |name, value| {
        if name.is("stream_seq") {
            of_stream = value.integer()?;
        } else if name.is("consumer_seq") {
            of_consumer = value.integer()?;
        }
        Ok(())
    })?;
    Ok((of_stream, of_consumer))
}

fn refusal(text: &str) -> Result<(Option<u64>, Option<u64>), JsonError> {
    let (mut code, mut err_code) = (None, None);
    object(text, RULES, |name, value| {
        if name.is("code") {
            code = Some(value.integer()?);
        } else if name.is("err_code") {
            err_code = Some(value.integer()?);
        }
        Ok(())
    })?;
    Ok((code, err_code))
}
