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

/// Silences of one heartbeat after which a pull's connection is given up.
const SILENCES: u64 = 3;
/// A pull shorter than this has no heartbeat.
const HEARTBEAT_LEAST_MILLIS: u64 = 100;

impl Carrier {
    pub(super) fn want_pull(&mut self, place: usize, pin: Option<PinId>, batch: u32, expires_millis: u64) {
        let now = self.clock.mono();
        let Some(lane) = self.lanes.get_mut(place) else { return };
        let wanted = Wanted { pin, batch, expires_millis };
        let is_seen = lane.profile_at.is_some_and(|at| now.since(at).as_millis() < u128::from(limits::PROFILE_MILLIS.default));
        if is_seen && pin.is_some() {
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
        lane.pull = PullState::Open { heard_at: now, silence_millis };
        self.signs.insert((now.plus_millis(silence_millis), place));
        self.begun(operation, Purpose::Pull { lane: place }, answer_millis);
        Ok(())
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
