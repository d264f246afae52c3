//! What a failed attempt leaves in the process: the cryptography that the application chose (B-046), and no thread (B-045). A process of its
//! own, since both are the process's.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use latent_bridge::nats_bus::{NatsCredentials, NatsOptions};
use latent_bridge::{BridgeManifest, NatsBus};
use rustls::crypto::{CryptoProvider, ring};

#[test]
fn a_failed_attempt_leaves_the_provider_of_the_application_and_no_thread() {
    let mut own = ring::default_provider();
    own.cipher_suites.truncate(1);
    own.install_default().unwrap();
    let manifest = BridgeManifest::from_yaml("manifest_version: 1\nname: x\ntopics:\n- name: a\n  partitions: 1\n").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut options = NatsOptions::new(&format!("tls://127.0.0.1:{port}"));
    options.credentials = Some(NatsCredentials::Token("x".to_owned()));
    for attempt in [NatsBus::open_with, NatsBus::provision_with] {
        let _ = attempt(options.clone(), &manifest).map(drop).unwrap_err();
    }
    let threads =
        std::fs::read_dir("/proc/self/task").unwrap().map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    assert_eq!(threads.filter(|name| name.starts_with("latent-")).count(), 0);
    assert_eq!(CryptoProvider::get_default().unwrap().cipher_suites.len(), 1);
}
