//! What the broker's bytes say to the six operations of these tests, read whole and plainly, with `serde_json`.

use serde_json::Value;

use super::{FIRST_PULL, GROUP, INSPECT, OPERATIONS, SECOND_PULL, SETTLEMENTS, ack};
use crate::testing::inbox;
use crate::triggers::PullStatus;
use crate::{Evidence, UncertainCause};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// Pending, delivered and acknowledged sequences; nothing when the consumer is not as it must be.
    Inspected(u64, Option<(u64, u64, u64)>),
    Delivered(u64, u64, Vec<u8>, Vec<u8>),
    Heartbeat(u64),
    Ended(u64, u32, Option<PullStatus>),
    Settled(u64),
    Failed(u64, Evidence),
    Uncertain(u64, UncertainCause),
    Closed(Evidence),
}

impl Told {
    pub(super) fn operation_ended(&self) -> Option<u64> {
        match self {
            Self::Inspected(of, _) | Self::Ended(of, ..) | Self::Settled(of) | Self::Failed(of, _) | Self::Uncertain(of, _) => Some(*of),
            Self::Delivered(..) | Self::Heartbeat(_) | Self::Closed(_) => None,
        }
    }
}

/// What was understood, and who is left.
pub(super) struct Reading {
    pub(super) told: Vec<Told>,
    pub(super) open: Vec<u64>,
    /// The bytes end the session themselves.
    pub(super) is_broken: bool,
    pub(super) is_within_frame: bool,
}

struct Broken;

struct Reader {
    reading: Reading,
    /// Messages of both pulls.
    delivered: [u32; 2],
    /// Those that they may still bring.
    left: [u64; 2],
    /// The status that was here before them.
    ending: [Option<PullStatus>; 2],
    heard: bool,
    /// The status of the second pull may follow.
    late: bool,
}

pub(super) fn read(bytes: &[u8]) -> Reading {
    let reading = Reading { told: Vec::new(), open: (1..=OPERATIONS).collect(), is_broken: false, is_within_frame: false };
    let mut reader = Reader { reading, delivered: [0; 2], left: [3, 1], ending: [None; 2], heard: false, late: false };
    let mut rest = bytes;
    while !rest.is_empty() {
        match reader.frame(rest) {
            Ok(Some(bytes)) => rest = &rest[bytes..],
            Ok(None) => {
                reader.reading.is_within_frame = true;
                break;
            }
            Err(Broken) => {
                reader.reading.is_broken = true;
                break;
            }
        }
    }
    reader.reading
}

fn size(text: &str) -> Option<usize> {
    text.parse().ok().filter(|size: &usize| size.to_string() == text)
}

/// Code and description of a status, nothing when the block has none.
fn status(block: &[u8]) -> Result<Option<(u16, String)>, Broken> {
    let end = block.windows(2).position(|pair| pair == b"\r\n").ok_or(Broken)?;
    if !block.starts_with(b"NATS/1.0") || !block[8..].ends_with(b"\r\n\r\n") {
        return Err(Broken);
    }
    let line = &block[8..end];
    if line.is_empty() {
        return Ok(None);
    }
    let line: String = line.iter().map(|byte| char::from(*byte)).collect();
    let code = line.strip_prefix(' ').and_then(|line| line.get(..3)).filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
    let code: u16 = code.filter(|code| !code.starts_with('0')).ok_or(Broken)?.parse().map_err(|_| Broken)?;
    match line.get(4..).unwrap_or_default() {
        "" => Ok(Some((code, String::new()))),
        rest if rest.starts_with(' ') && !rest.chars().any(|c| c.is_ascii_control()) => Ok(Some((code, rest[1..].to_lowercase()))),
        _ => Err(Broken),
    }
}

/// What a status says of the messages that do not come any more.
fn unused(block: &[u8]) -> Option<u64> {
    let text: String = block.iter().map(|byte| char::from(*byte)).collect();
    let number = |name: &str| {
        let value = text.split("\r\n").skip(1).find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let value = value.trim_matches([' ', '\t', '\n', '\r', '\u{c}']);
        (!value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())).then(|| value.parse::<u64>().ok())?
    };
    number("Nats-Pending-Messages").filter(|_| number("Nats-Pending-Bytes").is_some())
}

impl Reader {
    fn is_open(&self, operation: u64) -> bool {
        self.reading.open.contains(&operation)
    }

    fn end(&mut self, told: Told) {
        let ended = told.operation_ended().unwrap();
        self.reading.open.retain(|operation| *operation != ended);
        self.reading.told.push(told);
    }

    /// Bytes of the frame at the front.
    fn frame(&mut self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        let Some(line_end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = bytes[..line_end].strip_suffix(b"\r").ok_or(Broken)?;
        let line: String = line.iter().map(|byte| char::from(*byte)).collect();
        let fields: Vec<&str> = line.split([' ', '\t']).collect();
        let (name, rest) = (fields[0].to_ascii_uppercase(), line[fields[0].len()..].trim_matches([' ', '\t']));
        let fields: Vec<&str> = fields[1..].iter().copied().filter(|field| !field.is_empty()).collect();
        match (&*name, &fields[..]) {
            ("PING" | "+OK", []) => return Ok(Some(line_end + 1)),
            ("-ERR", _) => {
                let subject = rest.strip_prefix("'Permissions Violation for Publish to \"").and_then(|rest| rest.strip_suffix("\"'"));
                let of = SETTLEMENTS.into_iter().zip(90..).find(|(_, sequence)| subject == Some(&*ack(0, *sequence)));
                let (operation, _) = of.filter(|(operation, _)| self.is_open(*operation)).ok_or(Broken)?;
                self.end(Told::Failed(operation, Evidence::PublishRefused));
                return Ok(Some(line_end + 1));
            }
            _ => (),
        }
        let (subject, subscription, reply, headers, total) = match (&*name, &fields[..]) {
            ("MSG", [subject, subscription, total]) => (subject, subscription, "", None, total),
            ("MSG", [subject, subscription, reply, total]) => (subject, subscription, *reply, None, total),
            ("HMSG", [subject, subscription, headers, total]) => (subject, subscription, "", Some(headers), total),
            ("HMSG", [subject, subscription, reply, headers, total]) => (subject, subscription, *reply, Some(headers), total),
            _ => return Err(Broken),
        };
        let total = size(total).ok_or(Broken)?;
        let header_bytes = match headers {
            Some(headers) => Some(size(headers).filter(|headers| *headers <= total).ok_or(Broken)?),
            None => None,
        };
        let Some(body) = bytes.get(line_end + 1..line_end + 1 + total + 2) else { return Ok(None) };
        let body = body.strip_suffix(b"\r\n").ok_or(Broken)?;
        let (block, payload) = body.split_at(header_bytes.unwrap_or(0));
        if *subscription != "1" {
            return Err(Broken);
        }
        let status = if header_bytes.is_some() { status(block)? } else { None };
        match (1..=OPERATIONS).find(|operation| **subject == *inbox(*operation)) {
            Some(operation) => self.answer(operation, status, header_bytes.map(|_| block), payload)?,
            None if status.is_none() => self.delivery(subject, reply, block, payload)?,
            None => return Err(Broken),
        }
        Ok(Some(line_end + 1 + total + 2))
    }

    fn answer(&mut self, operation: u64, status: Option<(u16, String)>, block: Option<&[u8]>, payload: &[u8]) -> Result<(), Broken> {
        if operation == SECOND_PULL && !self.is_open(operation) && self.late {
            let (code, _) = status.filter(|_| payload.is_empty()).ok_or(Broken)?;
            self.late = code == 100;
            return Ok(());
        }
        if !self.is_open(operation) {
            return Err(Broken);
        }
        match operation {
            INSPECT if status.is_none() => self.end(Told::Inspected(operation, info(payload))),
            FIRST_PULL | SECOND_PULL => {
                let (code, text) = status.filter(|_| payload.is_empty()).ok_or(Broken)?;
                let index = usize::from(operation == SECOND_PULL);
                let status = match (code, &*text) {
                    (100, _) => {
                        if !std::mem::replace(&mut self.heard, true) {
                            self.reading.told.push(Told::Heartbeat(operation));
                        }
                        return Ok(());
                    }
                    (404, _) => PullStatus::Empty,
                    (408, _) => PullStatus::Expired,
                    (409, text) if text.starts_with("batch completed") => PullStatus::BatchCompleted,
                    (412, _) => PullStatus::Precondition,
                    (423, _) => PullStatus::PinLost,
                    (429, _) => PullStatus::TooManyRequests,
                    (503, _) => PullStatus::NoResponders,
                    (code, _) => PullStatus::Unknown(code),
                };
                if self.ending[index].is_some() {
                    return Err(Broken);
                }
                match unused(block.unwrap_or_default()).filter(|unused| *unused < self.left[index]) {
                    Some(unused) => {
                        self.left[index] -= unused;
                        self.ending[index] = Some(status);
                    }
                    None => self.end(Told::Ended(operation, self.delivered[index], Some(status))),
                }
                if matches!(status, PullStatus::Unknown(_)) {
                    return Err(Broken);
                }
            }
            INSPECT => return Err(Broken),
            _ if block.is_some() || !payload.is_empty() => return Err(Broken),
            _ => self.end(Told::Settled(operation)),
        }
        Ok(())
    }

    fn delivery(&mut self, subject: &str, reply: &str, block: &[u8], payload: &[u8]) -> Result<(), Broken> {
        let tokens: Vec<&str> = reply.split('.').collect();
        let ["$JS", "ACK", "ORD", consumer, numbers @ ..] = &tokens[..] else { return Err(Broken) };
        let numbers: Vec<u64> = numbers.iter().map(|text| size(text).map(|number| number as u64)).collect::<Option<_>>().ok_or(Broken)?;
        let [deliveries, sequence, of_consumer, _, _] = numbers[..] else { return Err(Broken) };
        if deliveries == 0 || sequence == 0 || of_consumer == 0 {
            return Err(Broken);
        }
        let (operation, index) = match (*consumer, subject) {
            ("latent_a_p0", "orders.p0") => (FIRST_PULL, 0),
            ("latent_a_p1", "orders.p1") => (SECOND_PULL, 1),
            _ => return Err(Broken),
        };
        if !self.is_open(operation) {
            return Err(Broken);
        }
        self.delivered[index] += 1;
        self.reading.told.push(Told::Delivered(operation, sequence, block.to_vec(), payload.to_vec()));
        self.left[index] -= 1;
        if self.left[index] == 0 {
            self.end(Told::Ended(operation, self.delivered[index], self.ending[index]));
            self.late = operation == SECOND_PULL && self.ending[index].is_none();
        }
        Ok(())
    }
}

/// What a consumer has to do, if it is as it must be.
fn info(body: &[u8]) -> Option<(u64, u64, u64)> {
    let info: Value = serde_json::from_slice(body).ok()?;
    let config = &info["config"];
    let is_right = info["stream_name"] == "ORD"
        && info["name"] == "latent_a_p0"
        && config["durable_name"] == "latent_a_p0"
        && ["all", "new", "by_start_sequence", "by_start_time"].iter().any(|policy| config["deliver_policy"] == *policy)
        && config["ack_policy"] == "explicit"
        && config["replay_policy"] == "instant"
        && config["filter_subject"] == "orders.p0"
        && config["ack_wait"] == 30_000_000_000_u64
        && config["max_ack_pending"] == 8
        && config.get("max_deliver").is_none_or(|most| most.as_u64().is_some_and(|most| most >= 13 || most == 0) || *most == -1)
        && config["max_waiting"].as_u64().is_some_and(|most| most >= 8)
        && config["priority_groups"] == serde_json::json!([GROUP])
        && config["priority_policy"] == "pinned_client";
    let number = |value: &Value| if value.is_null() { Some(0) } else { value.as_u64() };
    let is_typed = number(&info["num_ack_pending"]).is_some()
        && info.get("priority_groups").is_none_or(|groups| {
            groups.as_array().is_none_or(|groups| groups.iter().all(|group| group.get("pinned_client_id").is_none_or(Value::is_string)))
        });
    let sequence = |name: &str| info.get(name).map_or(Some(0), |place| number(&place["stream_seq"]));
    let found = (number(&info["num_pending"])?, sequence("delivered")?, sequence("ack_floor")?);
    (is_right && is_typed).then_some(found)
}
