//! TLS settings of the fixtures: one provider, explicit roots, nothing of the machine.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::broker::{Issued, TestCa};

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
fn roots(ca: &TestCa) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ca.root_der())).expect("the root of the test CA");
    roots
}

/// Trusts `ca` and nothing else; the name that is dialled is verified.
#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
pub(crate) fn client(ca: &TestCa) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("TLS versions");
    builder.with_root_certificates(roots(ca)).with_no_client_auth()
}

/// Trusts `ca` and verifies `server_name`, whatever address is dialled.
#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
pub(crate) fn client_for_name(ca: &TestCa, server_name: &str) -> ClientConfig {
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(ca)), provider()).build().expect("a verifier");
    let name = ServerName::try_from(server_name.to_owned()).expect("a server name");
    let mut config = client(ca);
    config.dangerous().set_certificate_verifier(Arc::new(FixedName { inner, name }));
    config
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
pub(crate) fn server(identity: &Issued) -> ServerConfig {
    let chain = vec![CertificateDer::from(identity.certificate_der.clone())];
    let key = PrivateKeyDer::try_from(identity.key_der.clone()).expect("the key of the identity");
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("TLS versions");
    builder.with_no_client_auth().with_single_cert(chain, key).expect("a certificate with its key")
}

/// The ordinary checks, with a fixed name instead of the dialled one.
#[derive(Debug)]
struct FixedName {
    inner: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for FixedName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _dialled: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.inner.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
