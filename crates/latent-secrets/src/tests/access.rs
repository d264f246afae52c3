//! Only what is its owner's alone is used, and the refusal says what to run.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::{AccessProblem, NotCurrent, SecretError};

fn opened(path: &Path) -> Result<(), SecretError> {
    LocalSecretStore::open(path, SealingKey::from_bytes(&KEY)).map(drop)
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn refused_directory(path: &Path) -> AccessProblem {
    match opened(path) {
        Err(SecretError::Directory { directory, problem }) if directory == path => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_that_others_may_enter_is_refused_with_the_command_that_mends_it() {
    let place = Place::with_secret();
    for mode in [0o755, 0o750, 0o701, 0o710, 0o770, 0o777, 0o1777] {
        chmod(place.path(), mode);
        let text = opened(place.path()).unwrap_err().to_string();
        assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
        assert!(text.contains(&format!("`chmod 700 {}`", place.path().display())), "{text}");
    }
    chmod(place.path(), 0o700);
    assert_eq!(opened(place.path()), Ok(()));
}

#[test]
fn a_directory_is_made_for_its_owner_alone_and_one_that_is_there_stays_as_it_is() {
    let place = Place::empty();
    let made = place.file("secrets");
    for _ in 0..2 {
        assert_eq!(LocalSecretStore::prepare(&made), Ok(()));
        assert_eq!(opened(&made), Ok(()));
    }
    chmod(&made, 0o755);
    assert_eq!(LocalSecretStore::prepare(&made), Ok(()));
    assert!(opened(&made).is_err());
    assert!(matches!(LocalSecretStore::prepare(&place.file("gone/secrets")), Err(SecretError::Io { .. })));
}

#[test]
fn a_directory_that_is_none_is_refused() {
    let place = Place::with_secret();
    assert_eq!(refused_directory(&place.file("gone")), AccessProblem::Missing);
    assert_eq!(refused_directory(&place.file("store")), AccessProblem::Kind { expected: "directory" });
    let link = place.file("link");
    symlink(place.path(), &link).unwrap();
    assert_eq!(refused_directory(&link), AccessProblem::Symlink);
    let with_slash = PathBuf::from(format!("{}/", link.display()));
    assert!(matches!(opened(&with_slash), Err(SecretError::Directory { problem: AccessProblem::Symlink, .. })));
}

#[test]
fn a_file_that_others_may_read_is_refused_with_the_command_that_mends_it() {
    for (file, shown) in [("acme-bus.secret", true), ("store", false)] {
        let place = Place::with_secret();
        let store = place.store();
        chmod(&place.file(file), 0o640);
        let problem = AccessProblem::Mode { mode: 0o640, command: format!("chmod 600 {}", place.file(file).display()) };
        let error = SecretError::File { file: place.file(file), problem };
        let seen = if shown { store.list().unwrap_err() } else { opened(place.path()).unwrap_err() };
        assert_eq!(seen, error);
    }
}

#[test]
fn a_link_a_pipe_and_a_directory_in_place_of_a_secret_are_refused_without_waiting() {
    let place = Place::with_secret();
    let (file, kept) = (place.file("acme-bus.secret"), place.file("kept"));
    let problem = || match place.store().read(&name()).map(drop) {
        Err(SecretError::File { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    std::fs::rename(&file, &kept).unwrap();
    symlink(&kept, &file).unwrap();
    assert_eq!(problem(), AccessProblem::Symlink);
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&file).status().unwrap().success());
    assert_eq!(problem(), AccessProblem::Kind { expected: "regular file" });
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_eq!(problem(), AccessProblem::Kind { expected: "regular file" });
}

#[test]
fn everything_that_is_written_is_for_the_owner_alone() {
    let place = Place::with_secret();
    place.store().rotate(&name(), b"other", None, NOW).unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o7777, 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["acme-bus.secret", "lock", "store"]);
}

#[test]
fn a_handle_shows_nothing_once_others_may_enter_the_directory() {
    let place = Place::with_secret();
    let handle = place.store().bind_tls_credential(&name(), &binding(), NOW).unwrap();
    let resolved = handle.resolve(NOW).unwrap();
    chmod(place.path(), 0o755);
    assert!(matches!(handle.resolve(NOW), Err(crate::BindError::Unreadable(SecretError::Directory { .. }))));
    assert!(matches!(handle.check(resolved.stamp(), NOW), Err(NotCurrent::Unreadable { error: SecretError::Directory { .. } })));
}
