//! Publications to topics that are archived (B-054, B-057, B-058, B-067): the intent first, then the broker, then where it is stored.
//!
//! ```text
//! check ── stage ─┬─ new ──────────────────────────── publish ─┬─ stored ── commit ── acknowledged, uploaded later
//!                 │                                            ├─ certainly not ── withdrawn ── refused
//!                 │                                            └─ anything else ── uncertain, the intent stays
//!                 └─ there already ── looked up by uid ─┬─ found ── commit ── acknowledged
//!                                                       └─ absent ── published as it was staged, byte for byte
//! ```
//!
//! Nothing here waits for a cold store. What an intent is about to be published as, or is published as, never changes; what lies on the
//! broker has the last word on it.

use std::sync::Arc;
use std::time::Duration;

use latent_core::{Completer, NewRecord, Offset, Partition, Record, Ticket, Uid, UncertainCause};
use tokio::runtime::Handle;

use super::NatsBus;
use super::body::{self, Behind};
use super::lookup;
use super::publishing::{self, Checked};
use super::record::Which;
use super::shared::Shared;
use crate::cold::archive::{Archive, Resolver};
use crate::cold::intent::Intent;
use crate::cold::outbox::{Done, Op, Staged};
use crate::cold::stager::{Stager, StagerHandle};
use crate::{BusError, PublishAck, PublishResult, limits};

/// The archive of a bus, and who works for it.
pub(super) struct Archiving {
    pub(super) archive: Arc<Archive>,
    pub(super) stager: Stager,
    runtime: Handle,
}

impl Archiving {
    pub(super) fn start(archive: Archive, shared: &Shared, runtime: &Handle) -> Result<Self, BusError> {
        let archive = Arc::new(archive);
        let stager = Stager::start(&archive, &shared.clock)?;
        Ok(Self { archive, stager, runtime: runtime.clone() })
    }

    /// Checks a record and has it staged, or says why not. Does not wait.
    pub(super) fn submit(
        &self,
        shared: &Arc<Shared>,
        topic: &str,
        record: NewRecord,
        behind: Option<Behind>,
    ) -> Result<Ticket<PublishResult>, BusError> {
        let checked = publishing::check(shared, topic, record)?.behind(behind.clone());
        let intent = Intent {
            topic: topic.to_owned(),
            partition: checked.partition,
            record: checked.record.clone().into_record(checked.uid.clone(), checked.stored_at),
            offset: None,
        };
        let abandoned = BusError::Uncertain { uid: checked.uid.clone(), cause: UncertainCause::Closed };
        let (ticket, completer) = Ticket::pair(Err(abandoned));
        let bytes = intent.record.payload.len() as u64;
        let publication = Publication {
            shared: Arc::clone(shared),
            stager: self.stager.handle(),
            runtime: self.runtime.clone(),
            flight: Flight::begin(&self.archive, &intent),
            behind,
            completer,
        };
        let then = move |staged: Result<Done, BusError>| publication.staged(checked, staged);
        self.stager.handle().stage(Op::Stage(intent), bytes, Box::new(then))?;
        Ok(ticket)
    }
}

/// While it lives maintenance leaves the intent alone.
struct Flight {
    archive: Arc<Archive>,
    name: String,
}

impl Flight {
    fn begin(archive: &Arc<Archive>, intent: &Intent) -> Self {
        let name = intent.name();
        archive.outbox.begin_flight(&name);
        Self { archive: Arc::clone(archive), name }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.archive.outbox.end_flight(&self.name);
    }
}

/// One publication on its way.
struct Publication {
    shared: Arc<Shared>,
    stager: StagerHandle,
    runtime: Handle,
    flight: Flight,
    /// Where alone the stream may take it.
    behind: Option<Behind>,
    completer: Completer<PublishResult>,
}

impl Publication {
    /// On the thread of the outbox: publications are handed over in the order in which they came.
    fn staged(self, checked: Checked, staged: Result<Done, BusError>) {
        match staged {
            Ok(Done::Staged(Staged { intent, existed: false })) => self.publish(checked, intent, false),
            Ok(Done::Staged(Staged { intent, existed: true })) => {
                let runtime = self.runtime.clone();
                runtime.spawn(async move { self.again(checked.topic, intent).await });
            }
            Ok(_) => {}
            Err(error) => self.completer.complete(Err(error)),
        }
    }

    fn publish(self, checked: Checked, intent: Intent, existed: bool) {
        match publishing::hand_over(&self.shared, checked) {
            Ok(ticket) => {
                let runtime = self.runtime.clone();
                runtime.spawn(async move {
                    match ticket.await {
                        Ok(ack) => self.stored(ack, intent, existed).await,
                        Err(error) => self.failed(error, intent, existed),
                    }
                });
            }
            Err(error) => self.failed(error, intent, existed),
        }
    }

    /// Another attempt: what became of an earlier one is asked first (B-057).
    async fn again(self, topic: usize, intent: Intent) {
        match find(&self.shared, topic, &intent).await {
            Ok(Found::Stored(stored)) => {
                let ack = ack_of(&stored, true);
                self.commit(stored, ack, true);
            }
            Ok(Found::Known(ack)) => self.completer.complete(Ok(ack)),
            Ok(Found::Absent) => match as_staged(&self.shared, &intent) {
                Ok(checked) => {
                    let checked = checked.behind(self.behind.clone());
                    self.publish(checked, intent, true);
                }
                Err(error) => self.failed(error, intent, true),
            },
            Err(error) => self.failed(error, intent, true),
        }
    }

    /// The broker has it.
    async fn stored(self, ack: PublishAck, intent: Intent, existed: bool) {
        if !ack.duplicate {
            let stored = Intent { offset: Some(Offset(ack.offset)), ..intent };
            return self.commit(stored, ack, existed);
        }
        // An earlier publication was stored, perhaps at another time than this one was staged: what lies there is what is archived.
        match topic_number(&self.shared, &intent.topic) {
            Ok(number) => match truth(&self.shared, number, ack.offset, &intent).await {
                Ok(stored) => self.commit(stored, ack, true),
                Err(error) => {
                    tracing::warn!(topic = intent.topic, %error, "a duplicate was acknowledged and its intent is left to maintenance");
                    self.completer.complete(Ok(ack));
                }
            },
            Err(error) => self.completer.complete(Err(error)),
        }
    }

    /// Writes down where it is stored. Of an event that was there before a failure is only a warning; of a fresh one nothing but the intent
    /// would say that it is there, so that is uncertain (B-058).
    fn commit(self, stored: Intent, ack: PublishAck, was_there: bool) {
        let (stager, uid) = (self.stager.clone(), stored.record.uid.clone());
        let then = move |committed: Result<Done, BusError>| {
            let Self { stager, flight, completer, .. } = self;
            let name = flight.name.clone();
            drop(flight);
            match committed {
                Ok(_) => {
                    stager.offer(name);
                    completer.complete(Ok(ack));
                }
                Err(error) => {
                    tracing::warn!(uid = uid.as_str(), %error, "an event is stored and its intent could not be told so; it is kept");
                    completer.complete(if was_there { Ok(ack) } else { Err(BusError::Uncertain { uid, cause: UncertainCause::Storage }) });
                }
            }
        };
        stager.follow(Op::Commit(stored), Box::new(then));
    }

    /// It was not published by this attempt, or nobody knows.
    fn failed(self, error: BusError, intent: Intent, existed: bool) {
        if error.is_uncertain() || (existed && matches!(error, BusError::Conflict { .. })) {
            return self.completer.complete(Err(error));
        }
        let uid = intent.record.uid.clone();
        if existed {
            // An earlier attempt may be stored, and its intent will see to it that the event is.
            tracing::debug!(uid = uid.as_str(), %error, "another attempt was not published; the intent of an earlier one stays");
            return self.completer.complete(Err(BusError::Uncertain { uid, cause: UncertainCause::Unusable }));
        }
        let stager = self.stager.clone();
        let then = move |withdrawn: Result<Done, BusError>| {
            let unknown = BusError::Uncertain { uid, cause: UncertainCause::Storage };
            self.completer.complete(Err(withdrawn.map_or(unknown, |_| error)));
        };
        stager.follow(Op::Withdraw(intent), Box::new(then));
    }
}

/// What the broker says of an intent's event.
enum Found {
    /// It lies there.
    Stored(Intent),
    /// It does not, any more: the intent says that it was stored there.
    Known(PublishAck),
    Absent,
}

async fn find(shared: &Arc<Shared>, topic: usize, intent: &Intent) -> Result<Found, BusError> {
    let (key, uid) = (intent.record.key.clone(), intent.record.uid.clone());
    let limit = Duration::from_millis(limits::LOOKUP_MILLIS.default);
    let looked = tokio::time::timeout(limit, lookup::find(Arc::clone(shared), topic, key, uid)).await;
    let found = looked.map_err(|_| BusError::Timeout { operation: "looking up the event of an archive intent".to_owned() })??;
    match (found, intent.offset) {
        (Some(ack), _) => Ok(Found::Stored(truth(shared, topic, ack.offset, intent).await?)),
        (None, Some(_)) => Ok(Found::Known(ack_of(intent, true))),
        (None, None) => Ok(Found::Absent),
    }
}

/// The intent as its event lies at `sequence`.
async fn truth(shared: &Shared, topic: usize, sequence: u64, intent: &Intent) -> Result<Intent, BusError> {
    let conflict = || BusError::Conflict { topic: intent.topic.clone(), uid: intent.record.uid.clone() };
    let Some(topic) = shared.topics.get(topic) else { return Err(conflict()) };
    let gone = || {
        let rule = format!("the event of an archive intent was stored at {sequence} and is gone; the intent is kept");
        BusError::Rejected { rule, permanent: false }
    };
    let found = topic.source.get(&shared.api, Which::At(sequence)).await?.ok_or_else(gone)?;
    let record = found.record().map_err(|_| conflict())?;
    if record.uid != intent.record.uid || !body::is_same_event(&record, &new_record(&intent.record)?) {
        return Err(conflict());
    }
    Ok(Intent { record, offset: Some(Offset(sequence)), ..intent.clone() })
}

/// A staged record, to be published byte for byte as it was staged (D-18).
fn as_staged(shared: &Shared, intent: &Intent) -> Result<Checked, BusError> {
    let Record { uid, stored_at, .. } = &intent.record;
    let checked = publishing::check_as(shared, &intent.topic, new_record(&intent.record)?, uid.clone(), *stored_at)?;
    if checked.partition != intent.partition {
        let problem = "an archive intent is of a partition that its key does not lead to any more; it is kept, move it away";
        return Err(BusError::Config { problem: problem.to_owned() });
    }
    Ok(checked)
}

fn new_record(record: &Record) -> Result<NewRecord, BusError> {
    let Record { uid, key, media_type, attributes, payload, stored_at: _ } = record;
    let uid: Option<Uid> = Some(uid.clone());
    Ok(NewRecord::new(uid, key, media_type.clone(), attributes.clone(), payload.clone())?)
}

fn ack_of(stored: &Intent, duplicate: bool) -> PublishAck {
    let Intent { topic, partition: Partition(partition), record, offset } = stored;
    let offset = offset.map_or(0, |offset| offset.0);
    PublishAck { topic: topic.clone(), partition: *partition, offset, uid: record.uid.as_str().to_owned(), duplicate }
}

fn topic_number(shared: &Shared, topic: &str) -> Result<usize, BusError> {
    Ok(shared.topic(topic)?.0)
}

/// Resolves by a lookup first, and publishes to the broker only what is truly absent (B-067). For maintenance.
pub(super) struct FromBroker<'b>(pub(super) &'b NatsBus);

impl Resolver for FromBroker<'_> {
    fn resolve(&self, intent: &Intent) -> Result<Intent, BusError> {
        let (shared, intent) = (Arc::clone(&self.0.shared), intent.clone());
        let limit = Duration::from_millis(limits::LOOKUP_MILLIS.default + 2 * limits::CONNECTOR_OPERATION_MILLIS.default);
        self.0.wait("resolving an archive intent", limit, async move {
            let topic = topic_number(&shared, &intent.topic)?;
            if let Found::Stored(stored) = find(&shared, topic, &intent).await? {
                return Ok(stored);
            }
            let ack = publishing::hand_over(&shared, as_staged(&shared, &intent)?)?.await?;
            if ack.duplicate {
                return truth(&shared, topic, ack.offset, &intent).await;
            }
            Ok(Intent { offset: Some(Offset(ack.offset)), ..intent })
        })
    }
}
