//! `async-nats` by hand: the loops that people write, doing the same work on a stream of the same settings.

use std::time::Instant;

use async_nats::jetstream::consumer::pull::Config as PullConfig;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, HeaderMap};
use bytes::Bytes;
use futures_util::StreamExt as _;
use latent_bridge::nats_bus::{NatsCredentials, NatsOptions, NatsRoots};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::runtime::{self, Runtime};

use super::super::failed;
use super::super::figure::Slice;
use super::ours::Message;
use crate::error::CliError;

/// Messages of one pull by hand.
const PULL: usize = 4_096;

/// One client on a runtime of the kind that `#[tokio::main]` makes.
pub(super) struct Peer {
    runtime: Runtime,
    client: Client,
    jetstream: Context,
}

/// What a reader by hand makes of a message.
#[derive(Deserialize)]
struct Event<'m> {
    #[serde(borrow)]
    key: std::borrow::Cow<'m, str>,
    stored_at: u64,
    #[serde(borrow)]
    value: &'m RawValue,
}

fn broken<E: std::fmt::Display>(doing: &'static str) -> impl FnOnce(E) -> CliError {
    move |error| CliError::Bench { doing: doing.to_owned(), reason: error.to_string() }
}

impl Peer {
    /// Connects as the bus does.
    pub(super) fn connect(options: &NatsOptions) -> Result<Self, CliError> {
        let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(failed("making a runtime"))?;
        let mut connecting = ConnectOptions::new().custom_inbox_prefix("_INBOX.LSF.peer");
        if let NatsRoots::Pem(file) = &options.roots {
            connecting = connecting.add_root_certificates(file.clone()).require_tls(true);
        }
        if options.tls_first {
            connecting = connecting.tls_first();
        }
        if let Some(NatsCredentials::UserPassword { user, password }) = &options.credentials {
            connecting = connecting.user_and_password(user.clone(), password.clone());
        }
        let servers: Vec<_> = options.servers.clone();
        let client = runtime.block_on(connecting.connect(servers.join(","))).map_err(broken("connecting with async-nats"))?;
        let jetstream = runtime.block_on(async { jetstream::new(client.clone()) });
        Ok(Self { runtime, client, jetstream })
    }

    /// Makes the stream for batches by hand, with the settings of ours.
    pub(super) fn create(&self, stream: &str, subject: &str, seconds: u64) -> Result<(), CliError> {
        let window = std::time::Duration::from_secs(seconds);
        let config = jetstream::stream::Config {
            name: stream.to_owned(),
            subjects: vec![subject.to_owned()],
            max_age: window,
            duplicate_window: window,
            ..jetstream::stream::Config::default()
        };
        self.runtime.block_on(self.jetstream.create_stream(config)).map(drop).map_err(broken("making a stream by hand"))
    }

    /// Whether a stream is there.
    pub(super) fn has(&self, stream: &str) -> bool {
        self.runtime.block_on(self.jetstream.get_stream(stream)).is_ok()
    }

    /// Batches of messages, each handed over whole before its acknowledgements are waited for.
    pub(super) fn batches(&self, stream: &str, subject: &str, batches: Vec<Vec<Message>>) -> Result<Slice, CliError> {
        let (jetstream, stream, subject) = (self.jetstream.clone(), stream.to_owned(), subject.to_owned());
        let running = self.runtime.spawn(async move {
            let (started, mut units) = (Instant::now(), 0);
            for batch in batches {
                let mut waiting = Vec::with_capacity(batch.len());
                for Message { uid, key, body } in batch {
                    let mut headers = HeaderMap::new();
                    headers.insert("Nats-Msg-Id", uid.as_str());
                    headers.insert("Nats-Expected-Stream", stream.as_str());
                    headers.insert("Content-Type", "application/json");
                    headers.insert("Lsf-Event-Key", key.as_str());
                    let sent = jetstream.publish_with_headers(subject.clone(), headers, Bytes::from(body)).await;
                    waiting.push(sent.map_err(broken("publishing with async-nats"))?);
                }
                for sent in waiting {
                    let stored = sent.await.map_err(broken("publishing with async-nats"))?;
                    if stored.duplicate {
                        return Err(broken("publishing with async-nats")("the id was used before"));
                    }
                    units += 1;
                }
            }
            Ok(Slice { units, elapsed: started.elapsed(), latencies: Vec::new() })
        });
        self.runtime.block_on(running).map_err(broken("publishing with async-nats"))?
    }

    /// Reads a whole stream through a pull consumer; headers alone, or whole messages, each looked into.
    pub(super) fn read(&self, stream: &str, count: u64, headers_only: bool) -> Result<Slice, CliError> {
        let (jetstream, stream) = (self.jetstream.clone(), stream.to_owned());
        let running = self.runtime.spawn(async move {
            let started = Instant::now();
            let stream = jetstream.get_stream(&stream).await.map_err(broken("reading a stream by hand"))?;
            let config = PullConfig {
                deliver_policy: DeliverPolicy::All,
                ack_policy: AckPolicy::None,
                headers_only,
                memory_storage: true,
                ..PullConfig::default()
            };
            let consumer = stream.create_consumer(config).await.map_err(broken("reading a stream by hand"))?;
            let messages = consumer.stream().max_messages_per_batch(PULL).messages().await;
            let mut messages = messages.map_err(broken("reading a stream by hand"))?;
            let (mut read, mut bytes) = (0_u64, 0_usize);
            while read < count {
                let Some(message) = messages.next().await else { break };
                let message = message.map_err(broken("reading a stream by hand"))?;
                let uid = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id")).map(|uid| uid.as_str().to_owned());
                bytes += uid.map_or(0, |uid| uid.len());
                if !headers_only {
                    let event: Event<'_> = serde_json::from_slice(&message.payload).map_err(broken("reading a stream by hand"))?;
                    bytes += event.key.len() + event.value.get().len() + usize::from(event.stored_at == 0);
                }
                read += 1;
            }
            std::hint::black_box(bytes);
            Ok(Slice { units: read, elapsed: started.elapsed(), latencies: Vec::new() })
        });
        self.runtime.block_on(running).map_err(broken("reading a stream by hand"))?
    }

    /// One message after the other by a direct get: one round trip each.
    pub(super) fn gets(&self, stream: &str, sequences: Vec<u64>) -> Result<Slice, CliError> {
        let (client, subject) = (self.client.clone(), format!("$JS.API.DIRECT.GET.{stream}"));
        let running = self.runtime.spawn(async move {
            let started = Instant::now();
            let (mut now, mut latencies) = (started, Vec::with_capacity(sequences.len()));
            for sequence in sequences {
                let question = Bytes::from(format!("{{\"seq\":{sequence}}}"));
                let message = client.request(subject.clone(), question).await.map_err(broken("getting a message by hand"))?;
                if message.status.is_some() {
                    return Err(broken("getting a message by hand")("it is not there"));
                }
                let done = Instant::now();
                latencies.push(done.duration_since(now));
                now = done;
            }
            Ok(Slice { units: latencies.len() as u64, elapsed: started.elapsed(), latencies })
        });
        self.runtime.block_on(running).map_err(broken("getting a message by hand"))?
    }
}
