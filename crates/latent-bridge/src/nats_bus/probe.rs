//! Asks a broker whether its user may do something, without doing it: nothing is stored, changed or removed even where it may.
//!
//! A publication names a stream that does not exist as the one it expects, so the stream that keeps its subject refuses it. A request to the
//! JetStream API has a body that is broken JSON: requests that read one refuse it, those that take none refuse any. Where nothing listens,
//! the broker says so. Each of these answers means *permitted*; *refused* is told by an error of the connection.
//!
//! A program that listens on a probed subject itself does receive the message; it has the header `Nats-Expected-Stream: latent_probe`.

use std::time::Duration;

use async_nats::{Client, Event, HeaderMap, ServerError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout, timeout_at};

use super::connect::connect;
use super::options::NatsOptions;
use super::permissions::{Permissions, covers};
use super::provision::of_fault;
use crate::connector::ConnectorExecutor;
use crate::{BusError, limits};

/// Stands for what is not there: a stream, a consumer, a token. Begins every subject that is made up here.
const NOTHING: &str = "latent_probe";
/// Not empty, and the beginning of a JSON object that ends too soon. Without the brace a purge or a pull would take it for no body at all.
const BODY: &[u8] = b"{\"latent_probe";
/// A purge that is refused because it says both, and that would find nothing to remove.
const PURGE_BODY: &[u8] = b"{\"filter\":\"latent_probe.none\",\"seq\":1,\"keep\":1}";
/// How long one answer may take. A broker that is there answers at once.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// An error of the connection is told beside its answers and may be noticed this much later.
const ERROR_DELAY: Duration = Duration::from_millis(200);

/// Something that a user may or may not do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Publishing to this subject, a request to the broker included.
    Publish(String),
    /// Subscribing to this subject.
    Subscribe(String),
}

/// What the broker says of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// The user may.
    Permitted,
    /// The user may not.
    Refused,
    /// There was no answer in time.
    Nothing,
}

/// What a user must be able to do, and what not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probes {
    /// One for each permission.
    pub needed: Vec<Probe>,
    /// Everything else that is looked at.
    pub forbidden: Vec<Probe>,
}

/// A stream of a broker and the subjects that it keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedStream {
    /// Its name.
    pub name: String,
    /// Its subjects, without wildcards.
    pub subjects: Vec<String>,
}

impl Permissions {
    /// What to ask about a user with these permissions on a broker with `streams`, its own among them.
    pub fn probes(&self, streams: &[ProbedStream]) -> Probes {
        let published = self.publish.iter().map(|permission| Probe::Publish(concrete(&permission.subject)));
        let subscribed = self.subscribe.iter().map(|permission| Probe::Subscribe(permission.subject.clone()));
        let forbidden = everything(streams).into_iter().filter(|probe| !self.permit(probe)).collect();
        Probes { needed: published.chain(subscribed).collect(), forbidden }
    }

    fn permit(&self, probe: &Probe) -> bool {
        let (own, subject) = match probe {
            Probe::Publish(subject) => (&self.publish, subject),
            Probe::Subscribe(subject) => (&self.subscribe, subject),
        };
        own.iter().any(|permission| covers(&permission.subject, subject))
    }
}

/// A subject that fits a pattern.
fn concrete(pattern: &str) -> String {
    pattern.split('.').map(|token| if matches!(token, "*" | ">") { NOTHING } else { token }).collect::<Vec<_>>().join(".")
}

/// Requests about one stream, whatever their bodies.
const OF_STREAM: &[&str] = &[
    "STREAM.CREATE",
    "STREAM.UPDATE",
    "STREAM.DELETE",
    "STREAM.PURGE",
    "STREAM.INFO",
    "STREAM.MSG.GET",
    "STREAM.MSG.DELETE",
    "STREAM.SNAPSHOT",
    "STREAM.RESTORE",
    "CONSUMER.CREATE",
    "CONSUMER.LIST",
    "CONSUMER.NAMES",
    "DIRECT.GET",
];
/// Requests about one consumer of a stream. `CONSUMER.RESET` is not among them: server 2.14.6 leaves it without an answer where there is no such
/// consumer, so that a permission for it cannot be told without changing something.
const OF_CONSUMER: &[&str] = &[
    "CONSUMER.CREATE",
    "CONSUMER.DURABLE.CREATE",
    "CONSUMER.DELETE",
    "CONSUMER.INFO",
    "CONSUMER.MSG.NEXT",
    "CONSUMER.PAUSE",
    "CONSUMER.UNPIN",
];
/// Further subjects that no user of ours has.
const BESIDE: &[&str] = &[
    "latent_probe.none",
    "$SYS.REQ.USER.INFO",
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.INFO.latent_probe",
    "$JS.API.STREAM.CREATE.latent_probe",
    "$JS.API.STREAM.UPDATE.latent_probe",
    "$JS.API.STREAM.DELETE.latent_probe",
    "_INBOX.latent_probe",
    "_INBOX.LSF.latent_probe.none",
];
const LISTENED: &[&str] = &[">", "*", "$SYS.>", "$JS.API.>", "$JS.ACK.>", "$JS.EVENT.>", "_INBOX.>", "latent_probe.none"];

/// Everything that is asked about. Of a stream's subjects the first and the last stand for all.
fn everything(streams: &[ProbedStream]) -> Vec<Probe> {
    let mut all: Vec<Probe> = BESIDE.iter().map(|subject| Probe::Publish((*subject).to_owned())).collect();
    all.extend(LISTENED.iter().map(|subject| Probe::Subscribe((*subject).to_owned())));
    for ProbedStream { name, subjects } in streams {
        let of_stream = OF_STREAM.iter().map(|call| format!("$JS.API.{call}.{name}"));
        let of_consumer = OF_CONSUMER.iter().map(|call| format!("$JS.API.{call}.{name}.{NOTHING}"));
        let acknowledged = format!("$JS.ACK.{name}.{NOTHING}.1.1.1.1.0");
        all.extend(of_stream.chain(of_consumer).chain([acknowledged]).map(Probe::Publish));
        let mut ends: Vec<&String> = subjects.first().into_iter().chain(subjects.last()).collect();
        ends.dedup();
        for subject in ends {
            let read = [format!("$JS.API.CONSUMER.CREATE.{name}.{NOTHING}.{subject}"), format!("$JS.API.DIRECT.GET.{name}.{subject}")];
            all.extend([subject.clone()].into_iter().chain(read).map(Probe::Publish));
            all.push(Probe::Subscribe(subject.clone()));
        }
        // Beside the partitions.
        if let Some((topic, _)) = subjects.first().and_then(|subject| subject.rsplit_once('.')) {
            all.push(Probe::Publish(format!("{topic}.{NOTHING}")));
            all.push(Probe::Subscribe(format!("{topic}.*")));
        }
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|probe| seen.insert(probe.clone()));
    all
}

/// Asks about each of `probes`, in their order, as the user of `options`.
///
/// # Errors
/// What keeps the broker from being asked at all.
pub fn probe(options: NatsOptions, probes: Vec<Probe>) -> Result<Vec<ProbeAnswer>, BusError> {
    let executor = ConnectorExecutor::new("latent-nats-bus")?;
    let time = ANSWER_WAIT.saturating_mul(u32::try_from(probes.len()).unwrap_or(u32::MAX).saturating_add(2));
    let answers = executor.submit_within(time, async move {
        let (heard, errors) = unbounded_channel();
        let client = connect(&options, move |event| {
            if let Event::ServerError(ServerError::Other(words)) = event {
                // Nobody asks any more.
                let _ = heard.send(words);
            }
        })
        .await?;
        Prober::new(client, errors).await?.ask_all(probes).await
    });
    answers.wait().map_err(|fault| of_fault(fault, "asking the broker what its user may do"))?
}

fn body_of(subject: &str) -> &'static [u8] {
    if subject.starts_with("$JS.API.STREAM.PURGE.") { PURGE_BODY } else { BODY }
}

struct Prober {
    client: Client,
    inbox: String,
    replies: Subscriber,
    errors: UnboundedReceiver<String>,
    asked: u64,
    /// How long to wait for an answer: hardly at all once the broker has said that none may come.
    wait: Duration,
}

impl Prober {
    async fn new(client: Client, errors: UnboundedReceiver<String>) -> Result<Self, BusError> {
        let inbox = client.new_inbox();
        let replies = client.subscribe(format!("{inbox}.*")).await;
        let replies = replies.map_err(|error| BusError::NotSent { reason: error.to_string() })?;
        Ok(Self { client, inbox, replies, errors, asked: 0, wait: ANSWER_WAIT })
    }

    async fn ask_all(mut self, probes: Vec<Probe>) -> Result<Vec<ProbeAnswer>, BusError> {
        let mut answers = Vec::with_capacity(probes.len());
        for probe in probes {
            let answer = match &probe {
                Probe::Publish(subject) => self.publish(subject).await?,
                Probe::Subscribe(subject) => self.subscribe(subject).await?,
            };
            if self.client.connection_state() != async_nats::connection::State::Connected {
                return Err(BusError::NotSent { reason: "the connection was lost meanwhile".to_owned() });
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Whether an error is about the inbox of this connection; then refusals are all that is ever heard.
    fn hear_of_inbox(&mut self, words: &str) {
        if refused("subscription", words).and_then(|subject| subject.strip_suffix(".*")) == Some(&self.inbox) {
            self.wait = ERROR_DELAY;
        }
    }

    async fn publish(&mut self, subject: &str) -> Result<ProbeAnswer, BusError> {
        self.asked += 1;
        let reply = format!("{}.{}", self.inbox, self.asked);
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", NOTHING);
        let sent = self
            .client
            .publish_with_reply_and_headers(subject.to_owned(), reply.clone(), headers, Bytes::from_static(body_of(subject)))
            .await;
        sent.map_err(|error| BusError::NotSent { reason: error.to_string() })?;
        let deadline = Instant::now() + self.wait;
        loop {
            let heard = timeout_at(deadline, async {
                tokio::select! {
                    reply = self.replies.next() => Ok(reply.map(|message| message.subject.to_string())),
                    words = self.errors.recv() => Err(words),
                }
            });
            match heard.await {
                Err(_) | Ok(Ok(None) | Err(None)) => return Ok(ProbeAnswer::Nothing),
                Ok(Ok(Some(to))) if to == reply => return Ok(ProbeAnswer::Permitted),
                Ok(Err(Some(words))) if refused("publish", &words) == Some(subject) => return Ok(ProbeAnswer::Refused),
                Ok(Err(Some(words))) => self.hear_of_inbox(&words),
                // Of an earlier one.
                Ok(_) => {}
            }
        }
    }

    /// A permitted subscription has no answer. What is asked behind it has one, and the broker takes both in turn.
    async fn subscribe(&mut self, subject: &str) -> Result<ProbeAnswer, BusError> {
        let not_sent = |error: String| BusError::NotSent { reason: error };
        let mut subscription = self.client.subscribe(subject.to_owned()).await.map_err(|error| not_sent(error.to_string()))?;
        self.asked += 1;
        // Another one each time: errors of earlier ones may still be on their way.
        let (fence, reply) = (format!("{NOTHING}.fence.{}", self.asked), format!("{}.{}", self.inbox, self.asked));
        let sent = self.client.publish_with_reply(fence.clone(), reply.clone(), Bytes::from_static(BODY)).await;
        sent.map_err(|error| not_sent(error.to_string()))?;
        let deadline = Instant::now() + self.wait;
        loop {
            let heard = timeout_at(deadline, async {
                tokio::select! {
                    reply = self.replies.next() => Ok(reply.map(|message| message.subject.to_string())),
                    // One that covers what is asked, or the inbox, may be given that.
                    heard = subscription.next() => Ok(heard.map(|message| message.subject.to_string())),
                    words = self.errors.recv() => Err(words),
                }
            });
            match heard.await {
                Err(_) | Ok(Ok(None) | Err(None)) => return Ok(ProbeAnswer::Nothing),
                Ok(Err(Some(words))) if refused("subscription", &words) == Some(subject) => return Ok(ProbeAnswer::Refused),
                // The broker told errors in their order: this one comes after that of the subscription.
                Ok(Err(Some(words))) if refused("publish", &words) == Some(&fence) => return Ok(ProbeAnswer::Permitted),
                Ok(Ok(Some(to))) if to == reply || to == fence => return Ok(self.late(subject).await),
                Ok(Err(Some(words))) => self.hear_of_inbox(&words),
                Ok(_) => {}
            }
        }
    }

    /// The answer came another way than errors do, which may be on theirs.
    async fn late(&mut self, subject: &str) -> ProbeAnswer {
        let refusal = async {
            while let Some(words) = self.errors.recv().await {
                if refused("subscription", &words) == Some(subject) {
                    return;
                }
            }
        };
        if timeout(ERROR_DELAY, refusal).await.is_ok() { ProbeAnswer::Refused } else { ProbeAnswer::Permitted }
    }
}

/// The subject of `Permissions Violation for Publish to "subject"`, or `for Subscription to`.
fn refused<'w>(action: &str, words: &'w str) -> Option<&'w str> {
    let lower = words.to_ascii_lowercase();
    let begin = format!("permissions violation for {action} to \"");
    let at = lower.find(&begin)?;
    words.get(at + begin.len()..)?.split_once('"').map(|(subject, _)| subject)
}

/// The settings of streams as the broker tells them, in the order of `names`; `None`: there is no such stream.
///
/// # Errors
/// What keeps the broker from being asked, and what it says.
pub fn stream_settings(
    options: NatsOptions,
    names: Vec<String>,
) -> Result<Vec<Option<serde_json::Map<String, serde_json::Value>>>, BusError> {
    let executor = ConnectorExecutor::new("latent-nats-bus")?;
    let each = Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default);
    let time = each.saturating_mul(u32::try_from(names.len()).unwrap_or(u32::MAX).saturating_add(1));
    let settings = executor.submit_within(time, async move {
        let api = super::provision::connected(&options).await?;
        let mut settings = Vec::with_capacity(names.len());
        for name in names {
            settings.push(super::streams::settings(&api, &name).await?);
        }
        Ok(settings)
    });
    settings.wait().map_err(|fault| of_fault(fault, "reading the broker's streams"))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BridgeManifest;

    #[test]
    fn the_subject_of_a_refusal_is_read_from_its_words() {
        let publish = "Permissions Violation for Publish to \"$JS.API.INFO\"";
        let subscribe = "Permissions Violation for Subscription to \">\" using queue \"q\"";
        assert_eq!(refused("publish", publish), Some("$JS.API.INFO"));
        assert_eq!(refused("subscription", subscribe), Some(">"));
        assert_eq!((refused("publish", subscribe), refused("subscription", publish), refused("publish", "x")), (None, None, None));
    }

    #[test]
    fn each_permission_is_needed_and_everything_else_is_forbidden() {
        let manifest = "manifest_version: 1\nname: x\ntopics:\n- { name: a.b, partitions: 3 }\n";
        let permissions = Permissions::of_bus(&BridgeManifest::from_yaml(manifest).unwrap());
        let own = ProbedStream { name: "av_a_b".to_owned(), subjects: ["a.b.p0", "a.b.p1", "a.b.p2"].map(str::to_owned).into() };
        let other = ProbedStream { name: "ORDERS".to_owned(), subjects: vec!["orders".to_owned()] };
        let Probes { needed, forbidden } = permissions.probes(&[own, other]);
        assert_eq!(needed.len(), permissions.publish.len() + permissions.subscribe.len());
        let publish = |subject: &str| Probe::Publish(subject.to_owned());
        for subject in ["a.b.p1", "$JS.API.CONSUMER.CREATE.av_a_b.latent_probe.a.b.p1", "$JS.API.CONSUMER.DELETE.av_a_b.latent_probe"] {
            assert!(needed.contains(&publish(subject)), "{subject}");
        }
        for subject in [
            "orders",
            "a.b.latent_probe",
            "$JS.API.STREAM.DELETE.av_a_b",
            "$JS.API.STREAM.PURGE.av_a_b",
            "$JS.API.DIRECT.GET.av_a_b",
            "$JS.API.CONSUMER.CREATE.av_a_b.latent_probe",
            "$JS.API.CONSUMER.CREATE.ORDERS.latent_probe.orders",
            "$JS.API.CONSUMER.DURABLE.CREATE.av_a_b.latent_probe",
            "$JS.API.DIRECT.GET.ORDERS",
            "$JS.API.INFO",
            "$SYS.REQ.USER.INFO",
            "$JS.ACK.av_a_b.latent_probe.1.1.1.1.0",
        ] {
            assert!(forbidden.contains(&publish(subject)), "{subject}");
        }
        for subject in [">", "_INBOX.>", "$SYS.>", "a.b.p0", "a.b.*"] {
            assert!(forbidden.contains(&Probe::Subscribe(subject.to_owned())), "{subject}");
        }
        assert!(!needed.iter().any(|probe| forbidden.contains(probe)));
    }
}
