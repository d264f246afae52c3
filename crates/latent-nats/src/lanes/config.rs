//! Which consumers are pulled from, and with what bounds: a draft, and what it becomes when it is checked. No secret has a place in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use latent_core::{BindingId, ConsumerName, LimitError, Partition, StreamName, Subject, TenantId, TopicName};
use latent_nats_proto::limits::{PULL_BATCH, PULL_EXPIRES_MILLIS};
use latent_nats_proto::session::{Ceiling, PullConsumer, PullProfile, PullProfileError};
use latent_node::delivery::LaneOptions;
use latent_node::delivery::limits as delivery_limits;
use sha2::{Digest as _, Sha256};

use super::limits;
use crate::triggers::limits::TENANTS;
use crate::{ConfigError, EndpointDraft, Peer, RootsDraft};

/// A configuration as it is written, unchecked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanesDraft {
    /// Where the broker is.
    pub endpoint: EndpointDraft,
    /// Whom to trust.
    pub roots: RootsDraft,
    /// The lanes.
    pub lanes: Vec<LaneDraft>,
    /// Lanes of one tenant that keep a pull open while nothing comes ([`limits::HOT`]). Each holds a place for one activation meanwhile, so
    /// this is to be well below the places that a tenant has.
    pub hot_max: u64,
}

/// What the messages of a lane are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneInput {
    /// Records of this partition of a topic.
    Event {
        /// The topic.
        topic: TopicName,
        /// Its partition.
        partition: Partition,
    },
    /// Messages of a raw stream, handed to a handler as they are: `raw-event`.
    Raw,
}

/// One lane as it is written: one partition of one binding on one durable consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDraft {
    /// Its id, once in a configuration.
    pub id: BindingId,
    /// The trigger that it is a part of.
    pub trigger: BindingId,
    /// For whom its function runs; whose credential is used.
    pub tenant: TenantId,
    /// What its messages are.
    pub input: LaneInput,
    /// The stream.
    pub stream: StreamName,
    /// Its durable consumer, which an operator has made.
    pub consumer: ConsumerName,
    /// The consumer's one filter, without wildcards.
    pub filter: Subject,
    /// The consumer's priority group. Without one, nothing keeps two nodes from having two events of one key.
    pub group: Option<String>,
    /// Events begun and not settled, at most: `max_ack_pending` of the consumer.
    pub max_in_flight: u32,
    /// Runs of one event. The consumer's `max_deliver` is at least eight more.
    pub max_deliveries: u32,
    /// Largest payload of an event, in bytes.
    pub payload_ceiling_bytes: u32,
    /// `ack_wait` of the consumer, in milliseconds.
    pub ack_wait_millis: u64,
    /// The one deadline of a run, in milliseconds.
    pub operation_timeout_millis: u64,
    /// The topic that keeps what never runs (again).
    pub dead_letter: Option<TopicName>,
}

/// What is wrong with a lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneProblem {
    /// A number outside of its limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A name or number that no consumer could have.
    #[error(transparent)]
    Profile(#[from] PullProfileError),
    /// An id is given twice.
    #[error("its id is that of lane {first}; give each its own")]
    SameId {
        /// The first one.
        first: usize,
    },
    /// A consumer is given twice (T-008).
    #[error(
        "consumer {consumer} of stream {stream} is that of lane {first}; each needs its own, or each would miss what the other is given"
    )]
    SameConsumer {
        /// The stream.
        stream: StreamName,
        /// The consumer.
        consumer: ConsumerName,
        /// The first one.
        first: usize,
    },
    /// A subject of two tenants (T-009).
    #[error("its filter {filter} belongs to tenant {owner}; a subject has one tenant")]
    SharedFilter {
        /// The subject.
        filter: Subject,
        /// The first tenant.
        owner: TenantId,
    },
}

/// A checked lane.
#[derive(Debug, Clone)]
pub struct LaneBinding {
    draft: LaneDraft,
    consumer: Arc<PullConsumer>,
    options: LaneOptions,
}

impl LaneBinding {
    /// What it was made of.
    pub const fn draft(&self) -> &LaneDraft {
        &self.draft
    }

    /// Its consumer as it has to be (T-101).
    pub const fn consumer(&self) -> &Arc<PullConsumer> {
        &self.consumer
    }

    pub(super) const fn options(&self) -> LaneOptions {
        self.options
    }

    fn check(draft: LaneDraft) -> Result<Self, LaneProblem> {
        let options = LaneOptions::of_ack_wait(draft.ack_wait_millis);
        let options = LaneOptions {
            held_max: delivery_limits::LANE_HELD.max.min(u64::from(draft.max_in_flight).saturating_mul(2).max(64)),
            ..options
        };
        let options = options.checked()?;
        delivery_limits::IN_FLIGHT.check(u64::from(draft.max_in_flight))?;
        delivery_limits::OPERATION_TIMEOUT_MILLIS.check(draft.operation_timeout_millis)?;
        let payload_bytes_max = draft.payload_ceiling_bytes;
        let ceiling = match &draft.input {
            LaneInput::Event { .. } => Ceiling::Event { payload_bytes_max },
            LaneInput::Raw => Ceiling::Raw { payload_bytes_max },
        };
        let batch_max = draft.max_in_flight.min(u32::try_from(PULL_BATCH.max).unwrap_or(u32::MAX));
        let all = ceiling.message_bytes_max().saturating_mul(u64::from(batch_max));
        let profile = PullProfile {
            stream: draft.stream.to_string(),
            consumer: draft.consumer.to_string(),
            filter_subject: draft.filter.to_string(),
            group: draft.group.clone(),
            ack_wait_nanos: draft.ack_wait_millis.saturating_mul(1_000_000),
            max_in_flight: draft.max_in_flight,
            max_deliveries: draft.max_deliveries,
            ceiling,
            batch_max,
            expires_nanos_max: options.renew_millis().min(PULL_EXPIRES_MILLIS.max).saturating_mul(1_000_000),
            request_bytes_max: all.min(limits::PULL_BYTES.default).max(ceiling.message_bytes_max()),
        };
        Ok(Self { consumer: Arc::new(PullConsumer::new(profile)?), options, draft })
    }
}

/// A checked configuration. One that exists can be installed.
#[derive(Debug, Clone)]
pub struct LanesConfig {
    peer: Peer,
    public_roots: bool,
    hot_max: u64,
    lanes: Vec<LaneBinding>,
    /// Each once, in the order of first mention: a tenant's place in the pools.
    tenants: Vec<TenantId>,
}

impl LanesDraft {
    /// Checks everything that can be checked without a network.
    ///
    /// # Errors
    /// [`ConfigError`] naming the field and what to write there.
    pub fn check(self) -> Result<LanesConfig, ConfigError> {
        let peer = self.endpoint.check(&self.roots)?;
        let limited = |error| ConfigError::Limit { field: "lanes", error };
        limits::LANES.check(self.lanes.len() as u64).map_err(limited)?;
        let hot_max = limits::HOT.check(self.hot_max).map_err(|error| ConfigError::Limit { field: "hotMax", error })?;
        let (mut ids, mut consumers, mut filters) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (mut lanes, mut tenants) = (Vec::with_capacity(self.lanes.len()), Vec::new());
        for (index, draft) in self.lanes.into_iter().enumerate() {
            let id = draft.id.clone();
            let wrong = |problem| ConfigError::Lane { index, id: id.clone(), problem };
            if let Some(first) = ids.insert(draft.id.clone(), index) {
                return Err(wrong(LaneProblem::SameId { first }));
            }
            if let Some(first) = consumers.insert((draft.stream.clone(), draft.consumer.clone()), index) {
                return Err(wrong(LaneProblem::SameConsumer { stream: draft.stream, consumer: draft.consumer, first }));
            }
            let owner = filters.entry((draft.stream.clone(), draft.filter.clone())).or_insert_with(|| draft.tenant.clone());
            if *owner != draft.tenant {
                return Err(wrong(LaneProblem::SharedFilter { filter: draft.filter, owner: owner.clone() }));
            }
            if !tenants.contains(&draft.tenant) {
                tenants.push(draft.tenant.clone());
            }
            lanes.push(LaneBinding::check(draft).map_err(wrong)?);
        }
        TENANTS.check(tenants.len() as u64).map_err(limited)?;
        Ok(LanesConfig { peer, public_roots: self.roots.public, hot_max, lanes, tenants })
    }
}

impl LanesConfig {
    /// The socket that is dialled and whom it must prove to be.
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether the public roots are trusted, too.
    pub const fn trusts_public_roots(&self) -> bool {
        self.public_roots
    }

    /// The lanes, in the order in which they were written.
    pub fn lanes(&self) -> &[LaneBinding] {
        &self.lanes
    }

    /// Every tenant that has a lane, each once: whose credentials an installation needs.
    pub fn tenants(&self) -> &[TenantId] {
        &self.tenants
    }

    /// SHA-256 of the configuration.
    pub fn digest(&self) -> [u8; 32] {
        let mut sum = Sha256::new();
        let mut add = |text: &str| {
            sum.update((text.len() as u64).to_le_bytes());
            sum.update(text);
        };
        add(&self.peer.address().to_string());
        add(self.peer.server_name());
        self.lanes.iter().for_each(|lane| add(&format!("{:?}", lane.draft)));
        sum.finalize().into()
    }

    /// Memory that an installation is charged, all of it idle.
    pub fn installation_bytes(&self) -> u64 {
        let roots: usize = self.peer.roots().map(<[u8]>::len).sum();
        let installation = crate::triggers::limits::INSTALLATION_BYTES.default;
        installation + self.lanes.len() as u64 * limits::LANE_BYTES.default + 6 * roots as u64
    }

    pub(super) const fn hot_max(&self) -> u64 {
        self.hot_max
    }

    /// The largest body that one of its connections is to be delivered.
    pub(super) fn body_bytes_max(&self) -> u32 {
        let bodies = self.lanes.iter().map(|lane| lane.consumer.profile().ceiling.body_bytes_max());
        u32::try_from(bodies.max().unwrap_or_default()).unwrap_or(u32::MAX)
    }
}
