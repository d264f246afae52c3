//! What bytes of a broker say to an inspection, a pull or a settlement, read in another way than the machines do: whole at once, with
//! `serde_json`. For the exchanges of these tests only.

use serde_json::Value;

use crate::triggers::{AckNumbers, ConsumerState};

/// One `MSG` or `HMSG`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) subject: &'a [u8],
    pub(super) subscription: &'a [u8],
    pub(super) reply: &'a [u8],
    pub(super) headers: Option<&'a [u8]>,
    pub(super) payload: &'a [u8],
}

/// The first frame, if it is a message, and what stands behind it.
pub(super) fn message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let line_end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = bytes[..line_end].strip_suffix(b"\r")?;
    let rest = &bytes[line_end + 1..];
    let fields: Vec<&[u8]> = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty()).collect();
    let size =
        |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<usize>().ok().filter(|size| size.to_string() == text));
    let is = |name: &[u8], operation: &str| name.eq_ignore_ascii_case(operation.as_bytes()) && line.starts_with(name);
    let (subject, subscription, reply, headers, total) = match fields[..] {
        [name, subject, subscription, total] if is(name, "MSG") => (subject, subscription, &b""[..], None, size(total)?),
        [name, subject, subscription, reply, total] if is(name, "MSG") => (subject, subscription, reply, None, size(total)?),
        [name, subject, subscription, headers, total] if is(name, "HMSG") => {
            (subject, subscription, &b""[..], Some(size(headers)?), size(total)?)
        }
        [name, subject, subscription, reply, headers, total] if is(name, "HMSG") => {
            (subject, subscription, reply, Some(size(headers)?), size(total)?)
        }
        _ => return None,
    };
    let body = rest.get(..total).filter(|_| rest.get(total..total + 2) == Some(b"\r\n"))?;
    let (block, payload) = body.split_at_checked(headers.unwrap_or(0))?;
    Some((Message { subject, subscription, reply, headers: headers.map(|_| block), payload }, &rest[total + 2..]))
}

/// What a block's first line says: a status, or none; nothing for what is no block.
pub(super) fn status(block: &[u8]) -> Option<Option<u16>> {
    let rest = block.strip_prefix(b"NATS/1.0").filter(|_| block.ends_with(b"\r\n\r\n"))?;
    let first = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &rest[..first];
    if line.is_empty() {
        return Some(None);
    }
    let text = std::str::from_utf8(line.strip_prefix(b" ")?.get(..3)?).ok()?;
    let code = text.parse::<u16>().ok().filter(|code| code.to_string() == text && *code >= 100)?;
    let description = &line[4..];
    let is_fit = description.is_empty() || description[0] == b' ' && description.iter().all(|byte| *byte >= b' ' && *byte != 0x7f);
    is_fit.then_some(Some(code))
}

/// Whether a status says that its request was used up.
pub(super) fn promises_the_message(block: &[u8]) -> bool {
    let text: String = block.iter().map(|byte| char::from(*byte)).collect();
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default().to_ascii_lowercase();
    first.starts_with("nats/1.0 409 batch completed") && lines.any(|line| line == "Nats-Pending-Messages: 0")
}

/// What an acknowledgement subject says, in whichever form.
pub(super) fn numbers(subject: &[u8], stream: &str, consumer: &str) -> Option<AckNumbers> {
    let text = std::str::from_utf8(subject).ok()?;
    let tokens: Vec<&str> = text.split('.').collect();
    let is_fit = text.bytes().all(|byte| (0x21..0x7f).contains(&byte)) && tokens.iter().all(|token| !token.is_empty());
    let tail = match tokens[..] {
        ["$JS", "ACK", ref rest @ ..] if rest.len() == 7 => rest,
        ["$JS", "ACK", "_", _, ref rest @ ..] if rest.len() >= 7 => &rest[..7],
        _ => return None,
    };
    let number = |at: usize| tail[at].parse::<u64>().ok().filter(|number| number.to_string() == tail[at]);
    let positive = |at: usize| number(at).filter(|number| *number > 0);
    let numbers = AckNumbers {
        deliveries: positive(2)?,
        stream_sequence: positive(3)?,
        consumer_sequence: positive(4)?,
        stored_unix_nanos: number(5)?,
        pending: number(6)?,
    };
    (is_fit && tail[0] == stream && tail[1] == consumer).then_some(numbers)
}

/// What a consumer's info says of one that is as `wanted`: everything that its `config` must have, exactly.
pub(super) fn state(body: &[u8], wanted: &Value) -> Option<ConsumerState> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let fields = value.as_object()?;
    let config = fields.get("config")?.as_object()?;
    let all = wanted.as_object()?.iter().all(|(name, value)| config.get(name) == Some(value));
    if !all || fields.get("stream_name")? != "ORD" || fields.get("name")? != "c1" || fields.contains_key("error") {
        return None;
    }
    let number = |field: Option<&Value>| field.map_or(Some(0), Value::as_u64);
    let nested = |name: &str, sequence: &str| match fields.get(name) {
        None => Some(0),
        Some(value) => number(value.as_object()?.get(sequence)),
    };
    // Either sequence has to be one, whichever is used.
    nested("ack_floor", "consumer_seq")?;
    Some(ConsumerState {
        pending: number(fields.get("num_pending"))?,
        ack_pending: number(fields.get("num_ack_pending"))?,
        redelivered: number(fields.get("num_redelivered"))?,
        waiting: number(fields.get("num_waiting"))?,
        delivered_stream_sequence: nested("delivered", "stream_seq")?,
        delivered_consumer_sequence: nested("delivered", "consumer_seq")?,
        ack_floor_stream_sequence: nested("ack_floor", "stream_seq")?,
    })
}
