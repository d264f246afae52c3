//! A secret occurs in no file, error, list or `Debug`, however it may be written there.

use std::fmt::{Debug, Display};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::*;
use crate::{SecretPurpose, TlsProviderCredential};

/// With a quote, a backslash and a letter that JSON may escape.
const MARKER: &str = "MARK\"er\\é-7f3a9c";

/// The ways in which a value is written by mistake.
fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let decimal = value.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let text = String::from_utf8_lossy(value);
    let escaped: String = text.escape_default().collect();
    let json: String = text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut forms = vec![
        value.to_vec(),
        hex.to_uppercase().into_bytes(),
        hex.into_bytes(),
        decimal.into_bytes(),
        escaped.into_bytes(),
        json.replace('é', "\\u00e9").into_bytes(),
        json.into_bytes(),
        STANDARD.encode(value).into_bytes(),
        STANDARD_NO_PAD.encode(value).into_bytes(),
        URL_SAFE_NO_PAD.encode(value).into_bytes(),
    ];
    // Base64 of a text that holds the value somewhere: without the digits that its neighbours share.
    for before in 0..3 {
        let encoded = STANDARD.encode([&vec![0; before], value].concat());
        let shared = if before == 0 { 0 } else { 4 };
        forms.push(encoded.as_bytes()[shared..encoded.len() - 4].to_vec());
    }
    forms
}

fn holds(content: &[u8], value: &[u8]) -> bool {
    forms(value).iter().any(|form| content.windows(form.len()).any(|window| window == form))
}

#[derive(Default)]
struct Told(Vec<String>);

impl Told {
    fn debug(&mut self, value: &impl Debug) {
        self.0.push(format!("{value:?} {value:#?}"));
    }

    fn error(&mut self, value: impl Debug + Display) {
        self.0.push(value.to_string());
        self.debug(&value);
    }

    fn refusal<T>(&mut self, refused: Result<T, impl Debug + Display>) {
        self.error(refused.err().unwrap());
    }
}

fn tell_a_handle(told: &mut Told, place: &Place, handle: &TlsProviderCredential, value: &[u8]) {
    let resolved = handle.resolve(NOW).unwrap();
    assert_eq!(resolved.value(), value);
    told.debug(&(handle, &resolved, resolved.stamp()));
    told.refusal(handle.resolve(LATER));
    told.refusal(handle.check(resolved.stamp(), LATER));
    place.store().rotate(&name(), value, None, NOW).unwrap();
    told.refusal(handle.check(resolved.stamp(), NOW));
}

fn tell_refusals(told: &mut Told, place: &Place, value: &[u8]) {
    let (store, name, binding) = (place.store(), name(), binding());
    told.refusal(store.put(NewSecret::tls(&name, &binding, value, None), NOW));
    told.refusal(store.put(NewSecret::tls(&name, &binding, &value.repeat(4_096), None), NOW));
    told.refusal(store.put(NewSecret::tls(&name, &binding, value, Some(NOW)), NOW));
    told.refusal(store.put(NewSecret::tls(&name, &TlsBinding { port: 0, ..binding.clone() }, value, None), NOW));
    told.refusal(store.rotate(&SecretName::parse("other").unwrap(), value, None, NOW));
    told.refusal(store.bind_tls_credential(&name, &TlsBinding { port: 1, ..binding.clone() }, NOW));
    told.refusal(store.bind_tls_credential(&name, &TlsBinding { server_name: "x".into(), ..binding }, NOW));
    told.refusal(LocalSecretStore::open(place.path(), SealingKey::from_bytes(&[8; 32])));
    told.refusal(SecretName::parse(&String::from_utf8_lossy(value)));
    let file = place.file("acme-bus.secret");
    let content = std::fs::read(&file).unwrap();
    for at in (0..content.len()).step_by(97) {
        std::fs::write(&file, [&content[..at], b"#", &content[at + 1..]].concat()).unwrap();
        told.refusal(store.list());
        told.debug(&store.survey());
    }
    std::fs::write(&file, content).unwrap();
}

#[test]
fn a_secret_is_in_no_file_no_error_and_no_debug() {
    let marker = MARKER.as_bytes();
    let place = Place::empty();
    let mut told = Told::default();
    let store = place.store();
    for (purpose, named) in [(SecretPurpose::HttpCredential, "http"), (SecretPurpose::GuestReadable, "guest")] {
        let other = SecretName::parse(named).unwrap();
        store.put(NewSecret { purpose, ..NewSecret::tls(&other, &binding(), marker, None) }, NOW).unwrap();
        told.refusal(store.bind_tls_credential(&other, &binding(), NOW));
    }
    let info = store.put(NewSecret::tls(&name(), &binding(), marker, Some(LATER)), NOW).unwrap();
    told.debug(&(&info, &store, store.list(), store.survey(), SealingKey::from_bytes(&KEY)));
    let handle = store.bind_tls_credential(&name(), &binding(), NOW).unwrap();
    tell_a_handle(&mut told, &place, &handle, marker);
    tell_refusals(&mut told, &place, marker);
    told.debug(&store.revoke(&name(), NOW));
    told.refusal(handle.resolve(NOW));

    let (texts, marker_found) = (told.0, |content: &[u8]| holds(content, marker) || holds(content, &KEY));
    assert!(texts.len() > 100);
    for text in texts {
        assert!(!marker_found(text.as_bytes()), "{text}");
    }
    let mut files = 0;
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(!marker_found(&std::fs::read(&path).unwrap()), "{}", path.display());
        files += 1;
    }
    assert_eq!(files, 5);
}

#[test]
fn what_would_be_a_leak_is_found() {
    let marker = MARKER.as_bytes();
    for form in forms(marker) {
        assert!(holds(&[b"before ", &form[..], b" after"].concat(), marker), "{}", String::from_utf8_lossy(&form));
    }
    for before in 0..3 {
        let encoded = STANDARD.encode([&vec![b'x'; before], marker, b"and more"].concat());
        assert!(holds(encoded.as_bytes(), marker), "{before}");
    }
    assert!(!holds(b"MARKer, almost", marker));
}
