//! The format, against files made by another program: HChaCha20 written out from its definition, checked against the published
//! vector, and the ChaCha20-Poly1305 of OpenSSL under the key that it derives.

use sha2::{Digest as _, Sha256};

use super::*;
use crate::{SecretInfo, SecretProtocol, SecretPurpose, record, store_file};

const REVOKED: &str = "latent-secret 1\nname acme-bus\npurpose tls-provider-credential\ntenant acme\nprovider broker\nprotocol tls\n\
    server-name nats.example.net\nport 4222\nversion 4\nstate revoked\nwritten 1800000000000\nexpires never\n\
    sealed ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7lWYOeRID7BTSNyodC6F5fQ==\n";
const STORE: &str = "latent-secret-store 1\n\
    key-check ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7CBuckJRL8KLoVr1LzgbO6SjPPQOBk+YccFKEjvMu1I7MjFttIg==\n\
    sum c5298148817d310d\n";
const STORED_BYTES: usize = 5_737;
const STORED_SHA256: &str = "cdc57e8a1d1eb2383d31713e353ded2378c627830f2a998e940dc4e5d0e1ed8f";

fn counting<const N: usize>(from: u8) -> [u8; N] {
    let mut bytes = [from; N];
    bytes.iter_mut().zip(0..).for_each(|(byte, step)| *byte += step);
    bytes
}

fn key() -> SealingKey {
    SealingKey::from_bytes(&counting(0))
}

fn info(version: u64, revoked: bool, expires: Option<UnixMillis>) -> SecretInfo {
    SecretInfo {
        name: name(),
        purpose: SecretPurpose::TlsProviderCredential,
        tenant: binding().tenant,
        provider: binding().provider,
        protocol: SecretProtocol::Tls,
        server_name: binding().server_name,
        port: 4222,
        version,
        written: NOW,
        expires,
        revoked,
    }
}

#[test]
fn a_stored_secret_is_written_byte_for_byte_as_the_format_says() {
    let info = info(3, false, Some(UnixMillis(1_900_000_000_000)));
    let file = record::encode(&key(), &counting(100), &info, Some(VALUE)).unwrap();
    let digest: String = Sha256::digest(&file).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((file.len(), digest.as_str()), (STORED_BYTES, STORED_SHA256));
    let (read, text) = record::decode(&name(), &file).unwrap().open(&key()).unwrap();
    assert_eq!((read, crate::seal::value_of(&text)), (info, Some(VALUE)));
}

#[test]
fn a_revoked_secret_and_the_stores_own_file_are_too() {
    let info = info(4, true, None);
    let file = record::encode(&key(), &counting(100), &info, None).unwrap();
    assert_eq!(std::str::from_utf8(&file), Ok(REVOKED));
    assert_eq!(record::decode(&name(), REVOKED.as_bytes()).unwrap().open(&key()).unwrap().0, info);
    assert_eq!(store_file::encode(&key(), &counting(100)).as_deref(), Some(STORE.as_bytes()));
}

#[test]
fn no_two_writings_have_the_same_nonce() {
    let place = Place::with_secret();
    let nonces: std::collections::BTreeSet<String> = (0..16)
        .map(|_| {
            place.store().rotate(&name(), VALUE, None, NOW).unwrap();
            let file = std::fs::read_to_string(place.file("acme-bus.secret")).unwrap();
            file.split_once("sealed ").unwrap().1[..32].to_owned()
        })
        .collect();
    assert_eq!(nonces.len(), 16);
}
