//! Q-12, the guest's part: what lifting a publication out of a guest and lowering its receipt into it allocates on the host.
//!
//! A process of its own, because the allocator that counts is the process's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(unsafe_code, reason = "an allocator cannot be written without it; this one counts and hands on")]

#[path = "guests/bench.rs"]
#[allow(dead_code, reason = "written for the tests of guests; this uses some of it")]
mod bench;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use latent_capabilities::EventDraft;
use latent_core::{ActivationOutcome, PublicationOutcome};
use latent_test_guests::REPEAT;

use crate::bench::{Bench, GRANTED};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the promises of this very method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const FEW: u64 = 200;
const MANY: u64 = 300;

/// Allocations of an activation that publishes so often.
async fn of_guest(bench: &Bench, publications: u64) -> u64 {
    let before = ALLOCATIONS.get();
    assert_eq!(bench.run_under_key(&publications.to_string(), "payload").await.outcome, ActivationOutcome::Success);
    ALLOCATIONS.get() - before
}

/// The same publications without a guest.
async fn of_session(bench: &Bench, publications: u64) -> u64 {
    let session = bench.session();
    let mut allocations = 0;
    for _ in 0..publications {
        let draft = EventDraft {
            topic: GRANTED.to_owned(),
            key: None,
            payload: b"payload".to_vec(),
            media_type: "application/octet-stream".to_owned(),
            attributes: Vec::new(),
            idempotency_key: session.derive().unwrap(),
        };
        let before = ALLOCATIONS.get();
        assert!(matches!(session.publish(draft).await.tell(), PublicationOutcome::Receipt(_)));
        allocations += ALLOCATIONS.get() - before;
    }
    allocations
}

#[tokio::test]
async fn a_publication_of_a_guest_is_lifted_and_its_receipt_lowered_with_few_allocations() {
    let bench = Bench::of(REPEAT.component).with_budget(|budget| budget.outbound_requests = MANY);
    // What happens once for an activation falls out of the difference.
    let guest = of_guest(&bench, MANY).await - of_guest(&bench, FEW).await;
    let session = of_session(&bench, MANY).await - of_session(&bench, FEW).await;
    let each = (guest - session) as f64 / (MANY - FEW) as f64;
    // Lists that grow with the number of publications stand in it as well, so it is no whole number.
    assert!((8.0..8.5).contains(&each), "{each} allocations for each publication");
}
