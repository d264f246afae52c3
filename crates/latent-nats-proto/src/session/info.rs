//! A consumer's info by the rules of the second profile (T-101).
//!
//! Besides what v1 asks for in the same words: `max_ack_pending` is the binding's, `max_deliver` at least eight above its runs or without
//! bound, at least `WAITING_MIN` pulls may wait, requests may be at least as large as they will be or are not bounded at all, and a topic's
//! partition has one priority group whose pullers are pinned. Where the consumer began is its binding's decision. The time-out of a pin is not part of the profile: it is told, because a pull
//! that stands longer than it loses the pin.

use super::PullConsumer;
use crate::limits::PIN_BYTES;
use crate::triggers::{ConsumerState, Demands, FORBIDDEN, InspectError, NO_GROUPS, ProfileField, Wanted, read_facts};

/// Policies that say where a consumer began and nothing more: from there on it has every message.
const BEGINNINGS: &[&str] = &["all", "new", "by_start_sequence", "by_start_time"];

/// Pulls that must be allowed to wait: those of all nodes, and those that nodes left behind which ended.
pub(super) const WAITING_MIN: u64 = 8;

/// The id of the pin of a consumer's group. Whoever knows it may pull as its holder, so it does not show itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PinId(Box<str>);

impl PinId {
    /// Nothing when it is not printable text of at most [`PIN_BYTES`], or would not stand in JSON as it is.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let is_id = PIN_BYTES.check(text.len() as u64).is_ok() && text.bytes().all(is_plain);
        is_id.then(|| Self(text.into()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for PinId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PinId(..)")
    }
}

/// What an inspection found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// What the consumer has to do.
    pub state: ConsumerState,
    /// How often it delivers a message; nothing when without end. A delivery above it is a violation (D-12).
    pub max_deliver: Option<u64>,
    /// How long a pin is kept without another pull with it; nothing without a group.
    pub priority_timeout_nanos: Option<u64>,
    /// Who is pinned now, if anybody is.
    pub pin: Option<PinId>,
}

/// Reads the body of a consumer's info.
pub(crate) fn read(body: &[u8], consumer: &PullConsumer) -> Result<ConsumerInfo, InspectError> {
    let profile = consumer.profile();
    let mut settings = vec![
        (ProfileField::Consumer, Wanted::Text(&profile.consumer)),
        (ProfileField::FilterSubject, Wanted::Text(&profile.filter_subject)),
        (ProfileField::AckPolicy, Wanted::Text("explicit")),
        (ProfileField::ReplayPolicy, Wanted::Text("instant")),
        (ProfileField::DeliverPolicy, Wanted::OneOf(BEGINNINGS)),
        (ProfileField::MaxAckPending, Wanted::Number(u64::from(profile.max_in_flight))),
        (ProfileField::AckWait, Wanted::Number(profile.ack_wait_nanos)),
        (ProfileField::MaxDeliver, Wanted::AtLeastIfAny(consumer.max_deliver_min())),
        (ProfileField::MaxWaiting, Wanted::AtLeast(WAITING_MIN)),
        (ProfileField::MaxBatch, Wanted::AtLeastIfAny(u64::from(profile.batch_max))),
        (ProfileField::MaxExpires, Wanted::AtLeastIfAny(profile.expires_nanos_max)),
        (ProfileField::MaxBytes, Wanted::AtLeastIfAny(profile.request_bytes_max)),
    ];
    let forbidden: &[&[_]] = match &profile.group {
        Some(group) => {
            settings.push((ProfileField::PriorityGroups, Wanted::OnlyText(group)));
            settings.push((ProfileField::PriorityPolicy, Wanted::Text("pinned_client")));
            &[FORBIDDEN]
        }
        None => &[FORBIDDEN, NO_GROUPS],
    };
    let demands = Demands { stream: &profile.stream, consumer: &profile.consumer, settings: &settings, forbidden };
    let facts = read_facts(body, &demands)?;
    let pin = match facts.pin {
        Some(text) => Some(PinId::new(&text).ok_or(InspectError::Malformed)?),
        None => None,
    };
    let priority_timeout_nanos = facts.priority_timeout_nanos;
    Ok(ConsumerInfo { state: facts.state, max_deliver: facts.max_deliver, priority_timeout_nanos, pin })
}
