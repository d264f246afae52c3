//! What is shown of a secret: everything but its value.

use latent_core::UnixMillis;
use latent_secrets::{SecretInfo, SecretPurpose};
use serde::Serialize;

use crate::table::Table;
use crate::timestamp::timestamp_seconds;

/// A secret as machines read it.
#[derive(Debug, Serialize)]
pub(super) struct ShownSecret<'i> {
    name: &'i str,
    purpose: &'static str,
    /// Nobody's where it is the node's own.
    tenant: Option<&'i str>,
    provider: &'i str,
    protocol: &'static str,
    server_name: &'i str,
    port: u16,
    version: u64,
    state: &'static str,
    written: u64,
    expires: Option<u64>,
}

impl<'i> ShownSecret<'i> {
    pub(super) fn of(info: &'i SecretInfo, now: UnixMillis) -> Self {
        Self {
            name: info.name.as_str(),
            purpose: info.purpose.as_str(),
            tenant: tenant_of(info),
            provider: info.provider.as_str(),
            protocol: info.protocol.as_str(),
            server_name: &info.server_name,
            port: info.port,
            version: info.version,
            state: info.state(now).as_str(),
            written: info.written.0,
            expires: info.expires.map(|at| at.0),
        }
    }
}

/// Whose it is. What stands for the tenant of a node's own credential is none.
fn tenant_of(info: &SecretInfo) -> Option<&str> {
    (info.purpose != SecretPurpose::BusCredential).then(|| info.tenant.as_str())
}

/// All of them for people.
pub(super) fn table(secrets: &[SecretInfo], now: UnixMillis) -> String {
    let mut table = Table::new(&["SECRET", "STATE", "VERSION", "TENANT", "PROVIDER", "SERVER", "PURPOSE", "WRITTEN", "EXPIRES"]);
    for info in secrets {
        let SecretInfo { name, purpose, provider, server_name, port, version, written, expires, .. } = info;
        table.push(vec![
            name.to_string(),
            info.state(now).as_str().to_owned(),
            version.to_string(),
            tenant_of(info).unwrap_or("-").to_owned(),
            provider.to_string(),
            format!("{server_name}:{port}"),
            purpose.to_string(),
            timestamp_seconds(written.0),
            expires.map_or_else(|| "never".to_owned(), |at| timestamp_seconds(at.0)),
        ]);
    }
    table.to_string()
}
