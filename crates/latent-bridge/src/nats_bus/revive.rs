//! The client's task has ended while the bus is used. It mends lost connections by itself, but there are bytes that end the task: a header
//! value with a carriage return in it is one, which anybody who may publish can put into a stream. Then nothing would ever be sent or
//! heard again, so a client is made anew, and what was in flight is uncertain.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Event, Subscriber};

use super::connect::connect;
use super::options::NatsOptions;
use super::publishing;
use super::shared::Shared;
use crate::BusError;

/// Before the first further attempt; doubled each time.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// How the bus connects, each time with the same ear.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) options: NatsOptions,
    pub(super) hear: Arc<dyn Fn(Event) + Send + Sync>,
}

impl Dial {
    pub(super) async fn connect(&self) -> Result<async_nats::Client, BusError> {
        let hear = Arc::clone(&self.hear);
        connect(&self.options, move |event| hear(event)).await
    }
}

/// Makes another client. Gives the answers to publications on it.
pub(super) async fn revive(shared: &Arc<Shared>) -> Subscriber {
    shared.api.bury();
    tracing::error!("the broker's client ended by a fault of its own; a connection is made anew, and what was in flight is uncertain");
    publishing::end_all(&shared.air);
    let old_readers = shared.kept.take_all();
    let mut pause = PAUSE;
    let answers = loop {
        match attempt(shared).await {
            Ok(answers) => break answers,
            Err(error) => tracing::warn!(%error, "no connection to the broker yet"),
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
    };
    // Their consumers are deleted by the new client.
    drop(old_readers);
    answers
}

async fn attempt(shared: &Arc<Shared>) -> Result<Subscriber, BusError> {
    let client = shared.dial.connect().await?;
    let answers = client.subscribe(format!("{}.*", shared.ack_inbox)).await;
    let answers = answers.map_err(|error| BusError::NotSent { reason: error.to_string() })?;
    shared.api.replace(client);
    Ok(answers)
}
