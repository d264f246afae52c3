//! `latent:events`: the publisher that guests call and the event that they are given.
//!
//! Authority, budget and audit are the session's; this file converts. The outcome of a publication becomes the guest's answer in
//! one exhaustive match: a new outcome does not compile until somebody decides what a guest is told.

use latent_capabilities::EventDraft;
use latent_core::{DeliveredEvent, KnownFailure, PublicationOutcome, Receipt};

use crate::bindings::exports::latent::events::handler;
use crate::bindings::latent::events::publisher::{Event, EventError, Host, PublishReceipt};
use crate::store::StoreData;

impl Host for StoreData {
    async fn publish(&mut self, event: Event) -> Result<PublishReceipt, EventError> {
        let mut completion = self.session.publish(draft(event)).await;
        self.completions.keep(completion.take_owner());
        answer(completion.tell())
    }
}

fn draft(event: Event) -> EventDraft {
    EventDraft {
        topic: event.topic,
        key: event.key,
        payload: event.payload,
        media_type: event.media_type,
        attributes: event.attributes.into_iter().map(|attribute| (attribute.name, attribute.value)).collect(),
        idempotency_key: event.idempotency_key,
    }
}

/// What the guest is told.
fn answer(outcome: PublicationOutcome) -> Result<PublishReceipt, EventError> {
    match outcome {
        PublicationOutcome::Receipt(receipt) => Ok(receipt_for_guest(receipt)),
        PublicationOutcome::Uncertain(_) => Err(EventError::Uncertain),
        PublicationOutcome::KnownFailure(failure) => Err(match failure {
            KnownFailure::InvalidTopic => EventError::InvalidTopic,
            // The guest's interface is fixed and has no conflict; journal, audit and status say `conflict`.
            KnownFailure::InvalidEvent { .. } | KnownFailure::Conflict => EventError::InvalidEvent,
            KnownFailure::PermissionDenied => EventError::PermissionDenied,
            KnownFailure::BudgetExhausted => EventError::BudgetExhausted,
            KnownFailure::DeadlineExceeded => EventError::DeadlineExceeded,
            KnownFailure::Cancelled => EventError::Cancelled,
            KnownFailure::Unavailable { .. } => EventError::Unavailable,
        }),
    }
}

fn receipt_for_guest(receipt: Receipt) -> PublishReceipt {
    PublishReceipt {
        event_id: format!("{}:{}", receipt.stream, receipt.sequence),
        accepted_at_unix_millis: receipt.accepted_at.0,
        stream_name: receipt.stream.to_string(),
        sequence: receipt.sequence,
        duplicate: receipt.duplicate,
    }
}

/// The event as the handler is given it.
pub(crate) fn delivered(event: DeliveredEvent) -> handler::DeliveredEvent {
    let attributes = event.attributes.iter();
    handler::DeliveredEvent {
        topic: event.topic.to_string(),
        partition: event.partition.0,
        offset: event.offset.0,
        uid: event.uid.as_ref().map(ToString::to_string),
        attributes: attributes.map(|(name, value)| handler::Attribute { name: name.to_owned(), value: value.to_owned() }).collect(),
        // An event published without a key has the empty key.
        key: Some(event.key).filter(|key| !key.is_empty()),
        media_type: event.media_type.to_string(),
        payload: event.payload.into(),
        delivery_count: event.delivery,
        stored_at_unix_millis: event.stored_at.0,
    }
}

#[cfg(test)]
mod tests {
    use latent_core::{Uncertain, UncertainCause, UnixMillis};

    use super::*;

    #[test]
    fn each_known_failure_and_each_uncertainty_has_its_answer() {
        let text = String::new;
        let table = [
            (KnownFailure::InvalidTopic, EventError::InvalidTopic),
            (KnownFailure::InvalidEvent { rule: text() }, EventError::InvalidEvent),
            (KnownFailure::Conflict, EventError::InvalidEvent),
            (KnownFailure::PermissionDenied, EventError::PermissionDenied),
            (KnownFailure::BudgetExhausted, EventError::BudgetExhausted),
            (KnownFailure::DeadlineExceeded, EventError::DeadlineExceeded),
            (KnownFailure::Cancelled, EventError::Cancelled),
            (KnownFailure::Unavailable { reason: text() }, EventError::Unavailable),
        ];
        for (failure, expected) in table {
            let kind = failure.kind();
            assert_eq!(answer(PublicationOutcome::KnownFailure(failure)).unwrap_err(), expected, "{kind}");
        }
        let causes = [
            UncertainCause::Deadline,
            UncertainCause::Cancelled,
            UncertainCause::Storage,
            UncertainCause::StorageLimit,
            UncertainCause::Closed,
            UncertainCause::Unusable,
        ];
        for cause in causes {
            let uncertain = PublicationOutcome::Uncertain(Uncertain { uid: None, cause });
            assert_eq!(answer(uncertain).unwrap_err(), EventError::Uncertain, "{cause:?}");
        }
    }

    #[test]
    fn the_largest_receipt_and_its_lowered_copy_fit_what_is_charged_for_them() {
        use latent_capabilities::limits::{COMPLETION_CALL_BYTES, RECEIPT_STREAM_BYTES};
        let stream = "s".repeat(RECEIPT_STREAM_BYTES.max_usize());
        let receipt = Receipt { stream: stream.into(), sequence: u64::MAX, duplicate: true, accepted_at: UnixMillis(u64::MAX) };
        let told = answer(PublicationOutcome::Receipt(receipt)).unwrap();
        let on_host = size_of::<PublishReceipt>() + told.event_id.capacity() + told.stream_name.capacity();
        let in_guest = size_of::<PublishReceipt>() + told.event_id.len() + told.stream_name.len();
        let held = size_of::<PublicationOutcome>() + on_host + in_guest;
        assert!(size_of::<PublishReceipt>() <= 128 && held <= COMPLETION_CALL_BYTES.default_usize(), "{held}");
    }

    #[test]
    fn a_receipt_keeps_every_field() {
        let receipt = Receipt { stream: "out".into(), sequence: 7, duplicate: true, accepted_at: UnixMillis(5) };
        let told = answer(PublicationOutcome::Receipt(receipt)).unwrap();
        let seen = (told.event_id.as_str(), told.stream_name.as_str(), told.sequence, told.accepted_at_unix_millis, told.duplicate);
        assert_eq!(seen, ("out:7", "out", 7, 5, true));
    }
}
