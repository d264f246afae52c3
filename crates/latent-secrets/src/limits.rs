//! Bounds of the secret store.

use latent_core::Limit;

/// Secrets of one store, revoked ones included.
pub const SECRETS: Limit =
    Limit { name: "secrets", unit: "count", default: 256, min: 0, max: 256, bounds: "secrets of one store, revoked ones included" };
/// Name of one secret.
pub const SECRET_NAME_BYTES: Limit =
    Limit { name: "secret_name_bytes", unit: "bytes", default: 64, min: 1, max: 64, bounds: "name of one secret" };
/// Value of one secret.
pub const SECRET_VALUE_BYTES: Limit = Limit {
    name: "secret_value_bytes",
    unit: "bytes",
    default: 4_096,
    min: 1,
    max: 4_096,
    bounds: "value of one secret: a password or token",
};
/// TLS server name that a secret is bound to: the longest name DNS knows.
pub const SERVER_NAME_BYTES: Limit =
    Limit { name: "server_name_bytes", unit: "bytes", default: 253, min: 1, max: 253, bounds: "TLS server name that a secret is bound to" };
/// One file of the store.
pub const SECRET_FILE_BYTES: Limit =
    Limit { name: "secret_file_bytes", unit: "bytes", default: 8_192, min: 8_192, max: 8_192, bounds: "one file of a secret store" };
/// How long a change waits for another one.
pub const SECRET_LOCK_MILLIS: Limit = Limit {
    name: "secret_lock_millis",
    unit: "ms",
    default: 1_000,
    min: 0,
    max: 1_000,
    bounds: "time a change of a secret store waits for another process that is changing it",
};

/// Every limit of this crate.
pub const ALL: &[Limit] = &[SECRETS, SECRET_NAME_BYTES, SECRET_VALUE_BYTES, SERVER_NAME_BYTES, SECRET_FILE_BYTES, SECRET_LOCK_MILLIS];

#[cfg(test)]
mod tests {
    #[test]
    fn every_default_lies_in_its_range() {
        for limit in super::ALL {
            assert!(limit.is_consistent(), "{}", limit.name);
        }
    }
}
