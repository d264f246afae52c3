//! `async-nats` by hand: the loops that people write. They run nothing.

use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt as _;
use tokio::runtime::{self, Runtime};

use super::super::super::failed;
use super::super::super::figure::Slice;
use super::super::super::publish::{Target, broken, tls};
use crate::error::CliError;

const DOING: &str = "pulling with async-nats";
/// Messages of one batch.
const BATCH: usize = 256;
/// How long a batch may wait: there is always something.
const EXPIRES: Duration = Duration::from_secs(5);

/// How a message is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acks {
    /// The broker's answer to each is waited for, one after the other.
    Acknowledged,
    /// Nothing is waited for.
    Plain,
}

/// One client on a runtime of the kind that `#[tokio::main]` makes.
pub(super) struct Peer {
    runtime: Runtime,
    client: async_nats::Client,
    jetstream: Context,
    stream: String,
}

impl Peer {
    /// Connects to the server's name, which therefore has to lead to its address.
    pub(super) fn connect(target: &Target) -> Result<Self, CliError> {
        let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(failed("making a runtime"))?;
        let tls = tls(&target.root).map_err(failed("reading the root"))?;
        let options = ConnectOptions::with_user_and_password(target.user.clone(), target.password.as_str().to_owned())
            .tls_first()
            .tls_client_config((*tls).clone())
            .custom_inbox_prefix("_INBOX.LSF.peer");
        let connecting = options.connect(format!("tls://{}:{}", target.server_name, target.address.port()));
        let client = runtime.block_on(connecting).map_err(|error| broken("connecting with async-nats", &error))?;
        // It spawns a task of its own.
        let jetstream = runtime.block_on(async { jetstream::new(client.clone()) });
        Ok(Self { runtime, client, jetstream, stream: target.stream.clone() })
    }

    /// So many messages of a consumer, batch after batch.
    pub(super) fn handle(&self, consumer: &str, count: u64, acks: Acks) -> Result<Slice, CliError> {
        let (client, jetstream) = (self.client.clone(), self.jetstream.clone());
        let (consumer, stream) = (consumer.to_owned(), self.stream.clone());
        let handling = self.runtime.spawn(async move {
            let consumer: PullConsumer =
                jetstream.get_consumer_from_stream(consumer, stream).await.map_err(|error| broken(DOING, &error))?;
            let (started, mut units) = (Instant::now(), 0);
            while units < count {
                let left = usize::try_from(count - units).unwrap_or(BATCH);
                let batch = consumer.batch().max_messages(left.min(BATCH)).expires(EXPIRES).messages().await;
                let mut batch = batch.map_err(|error| broken(DOING, &error))?;
                while let Some(message) = batch.next().await {
                    let message = message.map_err(|error| broken(DOING, &error))?;
                    let settled = match acks {
                        Acks::Acknowledged => message.double_ack().await,
                        Acks::Plain => message.ack().await,
                    };
                    settled.map_err(|error| broken(DOING, &error))?;
                    units += 1;
                }
            }
            client.flush().await.map_err(|error| broken(DOING, &error))?;
            Ok(Slice { units, elapsed: started.elapsed(), latencies: Vec::new() })
        });
        self.runtime.block_on(handling).map_err(|error| broken(DOING, &error))?
    }
}
