//! Pulls: begun when the consumer was seen to be right and there is room, watched while they stand, and the lanes that keep one open.

use latent_core::MonoTime;
use latent_nats_proto::session::{OperationId, PullClose, PullEnd as Ended, PullRequest, SessionRefused};
use latent_nats_proto::triggers::PullStatus;
use latent_node::delivery::{PinId, PullEnd};

use super::{Carrier, Purpose};
use crate::lanes::limits;
use crate::lanes::office::Of;
use crate::triggers::trouble::{of_evidence, of_pull, of_status};

/// How the one pull of a lane stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PullState {
    None,
    /// It waits for an inspection.
    Unseen(Wanted),
    /// It waits for room among the connection's.
    Waiting(Wanted),
    /// It is with the broker, and was heard of then.
    Open {
        heard_at: MonoTime,
        silence_millis: u64,
    },
}

/// What a lane asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pin: Option<PinId>,
    batch: u32,
    expires_millis: u64,
}

/// How often a pin is kept within the time that it lasts without that.
const KEEPS: u64 = 3;
/// Silences of one heartbeat after which a pull's connection is given up.
const SILENCES: u64 = 3;
/// A pull shorter than this has no heartbeat.
const HEARTBEAT_LEAST_MILLIS: u64 = 100;

impl Carrier {
    pub(super) fn want_pull(&mut self, place: usize, pin: Option<PinId>, batch: u32, expires_millis: u64) {
        let now = self.clock.mono();
        let Some(lane) = self.lanes.get_mut(place) else { return };
        let wanted = Wanted { pin, batch, expires_millis };
        if is_known(lane.profile_at, now, pin.is_some()) {
            lane.pull = PullState::Waiting(wanted);
            self.pulls_waiting.push_back(place);
            return;
        }
        lane.pull = PullState::Unseen(wanted);
        if lane.inspections == 0 && self.begin_inspection(place, None, false).is_err() {
            self.refuse_wanted_pull(place);
        }
    }

    /// The consumer was seen to be right.
    pub(super) fn inspection_passed(&mut self, place: usize) {
        if let Some(lane) = self.lanes.get_mut(place)
            && let PullState::Unseen(wanted) = lane.pull
        {
            lane.pull = PullState::Waiting(wanted);
            self.pulls_waiting.push_back(place);
        }
    }

    /// The consumer could not be seen, or is not right: nothing is pulled from it (T-101).
    pub(super) fn refuse_wanted_pull(&mut self, place: usize) {
        let now = self.clock.mono();
        if let Some(lane) = self.lanes.get_mut(place)
            && matches!(lane.pull, PullState::Unseen(_) | PullState::Waiting(_))
        {
            lane.pull = PullState::None;
            lane.cell.office().desk.lane.handle_pull_ended(now, PullEnd::Refused);
            self.touched.insert(place);
        }
    }

    /// Begins the pulls there is room for, those first that wait longest.
    pub(super) fn begin_pulls(&mut self) {
        for _ in 0..self.pulls_waiting.len() {
            let Some(place) = self.pulls_waiting.pop_front() else { return };
            let Some(PullState::Waiting(wanted)) = self.lanes.get(place).map(|lane| lane.pull) else { continue };
            if self.lanes.get(place).is_some_and(|lane| lane.keeping) {
                // One pull of a consumer at a time: behind the answer, which comes at once.
                self.pulls_waiting.push_back(place);
                continue;
            }
            match self.begin_pull(place, wanted) {
                Ok(()) => {}
                Err(
                    SessionRefused::Messages { .. }
                    | SessionRefused::MessageBytes { .. }
                    | SessionRefused::Operations { .. }
                    | SessionRefused::Outgoing { .. },
                ) => {
                    self.pulls_waiting.push_front(place);
                    return;
                }
                Err(_) => self.refuse_wanted_pull(place),
            }
        }
    }

    fn begin_pull(&mut self, place: usize, wanted: Wanted) -> Result<(), SessionRefused> {
        let now = self.clock.mono();
        let Some(lane) = self.lanes.get_mut(place) else { return Ok(()) };
        let session = self.session.as_mut().ok_or(SessionRefused::Closed)?;
        let profile = lane.cell.binding.consumer().profile();
        let one = profile.ceiling.message_bytes_max();
        let batch = wanted.batch.clamp(1, profile.batch_max);
        let pin = wanted.pin.and_then(|number| lane.cell.office().pin(number));
        // A pull that stood as long as the pin lasts would lose it.
        let most = lane.pin_millis.map_or(u64::MAX, |millis| millis / 2).min(profile.expires_nanos_max / 1_000_000);
        let expires_millis = wanted.expires_millis.min(most).max(1);
        let heartbeat = limits::HEARTBEAT_MILLIS.default.min(expires_millis / 2);
        let heartbeat = (heartbeat >= HEARTBEAT_LEAST_MILLIS).then_some(heartbeat);
        let request = PullRequest {
            batch,
            expires_nanos: expires_millis.saturating_mul(1_000_000),
            max_bytes: one.saturating_mul(u64::from(batch)).min(profile.request_bytes_max).max(one),
            no_wait: false,
            idle_heartbeat_nanos: heartbeat.map(|millis| millis.saturating_mul(1_000_000)),
            pin,
        };
        let operation = session.begin_pull(lane.cell.binding.consumer(), &request)?;
        let answer_millis = limits::ANSWER_MILLIS.default;
        let silence_millis = heartbeat.map_or(expires_millis, |millis| millis * SILENCES).saturating_add(answer_millis);
        (lane.pull, lane.asked_at) = (PullState::Open { heard_at: now, silence_millis }, now);
        self.signs.insert((now.plus_millis(silence_millis), place));
        self.begun(operation, Purpose::Pull { lane: place }, answer_millis);
        Ok(())
    }

    /// When a pin is to be kept by a pull that brings nothing: the lane holds something under it and has no room to ask for more.
    pub(super) fn keep_at(&self, place: usize) -> Option<MonoTime> {
        let lane = self.lanes.get(place).filter(|lane| lane.pull == PullState::None && !lane.keeping && self.session.is_some())?;
        lane.cell.office().desk.lane.pin_to_keep()?;
        Some(lane.asked_at.plus_millis(lane.pin_millis? / KEEPS))
    }

    pub(super) fn keep_pin(&mut self, place: usize) {
        let now = self.clock.mono();
        if self.keep_at(place).is_none_or(|at| at > now) {
            return;
        }
        let Some(lane) = self.lanes.get_mut(place) else { return };
        lane.asked_at = now;
        let pin = {
            let office = lane.cell.office();
            office.desk.lane.pin_to_keep().and_then(|number| office.pin(number))
        };
        let Some((pin, session)) = pin.zip(self.session.as_mut()) else { return };
        // Refused where there is no room, and tried again before the pin is over.
        if let Ok(operation) = session.begin_pull(lane.cell.binding.consumer(), &PullRequest::keeping(pin)) {
            lane.keeping = true;
            self.begun(operation, Purpose::Keep { lane: place }, limits::ANSWER_MILLIS.default);
        }
    }

    pub(super) fn take_kept(&mut self, place: usize, end: Ended) {
        let now = self.clock.mono();
        let Some(lane) = self.lanes.get_mut(place) else { return };
        lane.keeping = false;
        if matches!(end.how, PullClose::Status { status: PullStatus::PinLost, .. }) {
            lane.pull = PullState::None;
            lane.cell.office().desk.lane.handle_pull_ended(now, PullEnd::PinLost);
        }
    }

    /// The broker was heard of a pull.
    pub(super) fn take_sign(&mut self, pull: OperationId) {
        let now = self.clock.mono();
        let Some((Purpose::Pull { lane: place }, _)) = self.operations.get(&pull) else { return };
        if let Some(lane) = self.lanes.get_mut(*place)
            && let PullState::Open { heard_at, silence_millis } = &mut lane.pull
        {
            self.signs.remove(&(heard_at.plus_millis(*silence_millis), *place));
            *heard_at = now;
            self.signs.insert((now.plus_millis(*silence_millis), *place));
        }
    }

    /// When the first pull has been silent for too long.
    pub(super) fn silent_at(&self) -> Option<MonoTime> {
        self.signs.first().map(|(at, _)| *at)
    }

    pub(super) fn take_pull_ended(&mut self, place: usize, end: Ended) {
        let now = self.clock.mono();
        let Some(lane) = self.lanes.get_mut(place) else { return };
        if let PullState::Open { heard_at, silence_millis } = lane.pull {
            self.signs.remove(&(heard_at.plus_millis(silence_millis), place));
        }
        lane.pull = PullState::None;
        let (how, trouble) = meaning(end);
        if trouble.is_some() {
            lane.profile_at = None;
        }
        {
            let mut office = lane.cell.office();
            office.desk.lane.handle_pull_ended(now, how);
        }
        if trouble.is_none() && how == PullEnd::Over {
            self.journal.over(&lane.cell, now, Of::Pull);
        }
        if let Some(trouble) = trouble {
            self.pull_trouble(place, &trouble);
        } else if how == PullEnd::Over && self.is_hot(place, now) {
            self.keep_open.insert(place);
        }
    }

    /// Lets the cycles of hot lanes ask again, behind what their desks have told them of the last pull.
    pub(super) fn ask_again(&mut self) {
        // One whose messages still wait to be listed is asked for when they are.
        self.keep_open.retain(|place| {
            let Some(lane) = self.lanes.get(*place) else { return false };
            let office = lane.cell.office();
            let is_asked = office.desk.lane.is_asked();
            if !is_asked {
                office.desk.tell_available(office.desk.lane.standing_end());
            }
            is_asked
        });
    }

    /// A message came: the lane keeps a pull open for a while. Of too many, the one whose last message is oldest does not any more.
    pub(super) fn heat(&mut self, place: usize) {
        let until = self.clock.mono().plus_millis(limits::HOT_MILLIS.default);
        self.hot.insert(place, until);
        if self.hot.len() as u64 > self.hot_max
            && let Some(coldest) = self.hot.iter().min_by_key(|(_, until)| **until).map(|(place, _)| *place)
        {
            self.hot.remove(&coldest);
        }
    }

    fn is_hot(&mut self, place: usize, now: MonoTime) -> bool {
        if self.hot.get(&place).is_some_and(|until| *until <= now) {
            self.hot.remove(&place);
        }
        self.hot.contains_key(&place)
    }
}

/// Whether a consumer need not be seen again before a pull: it was seen to be right a short while ago, and under this pin (T-106).
fn is_known(seen_at: Option<MonoTime>, now: MonoTime, has_pin: bool) -> bool {
    has_pin && seen_at.is_some_and(|at| now.since(at).as_millis() < u128::from(limits::PROFILE_MILLIS.default))
}

/// What the end of a pull means for its lane, and what is somebody's to mend (D-11).
fn meaning(end: Ended) -> (PullEnd, Option<crate::triggers::trouble::Trouble>) {
    match end.how {
        PullClose::Complete => (PullEnd::Over, None),
        PullClose::Status { status: PullStatus::PinLost, .. } => (PullEnd::PinLost, None),
        PullClose::Status { status: PullStatus::AtCapacity, .. } => (PullEnd::Refused, None),
        // The bytes are used up, and the next message is for another pull.
        PullClose::Status { status: PullStatus::MessageTooLarge, .. } if end.delivered > 0 => (PullEnd::Over, None),
        PullClose::Status { status, .. } if status.is_quiet() => (PullEnd::Over, None),
        PullClose::Status { status, .. } => (PullEnd::Refused, Some(of_status(status))),
        PullClose::Failed(error) if matches!(error.evidence, latent_nats_proto::Evidence::Cancelled) => (PullEnd::Refused, None),
        PullClose::Failed(error) if error.possible_write => (PullEnd::Refused, Some(of_evidence(error.evidence))),
        PullClose::Failed(error) => (PullEnd::Refused, Some(of_pull(error))),
    }
}

#[cfg(test)]
mod tests {
    use latent_nats_proto::Evidence;
    use latent_nats_proto::session::Pending;
    use latent_nats_proto::triggers::PullError;

    use super::*;

    /// T-106.
    #[test]
    fn a_consumer_is_known_for_thirty_seconds_under_one_pin() {
        let seen = MonoTime::from_millis(1_000);
        let known = |millis: u64, has_pin: bool| is_known(Some(seen), MonoTime::from_millis(1_000 + millis), has_pin);
        assert!(known(0, true) && known(29_999, true) && !known(30_000, true), "for so long");
        assert!(!known(0, false), "another pin is another consumer's state");
        assert!(!is_known(None, seen, true), "not before it was seen, and not after something unexpected");
    }

    /// D-11, T-108: every end of a pull.
    #[test]
    fn each_end_of_a_pull_has_its_meaning_and_what_is_to_mend_is_told() {
        use PullStatus as S;
        let status = |status, delivered| {
            let pending = Some(Pending { messages: 1, bytes: 1 });
            let (end, trouble) = meaning(Ended { delivered, how: PullClose::Status { status, pending } });
            (end, trouble.map(|trouble| trouble.fault.kind()))
        };
        let table = [
            (S::Empty, PullEnd::Over, None),
            (S::Expired, PullEnd::Over, None),
            (S::BatchCompleted, PullEnd::Over, None),
            (S::AtCapacity, PullEnd::Refused, None),
            (S::PinLost, PullEnd::PinLost, None),
            (S::LeadershipChange, PullEnd::Refused, Some("leadership-change")),
            (S::ServerShutdown, PullEnd::Refused, Some("server-shutdown")),
            (S::ConsumerDeleted, PullEnd::Refused, Some("consumer-missing")),
            (S::PushBased, PullEnd::Refused, Some("push-based")),
            (S::RequestTooLarge, PullEnd::Refused, Some("request-too-large")),
            (S::MessageTooLarge, PullEnd::Refused, Some("message-too-large")),
            (S::Precondition, PullEnd::Refused, Some("precondition")),
            (S::TooManyRequests, PullEnd::Refused, Some("too-many-requests")),
            (S::NoResponders, PullEnd::Refused, Some("no-responders")),
            (S::Unknown(499), PullEnd::Refused, Some("unknown-status")),
        ];
        for (given, end, trouble) in table {
            assert_eq!(status(given, 0), (end, trouble), "{given:?}");
        }
        assert_eq!(status(S::MessageTooLarge, 1), (PullEnd::Over, None), "the bytes of the pull are used up");
        let (end, trouble) = meaning(Ended { delivered: 3, how: PullClose::Complete });
        assert!(end == PullEnd::Over && trouble.is_none());
        let failed = |evidence| meaning(Ended { delivered: 0, how: PullClose::Failed(PullError { evidence, possible_write: true }) });
        assert!(failed(Evidence::Cancelled).1.is_none() && failed(Evidence::PublishRefused).1.is_some());
    }
}
