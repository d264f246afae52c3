//! The rows of `latent bench bus`: what each one compares, and with which target. `docs/performance.md` says it for readers.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use latent_bridge::EmbeddedBroker;

use super::archive;
use super::event::{self, PayloadSize};
use super::figure::Slice;
use super::fill::KilledLog;
use super::measure::{Pair, Session, interrupted};
use super::plan::Plan;
use super::raw::{RawLog, each_frame};
use super::recovery_files::{PAGE_BYTES, Part, filter_start, parts};
use super::row::{Row, RowSpec, Target, Unit};
use super::store::{Store, TOPIC};
use super::workload as work;
use super::{failed, log_failed};
use crate::error::CliError;

/// Partitions of the logs that are measured, unless a row says otherwise.
const PARTITIONS: u32 = 8;
/// Events that are handed to a file by hand at once where nothing is timed.
const APPENDED_EVENTS: usize = 1_024;

/// A row of the table of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum RowId {
    /// Shared commits: sixteen publishers, and batches
    #[value(name = "Q-03")]
    SharedCommits,
    /// One event at a time
    #[value(name = "Q-04")]
    Singles,
    /// Sequential reading
    #[value(name = "Q-05")]
    Reading,
    /// Finding by uid
    #[value(name = "Q-31")]
    Finding,
    /// The archive in segments
    #[value(name = "Q-32")]
    Archive,
    /// Recovery after a kill
    #[value(name = "Q-33")]
    Recovery,
    /// Growth with the log
    #[value(name = "Q-40")]
    Growth,
}

/// Logs that several rows use.
#[derive(Default)]
pub(super) struct Logs {
    small: Option<Store>,
    large: Option<Store>,
}

/// Where finished rows go, and what is going on meanwhile.
pub(super) trait Report {
    fn row(&mut self, row: &Row) -> Result<(), CliError>;
    fn doing(&mut self, what: &str);
}

impl RowId {
    /// Measures every case of a row.
    pub(super) fn measure(self, session: &mut Session, logs: &mut Logs, report: &mut dyn Report) -> Result<(), CliError> {
        match self {
            Self::SharedCommits => shared_commits(session, report),
            Self::Singles => singles(session, report),
            Self::Reading => reading(session, report),
            Self::Finding => finding(session, logs, report),
            Self::Growth => growth(session, logs, report),
            Self::Archive => archive::archive(session, report),
            Self::Recovery => recovery(session, logs, report),
        }
    }
}

/// An empty log of ours and an empty file by hand.
fn fresh(session: &Session, name: &str) -> Result<(Store, RawLog), CliError> {
    let ours = Store::create(&session.scratch.folder(name)?, PARTITIONS, PayloadSize::Small)?;
    Ok((ours, RawLog::create(&session.scratch.folder(&format!("{name}-by-hand"))?)?))
}

fn shared_commits(session: &mut Session, report: &mut dyn Report) -> Result<(), CliError> {
    let plan = session.plan;
    let by_hand = "write + fdatasync of the same bytes and groups, preallocated";
    let spec = |case, least| RowSpec { id: "Q-03", case, unit: Unit::PerSecond, reference_name: by_hand, target: Target::AtLeast(least) };

    let (mut ours, mut raw) = fresh(session, "publishers")?;
    let mut first = 0;
    let reference = || work::raw_publishers(&mut raw, &mut first, &plan);
    let pair = Pair { ours: Box::new(|| work::publishers(&mut ours, &plan)), reference: Box::new(reference) };
    report.row(&session.row(spec("16 publishers", 0.5), pair)?)?;

    let (mut ours, mut raw) = fresh(session, "batches")?;
    let mut first = 0;
    let reference = || work::raw_batches(&mut raw, &mut first, &plan);
    let pair = Pair { ours: Box::new(|| work::batches(&mut ours, &plan)), reference: Box::new(reference) };
    report.row(&session.row(spec("batches of 256", 0.6), pair)?)
}

fn singles(session: &mut Session, report: &mut dyn Report) -> Result<(), CliError> {
    let plan = session.plan;
    let (mut ours, mut raw) = fresh(session, "singles")?;
    let mut first = 0;
    let spec = RowSpec {
        id: "Q-04",
        case: "one at a time",
        unit: Unit::PerSecond,
        reference_name: "write + fdatasync of the same bytes, preallocated",
        target: Target::AtLeast(0.85),
    };
    let pair =
        Pair { ours: Box::new(|| work::singles(&mut ours, &plan)), reference: Box::new(|| work::raw_singles(&mut raw, &mut first, &plan)) };
    report.row(&session.row(spec, pair)?)
}

fn reading(session: &mut Session, report: &mut dyn Report) -> Result<(), CliError> {
    let Plan { read_events, read_large_events, .. } = session.plan;
    let cases = [
        ("300 B, one partition", 1, PayloadSize::Small, read_events),
        ("300 B, eight partitions", PARTITIONS, PayloadSize::Small, read_events),
        ("7 KB, one partition", 1, PayloadSize::Large, read_large_events),
    ];
    for (case, partitions, size, events) in cases {
        let name = format!("reading-{}-{partitions}", if size == PayloadSize::Small { "small" } else { "large" });
        let ours = Store::create(&session.scratch.folder(&name)?, partitions, size)?.fill(events, &session.stop)?;
        let raw = filled_by_hand(session, &name, size, events)?;
        let spec = RowSpec {
            id: "Q-05",
            case,
            unit: Unit::PerSecond,
            reference_name: "read of the same frames with checksums + JSON parse",
            target: Target::AtLeast(0.8),
        };
        let whole = |slice: Slice| {
            let short = || CliError::Bench { doing: format!("measuring Q-05 ({case})"), reason: "not every event was read".to_owned() };
            (slice.units == events).then_some(slice).ok_or_else(short)
        };
        let pair = Pair {
            ours: Box::new(|| work::fetch_all(&ours).and_then(whole)),
            reference: Box::new(|| work::raw_read(&raw).and_then(whole)),
        };
        report.row(&session.row(spec, pair)?)?;
    }
    Ok(())
}

fn filled_by_hand(session: &Session, name: &str, size: PayloadSize, events: u64) -> Result<RawLog, CliError> {
    let mut raw = RawLog::create(&session.scratch.folder(&format!("{name}-by-hand"))?)?;
    for first in (0..events).step_by(APPENDED_EVENTS) {
        interrupted(&session.stop)?;
        let bodies = (first..events).take(APPENDED_EVENTS).map(|number| event::body(size, number)).collect::<Result<Vec<_>, _>>()?;
        raw.append(bodies.iter().map(Vec::as_slice))?;
    }
    Ok(raw)
}

impl Logs {
    /// The log with all records.
    fn large(&mut self, session: &Session, report: &mut dyn Report) -> Result<&mut Store, CliError> {
        filled(&mut self.large, session, ("large", session.plan.records), report)
    }

    /// The log with a tenth of them, and the large one.
    fn both(&mut self, session: &Session, report: &mut dyn Report) -> Result<(&mut Store, &mut Store), CliError> {
        let small = filled(&mut self.small, session, ("small", session.plan.records / 10), report)?;
        Ok((small, filled(&mut self.large, session, ("large", session.plan.records), report)?))
    }
}

fn filled<'l>(
    log: &'l mut Option<Store>,
    session: &Session,
    (name, records): (&str, u64),
    report: &mut dyn Report,
) -> Result<&'l mut Store, CliError> {
    let store = match log.take() {
        Some(store) => store,
        None => {
            report.doing(&format!("filling a log with {records} events"));
            Store::create(&session.scratch.folder(name)?, PARTITIONS, PayloadSize::Small)?.fill(records, &session.stop)?
        }
    };
    Ok(log.insert(store))
}

fn finding(session: &mut Session, logs: &mut Logs, report: &mut dyn Report) -> Result<(), CliError> {
    let plan = session.plan;
    let large = &*logs.large(session, report)?;
    let spec = RowSpec {
        id: "Q-31",
        case: "find by uid, warm",
        unit: Unit::MicrosEach,
        reference_name: "fetch of one event by its offset",
        target: Target::AtMost(5.0),
    };
    let pair = Pair { ours: Box::new(|| work::finds(large, &plan)), reference: Box::new(|| work::fetches_by_offset(large, &plan)) };
    report.row(&session.row(spec, pair)?)
}

/// One kind of work on a log, whatever its size.
type Work = fn(&mut Store, &Plan) -> Result<Slice, CliError>;

/// What must not become dearer with the log.
const GROWING: [(&str, Work); 4] = [
    ("Q-03 batches of 256", work::batches),
    ("Q-04 one at a time", work::singles),
    ("Q-05 pages of 1,000", |store, plan| work::fetch_spread(store, plan)),
    ("Q-31 find by uid", |store, plan| work::finds(store, plan)),
];

fn growth(session: &mut Session, logs: &mut Logs, report: &mut dyn Report) -> Result<(), CliError> {
    let plan = session.plan;
    let (small, large) = logs.both(session, report)?;
    for (case, work) in GROWING {
        let spec = RowSpec {
            id: "Q-40",
            case,
            unit: Unit::MicrosEach,
            reference_name: "the same with a tenth of the records in the log",
            target: Target::AtMost(1.1),
        };
        let untold = |slice: Slice| Slice { latencies: Vec::new(), ..slice };
        let pair = Pair { ours: Box::new(|| work(large, &plan).map(untold)), reference: Box::new(|| work(small, &plan).map(untold)) };
        report.row(&session.row(spec, pair)?)?;
    }
    Ok(())
}

fn recovery(session: &mut Session, logs: &mut Logs, report: &mut dyn Report) -> Result<(), CliError> {
    logs.large(session, report)?;
    let Some(closed) = logs.large.take().map(Store::close) else { return Ok(()) };
    let killed = RefCell::new(KilledLog::of(closed, session.plan.killed_batches));
    let spec = RowSpec {
        id: "Q-33",
        case: "recovery after a kill",
        unit: Unit::MicrosEach,
        reference_name: "sequential read with checksums of what must be read",
        target: Target::AtMost(2.0),
    };
    let pair = Pair { ours: Box::new(|| opened(&mut killed.borrow_mut())), reference: Box::new(|| read(&mut killed.borrow_mut())) };
    let row = session.row(spec, pair)?;
    logs.large = Some(killed.into_inner().into_closed().open()?);
    report.row(&row)
}

fn opened(killed: &mut KilledLog) -> Result<Slice, CliError> {
    killed.kill_again()?;
    let started = Instant::now();
    let broker = EmbeddedBroker::open(killed.directory()).map_err(log_failed("opening the log after a kill"))?;
    let elapsed = started.elapsed();
    drop(broker);
    Ok(Slice { units: 1, elapsed, latencies: Vec::new() })
}

fn read(killed: &mut KilledLog) -> Result<Slice, CliError> {
    killed.kill_again()?;
    let folder = killed.directory().join("topics").join(TOPIC);
    let started = Instant::now();
    let listed = std::fs::read_dir(&folder).map_err(failed("listing the killed log"))?;
    let mut files = Vec::new();
    for entry in listed {
        let entry = entry.map_err(failed("listing the killed log"))?;
        let bytes = entry.metadata().map_err(failed("listing the killed log"))?.len();
        files.push((entry.file_name().to_string_lossy().into_owned(), bytes));
    }
    for part in parts(&files, PARTITIONS.into()) {
        read_part(&folder, &part)?;
    }
    Ok(Slice { units: 1, elapsed: started.elapsed(), latencies: Vec::new() })
}

fn read_part(folder: &Path, part: &Part) -> Result<(), CliError> {
    let open = |file: &str| File::open(folder.join(file)).map_err(failed(format!("opening {file}")));
    match part {
        // What a header says is to be trusted only with its own checksum. Which number that starts from is the log's secret, so it is
        // computed and not compared.
        Part::Frames { file, from } => each_frame(&open(file)?, *from, &mut |header, _| {
            std::hint::black_box(crc32fast::hash(header));
        }),
        Part::Bytes { file, range } => read_pages(&open(file)?, range.clone()).map(drop),
        Part::Run { file } => {
            let file = open(file)?;
            let header = read_pages(&file, 0..PAGE_BYTES)?;
            let end = file.metadata().map_err(failed("looking at a run"))?.len();
            read_pages(&file, filter_start(&header).unwrap_or(end).min(end)..end).map(drop)
        }
    }
}

/// Reads bytes with one checksum for each page.
fn read_pages(file: &File, range: std::ops::Range<u64>) -> Result<Vec<u8>, CliError> {
    let mut bytes = vec![0; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or_default()];
    file.read_exact_at(&mut bytes, range.start).map_err(failed("reading pages"))?;
    bytes.chunks(usize::try_from(PAGE_BYTES).unwrap_or(usize::MAX)).for_each(|page| {
        std::hint::black_box(crc32fast::hash(page));
    });
    Ok(bytes)
}
