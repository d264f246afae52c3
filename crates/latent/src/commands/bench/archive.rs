//! the archive in segments, against a compressed write of the same bytes by hand, and what it costs whoever publishes meanwhile.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use latent_bridge::EmbeddedBroker;
use latent_bridge::cold::export::{BusItems, ExportTo, Exported, Goal, SegmentExporter};
use latent_bridge::cold::segment::SegmentSizes;
use latent_bridge::cold::{ColdStore, ControlKeys, open_archive};
use latent_bridge::embedded::OsStorage;
use latent_core::{Offset, Partition, UnixMillis};

use super::event::{self, PayloadSize};
use super::figure::Slice;
use super::measure::{Pair, Session};
use super::row::{RowSpec, Target, Unit};
use super::rows::Report;
use super::store::{Store, TOPIC};
use super::{failed, log_failed, workload as work};
use crate::error::CliError;

/// What the segments' own default is.
const LEVEL: i32 = 3;

fn broken(reason: impl ToString) -> CliError {
    CliError::Bench { doing: "measuring Q-32".to_owned(), reason: reason.to_string() }
}

/// Both rows.
pub(super) fn archive(session: &mut Session, report: &mut dyn Report) -> Result<(), CliError> {
    let plan = session.plan;
    let folder = session.scratch.folder("archiving")?;
    let ours = Store::create(&folder.join("log"), 1, PayloadSize::Small)?.fill(plan.read_events, &session.stop)?;
    let bodies = (0..plan.read_events).map(|number| event::body(PayloadSize::Small, number)).collect::<Result<Vec<_>, _>>()?;
    let spec = RowSpec {
        id: "Q-32",
        case: "segments",
        unit: Unit::PerSecond,
        reference_name: "zstd blocks of the same bytes, written and synced",
        target: Target::AtLeast(0.6),
    };
    let mut numbers = 0..;
    let mut fresh = || folder.join(numbers.next().unwrap_or_default().to_string());
    let (for_ours, for_theirs): (Vec<_>, Vec<_>) = (0..plan.rounds * 50).map(|_| (fresh(), fresh())).unzip();
    let (mut for_ours, mut for_theirs) = (for_ours.into_iter(), for_theirs.into_iter());
    let used_up = || broken("there are no more folders");
    let pair = Pair {
        ours: Box::new(|| {
            let archive = Archive::in_folder(&for_ours.next().ok_or_else(used_up)?)?;
            let started = Instant::now();
            let exported = archive.export(&ours.broker)?;
            let elapsed = started.elapsed();
            if exported.items != plan.read_events {
                return Err(broken(format!("{} of {} events were archived", exported.items, plan.read_events)));
            }
            archive.remove()?;
            Ok(Slice { units: exported.items, elapsed, latencies: Vec::new() })
        }),
        reference: Box::new(|| by_hand(&for_theirs.next().ok_or_else(used_up)?, &bodies)),
    };
    report.row(&session.row(spec, pair)?)?;
    drop(ours);
    beside_publication(session, report)
}

/// Publishes in batches, alone and while everything that was published goes into segments.
fn beside_publication(session: &mut Session, report: &mut dyn Report) -> Result<(), CliError> {
    let plan = session.plan;
    let folder = session.scratch.folder("beside-archiving")?;
    let mut archived = Store::create(&folder.join("archived"), 1, PayloadSize::Small)?;
    let mut alone = Store::create(&folder.join("alone"), 1, PayloadSize::Small)?;
    let archive = Archive::in_folder(&folder.join("archive"))?;
    let spec = RowSpec {
        id: "Q-32",
        case: "publication beside it",
        unit: Unit::PerSecond,
        reference_name: "the same batches with nothing archived",
        target: Target::AtLeast(0.95),
    };
    let pair = Pair {
        ours: Box::new(|| {
            let (stop, broker) = (AtomicBool::new(false), archived.shared());
            std::thread::scope(|scope| {
                let exporting = scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        archive.export(&broker)?;
                    }
                    archive.export(&broker)
                });
                let slice = work::batches(&mut archived, &plan);
                stop.store(true, Ordering::Relaxed);
                exporting.join().map_err(|_| broken("the exporter ended"))??;
                slice
            })
        }),
        reference: Box::new(|| work::batches(&mut alone, &plan)),
    };
    report.row(&session.row(spec, pair)?)
}

/// An archive in a folder, and who writes it.
struct Archive {
    folder: PathBuf,
    store: Arc<dyn ColdStore>,
    exporter: SegmentExporter,
    keys: ControlKeys,
}

impl Archive {
    fn in_folder(folder: &Path) -> Result<Self, CliError> {
        let objects = folder.join("objects");
        std::fs::create_dir_all(&objects).map_err(failed("making a folder for an archive"))?;
        let store = open_archive(&objects.to_string_lossy()).map_err(log_failed("opening an archive to measure"))?;
        let keys = ControlKeys::new(&[[7; 32]]).map_err(log_failed("making a key to measure"))?;
        let exporter = SegmentExporter::new(Arc::new(OsStorage), folder.join("heads"), "measured", SegmentSizes::default());
        Ok(Self { folder: folder.to_owned(), store, exporter, keys })
    }

    fn export(&self, broker: &EmbeddedBroker) -> Result<Exported, CliError> {
        let items = BusItems { bus: broker, topic: TOPIC.to_owned(), partition: Partition(0) };
        let to = ExportTo { store: &*self.store, keys: &self.keys };
        let goal = Goal { must: Some(Offset(u64::MAX)), ..Goal::from(UnixMillis(0)) };
        self.exporter.export(TOPIC, Partition(0), to, &items, goal).map_err(broken)
    }

    fn remove(self) -> Result<(), CliError> {
        std::fs::remove_dir_all(&self.folder).map_err(failed("removing an archive"))
    }
}

/// The same events, compressed in blocks of the same size and level, a file for as much as a segment holds.
fn by_hand(folder: &Path, bodies: &[Vec<u8>]) -> Result<Slice, CliError> {
    let sizes = SegmentSizes::default();
    std::fs::create_dir_all(folder).map_err(failed("making a folder"))?;
    let started = Instant::now();
    let mut compressor = zstd::bulk::Compressor::new(LEVEL).map_err(failed("compressing by hand"))?;
    let (mut block, mut raw_bytes, mut file) = (Vec::new(), 0, None);
    let mut files = 0_u32;
    let end = |file: &mut Option<File>| file.take().map_or(Ok(()), |file| file.sync_data()).map_err(failed("syncing by hand"));
    for (number, body) in bodies.iter().enumerate() {
        block.extend_from_slice(body);
        raw_bytes += body.len();
        let is_last = number + 1 == bodies.len();
        if block.len() < sizes.block_bytes && !is_last {
            continue;
        }
        let opened = match &mut file {
            Some(opened) => opened,
            None => {
                files += 1;
                file.insert(File::create(folder.join(files.to_string())).map_err(failed("making a file by hand"))?)
            }
        };
        let compressed = compressor.compress(&block).map_err(failed("compressing by hand"))?;
        opened.write_all(&compressed).map_err(failed("writing by hand"))?;
        block.clear();
        if raw_bytes >= sizes.raw_bytes || is_last {
            end(&mut file)?;
            raw_bytes = 0;
        }
    }
    let elapsed = started.elapsed();
    std::fs::remove_dir_all(folder).map_err(failed("removing what was written by hand"))?;
    Ok(Slice { units: bodies.len() as u64, elapsed, latencies: Vec::new() })
}
