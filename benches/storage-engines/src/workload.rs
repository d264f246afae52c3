//! What is timed: each workload, who takes part in it and how, and one bounded slice of it.

use std::fmt;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::engine::{Engine, Job, Name, Persist};
use crate::event::{Batch, Event};
use crate::failure::Failure;
use crate::group::GroupCommit;

/// Publishers at once.
pub(crate) const PUBLISHERS: usize = 16;
/// Events of one batch.
pub(crate) const BATCH_EVENTS: usize = 256;
/// The most of each that one slice does; a slice ends earlier when its time is up.
const SINGLE_EVENTS_MAX: usize = 4_000;
const EVENTS_OF_A_PUBLISHER_MAX: usize = 2_000;
const BATCHES_MAX: usize = 120;
const LOOKUPS_MAX: usize = 20_000;

/// One way to use an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// One publisher, one event in a commit
    OneAtATime,
    /// Sixteen publishers, one event each
    #[value(name = "publishers-16")]
    Publishers16,
    /// One publisher, 256 events in a commit
    #[value(name = "batches-256")]
    Batches256,
    /// Everything in order, as bytes
    Read,
    /// Everything in order, as JSON values
    ReadDecoded,
    /// By uid
    Find,
}

/// How the commits of several publishers come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// As the engine does it by itself.
    Own,
    /// With a group commit in front of it.
    InFront,
    /// No publishers at all: one loop that commits sixteen events at a time.
    Loop,
}

/// An engine and the way it takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) engine: Name,
    pub(crate) grouping: Grouping,
}

/// What one slice works on, made before its time begins.
pub(crate) enum Material {
    Events(Vec<Event>),
    OfPublishers(Vec<Vec<Event>>),
    Batches(Vec<Batch>),
    /// Everything that was stored: so many.
    Stored(u64),
}

impl Workload {
    /// Who takes part. The first is the raw limit that the others are compared with.
    pub(crate) fn contenders(self) -> Vec<Contender> {
        use Grouping::{InFront, Loop, Own};
        let stores =
            [Job::Append, Job::Log].into_iter().flat_map(|job| [Name::Sqlite(job), Name::Fjall(job, Persist::SyncData), Name::Redb(job)]);
        let own = |engine| Contender { engine, grouping: Own };
        let raw = [Name::RawPreallocated, Name::RawGrowing];
        match self {
            Self::OneAtATime => raw.into_iter().chain([Name::Floor]).chain(stores).chain([Name::Latent]).map(own).collect(),
            Self::Publishers16 => {
                let raw = raw.into_iter().flat_map(|engine| [InFront, Loop].map(|grouping| Contender { engine, grouping }));
                let stores = stores.flat_map(|engine| [Own, InFront].map(|grouping| Contender { engine, grouping }));
                raw.chain(stores).chain([own(Name::Latent)]).collect()
            }
            Self::Batches256 => raw.into_iter().chain(stores).chain([Name::Latent]).map(own).collect(),
            Self::Read | Self::ReadDecoded => [Name::RawPreallocated].into_iter().chain(stores).chain([Name::Latent]).map(own).collect(),
            Self::Find => {
                let stores = stores.filter(|engine| engine.is_rival());
                [Name::RawPreallocated].into_iter().chain(stores).chain([Name::Latent]).map(own).collect()
            }
        }
    }

    /// Whether events must be stored before it begins.
    pub(crate) fn needs_stored_events(self) -> bool {
        matches!(self, Self::Read | Self::ReadDecoded | Self::Find)
    }

    /// What the next slice of every contender works on. `first` is the number of the first event that was not used yet.
    pub(crate) fn material(self, first: u64, stored: u64) -> Result<Material, Failure> {
        Ok(match self {
            Self::OneAtATime => Material::Events(Event::numbered_from(first, SINGLE_EVENTS_MAX)?),
            Self::Publishers16 => {
                let firsts = (first..).step_by(EVENTS_OF_A_PUBLISHER_MAX).take(PUBLISHERS);
                Material::OfPublishers(
                    firsts.map(|first| Event::numbered_from(first, EVENTS_OF_A_PUBLISHER_MAX)).collect::<Result<_, _>>()?,
                )
            }
            Self::Batches256 => {
                let firsts = (first..).step_by(BATCH_EVENTS).take(BATCHES_MAX);
                Material::Batches(firsts.map(|first| Batch::numbered_from(first, BATCH_EVENTS)).collect::<Result<_, _>>()?)
            }
            Self::Read | Self::ReadDecoded => Material::Stored(stored),
            Self::Find => {
                // A stride that shares no factor with a power of two or ten visits the events without an order.
                let numbers = (0_u64..).map(|step| step.wrapping_mul(7_919) % stored.max(1)).take(LOOKUPS_MAX);
                Material::Events(numbers.map(Event::numbered).collect::<Result<_, _>>()?)
            }
        })
    }

    /// Runs one slice and says how many events a second it did.
    pub(crate) fn slice(self, contender: Contender, engine: &dyn Engine, material: &Material, time: Duration) -> Result<f64, Failure> {
        engine.prepare(material.events())?;
        let started = Instant::now();
        let until = started + time;
        let done = match material {
            Material::Events(events) if self == Self::Find => {
                one_by_one(events, until, |event| found(contender.engine, engine.find(event)?))?
            }
            Material::Events(events) => one_by_one(events, until, |event| engine.publish(event))?,
            Material::Batches(batches) => one_by_one(batches, until, |batch| engine.publish_batch(batch))? * BATCH_EVENTS,
            Material::OfPublishers(events) => return publishers(contender.grouping, engine, events, time),
            Material::Stored(stored) => {
                let read = if self == Self::ReadDecoded { engine.read_decoded()? } else { read_bytes(engine)? };
                if read != *stored {
                    return Err(Failure::WrongCount { engine: contender.engine.to_string(), expected: *stored, found: read });
                }
                usize::try_from(read).unwrap_or(usize::MAX)
            }
        };
        Ok(per_second(done, started.elapsed()))
    }
}

impl Material {
    /// Events that may be stored with it.
    pub(crate) fn events(&self) -> usize {
        match self {
            Self::Events(events) => events.len(),
            Self::OfPublishers(events) => events.iter().map(Vec::len).sum(),
            Self::Batches(batches) => batches.len() * BATCH_EVENTS,
            Self::Stored(_) => 0,
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.grouping {
            Grouping::Own => "",
            Grouping::InFront => "/grouped",
            Grouping::Loop => "/loop",
        };
        f.pad(&format!("{}{way}", self.engine))
    }
}

fn per_second(events: usize, time: Duration) -> f64 {
    // No count comes near the size at which a double rounds.
    #[allow(clippy::cast_precision_loss)]
    let events = events as f64;
    events / time.as_secs_f64()
}

fn one_by_one<'t, T>(items: &'t [T], until: Instant, mut act: impl FnMut(&'t T) -> Result<(), Failure>) -> Result<usize, Failure> {
    for (done, item) in items.iter().enumerate() {
        if Instant::now() >= until {
            return Ok(done);
        }
        act(item)?;
    }
    Ok(items.len())
}

fn found(engine: Name, found: bool) -> Result<(), Failure> {
    if found { Ok(()) } else { Err(Failure::WrongCount { engine: engine.to_string(), expected: 1, found: 0 }) }
}

fn read_bytes(engine: &dyn Engine) -> Result<u64, Failure> {
    let mut count = 0;
    engine.read(&mut |payload| {
        std::hint::black_box(payload);
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// All publishers begin together; the time ends when the last one has its last answer.
fn publishers(grouping: Grouping, engine: &dyn Engine, events: &[Vec<Event>], time: Duration) -> Result<f64, Failure> {
    if grouping == Grouping::Loop {
        let groups: Vec<Vec<&Event>> = events.iter().flat_map(|own| own.chunks(PUBLISHERS)).map(|group| group.iter().collect()).collect();
        let started = Instant::now();
        let done = one_by_one(&groups, started + time, |group| engine.commit(group))?;
        return Ok(per_second(done * PUBLISHERS, started.elapsed()));
    }
    let (group, barrier) = (GroupCommit::over(engine), Barrier::new(events.len() + 1));
    let publish = |own| {
        barrier.wait();
        let until = Instant::now() + time;
        one_by_one(own, until, |event| if grouping == Grouping::InFront { group.publish(event) } else { engine.publish(event) })
    };
    let publish = &publish;
    let (done, elapsed) = std::thread::scope(|scope| {
        let threads: Vec<_> = events.iter().map(|own| scope.spawn(move || publish(own))).collect();
        barrier.wait();
        let started = Instant::now();
        let done: Result<usize, Failure> = threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Failure::GroupFailed))).sum();
        (done, started.elapsed())
    });
    Ok(per_second(done?, elapsed))
}
