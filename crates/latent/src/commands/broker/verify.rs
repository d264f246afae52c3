//! `latent broker permissions --verify`: each user whose password is at hand is asked about, on its broker.

use std::sync::Arc;

use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, Probe, ProbeAnswer, probe};
use latent_core::{Clock as _, SystemClock};
use latent_secrets::{BusBinding, LocalSecretStore, TlsBinding};
use serde::Serialize;

use super::place;
use super::users::{BrokerUsers, Credential, User};
use crate::broker::Place;
use crate::config::Config;
use crate::error::CliError;
use crate::output::{Form, Output};
use crate::secret_store;

/// What became of one user.
#[derive(Debug, Serialize)]
struct Verified {
    user: String,
    broker: String,
    /// Why nothing was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_checked: Option<String>,
    groups: Vec<Group>,
    missing: Vec<String>,
    surplus: Vec<String>,
    unanswered: Vec<String>,
}

/// Probes of one kind.
#[derive(Debug, Serialize)]
struct Group {
    group: &'static str,
    expected: &'static str,
    probes: usize,
    as_expected: usize,
}

pub(super) fn verify(config: &Config, brokers: &[BrokerUsers], output: &mut Output) -> Result<(), CliError> {
    let secrets = Secrets::open(config);
    let mut all = Vec::new();
    for broker in brokers {
        for user in &broker.users {
            let verified = verify_user(broker, user, &secrets)?;
            show(&verified, output)?;
            all.push(verified);
        }
    }
    if all.iter().all(|verified| verified.not_checked.is_some()) {
        return Err(CliError::Permissions { problems: vec!["no user's password is at hand, so nothing was checked".to_owned()] });
    }
    let problems: Vec<_> = all.iter().flat_map(Verified::problems).collect();
    if problems.is_empty() { Ok(()) } else { Err(CliError::Permissions { problems }) }
}

/// The store, or why it cannot be used.
struct Secrets(Result<Arc<LocalSecretStore>, String>);

impl Secrets {
    fn open(config: &Config) -> Self {
        Self(match &config.secrets {
            None => Err("the configuration has no [secrets]".to_owned()),
            Some(secrets) => secret_store::open(secrets).map(Arc::new).map_err(|error| error.to_string()),
        })
    }

    /// The credential of a user, or why it is not at hand.
    fn of(&self, broker: &BrokerUsers, user: &User) -> Result<NatsCredentials, String> {
        let now = SystemClock::start().unix();
        let (server_name, port) = (&broker.site.server_name, broker.site.address.port());
        let resolved = match &user.credential {
            Credential::Operator => return of_operator(&user.name),
            Credential::Bus(secret) => {
                let binding = BusBinding::new(server_name, port).map_err(|error| error.to_string())?;
                self.store()?.resolve_bus_credential(secret, &binding, now)
            }
            Credential::Provider { provider, tenant, secret } => {
                let binding = TlsBinding { tenant: tenant.clone(), provider: provider.clone(), server_name: server_name.clone(), port };
                self.store()?.bind_tls_credential(secret, &binding, now).and_then(|bound| bound.resolve(now))
            }
        };
        let resolved = resolved.map_err(|error| error.to_string())?;
        let password = std::str::from_utf8(resolved.value()).map_err(|_| "its password is not UTF-8 text".to_owned())?;
        Ok(NatsCredentials::UserPassword { user: user.name.clone(), password: password.to_owned() })
    }

    fn store(&self) -> Result<&Arc<LocalSecretStore>, String> {
        self.0.as_ref().map_err(Clone::clone)
    }
}

fn of_operator(name: &str) -> Result<NatsCredentials, String> {
    match place::operator().map_err(|error| error.why())? {
        Some(NatsCredentials::UserPassword { user, password }) if user == name => Ok(NatsCredentials::UserPassword { user, password }),
        Some(NatsCredentials::UserPassword { user, .. }) => Err(format!("AV_NATS_USER is {user}")),
        _ => Err("AV_NATS_USER and AV_NATS_PASSWORD are not set".to_owned()),
    }
}

fn verify_user(broker: &BrokerUsers, user: &User, secrets: &Secrets) -> Result<Verified, CliError> {
    let mut verified = Verified {
        user: user.name.clone(),
        broker: broker.site.address.to_string(),
        not_checked: None,
        groups: Vec::new(),
        missing: Vec::new(),
        surplus: Vec::new(),
        unanswered: Vec::new(),
    };
    let credentials = match secrets.of(broker, user) {
        Ok(credentials) => credentials,
        Err(reason) => return Ok(Verified { not_checked: Some(reason), ..verified }),
    };
    let options = NatsOptions { credentials: Some(credentials), connection_name: "latent-broker".to_owned(), ..broker.site.options() };
    let probes = user.permissions.probes(&broker.streams);
    let asked: Vec<_> = probes.needed.iter().chain(&probes.forbidden).cloned().collect();
    let place = Place::named_in(&options);
    let answers =
        probe(options, asked).map_err(|error| CliError::Broker { doing: DOING.to_owned(), source: Box::new(place.failed(error)) })?;
    let (of_needed, of_forbidden) = answers.split_at(probes.needed.len());
    let count = |probes: &[Probe], answers: &[ProbeAnswer], wanted: ProbeAnswer, of: &dyn Fn(&Probe) -> bool| {
        let of_group: Vec<_> = probes.iter().zip(answers).filter(|(probe, _)| of(probe)).collect();
        (of_group.len(), of_group.iter().filter(|(_, answer)| **answer == wanted).count())
    };
    let (probes_count, as_expected) = count(&probes.needed, of_needed, ProbeAnswer::Permitted, &|_| true);
    verified.groups.push(Group { group: "what it needs", expected: "permitted", probes: probes_count, as_expected });
    for group in GROUPS {
        let (probes_count, as_expected) = count(&probes.forbidden, of_forbidden, ProbeAnswer::Refused, &|probe| group_of(probe) == *group);
        verified.groups.push(Group { group, expected: "refused", probes: probes_count, as_expected });
    }
    for (probe, answer) in probes.needed.iter().zip(of_needed).chain(probes.forbidden.iter().zip(of_forbidden)) {
        let is_needed = probes.needed.contains(probe);
        match (answer, is_needed) {
            (ProbeAnswer::Permitted, false) => verified.surplus.push(told(probe)),
            (ProbeAnswer::Refused, true) => verified.missing.push(told(probe)),
            (ProbeAnswer::Nothing, _) => verified.unanswered.push(told(probe)),
            (ProbeAnswer::Permitted, true) | (ProbeAnswer::Refused, false) => {}
        }
    }
    Ok(verified)
}

const DOING: &str = "asking the broker what its users may do";
const GROUPS: &[&str] = &["other subjects", "other requests", "the system, inboxes, acknowledgements", "subscriptions"];

fn group_of(probe: &Probe) -> &'static str {
    match probe {
        Probe::Subscribe(_) => "subscriptions",
        Probe::Publish(subject) if subject.starts_with("$JS.API.") => "other requests",
        Probe::Publish(subject) if subject.starts_with('$') || subject.starts_with("_INBOX.") => "the system, inboxes, acknowledgements",
        Probe::Publish(_) => "other subjects",
    }
}

fn told(probe: &Probe) -> String {
    match probe {
        Probe::Publish(subject) => format!("publish {subject}"),
        Probe::Subscribe(subject) => format!("subscribe {subject}"),
    }
}

impl Verified {
    fn problems(&self) -> Vec<String> {
        let of = |kind: &'static str, list: &[String]| {
            list.iter().map(|probe| format!("user {} at {}: {kind}: {probe}", self.user, self.broker)).collect::<Vec<_>>()
        };
        [of("missing", &self.missing), of("too much", &self.surplus), of("no answer", &self.unanswered)].concat()
    }
}

fn show(verified: &Verified, output: &mut Output) -> Result<(), CliError> {
    if output.form() == Form::Json {
        return output.json(verified);
    }
    let Verified { user, broker, not_checked, groups, .. } = verified;
    if let Some(reason) = not_checked {
        return output.text(&format!("{user} at {broker}: not checked: {reason}"));
    }
    for Group { group, expected, probes, as_expected } in groups {
        output.text(&format!("{user} at {broker}: {group}: {as_expected} of {probes} {expected}"))?;
    }
    Ok(())
}
