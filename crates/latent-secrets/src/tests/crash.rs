//! Whichever step a change stops at, the store is as it was or as it should be, and the next change works.

use super::*;
use crate::replace::faults::{CALLS, CALLS_UNTIL_VISIBLE, Faulty};
use crate::{SecretError, SecretInfo};

const OTHER: &[u8] = b"battery staple";

type Change = fn(&LocalSecretStore) -> Result<SecretInfo, SecretError>;

fn rotate(store: &LocalSecretStore) -> Result<SecretInfo, SecretError> {
    store.rotate(&name(), OTHER, None, LATER)
}

fn revoke(store: &LocalSecretStore) -> Result<SecretInfo, SecretError> {
    store.revoke(&name(), LATER)
}

/// What the error of a change that stopped after `calls` says of it.
fn assert_told(changed: &Result<SecretInfo, SecretError>, calls: usize) {
    match changed {
        Ok(_) => assert_eq!(calls, CALLS),
        Err(SecretError::NotDurable { .. }) => assert_eq!(calls, CALLS_UNTIL_VISIBLE),
        Err(error) => assert!(matches!(error, SecretError::Io { .. }) && calls < CALLS_UNTIL_VISIBLE, "{calls}: {error}"),
    }
}

#[test]
fn a_change_that_stops_anywhere_leaves_the_old_secret_or_the_new_one_whole() {
    for change in [rotate as Change, revoke] {
        for calls in 0..=CALLS {
            let place = Place::with_secret();
            let before = place.store().list().unwrap();
            let after = {
                let twin = Place::with_secret();
                change(&twin.store()).unwrap()
            };
            assert_told(&change(&place.store_over(Faulty::after(calls))), calls);
            let expected = if calls < CALLS_UNTIL_VISIBLE { before } else { vec![after] };
            assert_eq!(place.store().list().unwrap(), expected, "{calls}");
            // The next try starts over, whatever is left lying about.
            let next = if expected[0].revoked {
                place.store().put(NewSecret::tls(&name(), &binding(), OTHER, None), LATER)
            } else {
                rotate(&place.store())
            };
            assert_eq!(next.unwrap().version, expected[0].version + 1);
            assert_eq!(place.value(), OTHER);
            assert!(!place.file("write.tmp").exists());
        }
    }
}

#[test]
fn a_first_secret_that_stops_anywhere_leaves_a_place_for_the_next_try() {
    for calls in 0..=2 * CALLS {
        let place = Place::empty();
        let put = place.store_over(Faulty::after(calls)).put(NewSecret::tls(&name(), &binding(), VALUE, None), NOW);
        assert_eq!(put.is_ok(), calls == 2 * CALLS);
        let there = place.store().list().unwrap().len();
        assert_eq!(there, usize::from(calls >= CALLS + CALLS_UNTIL_VISIBLE), "{calls}");
        if there == 0 {
            place.store().put(NewSecret::tls(&name(), &binding(), VALUE, None), NOW).unwrap();
        }
        assert_eq!(place.value(), VALUE);
    }
}

#[test]
fn what_a_rotation_left_half_written_is_gone_after_a_revocation() {
    let place = Place::with_secret();
    // Written and synced, not renamed.
    rotate(&place.store_over(Faulty::after(3))).unwrap_err();
    assert!(place.file("write.tmp").exists());
    place.store().revoke(&name(), NOW).unwrap();
    assert!(!place.file("write.tmp").exists());
}
