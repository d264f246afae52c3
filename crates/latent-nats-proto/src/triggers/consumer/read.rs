//! The body of a consumer's info, compared with the profile setting by setting.

use super::{ConsumerProfile, ConsumerState, InspectError, ProfileField, ProfileMismatch};
use crate::json::{JsonError, Rules, Value, object};
use crate::limits::RECEIPT_DEPTH;

const EXPIRES_NANOS: u64 = 100_000_000;
/// Characters of a value that is told back.
const FOUND_CHARS: usize = 128;
const RULES: Rules = Rules::Strict { levels: RECEIPT_DEPTH.max_usize() };
const SETTINGS: usize = 13;

/// What a setting must be.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Text(&'a str),
    Number(u64),
}

impl Wanted<'_> {
    fn text(self) -> Box<str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Number(number) => number.to_string().into(),
        }
    }

    /// Whether `value` is it. A number that is none of ours, -1 for no limit among them, is another setting; another type is no info.
    fn is(self, value: &Value<'_>) -> Result<bool, JsonError> {
        match (self, value) {
            (Self::Text(text), value) => Ok(value.text()?.is(text)),
            (Self::Number(number), Value::Number(_)) => Ok(value.integer() == Ok(number)),
            (Self::Number(_), _) => Err(JsonError::Member),
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

/// What must be said, in the order in which a mismatch is told. The first two stand outside of `config`.
const fn settings<'a>(profile: &ConsumerProfile<'a>) -> [(ProfileField, Wanted<'a>); SETTINGS] {
    [
        (ProfileField::Stream, Wanted::Text(profile.stream)),
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

/// What must be absent, or as good as absent.
const FORBIDDEN: &[(&str, ProfileField)] = &[
    ("deliver_subject", ProfileField::DeliverSubject),
    ("deliver_group", ProfileField::DeliverSubject),
    ("headers_only", ProfileField::HeadersOnly),
    ("flow_control", ProfileField::FlowControl),
    ("filter_subjects", ProfileField::FilterSubjects),
    ("backoff", ProfileField::Backoff),
    ("inactive_threshold", ProfileField::InactiveThreshold),
    ("priority_groups", ProfileField::PriorityGroups),
];

#[derive(Default)]
struct Info {
    refused: Option<(Option<u64>, Option<u64>)>,
    /// The consumer's name outside of its settings.
    name: Seen,
    settings: [Seen; SETTINGS],
    forbidden: Option<(ProfileField, Box<str>)>,
    state: ConsumerState,
}

/// Reads the body of a consumer's info.
pub(crate) fn read(body: &[u8], profile: &ConsumerProfile<'_>) -> Result<ConsumerState, InspectError> {
    let wanted = settings(profile);
    let info = std::str::from_utf8(body).map_err(|_| JsonError::Syntax).and_then(|text| info(text, &wanted));
    let info = info.map_err(|_| InspectError::Malformed)?;
    if let Some((code, err_code)) = info.refused {
        return Err(InspectError::Refused { code, err_code });
    }
    let mismatch = |field, required, found| Err(InspectError::Profile(Box::new(ProfileMismatch { field, required, found })));
    if let Some((field, found)) = info.forbidden {
        return mismatch(field, "absent".into(), found);
    }
    let named = [(ProfileField::Consumer, Wanted::Text(profile.consumer))];
    let seen = [info.name].into_iter().zip(named).chain(info.settings.into_iter().zip(wanted));
    for (seen, (field, required)) in seen {
        match seen {
            Seen::Right => (),
            Seen::Not => return mismatch(field, required.text(), "absent".into()),
            Seen::Other(found) => return mismatch(field, required.text(), found),
        }
    }
    Ok(info.state)
}

fn info(text: &str, wanted: &[(ProfileField, Wanted<'_>); SETTINGS]) -> Result<Info, JsonError> {
    let mut info = Info::default();
    let [(_, stream), (_, consumer), ..] = *wanted;
    object(text, RULES, |name, value| {
        let Info { refused, name: consumer_name, settings, forbidden, state } = &mut info;
        if name.is("stream_name") {
            let [seen, ..] = settings;
            *seen = compare(stream, &value)?;
        } else if name.is("name") {
            *consumer_name = compare(consumer, &value)?;
        } else if name.is("config") {
            config(nested(&value)?, wanted, settings, forbidden)?;
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
        } else if name.is("error") {
            *refused = Some(refusal(nested(&value)?)?);
        }
        Ok(())
    })?;
    Ok(info)
}

fn config(
    text: &str,
    wanted: &[(ProfileField, Wanted<'_>); SETTINGS],
    settings: &mut [Seen; SETTINGS],
    forbidden: &mut Option<(ProfileField, Box<str>)>,
) -> Result<(), JsonError> {
    object(text, RULES, |name, value| {
        // The stream's name is none of the settings.
        let mut known = settings.iter_mut().zip(wanted).skip(1);
        if let Some((seen, (_, required))) = known.find(|(_, (field, _))| name.is(field.name())) {
            *seen = compare(*required, &value)?;
        } else if let Some((_, field)) = FORBIDDEN.iter().find(|(forbidden, _)| name.is(forbidden)).filter(|_| is_set(&value)) {
            forbidden.get_or_insert_with(|| (*field, shown(&value)));
        }
        Ok(())
    })
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
        Value::Array => "a list".into(),
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
