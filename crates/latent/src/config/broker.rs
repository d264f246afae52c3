//! What `[engine]` says of a broker: where it is, whom it must prove to be, and who the node is there.

use std::collections::BTreeMap;
use std::path::Path;

use latent_core::TenantId;
use latent_nats::{ConfigError, EndpointDraft, Peer, RootsDraft};
use latent_secrets::SecretName;

use super::problem::Fault;
use super::provider::{key_of, read_root, told};
use super::section::{Report, Section, Spanned, TextOrTable};
use super::settings::{BrokerConfig, BrokerUser};

const BUS_CREDENTIAL: &str = "bus_credential = \"edge-1-bus\", its name in the secret store and its user's on the broker";

/// Reads the settings; `None` after a problem was reported.
pub(super) fn read(report: &mut Report<'_>, section: &mut Section<'_>, folder: &Path) -> Option<BrokerConfig> {
    let peer = read_peer(report, section, folder);
    let tls_first = section.boolean(report, "tls_first").unwrap_or(true);
    if !section.is_present("bus_credential") {
        let fault = Fault::Missing { table: section.label().to_owned(), key: "bus_credential", example: BUS_CREDENTIAL };
        report.push(section.place_of("bus_credential"), fault);
    }
    let bus_credential = section.text_or_table(report, "bus_credential").and_then(|given| read_user(report, given));
    let trigger_credentials = read_trigger_credentials(report, section);
    Some(BrokerConfig { peer: peer?, tls_first, bus_credential: bus_credential?, trigger_credentials })
}

fn read_peer(report: &mut Report<'_>, section: &mut Section<'_>, folder: &Path) -> Option<Peer> {
    let before = report.problems.len();
    let endpoint = EndpointDraft {
        address: section.required_text(report, "address", "address = \"192.0.2.10:4222\"").map(|text| text.value.to_owned()),
        allow_non_public_peer: section.text(report, "allow_non_public_peer").map(|text| text.value.to_owned()),
        server_name: section.required_text(report, "server_name", "server_name = \"nats.example.net\"").map(|text| text.value.to_owned()),
    };
    let example = "roots = [\"ca.der\"], the certificate in DER form that the broker's is signed by";
    let roots = section.required_texts(report, "roots", example);
    let der = roots.iter().filter_map(|root| read_root(report, root, folder, broker_fault)).collect();
    if report.problems.len() > before {
        return None;
    }
    endpoint.check(&RootsDraft { public: false, der }).map_err(|error| report_peer(report, section, &roots, folder, &error)).ok()
}

fn report_peer(report: &mut Report<'_>, section: &Section<'_>, roots: &[Spanned<&str>], folder: &Path, error: &ConfigError) {
    let root = if let ConfigError::Root { index } = error { roots.get(*index) } else { None };
    let what = root.map_or_else(|| section.label().to_owned(), |root| folder.join(root.value).display().to_string());
    report.push(section.place_of(key_of(error)), broker_fault(what, told(error)));
}

fn broker_fault(what: String, problem: String) -> Fault {
    Fault::Broker { what, problem }
}

/// A name stands for the secret and the user alike; a table says both.
fn read_user(report: &mut Report<'_>, given: TextOrTable<'_>) -> Option<BrokerUser> {
    match given {
        TextOrTable::Text(name) => {
            let secret = secret_name(report, &name)?;
            Some(BrokerUser { user: secret.as_str().to_owned(), secret })
        }
        TextOrTable::Table(mut section) => {
            let user = section.required_text(report, "user", "user = \"edge-1\", its name on the broker");
            let user = user.filter(|user| {
                let usable = is_user_name(user.value);
                if !usable {
                    report.push(user.at, broker_fault(section.label().to_owned(), USER_RULE.to_owned()));
                }
                usable
            });
            let secret = section.required_text(report, "secret", "secret = \"edge-1-bus\", its name in the secret store");
            let secret = secret.and_then(|name| secret_name(report, &name));
            section.finish(report, &[]);
            Some(BrokerUser { user: user?.value.to_owned(), secret: secret? })
        }
    }
}

const USER_RULE: &str = "a user's name is printable ASCII without spaces, of 1 to 128 bytes";

fn is_user_name(name: &str) -> bool {
    (1..=latent_nats::limits::USERNAME_BYTES.max_usize()).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn secret_name(report: &mut Report<'_>, name: &Spanned<&str>) -> Option<SecretName> {
    match SecretName::parse(name.value) {
        Ok(secret) => Some(secret),
        Err(error) => {
            report.push(name.at, Fault::SecretName { problem: error.to_string() });
            None
        }
    }
}

/// One for each tenant. What is wrong with one is reported, and the others are read all the same.
fn read_trigger_credentials(report: &mut Report<'_>, section: &mut Section<'_>) -> BTreeMap<TenantId, BrokerUser> {
    let Some(tenants) = section.table(report, "trigger_credentials") else { return BTreeMap::new() };
    let mut credentials = BTreeMap::new();
    for (tenant, given) in tenants.members(report, "trigger_credentials") {
        let parsed = TenantId::parse(tenant.value).map_err(|error| report.push(tenant.at, Fault::Name(error)));
        let user = read_user(report, given);
        if let (Ok(tenant), Some(user)) = (parsed, user) {
            credentials.insert(tenant, user);
        }
    }
    credentials
}
