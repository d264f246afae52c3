//! TLS of the connection: which roots, which name, which provider. A certificate is always checked.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::base_name;
use crate::nats_bus::options::{NatsOptions, NatsRoots};
use crate::{BusError, limits};

fn config(problem: String) -> BusError {
    BusError::Config { problem }
}

/// What a handshake uses. `forced`: without roots there can be no connection.
pub(super) fn client_config(options: &NatsOptions, forced: bool) -> Result<ClientConfig, BusError> {
    let refused = |error: rustls::Error| config(format!("TLS to the broker cannot be set up: {error}"));
    let (provider, roots) = (provider(), Arc::new(roots(&options.roots)?));
    if forced && roots.is_empty() {
        let problem = "the system has no root certificates to check the broker's against; name a file of them (AV_NATS_CA_FILE)";
        return Err(config(problem.to_owned()));
    }
    let versions = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().map_err(refused)?;
    let mut client = versions.with_root_certificates(Arc::clone(&roots)).with_no_client_auth();
    if let Some(name) = options.server_name.as_ref().filter(|_| !roots.is_empty()) {
        let name = server_name(name)?;
        let inner = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let inner = inner.map_err(|error| config(format!("the roots cannot be used: {error}")))?;
        client.dangerous().set_certificate_verifier(Arc::new(FixedName { inner, name }));
    }
    Ok(client)
}

fn server_name(name: &str) -> Result<ServerName<'static>, BusError> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| config(format!("{name:?} cannot be the name of a certificate; name the broker as its certificate does")))
}

/// The application's provider, else `ring`, which is installed then for the whole process (B-046).
fn provider() -> Arc<CryptoProvider> {
    if let Some(provider) = CryptoProvider::get_default() {
        return Arc::clone(provider);
    }
    // Another thread may be first; then its provider holds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    CryptoProvider::get_default().map_or_else(|| Arc::new(rustls::crypto::ring::default_provider()), Arc::clone)
}

fn roots(wanted: &NatsRoots) -> Result<RootCertStore, BusError> {
    match wanted {
        NatsRoots::System => Ok(of_system()),
        NatsRoots::Pem(path) => of_file(path),
        NatsRoots::Der(certificates) => {
            let certificates = certificates.iter().map(|der| CertificateDer::from(der.as_slice()));
            store("the given roots", certificates)
        }
    }
}

/// What of the system's roots can be read.
fn of_system() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of the system's root certificates cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}

fn of_file(path: &Path) -> Result<RootCertStore, BusError> {
    let name = base_name(path);
    let unreadable =
        |problem: &str| config(format!("the file of root certificates {name:?} {problem}; name a file in PEM form (AV_NATS_CA_FILE)"));
    let content = read(path).map_err(|error| unreadable(&format!("cannot be read: {error}")))?;
    if content.len() as u64 > limits::CONTROL_FILE_BYTES.max {
        return Err(unreadable(&format!("has more than {} bytes", limits::CONTROL_FILE_BYTES.max)));
    }
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let certificates = certificates.map_err(|error| unreadable(&format!("cannot be read: {error}")))?;
    if certificates.is_empty() {
        return Err(unreadable("has no certificate"));
    }
    store(&format!("the file of root certificates {name:?}"), certificates)
}

/// Only files: a pipe would be waited for.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(limits::CONTROL_FILE_BYTES.max + 1).read_to_end(&mut content)?;
    Ok(content)
}

fn store<'c>(whose: &str, certificates: impl IntoIterator<Item = CertificateDer<'c>>) -> Result<RootCertStore, BusError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.into_owned();
        roots
            .add(certificate)
            .map_err(|error| config(format!("{whose}: a certificate in it cannot be a root: {error}; use the authority's")))?;
    }
    Ok(roots)
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

#[cfg(test)]
mod tests {
    use latent_testkit::broker::TestCa;

    use super::*;

    fn options(roots: NatsRoots) -> NatsOptions {
        NatsOptions { roots, ..NatsOptions::new("tls://a") }
    }

    fn problem(options: &NatsOptions) -> String {
        match client_config(options, true).map(drop).unwrap_err() {
            BusError::Config { problem } => problem,
            other => panic!("{other:?}"),
        }
    }

    /// B-047: named by the file's own name, as in every error (B-044).
    #[test]
    fn a_file_of_roots_that_cannot_be_used_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let at = |content: Option<&[u8]>| {
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            problem(&options(NatsRoots::Pem(path.clone())))
        };
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let broken = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
        let no_root = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let large = vec![b' '; limits::CONTROL_FILE_BYTES.max_usize() + 1];
        let table: [(Option<&[u8]>, &str); 7] = [
            (None, "cannot be read"),
            (Some(b""), "has no certificate"),
            (Some(b"words"), "has no certificate"),
            (Some(key.as_bytes()), "has no certificate"),
            (Some(broken.as_bytes()), "cannot be read"),
            (Some(no_root.as_bytes()), "cannot be a root"),
            (Some(&large), "has more than 1048576 bytes"),
        ];
        for (content, told) in table {
            let text = at(content);
            assert!(text.contains("\"ca.pem\"") && text.contains(told), "{text}");
            assert!(!text.contains(&*folder.path().to_string_lossy()), "{text}");
        }
        let folder_itself = problem(&options(NatsRoots::Pem(folder.path().to_owned())));
        assert!(folder_itself.contains("not a regular file"), "{folder_itself}");
    }

    #[test]
    fn roots_are_taken_from_a_file_of_several_and_from_their_bytes() {
        let (one, other) = (TestCa::new(), TestCa::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, format!("# a comment\n{}\n{}", one.root_pem(), other.root_pem())).unwrap();
        assert_eq!(roots(&NatsRoots::Pem(path)).unwrap().len(), 2);
        assert_eq!(roots(&NatsRoots::Der(vec![one.root_der()])).unwrap().len(), 1);
        assert!(roots(&NatsRoots::Der(vec![vec![0; 10]])).is_err());
        assert!(problem(&options(NatsRoots::Der(Vec::new()))).contains("no root certificates"));
    }

    #[test]
    fn a_name_that_no_certificate_can_have_is_an_error() {
        let roots = NatsRoots::Der(vec![TestCa::new().root_der()]);
        let named = |name: &str| NatsOptions { server_name: Some(name.to_owned()), ..options(roots.clone()) };
        assert!(problem(&named("a b")).contains("\"a b\" cannot be the name of a certificate"));
        assert!(client_config(&named("broker.example.net"), true).is_ok() && client_config(&named("192.0.2.1"), true).is_ok());
    }

    /// B-046. That the application's own stays is shown in a process of its own.
    #[test]
    fn a_provider_is_installed_when_there_is_none() {
        let used = provider();
        assert!(CryptoProvider::get_default().is_some_and(|installed| Arc::ptr_eq(installed, &used)));
        assert!(Arc::ptr_eq(&used, &provider()));
    }
}
