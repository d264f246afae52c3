//! What was resolved is current until it is rotated, expires, is revoked or goes; whoever did it, and at once.

use super::*;
use crate::{BindError, NotCurrent, SecretError, SecretState, TlsProviderCredential};

fn handle(place: &Place) -> TlsProviderCredential {
    place.store().bind_tls_credential(&name(), &binding(), NOW).unwrap()
}

#[test]
fn a_rotation_by_another_store_is_seen_by_the_next_check_and_the_next_resolution() {
    let place = Place::with_secret();
    let handle = handle(&place);
    let first = handle.resolve(NOW).unwrap();
    assert_eq!(handle.check(first.stamp(), NOW), Ok(()));
    // Faster than the clock of the file system may tick, and back to the same value.
    for value in [&b"battery staple"[..], VALUE] {
        let before = handle.resolve(NOW).unwrap();
        let info = place.store().rotate(&name(), value, None, LATER).unwrap();
        assert_eq!((info.written, info.expires), (LATER, None));
        assert_eq!(handle.check(before.stamp(), NOW), Err(NotCurrent::Rotated));
        let after = handle.resolve(NOW).unwrap();
        assert_eq!(after.value(), value);
        assert_eq!(after.stamp().version(), before.stamp().version() + 1);
        assert_eq!(handle.check(after.stamp(), NOW), Ok(()));
        // What was resolved before stays what it was.
        assert_eq!(first.value(), VALUE);
    }
    assert_eq!(handle.check(first.stamp(), NOW), Err(NotCurrent::Rotated));
}

#[test]
fn no_change_hides_behind_another_one_however_fast_they_follow_each_other() {
    let place = Place::with_secret();
    let (handle, store) = (handle(&place), place.store());
    for _ in 0..200 {
        let resolved = handle.resolve(NOW).unwrap();
        // The file system gives the number of a removed file to the next one.
        for _ in 0..2 {
            store.rotate(&name(), VALUE, None, NOW).unwrap();
        }
        assert_eq!(handle.check(resolved.stamp(), NOW), Err(NotCurrent::Rotated));
    }
}

#[test]
fn a_store_that_was_moved_away_and_put_back_older_is_seen() {
    let temp = Place::empty();
    let (path, backup) = (temp.file("secrets"), temp.file("backup"));
    let open = || Arc::new(LocalSecretStore::open(&path, SealingKey::from_bytes(&KEY)).unwrap());
    LocalSecretStore::prepare(&path).unwrap();
    open().put(NewSecret::tls(&name(), &binding(), VALUE, None), NOW).unwrap();
    let handle = open().bind_tls_credential(&name(), &binding(), NOW).unwrap();
    let old = handle.resolve(NOW).unwrap();
    LocalSecretStore::prepare(&backup).unwrap();
    for file in ["store", "acme-bus.secret"] {
        std::fs::copy(path.join(file), backup.join(file)).unwrap();
    }
    open().rotate(&name(), b"new", None, NOW).unwrap();
    let new = handle.resolve(NOW).unwrap();
    std::fs::rename(&path, temp.file("away")).unwrap();
    assert!(matches!(handle.check(new.stamp(), NOW), Err(NotCurrent::Unreadable { error: SecretError::Directory { .. } })));
    std::fs::rename(&backup, &path).unwrap();
    assert_eq!(handle.check(new.stamp(), NOW), Err(NotCurrent::Rotated));
    assert_eq!(handle.check(old.stamp(), NOW), Ok(()), "the same writing, in another file");
    assert_eq!(old.stamp(), handle.resolve(NOW).unwrap().stamp());
}

#[test]
fn a_secret_expires_at_its_expiry_and_not_a_millisecond_before() {
    let place = Place::empty();
    place.store().put(NewSecret::tls(&name(), &binding(), VALUE, Some(LATER)), NOW).unwrap();
    let just_before = UnixMillis(LATER.0 - 1);
    let handle = handle(&place);
    let resolved = handle.resolve(just_before).unwrap();
    assert_eq!(resolved.stamp().expires(), Some(LATER));
    assert_eq!(handle.check(resolved.stamp(), just_before), Ok(()));
    for expired in [LATER, UnixMillis(LATER.0 + 1), UnixMillis(u64::MAX)] {
        assert_eq!(handle.check(resolved.stamp(), expired), Err(NotCurrent::Expired));
        assert_eq!(handle.resolve(expired).map(drop), Err(BindError::Expired { name: name() }));
    }
    let info = place.store().list().unwrap().remove(0);
    assert_eq!((info.state(just_before), info.state(LATER)), (SecretState::Current, SecretState::Expired));
    place.store().rotate(&name(), VALUE, None, LATER).unwrap();
    assert_eq!(handle.check(resolved.stamp(), LATER), Err(NotCurrent::Rotated));
    assert!(handle.resolve(UnixMillis(u64::MAX)).is_ok());
}

#[test]
fn an_expiry_that_has_come_is_refused_when_it_is_given() {
    let place = Place::empty();
    let put = |expires| place.store().put(NewSecret::tls(&name(), &binding(), VALUE, Some(expires)), NOW).map(drop);
    for expires in [UnixMillis(0), UnixMillis(NOW.0 - 1), NOW] {
        assert_eq!(put(expires), Err(SecretError::ExpiryPassed { name: name(), expires }));
    }
    assert_eq!(put(UnixMillis(NOW.0 + 1)), Ok(()));
    let rotated = place.store().rotate(&name(), VALUE, Some(NOW), NOW).map(drop);
    assert_eq!(rotated, Err(SecretError::ExpiryPassed { name: name(), expires: NOW }));
}

#[test]
fn a_revocation_takes_the_value_from_the_disk_and_from_every_handle() {
    let place = Place::with_secret();
    let handle = handle(&place);
    let resolved = handle.resolve(NOW).unwrap();
    let sealed = std::fs::read(place.file("acme-bus.secret")).unwrap();
    let info = place.store().revoke(&name(), LATER).unwrap();
    assert_eq!((info.version, info.state(LATER), info.written), (2, SecretState::Revoked, LATER));
    assert_eq!(handle.check(resolved.stamp(), NOW), Err(NotCurrent::Revoked));
    assert_eq!(handle.resolve(NOW).map(drop), Err(BindError::Revoked { name: name() }));
    assert_eq!(place.store().list().unwrap(), [info]);
    let tail = &sealed[sealed.len() - 1_000..];
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let content = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!content.windows(100).any(|window| tail.starts_with(window)), "sealed material is left");
    }
    let refused = SecretError::Revoked { name: name() };
    assert_eq!(place.store().revoke(&name(), NOW), Err(refused.clone()));
    assert_eq!(place.store().rotate(&name(), VALUE, None, NOW), Err(refused));
}

#[test]
fn a_name_is_free_again_after_a_revocation_and_its_versions_go_on() {
    let place = Place::with_secret();
    let handle = handle(&place);
    let old = handle.resolve(NOW).unwrap();
    place.store().revoke(&name(), NOW).unwrap();
    let info = place.store().put(NewSecret::tls(&name(), &binding(), b"another", None), NOW).unwrap();
    assert_eq!(info.version, 3);
    assert_eq!(handle.resolve(NOW).unwrap().value(), b"another");
    assert_eq!(handle.check(old.stamp(), NOW), Err(NotCurrent::Rotated));
}

#[test]
fn a_secret_is_put_once_and_only_what_is_there_is_changed() {
    let place = Place::with_secret();
    let again = place.store().put(NewSecret::tls(&name(), &binding(), b"other", None), NOW);
    assert_eq!(again, Err(SecretError::Exists { name: name() }));
    assert_eq!(place.value(), VALUE);
    let other = SecretName::parse("other").unwrap();
    assert_eq!(place.store().rotate(&other, VALUE, None, NOW), Err(SecretError::NotFound { name: other.clone() }));
    assert_eq!(place.store().revoke(&other, NOW), Err(SecretError::NotFound { name: other }));
}

#[test]
fn a_secret_taken_away_by_hand_is_missing_and_one_made_anew_is_not_the_same() {
    let place = Place::with_secret();
    let handle = handle(&place);
    let resolved = handle.resolve(NOW).unwrap();
    std::fs::remove_file(place.file("acme-bus.secret")).unwrap();
    assert_eq!(handle.check(resolved.stamp(), NOW), Err(NotCurrent::Missing));
    assert_eq!(handle.resolve(NOW).map(drop), Err(BindError::Missing { name: name() }));
    place.store().put(NewSecret::tls(&name(), &binding(), VALUE, None), NOW).unwrap();
    // The same value at the same time, as version 1 again.
    assert_eq!(handle.check(resolved.stamp(), NOW), Err(NotCurrent::Rotated));
}

#[test]
fn the_list_shows_all_but_the_values_by_name() {
    let place = Place::with_secret();
    let first = SecretName::parse("Aa").unwrap();
    place.store().put(NewSecret::tls(&first, &binding(), VALUE, Some(LATER)), NOW).unwrap();
    let list = place.store().list().unwrap();
    assert_eq!(list.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["Aa", "acme-bus"]);
    let info = &list[0];
    assert_eq!((&info.tenant, &info.provider), (&binding().tenant, &binding().provider));
    assert_eq!((info.server_name.as_str(), info.port, info.version), ("nats.example.net", 4222, 1));
    assert_eq!((info.purpose.as_str(), info.protocol.as_str()), ("tls-provider-credential", "tls"));
    assert_eq!((info.written, info.expires, info.revoked), (NOW, Some(LATER), false));
}
