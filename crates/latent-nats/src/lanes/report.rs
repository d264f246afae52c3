//! What can be seen of a lane from outside, as plain data.

use latent_core::{BindingId, UnixMillis};

use super::office::{LaneCell, Stranded};
use crate::triggers::StepFault;

/// One lane, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    /// Its id.
    pub id: BindingId,
    /// The trigger that it is a part of.
    pub trigger: BindingId,
    /// What stands in its way, in words, and since when.
    pub trouble: Option<(StepFault, String, UnixMillis)>,
    /// Messages never delivered, as the broker said last, in an answer or with a message.
    pub pending: u64,
    /// Messages delivered and not settled, wherever, as the broker said last, or as it is known here.
    pub unacknowledged: u64,
    /// Everything up to this sequence was settled, as the broker said last.
    pub settled_up_to: u64,
    /// Messages held here.
    pub held: u64,
    /// Messages that the broker has given up on.
    pub stranded: Option<Stranded>,
    /// Whether it was inspected yet.
    pub is_inspected: bool,
    /// Settlements of which it is not known whether they arrived.
    pub settlements_uncertain: u64,
    /// Nobody drives it.
    pub is_stopped: bool,
}

impl LaneReport {
    pub(super) fn of(cell: &LaneCell) -> Self {
        let draft = cell.binding.draft();
        let office = cell.office();
        let (health, held) = (&office.health, office.desk.lane.held() as u64);
        Self {
            id: draft.id.clone(),
            trigger: draft.trigger.clone(),
            trouble: health.trouble.as_ref().map(|trouble| (trouble.fault, trouble.why.clone(), trouble.since)),
            pending: health.pending,
            // Whoever has the pin, and knows everything that is unsettled, knows it better than the last answer.
            unacknowledged: if office.desk.lane.is_gate_open() { held } else { health.unacknowledged },
            settled_up_to: health.settled_up_to,
            held,
            stranded: health.stranded,
            is_inspected: health.inspected_at.is_some(),
            settlements_uncertain: health.settlements_uncertain,
            is_stopped: office.closed,
        }
    }
}
