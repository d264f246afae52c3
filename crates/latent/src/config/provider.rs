//! `[[provider]]` and `[pools]`: raw subjects of a broker, and the bounds that all providers share.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latent_capabilities::PoolSettings;
use latent_core::{Limit, ProviderId, TenantId};
use latent_nats::{ConfigError, EndpointDraft, MappingDraft, NatsConfig, NatsCredential, NatsDraft, RootsDraft};
use latent_secrets::SecretName;

use crate::component_file;

use super::draft::{CredentialDraft, ProviderDraft};
use super::problem::Fault;
use super::section::{Report, Section, Spanned, nearest};

const PROFILES: &[&str] = &[latent_nats::PROFILE];
/// What may stand in the table or in the file that `settings` names, and not in both.
const SETTINGS: &[&str] = &[
    "address",
    "allow_non_public_peer",
    "server_name",
    "public_roots",
    "roots",
    "idempotency_namespace",
    "payload_ceiling_bytes",
    "operation_timeout_millis",
    "duplicate_window_millis",
    "mappings",
];

/// Reads one provider, and the files it names.
pub(super) fn read(report: &mut Report<'_>, mut section: Section<'_>, folder: &Path) -> ProviderDraft {
    let id = section.required_name(report, "id", "id = \"orders\"", ProviderId::parse);
    let [first, second] = crate::limits::LANES_PROVIDERS;
    let reserved = [crate::limits::TOPICS_PROVIDER, crate::limits::TRIGGERS_PROVIDER, first, second];
    if let Some(id) = id.as_ref().filter(|id| reserved.contains(&id.value.as_str())) {
        report.push(id.at, Fault::ReservedProvider { id: id.value.to_string() });
    }
    read_profile(report, &mut section);
    let at = section.place_of("id");
    let nats = match section.text(report, "settings") {
        Some(file) => {
            if let Some(key) = SETTINGS.iter().find(|key| section.is_present(key)) {
                let fault = Fault::Exclusive { table: section.label().to_owned(), first: "settings", second: key };
                report.push(section.place_of(key), fault);
            }
            section.pass_over(SETTINGS.iter().copied());
            from_file(report, &file, folder)
        }
        None => from_table(report, &mut section, folder),
    };
    let credentials = section.tables(report, "credentials").into_iter().map(|section| read_credential(report, section)).collect();
    section.finish(report, &[]);
    ProviderDraft { id, nats, credentials, at }
}

fn read_profile(report: &mut Report<'_>, section: &mut Section<'_>) {
    let Some(profile) = section.required_text(report, "profile", "profile = \"nats-jetstream-publish-v1\"") else { return };
    if !PROFILES.contains(&profile.value) {
        let fault = Fault::Choice {
            table: section.label().to_owned(),
            key: "profile",
            found: profile.value.to_owned(),
            allowed: PROFILES,
            nearest: nearest(profile.value, PROFILES.iter().copied()),
        };
        report.push(profile.at, fault);
    }
}

pub(super) fn read_credential(report: &mut Report<'_>, mut section: Section<'_>) -> CredentialDraft {
    let tenant = section.required_name(report, "tenant", "tenant = \"acme\"", TenantId::parse);
    let user = section.text(report, "user");
    if let Some(user) = user.as_ref().filter(|user| !NatsCredential::is_username(user.value)) {
        let bytes_max = latent_nats::limits::USERNAME_BYTES.max;
        let problem =
            format!("user has to be 1 to {bytes_max} visible ASCII characters without spaces; leave it out where the secret is a token");
        report.push(user.at, Fault::Provider { what: "this credential".to_owned(), problem });
    }
    let user = user.map(|user| user.value.to_owned());
    let secret = section.required_text(report, "secret", "secret = \"acme-nats\", its name in the secret store");
    let secret = secret.and_then(|name| match SecretName::parse(name.value) {
        Ok(value) => Some(Spanned { value, at: name.at }),
        Err(error) => {
            report.push(name.at, Fault::SecretName { problem: error.to_string() });
            None
        }
    });
    section.finish(report, &[]);
    CredentialDraft { tenant, user, secret }
}

fn from_file(report: &mut Report<'_>, file: &Spanned<&str>, folder: &Path) -> Option<NatsConfig> {
    let path = folder.join(file.value);
    let bounded = read_bounded(&path, latent_nats::limits::CONFIG_BYTES.max);
    let refused = |problem: String| Fault::Provider { what: path.display().to_string(), problem };
    match bounded.map_err(|error| error.to_string()).and_then(|json| NatsConfig::from_json(&json).map_err(|error| error.to_string())) {
        Ok(config) => Some(config),
        Err(problem) => {
            report.push(file.at, refused(problem));
            None
        }
    }
}

fn from_table(report: &mut Report<'_>, section: &mut Section<'_>, folder: &Path) -> Option<NatsConfig> {
    let before = report.problems.len();
    let text = |report: &mut Report<'_>, section: &mut Section<'_>, key| section.text(report, key).map(|text| text.value.to_owned());
    let endpoint = EndpointDraft {
        address: section.required_text(report, "address", "address = \"192.0.2.10:4222\"").map(|text| text.value.to_owned()),
        allow_non_public_peer: text(report, section, "allow_non_public_peer"),
        server_name: section.required_text(report, "server_name", "server_name = \"nats.example.net\"").map(|text| text.value.to_owned()),
    };
    let public = section.boolean(report, "public_roots").unwrap_or(false);
    let roots = section.texts(report, "roots");
    let der = roots.iter().filter_map(|root| read_root(report, root, folder, provider_fault)).collect();
    let namespace = section.required_text(report, "idempotency_namespace", "idempotency_namespace = \"edge\"; choose it once and keep it");
    let number = |report: &mut Report<'_>, section: &mut Section<'_>, key, limit: &Limit, example| {
        section.required_integer(report, key, limit, example).map(|number| number.value)
    };
    let ceiling = &latent_nats::limits::PAYLOAD_CEILING_BYTES;
    let payload_ceiling_bytes = number(report, section, "payload_ceiling_bytes", ceiling, "payload_ceiling_bytes = 65536");
    let timeout = &latent_nats::limits::OPERATION_TIMEOUT_MILLIS;
    let operation_timeout_millis = number(report, section, "operation_timeout_millis", timeout, "operation_timeout_millis = 5000");
    let window = &latent_nats::limits::DUPLICATE_WINDOW_MILLIS;
    let example = "duplicate_window_millis = 120000, what the streams are set to";
    let duplicate_window_millis = number(report, section, "duplicate_window_millis", window, example);
    let mappings: Vec<_> = section.tables(report, "mappings").into_iter().map(|section| read_mapping(report, section)).collect();
    let draft = NatsDraft {
        format_version: Some(1),
        endpoint: Some(endpoint),
        roots: Some(RootsDraft { public, der }),
        idempotency_namespace: namespace.map(|text| text.value.to_owned()),
        payload_ceiling_bytes,
        operation_timeout_millis,
        duplicate_window_millis,
        mappings: Some(mappings),
    };
    if report.problems.len() > before {
        return None;
    }
    match draft.check() {
        Ok(config) => Some(config),
        Err(error) => {
            let what = match &error {
                ConfigError::Root { index } => roots.get(*index).map(|root| folder.join(root.value).display().to_string()),
                _ => None,
            };
            let what = what.unwrap_or_else(|| section.label().to_owned());
            report.push(section.place_of(key_of(&error)), Fault::Provider { what, problem: told(&error) });
            None
        }
    }
}

fn read_mapping(report: &mut Report<'_>, mut section: Section<'_>) -> MappingDraft {
    let mut text = |key, example| section.required_text(report, key, example).map(|text| text.value.to_owned());
    let mapping = MappingDraft {
        tenant: text("tenant", "tenant = \"acme\""),
        topic: text("topic", "topic = \"orders\", as its functions name it"),
        subject: text("subject", "subject = \"orders.new\""),
        stream: text("stream", "stream = \"ORDERS\", which stores the subject"),
    };
    section.finish(report, &[]);
    mapping
}

fn provider_fault(what: String, problem: String) -> Fault {
    Fault::Provider { what, problem }
}

/// A certificate of `roots` in base64; `fault` makes what is reported of a file that cannot be read.
pub(super) fn read_root(
    report: &mut Report<'_>,
    root: &Spanned<&str>,
    folder: &Path,
    fault: fn(String, String) -> Fault,
) -> Option<String> {
    let path = folder.join(root.value);
    match read_bounded(&path, latent_nats::limits::ROOT_BYTES.max) {
        Ok(der) => Some(STANDARD.encode(der)),
        Err(error) => {
            report.push(root.at, fault(path.display().to_string(), error.to_string()));
            None
        }
    }
}

/// One byte more than the cap, so that whoever checks the content names the cap.
pub(super) fn read_bounded(path: &Path, cap: u64) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    component_file::open(path)?.0.take(cap.saturating_add(1)).read_to_end(&mut content)?;
    Ok(content)
}

/// The key of the table that a problem of the whole is about.
pub(super) fn key_of(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::Address { .. } | ConfigError::NeverAPeer { .. } | ConfigError::NotPublic { .. } => "address",
        ConfigError::OtherOptIn { .. } => "allow_non_public_peer",
        ConfigError::ServerName { .. } => "server_name",
        ConfigError::NoRoots | ConfigError::Root { .. } => "roots",
        ConfigError::DoubleMapping { .. } | ConfigError::SharedSubject { .. } | ConfigError::TwoStreams { .. } => "mappings",
        _ => "id",
    }
}

/// The problem in the words of this file's keys.
pub(super) fn told(error: &ConfigError) -> String {
    let text = error.to_string();
    let words = [
        ("endpoint.address", "address"),
        ("allowNonPublicPeer", "allow_non_public_peer"),
        ("endpoint.serverName", "server_name"),
        ("roots.public to true", "public_roots = true"),
        ("roots.der", "roots"),
        ("idempotencyNamespace", "idempotency_namespace"),
    ];
    words.iter().fold(text, |text, (json, toml)| text.replace(json, toml))
}

/// Reads `[pools]`: each bound under its name, without the word `pool`.
pub(super) fn read_pools(report: &mut Report<'_>, section: Option<Section<'_>>) -> PoolSettings {
    let Some(mut section) = section else { return PoolSettings::default() };
    let mut settings = PoolSettings::default();
    for limit in latent_capabilities::limits::POOLS {
        let key = limit.name.strip_prefix("pool_").unwrap_or(limit.name);
        if let Some(value) = section.integer(report, key, limit)
            && let Ok(changed) = settings.clone().set(limit, value.value)
        {
            settings = changed;
        }
    }
    section.finish(report, &[]);
    settings
}
