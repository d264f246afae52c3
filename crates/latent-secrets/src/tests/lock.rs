//! One writer at a time, and readers all the while.

use super::*;
use crate::SecretError;
use crate::directory::Directory;
use crate::lock::Lock;
use crate::replace::Disk;

fn held(place: &Place) -> Lock {
    Lock::take(&Directory::open(place.path()).unwrap(), Duration::ZERO).unwrap()
}

#[test]
fn a_second_writer_is_refused_and_told_who_has_it_while_readers_read() {
    let place = Place::with_secret();
    let impatient = place.store_over(Disk);
    let lock = held(&place);
    let locked = SecretError::Locked { file: place.file("lock"), holder: Some(std::process::id()) };
    assert!(locked.to_string().contains(&format!("the process {}", std::process::id())));
    let other = SecretName::parse("other").unwrap();
    assert_eq!(impatient.put(NewSecret::tls(&other, &binding(), VALUE, None), NOW), Err(locked.clone()));
    assert_eq!(impatient.rotate(&name(), VALUE, None, NOW), Err(locked.clone()));
    assert_eq!(impatient.revoke(&name(), NOW), Err(locked));
    assert_eq!(place.value(), VALUE);
    assert_eq!(place.store().list().unwrap().len(), 1);
    drop(lock);
    assert!(impatient.rotate(&name(), VALUE, None, NOW).is_ok());
}

#[test]
fn a_holder_that_did_not_say_who_it_is_is_another_process() {
    let place = Place::with_secret();
    let _lock = held(&place);
    for unknown in ["", "x\n", "99999999999999999999"] {
        std::fs::write(place.file("lock"), unknown).unwrap();
        let refused = place.store_over(Disk).revoke(&name(), NOW).unwrap_err();
        assert_eq!(refused, SecretError::Locked { file: place.file("lock"), holder: None });
        assert!(refused.to_string().contains("another process"));
    }
}

#[test]
fn a_writer_waits_for_the_one_before_it() {
    let place = Place::with_secret();
    let lock = held(&place);
    let patient =
        LocalSecretStore::open_with(place.path(), SealingKey::from_bytes(&KEY), Box::new(Disk), Duration::from_secs(120)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.rotate(&name(), b"other", None, NOW));
        drop(lock);
        assert_eq!(waiting.join().unwrap().unwrap().version, 2);
    });
}

#[test]
fn writers_at_once_each_make_a_version_of_their_own() {
    let place = Place::with_secret();
    let writers = 4;
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                let key = SealingKey::from_bytes(&KEY);
                let patient = LocalSecretStore::open_with(place.path(), key, Box::new(Disk), Duration::from_secs(120)).unwrap();
                patient.rotate(&name(), b"other", None, NOW).unwrap();
            });
        }
    });
    assert_eq!(place.store().list().unwrap()[0].version, 1 + writers);
}
