//! Certificates of the tests, made at run time: no key is ever committed.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// A certificate authority that only this process knows.
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    root_der: Vec<u8>,
    root_pem: String,
}

/// A server's certificate with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The name it was issued for.
    pub server_name: String,
    /// The certificate, DER.
    pub certificate_der: Vec<u8>,
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// The key, PKCS #8 DER.
    pub key_der: Vec<u8>,
    /// The key, PKCS #8 PEM.
    pub key_pem: String,
}

impl std::fmt::Debug for TestCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestCa").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

/// When a certificate holds.
#[derive(Debug, Clone, Copy)]
enum Validity {
    Now,
    Expired,
    NotYet,
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
impl TestCa {
    /// A fresh authority: two of them trust nothing of each other.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, "Latent test root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).expect("a root certificate");
        Self { root_der: certificate.der().to_vec(), root_pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    /// The root certificate, DER: what a client must be told to trust.
    pub fn root_der(&self) -> Vec<u8> {
        self.root_der.clone()
    }

    /// The root certificate, PEM.
    pub fn root_pem(&self) -> &str {
        &self.root_pem
    }

    /// A certificate for `server_name` (a DNS name or an address) that holds now.
    ///
    /// # Panics
    /// When `server_name` cannot stand in a certificate.
    pub fn issue(&self, server_name: &str) -> Issued {
        self.issue_for(server_name, Validity::Now)
    }

    /// A certificate that ended in 2021.
    ///
    /// # Panics
    /// As [`TestCa::issue`].
    pub fn issue_expired(&self, server_name: &str) -> Issued {
        self.issue_for(server_name, Validity::Expired)
    }

    /// A certificate that begins in 2999.
    ///
    /// # Panics
    /// As [`TestCa::issue`].
    pub fn issue_not_yet_valid(&self, server_name: &str) -> Issued {
        self.issue_for(server_name, Validity::NotYet)
    }

    /// A certificate that holds now and has the name where names do not count: as its common name alone.
    ///
    /// # Panics
    /// As [`TestCa::issue`].
    pub fn issue_common_name_only(&self, server_name: &str) -> Issued {
        let key = KeyPair::generate().expect("a key");
        let params = server_params(&[], server_name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a signed certificate");
        Issued::new(server_name, &certificate, &key)
    }

    fn issue_for(&self, server_name: &str, validity: Validity) -> Issued {
        let key = KeyPair::generate().expect("a key");
        let mut params = server_params(&[server_name], "Latent test server");
        (params.not_before, params.not_after) = match validity {
            Validity::Now => (date_time_ymd(2020, 1, 1), date_time_ymd(2999, 1, 1)),
            Validity::Expired => (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1)),
            Validity::NotYet => (date_time_ymd(2999, 1, 1), date_time_ymd(3000, 1, 1)),
        };
        let certificate = params.signed_by(&key, &self.issuer).expect("a signed certificate");
        Issued::new(server_name, &certificate, &key)
    }
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
impl Issued {
    /// A certificate that nobody but its own key signed, and that is no authority.
    ///
    /// # Panics
    /// As [`TestCa::issue`].
    pub fn self_signed(server_name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let certificate = server_params(&[server_name], "Latent test server").self_signed(&key).expect("a certificate");
        Self::new(server_name, &certificate, &key)
    }

    fn new(server_name: &str, certificate: &Certificate, key: &KeyPair) -> Self {
        Self {
            server_name: server_name.to_owned(),
            certificate_der: certificate.der().to_vec(),
            certificate_pem: certificate.pem(),
            key_der: key.serialize_der(),
            key_pem: key.serialize_pem(),
        }
    }
}

#[allow(clippy::expect_used, reason = "this runs inside a test: a panic is how it fails")]
fn server_params(names: &[&str], common_name: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("a name that fits a certificate");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2999, 1, 1));
    params
}
