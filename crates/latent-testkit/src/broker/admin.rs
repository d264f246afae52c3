//! The provisioning path of the tests (P-011): streams are made, read and deleted here, with a user and a client of their own.
//!
//! Every call is bounded in time and in what it reads.

use std::net::SocketAddrV4;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;

use super::TestCa;
use super::monitor::{self, Connection};
use super::spec::{BrokerAuth, BrokerUser, StreamSpec};
use crate::tls;

const CALL_TIME_MAX: Duration = Duration::from_secs(60);
const MESSAGES_READ_MAX: u64 = 10_000;
/// Also the name that its connections give themselves, by which they are told from others.
const ADMIN_NAME: &str = "latent-test-admin";
/// The user of the system account, for what only the server itself can do.
pub(super) const SYSTEM_NAME: &str = "latent-test-system";
const PASSWORD: &str = "of a broker that lives as long as one test";

/// A client with every right.
#[derive(Debug)]
pub struct Admin {
    client: Client,
    jetstream: Context,
    monitor: SocketAddrV4,
    access: Access,
}

/// How to connect again as somebody else.
#[derive(Debug, Clone)]
struct Access {
    address: SocketAddrV4,
    tls: rustls::ClientConfig,
}

/// A message as the stream keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its subject.
    pub subject: String,
    /// Its headers, each value by itself; those of one name in their order.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Vec<u8>,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When the broker stored it, nanoseconds since 1970; 0 when its headers cannot be read.
    pub stored_unix_nanos: i128,
}

impl StoredMessage {
    /// The first value of the header `name`.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

pub(super) fn user() -> BrokerUser {
    BrokerUser::unlimited(ADMIN_NAME, PASSWORD)
}

pub(super) fn system_user() -> BrokerUser {
    BrokerUser { name: SYSTEM_NAME.into(), ..user() }
}

#[allow(clippy::expect_used, clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
impl Admin {
    pub(super) async fn connect(
        address: SocketAddrV4,
        monitor: SocketAddrV4,
        auth: &BrokerAuth,
        user: &BrokerUser,
        ca: &TestCa,
        server_name: &str,
    ) -> Self {
        let access = Access { address, tls: tls::client_for_name(ca, server_name) };
        let options = match auth {
            BrokerAuth::Users(_) => ConnectOptions::with_user_and_password(user.name.clone(), user.password.clone()),
            BrokerAuth::Token(token) => ConnectOptions::with_token(token.clone()),
            BrokerAuth::Raw(_) => panic!("a broker with users of a raw configuration has no administrator"),
        };
        let client = access.connect(options).await;
        Self { jetstream: jetstream::new(client.clone()), client, monitor, access }
    }

    /// Makes a stream.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn add_stream(&self, spec: &StreamSpec) {
        let config = Config {
            name: spec.name.clone(),
            subjects: spec.subjects.clone(),
            storage: if spec.on_disk { StorageType::File } else { StorageType::Memory },
            discard: DiscardPolicy::New,
            retention: match (spec.by_interest, spec.work_queue) {
                (true, _) => RetentionPolicy::Interest,
                (_, true) => RetentionPolicy::WorkQueue,
                _ => RetentionPolicy::Limits,
            },
            duplicate_window: spec.duplicate_window,
            max_messages: spec.max_msgs,
            max_bytes: spec.max_bytes,
            max_message_size: spec.max_msg_size,
            num_replicas: 1,
            ..Config::default()
        };
        bounded("making a stream", self.jetstream.create_stream(config)).await;
    }

    /// Deletes a stream with its messages and its memory of ids.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn delete_stream(&self, name: &str) {
        bounded("deleting a stream", self.jetstream.delete_stream(name)).await;
    }

    /// Deletes the messages of a stream; its memory of ids stays.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn purge_stream(&self, name: &str) {
        bounded("purging a stream", self.stream(name).await.purge()).await;
    }

    /// How many messages a stream keeps.
    ///
    /// # Panics
    /// When the stream cannot be read.
    pub async fn count(&self, name: &str) -> u64 {
        bounded("reading a stream", self.stream(name).await.get_info()).await.state.messages
    }

    /// All messages of a stream in their order.
    ///
    /// # Panics
    /// When the stream cannot be read or keeps more than 10,000.
    pub async fn messages(&self, name: &str) -> Vec<StoredMessage> {
        let stream = self.stream(name).await;
        let state = bounded("reading a stream", stream.get_info()).await.state;
        assert!(
            state.messages <= MESSAGES_READ_MAX,
            "stream {name} keeps {} messages; reading stops at {MESSAGES_READ_MAX}",
            state.messages
        );
        let mut messages = Vec::new();
        // Of a stream that never had one, the broker says that 0 is its last.
        if state.messages == 0 {
            return messages;
        }
        for sequence in state.first_sequence..=state.last_sequence {
            match timed("reading a message", stream.get_raw_message(sequence)).await {
                Ok(message) => messages.push(stored(message)),
                // What was deleted in between has left a gap.
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {}
                // Stored all the same: a test may have changed a byte of it on its way.
                Err(_) => messages.push(self.unreadable(name, sequence).await),
            }
        }
        messages
    }

    /// A message whose headers are none. What can be read of it is its payload, and every line that has the form of a header.
    async fn unreadable(&self, stream: &str, sequence: u64) -> StoredMessage {
        let request = format!("{{\"seq\":{sequence}}}");
        let reply = bounded("reading a message", self.client.request(format!("$JS.API.STREAM.MSG.GET.{stream}"), request.into())).await;
        let reply: serde_json::Value = serde_json::from_slice(&reply.payload).expect("an answer in JSON");
        let message = &reply["message"];
        let bytes = |field: &str| STANDARD.decode(message[field].as_str().unwrap_or_default()).expect("bytes in base64");
        let lines = String::from_utf8_lossy(&bytes("hdrs")).into_owned();
        StoredMessage {
            subject: message["subject"].as_str().expect("a stored message").to_owned(),
            headers: lines.lines().filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect(),
            payload: bytes("data"),
            sequence,
            stored_unix_nanos: 0,
        }
    }

    /// Publishes as the administrator, to whoever listens.
    ///
    /// # Panics
    /// When the broker cannot be reached.
    pub async fn publish(&self, subject: &str, payload: &[u8]) {
        bounded("publishing", self.client.publish(subject.to_owned(), payload.to_vec().into())).await;
        bounded("publishing", self.client.flush()).await;
    }

    /// Publishes with these headers, each value by itself.
    ///
    /// # Panics
    /// When the broker cannot be reached, or a header is none.
    pub async fn publish_with(&self, subject: &str, headers: &[(&str, &str)], payload: &[u8]) {
        let mut map = async_nats::HeaderMap::new();
        headers.iter().for_each(|(name, value)| map.append(*name, *value));
        let publish = self.client.publish_with_headers(subject.to_owned(), map, payload.to_vec().into());
        bounded("publishing", publish).await;
        bounded("publishing", self.client.flush()).await;
    }

    /// Pulls as somebody else would, with this request, from a consumer that has nothing to give: the status that ends the pull.
    ///
    /// # Panics
    /// When the broker does not answer, or gives a message.
    pub async fn pull_in_vain(&self, stream: &str, consumer: &str, request: &serde_json::Value) -> u16 {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let reply = bounded("pulling", self.client.request(subject, request.to_string().into())).await;
        reply.status.expect("a status").as_u16()
    }

    /// Pulls one message as somebody else would, with this request, and leaves it unsettled: its payload.
    ///
    /// # Panics
    /// When the broker does not answer, or has nothing to give.
    pub async fn pull_and_leave(&self, stream: &str, consumer: &str, request: &serde_json::Value) -> Vec<u8> {
        let (subject, inbox) = (format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"), self.client.new_inbox());
        // A message keeps its own subject, by which a request's answer would not be known.
        let mut messages = bounded("pulling", self.client.subscribe(inbox.clone())).await;
        bounded("pulling", self.client.publish_with_reply(subject, inbox, request.to_string().into())).await;
        let message = bounded("pulling", async { messages.next().await.ok_or("the subscription ended") }).await;
        assert!(message.status.is_none(), "nothing was given: {:?}", message.status);
        message.payload.to_vec()
    }

    /// Publishes into a stream and waits until it is stored.
    ///
    /// # Panics
    /// When it is not stored.
    pub async fn store(&self, subject: &str, payload: &[u8]) {
        let ack = bounded("publishing", self.jetstream.publish(subject.to_owned(), payload.to_vec().into())).await;
        bounded("storing", ack).await;
    }

    /// Makes a consumer as these settings say, in the broker's own form.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn add_consumer(&self, stream: &str, settings: &serde_json::Value) {
        let name = settings["durable_name"].as_str().expect("a durable consumer has a name");
        let request = serde_json::json!({ "stream_name": stream, "config": settings });
        let answer = self.ask(&format!("CONSUMER.CREATE.{stream}.{name}"), &request).await;
        assert!(answer["error"].is_null(), "making a consumer: {answer}");
    }

    /// What the broker says of a consumer, an error among it.
    ///
    /// # Panics
    /// When the broker does not answer.
    pub async fn consumer(&self, stream: &str, name: &str) -> serde_json::Value {
        self.ask(&format!("CONSUMER.INFO.{stream}.{name}"), &serde_json::Value::Null).await
    }

    /// Takes the pin of a consumer's group from whoever has it.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn unpin(&self, stream: &str, name: &str, group: &str) {
        let answer = self.ask(&format!("CONSUMER.UNPIN.{stream}.{name}"), &serde_json::json!({ "group": group })).await;
        assert!(answer["error"].is_null(), "taking a pin away: {answer}");
    }

    /// Deletes a consumer.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn delete_consumer(&self, stream: &str, name: &str) {
        let answer = self.ask(&format!("CONSUMER.DELETE.{stream}.{name}"), &serde_json::Value::Null).await;
        assert!(answer["error"].is_null(), "deleting a consumer: {answer}");
    }

    /// One request to the broker's own interface.
    async fn ask(&self, what: &str, request: &serde_json::Value) -> serde_json::Value {
        let body = if request.is_null() { Vec::new() } else { request.to_string().into_bytes() };
        let reply = bounded("asking the broker", self.client.request(format!("$JS.API.{what}"), body.into())).await;
        serde_json::from_slice(&reply.payload).expect("an answer in JSON")
    }

    /// How many consumers there are now, of all streams.
    ///
    /// # Panics
    /// When the broker does not answer.
    pub fn consumers(&self) -> u64 {
        monitor::consumers(self.monitor)
    }

    /// The client connections that are open now, those of administration left out.
    ///
    /// # Panics
    /// When the broker does not answer.
    pub fn connections(&self) -> Vec<Connection> {
        monitor::connections(self.monitor, ADMIN_NAME)
    }

    /// How many connections `user` has open now.
    ///
    /// # Panics
    /// When the broker does not answer.
    pub fn connections_of(&self, user: &str) -> usize {
        self.connections().iter().filter(|connection| connection.user == user).count()
    }

    /// Lets the broker close every connection of `user` by itself, and waits until they are closed. Not for a broker with a token.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn kick(&self, user: &str) {
        let system = system_user();
        let client = self.access.connect(ConnectOptions::with_user_and_password(system.name, system.password)).await;
        let subject = format!("$SYS.REQ.SERVER.{}.KICK", monitor::server_id(self.monitor));
        for connection in self.connections().into_iter().filter(|connection| connection.user == user) {
            let request = format!("{{\"cid\":{}}}", connection.id);
            bounded("closing a connection", client.request(subject.clone(), request.into())).await;
        }
        crate::wait_until("the broker closes the connections", || self.connections_of(user) == 0);
    }

    /// The client itself, for what is not here.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// JetStream's own interface, for what is not here.
    pub const fn jetstream(&self) -> &Context {
        &self.jetstream
    }

    async fn stream(&self, name: &str) -> Stream {
        bounded("finding a stream", self.jetstream.get_stream(name)).await
    }
}

impl Access {
    async fn connect(&self, options: ConnectOptions) -> Client {
        let options = options.name(ADMIN_NAME).tls_first().tls_client_config(self.tls.clone()).connection_timeout(CALL_TIME_MAX);
        bounded("connecting as the administrator", options.connect(format!("tls://{}", self.address))).await
    }
}

fn stored(message: jetstream::message::StreamMessage) -> StoredMessage {
    let values = message.headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name.to_string(), value.to_string())));
    StoredMessage {
        subject: message.subject.to_string(),
        headers: values.collect(),
        payload: message.payload.to_vec(),
        sequence: message.sequence,
        stored_unix_nanos: message.time.unix_timestamp_nanos(),
    }
}

/// Bounded on the clock of the test's runtime: with a paused one, administration belongs on a thread of its own.
#[allow(clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
async fn timed<T>(what: &str, call: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(CALL_TIME_MAX, call.into_future()).await.unwrap_or_else(|_| panic!("{what}: no answer in {CALL_TIME_MAX:?}"))
}

#[allow(clippy::panic, reason = "this runs inside a test: a panic is how it fails")]
async fn bounded<T, E: std::fmt::Display>(what: &str, call: impl IntoFuture<Output = Result<T, E>>) -> T {
    timed(what, call).await.unwrap_or_else(|error| panic!("{what}: {error}"))
}
