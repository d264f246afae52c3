//! A file that is not what was written is a typed error, never a value and never a panic.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use super::*;
use crate::{BindError, NotCurrent, SecretError};

/// Changes of one byte: of the last bit, of case, of the first bit.
const MASKS: [u8; 3] = [0x01, 0x20, 0x80];

/// Damages a file in each way, in place: making it anew each time takes the file system much longer. Leaves it as it was.
fn each_damage(path: &Path, mut look: impl FnMut(&str)) {
    let content = std::fs::read(path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    for (at, byte) in content.iter().enumerate() {
        for mask in MASKS {
            file.write_all_at(&[byte ^ mask], at as u64).unwrap();
            look(&format!("byte {at} with {mask:#x}"));
        }
        file.write_all_at(&[*byte], at as u64).unwrap();
    }
    for bytes in (0..content.len()).rev() {
        file.set_len(bytes as u64).unwrap();
        look(&format!("cut to {bytes}"));
    }
    file.write_all_at(&content, 0).unwrap();
    for more in [&b"\n"[..], b"x", b"\0", b"sealed \n"] {
        file.write_all_at(more, content.len() as u64).unwrap();
        look(&format!("with {more:?}"));
        file.set_len(content.len() as u64).unwrap();
    }
}

#[test]
fn every_changed_byte_and_every_cut_of_a_secret_is_found() {
    let place = Place::with_secret();
    let file = place.file("acme-bus.secret");
    let handle = place.store().bind_tls_credential(&name(), &binding(), NOW).unwrap();
    let resolved = handle.resolve(NOW).unwrap();
    each_damage(&file, |what| {
        let resolved = handle.resolve(NOW).map(drop);
        assert!(matches!(&resolved, Err(BindError::Unreadable(SecretError::Damaged { file: named, .. })) if *named == file), "{what}");
    });
    assert_eq!(handle.check(resolved.stamp(), NOW), Ok(()), "it is as it was, though it was written into");
    let appended = std::fs::OpenOptions::new().append(true).open(&file).and_then(|mut file| file.write_all(b"x"));
    appended.unwrap();
    assert!(matches!(handle.check(resolved.stamp(), NOW), Err(NotCurrent::Unreadable { .. })));
}

#[test]
fn every_changed_byte_of_a_revoked_secret_is_found() {
    let place = Place::with_secret();
    place.store().revoke(&name(), NOW).unwrap();
    let store = place.store();
    each_damage(&place.file("acme-bus.secret"), |what| {
        assert!(matches!(store.list(), Err(SecretError::Damaged { .. })), "{what}");
    });
}

#[test]
fn every_changed_byte_of_the_stores_own_file_is_damage_and_not_a_wrong_key() {
    let place = Place::with_secret();
    each_damage(&place.file("store"), |what| {
        let opened = LocalSecretStore::open(place.path(), SealingKey::from_bytes(&KEY)).map(drop);
        assert!(matches!(opened, Err(SecretError::Damaged { .. })), "{what}");
    });
}

#[test]
fn a_secret_under_another_ones_name_is_found() {
    let place = Place::with_secret();
    std::fs::copy(place.file("acme-bus.secret"), place.file("other.secret")).unwrap();
    let other = SecretName::parse("other").unwrap();
    let bound = place.store().bind_tls_credential(&other, &binding(), NOW).map(drop);
    assert!(bound.unwrap_err().to_string().contains("other.secret is damaged: it is the file of another secret"));
}

#[test]
fn the_sealed_value_of_one_secret_does_not_open_under_the_lines_of_another() {
    let place = Place::with_secret();
    place.store().rotate(&name(), b"other", None, NOW).unwrap();
    let first = std::fs::read_to_string(place.file("acme-bus.secret")).unwrap();
    let (lines, _) = first.split_once("sealed ").unwrap();
    let twin = Place::with_secret();
    // Every line that stands for what the value is bound to, moved to something else that is well formed.
    for (from, to) in [
        ("purpose tls-provider-credential", "purpose http-credential"),
        ("tenant acme", "tenant acme2"),
        ("provider broker", "provider other"),
        ("protocol tls", "protocol http"),
        ("server-name nats.example.net", "server-name evil.example.net"),
        ("port 4222", "port 4223"),
        ("version 2", "version 1"),
        ("version 2", "version 3"),
        ("expires never", "expires 1900000000000"),
        ("written 1800000000000", "written 1800000000001"),
    ] {
        let changed = first.replacen(from, to, 1);
        assert_ne!(changed, first, "{from}");
        std::fs::write(place.file("acme-bus.secret"), &changed).unwrap();
        let text = place.store().list().unwrap_err().to_string();
        assert!(text.contains("it was changed, or sealed under another key"), "{from}: {text}");
    }
    // And the value of version 1 under the lines of version 2.
    let old = std::fs::read_to_string(twin.file("acme-bus.secret")).unwrap();
    let moved = format!("{lines}sealed {}", old.split_once("sealed ").unwrap().1);
    std::fs::write(place.file("acme-bus.secret"), moved).unwrap();
    assert!(place.store().list().is_err());
}

#[test]
fn a_wrong_key_is_told_from_damage_and_changes_nothing() {
    let place = Place::with_secret();
    let wrong = || LocalSecretStore::open(place.path(), SealingKey::from_bytes(&[8; 32])).map(drop);
    assert_eq!(wrong(), Err(SecretError::WrongKey { directory: place.path().to_owned() }));
    assert_eq!(place.value(), VALUE);
}

#[test]
fn a_store_that_was_opened_while_it_was_empty_finds_out_later_that_its_key_is_wrong() {
    let place = Place::empty();
    let early = LocalSecretStore::open(place.path(), SealingKey::from_bytes(&[8; 32])).unwrap();
    place.store().put(NewSecret::tls(&name(), &binding(), VALUE, None), NOW).unwrap();
    let wrong = SecretError::WrongKey { directory: place.path().to_owned() };
    assert_eq!(early.list(), Err(wrong.clone()));
    let other = SecretName::parse("other").unwrap();
    assert_eq!(early.put(NewSecret::tls(&other, &binding(), VALUE, None), NOW), Err(wrong.clone()));
    assert_eq!(early.rotate(&name(), VALUE, None, NOW), Err(wrong));
    assert_eq!(place.value(), VALUE);
}

#[test]
fn secrets_without_the_stores_own_file_are_damage_and_not_a_new_store() {
    let place = Place::with_secret();
    let store = place.store();
    std::fs::remove_file(place.file("store")).unwrap();
    let other = SecretName::parse("other").unwrap();
    let put = store.put(NewSecret::tls(&other, &binding(), VALUE, None), NOW).map(drop);
    for refused in [put, store.list().map(drop), LocalSecretStore::open(place.path(), SealingKey::from_bytes(&KEY)).map(drop)] {
        assert!(matches!(&refused, Err(SecretError::Damaged { file, .. }) if *file == place.file("store")), "{refused:?}");
    }
}

#[test]
fn one_damaged_secret_hides_no_other() {
    let place = Place::with_secret();
    std::fs::copy(place.file("store"), place.file("bad.secret")).unwrap();
    std::fs::copy(place.file("store"), place.file("no name.secret")).unwrap();
    std::fs::write(place.file("notes"), b"not ours").unwrap();
    let survey = place.store().survey().unwrap();
    assert_eq!(survey.secrets.len(), 1);
    let files = survey.unreadable.iter().map(|error| match error {
        SecretError::Damaged { file, .. } => file.clone(),
        other => panic!("{other}"),
    });
    assert_eq!(files.collect::<Vec<_>>(), [place.file("bad.secret"), place.file("no name.secret")]);
    assert_eq!(place.store().list(), Err(survey.unreadable[0].clone()));
}
