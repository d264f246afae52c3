//! Memory for answers: what a receipt and its way into the guest take, charged before the event leaves and held until the store is
//! gone. An acknowledgement is therefore never dropped for want of memory (X-035, P-033).
//!
//! Invariant: `held` is the sum of the charges that exist, and never above `bytes_max`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_core::{LimitError, PublicationOutcome, Uncertain, UncertainCause};

use crate::audit::{AuditEntry, told};
use crate::limits;

/// The account of a node's completion memory. Cheap to clone; clones are the same account.
#[derive(Debug, Clone)]
pub struct CompletionAccount(Arc<Account>);

#[derive(Debug)]
struct Account {
    bytes_max: u64,
    held: AtomicU64,
    refused: AtomicU64,
}

impl Default for CompletionAccount {
    fn default() -> Self {
        Self::of(limits::COMPLETION_BYTES.default)
    }
}

impl CompletionAccount {
    /// An account of at most `bytes_max` bytes, all free.
    ///
    /// # Errors
    /// [`LimitError`] when `bytes_max` is outside `completion_bytes`.
    pub fn new(bytes_max: u64) -> Result<Self, LimitError> {
        limits::COMPLETION_BYTES.check(bytes_max).map(Self::of)
    }

    fn of(bytes_max: u64) -> Self {
        Self(Arc::new(Account { bytes_max, held: AtomicU64::new(0), refused: AtomicU64::new(0) }))
    }

    /// Bytes charged now.
    pub fn held_bytes(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// The most that may be charged at one time.
    pub fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    /// Publications refused because the account was full. Wraps only after longer than any node runs.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Charges one call, or nothing at all.
    pub(crate) fn reserve(&self) -> Option<CompletionOwner> {
        let bytes = limits::COMPLETION_CALL_BYTES.default;
        let with_one_more = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.0.bytes_max);
        if self.0.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_one_more).is_err() {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(CompletionOwner(Some(Charge { account: Arc::clone(&self.0), bytes })))
    }
}

/// One charge; it returns when its owner goes.
#[derive(Debug)]
struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

/// Size of a charge, for the sum that says what a call takes.
#[cfg(test)]
pub(crate) const CHARGE_BYTES: usize = size_of::<Charge>();

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Keeps one publication's completion memory charged for as long as it exists. That of a publication which was refused before it was
/// charged keeps nothing.
#[derive(Debug)]
#[must_use = "dropping it returns the charge while the guest may still hold the receipt"]
pub struct CompletionOwner(Option<Charge>);

impl CompletionOwner {
    /// Bytes it keeps charged.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |charge| charge.bytes)
    }
}

/// A publication that has ended, on its way to whoever asked for it.
///
/// Take the [`owner`](Self::take_owner) first and hold it until the store is destroyed, then [`tell`](Self::tell). A completion that is
/// dropped untold is audited as such: what the provider observed stays true, told to nobody.
#[must_use = "a publication's outcome decides whether it may be sent again"]
#[derive(Debug)]
pub struct EventCompletion {
    outcome: PublicationOutcome,
    owner: CompletionOwner,
    audit: Option<AuditEntry>,
}

impl EventCompletion {
    /// Of a publication that was refused before it was admitted: charged nothing, audited nowhere.
    pub(crate) const fn refused(outcome: PublicationOutcome) -> Self {
        Self { outcome, owner: CompletionOwner(None), audit: None }
    }

    /// Of an admitted one.
    pub(crate) fn ended(outcome: PublicationOutcome, owner: CompletionOwner, mut audit: AuditEntry) -> Self {
        audit.observe(&outcome);
        Self { outcome: within_charge(outcome), owner, audit: Some(audit) }
    }

    /// How it ended, without telling anybody.
    pub const fn outcome(&self) -> &PublicationOutcome {
        &self.outcome
    }

    /// The charge for the receipt and its lowering. It is given out once; left inside, it returns with the completion.
    pub fn take_owner(&mut self) -> CompletionOwner {
        CompletionOwner(self.owner.0.take())
    }

    /// Gives the outcome out to be told, and closes the audit record with it.
    pub fn tell(self) -> PublicationOutcome {
        if let Some(audit) = self.audit {
            audit.close(told(&self.outcome));
        }
        self.outcome
    }
}

/// A receipt that is larger than what was charged for it is an answer that cannot be used (as P-025 says of the wire).
fn within_charge(outcome: PublicationOutcome) -> PublicationOutcome {
    match outcome {
        PublicationOutcome::Receipt(receipt) if receipt.stream.len() > limits::RECEIPT_STREAM_BYTES.max_usize() => {
            PublicationOutcome::Uncertain(Uncertain { uid: None, cause: UncertainCause::Unusable })
        }
        PublicationOutcome::Receipt(_) | PublicationOutcome::KnownFailure(_) | PublicationOutcome::Uncertain(_) => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: u64 = limits::COMPLETION_CALL_BYTES.default;

    #[test]
    fn a_call_is_charged_whole_or_not_at_all_at_the_edge_of_the_account() {
        for (bytes_max, expected) in [(2 * CALL - 1, 1), (2 * CALL, 2), (2 * CALL + 1, 2)] {
            let account = CompletionAccount::new(bytes_max).unwrap();
            let owners: Vec<_> = std::iter::from_fn(|| account.reserve()).collect();
            assert_eq!((owners.len(), account.held_bytes(), account.refused()), (expected, expected as u64 * CALL, 1), "{bytes_max}");
        }
    }

    #[test]
    fn the_account_s_size_is_checked_at_the_edges_of_its_limit() {
        let limit = limits::COMPLETION_BYTES;
        for (bytes, fits) in [(limit.min - 1, false), (limit.min, true), (limit.max, true), (limit.max + 1, false), (u64::MAX, false)] {
            assert_eq!(CompletionAccount::new(bytes).is_ok(), fits, "{bytes}");
        }
    }

    #[test]
    fn a_charge_returns_with_its_owner() {
        let account = CompletionAccount::default();
        let owner = account.reserve().unwrap();
        assert_eq!((account.held_bytes(), owner.bytes()), (CALL, CALL));
        drop(owner);
        assert_eq!(account.held_bytes(), 0);
    }

    /// Every schedule of two sessions that each take and give back twice, on an account for one: who is refused depends on the
    /// schedule, what is held never does.
    #[test]
    fn no_interleaving_of_two_takers_overdraws_or_leaks() {
        for schedule in 0_u32..256 {
            let account = CompletionAccount::new(CALL).unwrap();
            let mut held: [Option<CompletionOwner>; 2] = [None, None];
            for step in 0..8 {
                let taker = usize::from(schedule >> step & 1 == 1);
                match held[taker].take() {
                    Some(owner) => drop(owner),
                    None => held[taker] = account.reserve(),
                }
                let owners = held.iter().flatten().count() as u64;
                assert!(owners <= 1 && account.held_bytes() == owners * CALL, "schedule {schedule:08b}, step {step}");
            }
            drop(held);
            assert_eq!(account.held_bytes(), 0, "schedule {schedule:08b}");
        }
    }

    #[test]
    fn threads_together_never_hold_more_than_the_account() {
        let account = CompletionAccount::new(3 * CALL).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let owner = account.reserve();
                        assert!(account.held_bytes() <= account.bytes_max());
                        drop(owner);
                    }
                });
            }
        });
        assert_eq!(account.held_bytes(), 0);
    }
}
