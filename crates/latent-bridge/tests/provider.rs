//! The cryptography that the application chose stays (B-046). A process of its own, since the choice is the process's.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use latent_bridge::nats_bus::{NatsCredentials, NatsOptions};
use latent_bridge::{BridgeManifest, NatsBus};
use rustls::crypto::{CryptoProvider, ring};

#[test]
fn the_provider_of_the_application_stays() {
    let mut own = ring::default_provider();
    own.cipher_suites.truncate(1);
    own.install_default().unwrap();
    let manifest = BridgeManifest::from_yaml("manifest_version: 1\nname: x\ntopics:\n- name: a\n  partitions: 1\n").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut options = NatsOptions::new(&format!("tls://127.0.0.1:{port}"));
    options.credentials = Some(NatsCredentials::Token("x".to_owned()));
    let _ = NatsBus::open_with(options, &manifest).map(drop).unwrap_err();
    assert_eq!(CryptoProvider::get_default().unwrap().cipher_suites.len(), 1);
}
