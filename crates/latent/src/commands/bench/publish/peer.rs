//! The client that people use instead: `async-nats`, publishing on JetStream and waiting for the acknowledgement.

use std::cell::RefCell;
use std::time::Instant;

use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, HeaderMap};
use bytes::Bytes;
use tokio::runtime::{self, Runtime};

use super::super::failed;
use super::super::figure::Slice;
use super::target::Target;
use super::{broken, rows, wire};
use crate::error::CliError;

/// One client on a runtime of the kind that `#[tokio::main]` makes.
pub(super) struct Peer {
    runtime: Runtime,
    jetstream: Context,
    subject: String,
    stream: String,
    ids: RefCell<rows::Ids>,
}

impl Peer {
    /// Connects to the server's name, which therefore has to lead to its address.
    pub(super) fn connect(target: &Target) -> Result<Self, CliError> {
        let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(failed("making a runtime"))?;
        let tls = wire::tls(&target.root).map_err(failed("reading the root"))?;
        let options = ConnectOptions::with_user_and_password(target.user.clone(), target.password.as_str().to_owned())
            .tls_first()
            .tls_client_config((*tls).clone())
            .custom_inbox_prefix("_INBOX.LSF.peer");
        let connecting = options.connect(format!("tls://{}:{}", target.server_name, target.address.port()));
        let client = runtime.block_on(connecting).map_err(|error| broken("connecting with async-nats", &error))?;
        // It spawns a task of its own.
        let jetstream = runtime.block_on(async { jetstream::new(client) });
        let (subject, stream) = (target.subject.clone(), target.stream.clone());
        Ok(Self { runtime, jetstream, subject, stream, ids: RefCell::new(rows::Ids::new()?) })
    }

    /// So many publications, one after the other.
    pub(super) fn slice(&self, payload: &Bytes, publications: u32) -> Result<Slice, CliError> {
        let (jetstream, subject, stream) = (self.jetstream.clone(), self.subject.clone(), self.stream.clone());
        let (ids, payload) = (self.ids.borrow_mut().take(publications), payload.clone());
        let running = self.runtime.spawn(async move {
            let publish = async |id: &str| {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Expected-Stream", stream.as_str());
                headers.insert("Nats-Msg-Id", id);
                headers.insert("Content-Type", "application/octet-stream");
                let sent = jetstream.publish_with_headers(subject.clone(), headers, payload.clone()).await?;
                sent.await
            };
            let started = Instant::now();
            let (mut now, mut latencies) = (started, Vec::with_capacity(ids.len()));
            for id in &ids {
                let stored = publish(id).await.map_err(|error| broken("publishing with async-nats", &error))?;
                if stored.duplicate {
                    return Err(broken("publishing with async-nats", &"the id was used before"));
                }
                let done = Instant::now();
                latencies.push(done.duration_since(now));
                now = done;
            }
            Ok(Slice { units: latencies.len() as u64, elapsed: started.elapsed(), latencies })
        });
        self.runtime.block_on(running).map_err(|error| broken("publishing with async-nats", &error))?
    }
}
