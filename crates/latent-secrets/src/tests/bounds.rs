//! Each bound one below, at and one above its edge.

use super::*;
use crate::limits::{SECRET_FILE_BYTES, SECRET_VALUE_BYTES, SECRETS, SERVER_NAME_BYTES};
use crate::{SecretError, SecretInfo};

fn put(place: &Place, binding: &TlsBinding, value: &[u8]) -> Result<SecretInfo, SecretError> {
    place.store().put(NewSecret::tls(&name(), binding, value, None), NOW)
}

#[test]
fn a_value_has_1_to_4096_bytes() {
    let max = SECRET_VALUE_BYTES.max_usize();
    assert_eq!(max, 4_096);
    for (bytes, refused) in [
        (0, Some(SecretError::ValueEmpty)),
        (1, None),
        (max - 1, None),
        (max, None),
        (max + 1, Some(SecretError::ValueTooLong)),
        (70_000, Some(SecretError::ValueTooLong)),
    ] {
        // Values of any bytes, ends of line and zeros included.
        let value: Vec<u8> = (0..=u8::MAX).rev().cycle().take(bytes).collect();
        let place = Place::empty();
        assert_eq!(put(&place, &binding(), &value).err(), refused, "{bytes}");
        if refused.is_none() {
            assert_eq!(place.value(), value);
            assert_eq!(place.store().rotate(&name(), &value, None, NOW).map(|info| info.version), Ok(2));
        } else {
            assert_eq!(place.store().rotate(&name(), &value, None, NOW).err(), refused, "{bytes}");
        }
    }
}

#[test]
fn the_size_of_a_file_does_not_tell_the_length_of_the_value() {
    let sizes: Vec<u64> = [1, 13, 2_000, 4_096]
        .map(|bytes| {
            let place = Place::empty();
            put(&place, &binding(), &vec![b'x'; bytes]).unwrap();
            place.file("acme-bus.secret").metadata().unwrap().len()
        })
        .to_vec();
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
}

#[test]
fn a_server_name_has_1_to_253_bytes_of_a_name_or_address_and_a_port_is_not_0() {
    let max = SERVER_NAME_BYTES.max_usize();
    let long = |bytes: usize| "n".repeat(bytes);
    for good in ["a", "NATS.Example.net", "192.0.2.10", "2001:db8::1", "::1", "a_b.c-d", &long(max - 1), &long(max)] {
        let info = put(&Place::empty(), &TlsBinding { server_name: good.to_owned(), ..binding() }, VALUE).unwrap();
        assert_eq!(info.server_name, good.to_ascii_lowercase());
    }
    for bad in ["", ".", "a.", ".a", "-a", "a-", "a b", "a\n", "a/b", "*.a", "é", "a\nport 1", &long(max + 1)] {
        let refused = put(&Place::empty(), &TlsBinding { server_name: bad.to_owned(), ..binding() }, VALUE);
        assert!(matches!(refused, Err(SecretError::Destination { .. })), "{bad:?}");
    }
    let refused = put(&Place::empty(), &TlsBinding { port: 0, ..binding() }, VALUE);
    assert!(matches!(refused, Err(SecretError::Destination { .. })));
}

#[test]
fn a_store_has_at_most_256_secrets() {
    let max = SECRETS.max_usize();
    for (others, full) in [(max - 2, false), (max - 1, false), (max, true)] {
        let place = Place::with_secret();
        let kept = std::fs::read(place.file("acme-bus.secret")).unwrap();
        std::fs::remove_file(place.file("acme-bus.secret")).unwrap();
        for other in 0..others {
            std::fs::copy(place.file("store"), place.file(&format!("other{other}.secret"))).unwrap();
        }
        assert_eq!(put(&place, &binding(), VALUE).err(), full.then_some(SecretError::Full), "{others}");
        assert!(place.store().survey().is_ok_and(|survey| survey.unreadable.len() == others));
        // One more than fits, put there by hand.
        std::fs::write(place.file("acme-bus.secret"), kept).unwrap();
        assert_eq!(place.store().survey().err(), full.then_some(SecretError::Full), "{others}");
    }
}

#[test]
fn the_largest_secret_fits_its_file_and_a_longer_file_is_damaged() {
    let widest = |bytes: usize| "w".repeat(bytes);
    let binding = TlsBinding {
        tenant: TenantId::parse(&widest(64)).unwrap(),
        provider: ProviderId::parse(&widest(64)).unwrap(),
        server_name: widest(253),
        port: u16::MAX,
    };
    let name = SecretName::parse(&widest(64)).unwrap();
    let place = Place::empty();
    let new = NewSecret::tls(&name, &binding, &[b'x'; 4_096], Some(UnixMillis(u64::MAX)));
    place.store().put(new, UnixMillis(u64::MAX - 1)).unwrap();
    let file = place.file(&format!("{name}.secret"));
    let mut content = std::fs::read(&file).unwrap();
    // The version may yet grow to 20 digits.
    assert!(content.len() + 19 <= SECRET_FILE_BYTES.max_usize(), "{}", content.len());
    for (bytes, longer) in [(-1, false), (0, false), (1, true)] {
        content.resize(SECRET_FILE_BYTES.max_usize().checked_add_signed(bytes).unwrap(), b'\n');
        std::fs::write(&file, &content).unwrap();
        let text = place.store().list().unwrap_err().to_string();
        assert_eq!(text.contains("longer than any file of a store"), longer, "{text}");
    }
}
