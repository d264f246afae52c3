//! TLS as this profile has it: the configured roots and nothing else, no resumption, no early data, no key log.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::{ClientConfig, NoKeyLog, RootCertStore};

use crate::{InstallError, Peer};

/// What every connection of a provider uses.
pub(crate) fn client_config(peer: &Peer, public_roots: bool) -> Result<Arc<ClientConfig>, InstallError> {
    let failed = |error: rustls::Error| InstallError::Tls { problem: error.to_string() };
    let mut roots = RootCertStore::empty();
    if public_roots {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for root in &peer.roots {
        roots.add(root.clone()).map_err(failed)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    let mut client = versions.with_root_certificates(roots).with_no_client_auth();
    client.resumption = Resumption::disabled();
    client.enable_early_data = false;
    client.key_log = Arc::new(NoKeyLog);
    Ok(Arc::new(client))
}
