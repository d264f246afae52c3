//! `latent broker permissions --verify`: each user whose password is at hand is asked about, on its broker.

use std::net::SocketAddrV4;
use std::sync::Arc;

use latent_bridge::BusError;
use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, Probe, ProbeAnswer, Probes, probe};
use latent_core::{Clock as _, SystemClock};
use latent_secrets::{BusBinding, LocalSecretStore, TlsBinding};
use serde::Serialize;

use super::place;
use super::users::{BrokerUsers, Credential, User};
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
    /// Nothing can be asked by this configuration, so that it is no problem.
    #[serde(skip)]
    is_beyond: bool,
    /// Why it could not be asked, although its password is at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
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
    let home = config.engine.broker().map(|engine| engine.peer.address());
    let mut all = Vec::new();
    for broker in brokers {
        let mut of_broker = Vec::new();
        for user in &broker.users {
            let verified = verify_user(broker, user, &secrets, home);
            show(&verified, output)?;
            of_broker.push(verified);
        }
        if of_broker.iter().any(|verified| verified.not_checked.is_none()) {
            let nobody = verify_nobody(broker);
            show(&nobody, output)?;
            of_broker.push(nobody);
        }
        all.extend(of_broker);
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

fn verify_user(broker: &BrokerUsers, user: &User, secrets: &Secrets, home: Option<SocketAddrV4>) -> Verified {
    let verified = Verified::of(&user.name, broker);
    if user.credential == Credential::Operator && home.is_some_and(|home| home != broker.site.address) {
        let reason = "the operator of the environment is that of [engine]'s broker".to_owned();
        return Verified { not_checked: Some(reason), is_beyond: true, ..verified };
    }
    let credentials = match secrets.of(broker, user) {
        Ok(credentials) => credentials,
        Err(reason) => return Verified { not_checked: Some(reason), ..verified },
    };
    let options = NatsOptions { credentials: Some(credentials), connection_name: CONNECTION.to_owned(), ..broker.site.options() };
    let probes = user.permissions.probes(&broker.streams);
    let asked = probes.needed.iter().chain(&probes.forbidden).cloned().collect();
    match probe(options, asked) {
        Ok(answers) => verified.judge(&probes, &answers),
        Err(error) => Verified { failed: Some(error.to_string()), ..verified },
    }
}

/// In the bus's words when a broker was reached and let nobody in. Whatever else keeps a client out says nothing of that.
const NOBODY_REFUSED: &str = "refuses a client without credentials";

/// Whoever has no user must not get in.
fn verify_nobody(broker: &BrokerUsers) -> Verified {
    let verified = Verified::of("(nobody)", broker);
    let options = NatsOptions { connection_name: CONNECTION.to_owned(), ..broker.site.options() };
    let group = |as_expected| vec![Group { group: "connecting without a user", expected: "refused", probes: 1, as_expected }];
    match probe(options, Vec::new()) {
        Ok(_) => Verified { groups: group(0), surplus: vec!["connect without a user".to_owned()], ..verified },
        Err(BusError::Config { problem }) if problem.contains(NOBODY_REFUSED) => Verified { groups: group(1), ..verified },
        Err(error) => Verified { failed: Some(error.to_string()), ..verified },
    }
}

impl Verified {
    fn of(user: &str, broker: &BrokerUsers) -> Self {
        let (user, broker) = (user.to_owned(), broker.site.address.to_string());
        Self {
            user,
            broker,
            not_checked: None,
            is_beyond: false,
            failed: None,
            groups: Vec::new(),
            missing: Vec::new(),
            surplus: Vec::new(),
            unanswered: Vec::new(),
        }
    }

    fn judge(mut self, probes: &Probes, answers: &[ProbeAnswer]) -> Self {
        let needed = probes.needed.iter().map(|probe| (NEEDED, probe, ProbeAnswer::Permitted));
        let forbidden = probes.forbidden.iter().map(|probe| (group_of(probe), probe, ProbeAnswer::Refused));
        let judged: Vec<_> = needed.chain(forbidden).zip(answers).collect();
        for group in GROUPS {
            let expected = if *group == NEEDED { "permitted" } else { "refused" };
            let of_group = judged.iter().filter(|((of, ..), _)| of == group);
            let as_expected = of_group.clone().filter(|((.., wanted), answer)| wanted == *answer).count();
            self.groups.push(Group { group, expected, probes: of_group.count(), as_expected });
        }
        for ((_, probe, wanted), answer) in judged {
            match answer {
                ProbeAnswer::Nothing => self.unanswered.push(told(probe)),
                answer if *answer == wanted => {}
                ProbeAnswer::Permitted => self.surplus.push(told(probe)),
                ProbeAnswer::Refused => self.missing.push(told(probe)),
            }
        }
        self
    }
}

const CONNECTION: &str = "latent-broker";
const NEEDED: &str = "what it needs";
const GROUPS: &[&str] = &[NEEDED, "other subjects", "other requests", "the system, inboxes, acknowledgements", "subscriptions"];

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
        let told = |reason: &String| format!("user {} at {}: {reason}", self.user, self.broker);
        let failed: Vec<_> = self.failed.iter().map(told).collect();
        let not_checked =
            self.not_checked.iter().filter(|_| !self.is_beyond).map(|reason| told(&format!("not checked: {reason}"))).collect();
        [not_checked, failed, of("missing", &self.missing), of("too much", &self.surplus), of("no answer", &self.unanswered)].concat()
    }
}

fn show(verified: &Verified, output: &mut Output) -> Result<(), CliError> {
    if output.form() == Form::Json {
        return output.json(verified);
    }
    let Verified { user, broker, not_checked, failed, groups, .. } = verified;
    if let Some(reason) = not_checked {
        return output.text(&format!("{user} at {broker}: not checked: {reason}"));
    }
    if failed.is_some() {
        return output.text(&format!("{user} at {broker}: could not be asked"));
    }
    for Group { group, expected, probes, as_expected } in groups {
        output.text(&format!("{user} at {broker}: {group}: {as_expected} of {probes} {expected}"))?;
    }
    Ok(())
}
