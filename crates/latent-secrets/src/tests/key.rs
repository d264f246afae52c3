//! Where a key may come from, and what is no key.

use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::{AccessProblem, KeyProblem, SecretError};

fn key_file(place: &Place, content: &[u8], mode: u32) -> PathBuf {
    let file = place.file("key");
    std::fs::write(&file, content).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    file
}

fn problem(key: Result<SealingKey, SecretError>) -> KeyProblem {
    match key {
        Err(SecretError::Key { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_is_32_bytes_or_64_hexadecimal_digits() {
    let place = Place::empty();
    let bytes: Vec<u8> = (100..132).collect();
    let lower: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let with_end = [format!("{lower}\n"), format!("{lower}\r\n"), lower.to_uppercase()];
    for content in [&bytes[..], lower.as_bytes(), with_end[0].as_bytes(), with_end[1].as_bytes(), with_end[2].as_bytes()] {
        for mode in [0o600, 0o400] {
            let key = SealingKey::from_file(&key_file(&place, content, mode)).unwrap();
            assert_eq!(&key.bytes()[..], bytes);
            std::fs::remove_file(place.file("key")).unwrap();
        }
    }
    let bad = [
        b"".to_vec(),
        bytes[..31].to_vec(),
        [&bytes[..], b"\n"].concat(),
        lower.as_bytes()[..63].to_vec(),
        [lower.as_bytes(), b"0"].concat(),
        lower.replace('6', "g").into_bytes(),
        lower.replace('6', "+").into_bytes(),
        [lower.as_bytes(), b"\n\n"].concat(),
        vec![b'0'; 10_000],
    ];
    for content in bad {
        assert_eq!(problem(SealingKey::from_file(&key_file(&place, &content, 0o600))), KeyProblem::Form);
    }
}

#[test]
fn a_key_file_that_is_not_its_owners_alone_is_refused_with_the_command_that_mends_it() {
    let place = Place::empty();
    for mode in [0o640, 0o604, 0o660, 0o644] {
        let file = key_file(&place, &KEY, mode);
        let command = format!("chmod 600 {}", file.display());
        let refused = SealingKey::from_file(&file);
        assert!(refused.as_ref().unwrap_err().to_string().contains(&format!("run `{command}`")));
        assert_eq!(problem(refused), KeyProblem::Access(AccessProblem::Mode { mode, command }));
    }
    let file = key_file(&place, &KEY, 0o600);
    symlink(&file, place.file("link")).unwrap();
    let of = |name: &str| problem(SealingKey::from_file(&place.file(name)));
    assert_eq!(of("link"), KeyProblem::Access(AccessProblem::Symlink));
    assert_eq!(of("gone"), KeyProblem::Access(AccessProblem::Missing));
    assert_eq!(of("."), KeyProblem::Access(AccessProblem::Kind { expected: "regular file" }));
}

#[test]
fn a_key_comes_from_a_systemd_credential() {
    let place = Place::empty();
    let directory = Some(place.path().as_os_str());
    for (mode, taken) in [(0o400, true), (0o440, true), (0o600, true), (0o444, false), (0o460, false)] {
        let file = key_file(&place, &KEY, mode);
        let key = SealingKey::from_credential_in(directory, "key");
        assert_eq!(key.is_ok_and(|key| *key.bytes() == KEY), taken, "{mode:o}");
        std::fs::remove_file(file).unwrap();
    }
    key_file(&place, &KEY, 0o400);
    for bad in ["", ".", "..", "a/b", "../key", &"k".repeat(256)] {
        assert_eq!(problem(SealingKey::from_credential_in(directory, bad)), KeyProblem::Name, "{bad}");
    }
    let gone = SealingKey::from_credential_in(directory, "gone");
    assert!(gone.as_ref().unwrap_err().to_string().contains("credential \"gone\" does not exist"));
}

#[test]
fn a_variable_that_is_missing_empty_or_relative_is_told() {
    for directory in [None, Some(OsStr::new("")), Some(OsStr::new("run/credentials"))] {
        let refused = problem(SealingKey::from_credential_in(directory, "key"));
        assert!(matches!(refused, KeyProblem::NoCredentials(_)), "{directory:?}");
        assert!(refused.to_string().contains("LoadCredential="));
    }
}
