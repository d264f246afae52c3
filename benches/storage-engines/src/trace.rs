//! `trace`: runs a committing process under `strace` and checks, at the moment of each acknowledgement, that nothing it wrote to a
//! file is unsynced.

mod calls;
mod evidence;

use std::path::Path;
use std::process::{Command, Stdio};

use crate::commit_child::Child;
use crate::engine::Name;
use crate::failure::Failure;
use crate::scratch::Scratch;

pub(crate) use evidence::Evidence;

/// What is watched: every way to write, to sync, and to open with an implied sync.
const WATCHED: &str =
    "trace=fsync,fdatasync,sync_file_range,msync,sync,syncfs,pwrite64,pwritev,pwritev2,write,writev,io_uring_enter,openat,mmap";

/// Traces `commits` single commits of `engine`.
pub(crate) fn trace(engine: Name, commits: u64, scratch: &Scratch) -> Result<Evidence, Failure> {
    let (data, traces) = (scratch.folder()?, scratch.folder()?);
    let path = traces.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-s", "8", "-e", WATCHED, "-o"]).arg(&path).arg("--");
    let child = Child { engine, directory: data.path(), first: 0, commits, batch_max: 1 };
    run(child.command(Some(strace))?)?;
    let calls = std::fs::read_to_string(&path).map_err(Failure::io("read the trace"))?;
    Ok(evidence_in(&calls, data.path()))
}

fn evidence_in(trace: &str, folder: &Path) -> Evidence {
    let mut evidence = Evidence::of_files_in(folder);
    calls::parse(trace).for_each(|call| evidence.note(&call));
    evidence
}

fn run(mut command: Command) -> Result<(), Failure> {
    let output = command.stderr(Stdio::piped()).output().map_err(Failure::io("run strace; install it first"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    Err(Failure::Child { program: "strace".to_owned(), status: output.status.to_string(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(trace: &str) -> Evidence {
        evidence_in(trace, Path::new("/d"))
    }

    const START: &str = "7 write(1<pipe:[5]>, \"begin\\n\", 6) = 6\n";

    #[test]
    fn a_commit_that_was_synced_leaves_nothing_open() {
        let trace = format!(
            "{START}7 pwrite64(4</d/log>, \"x\"..., 9, 0) = 9\n7 fdatasync(4</d/log>) = 0\n7 write(1<pipe:[5]>, \"1\\n\", 2) = 2\n"
        );
        let found = evidence(&trace);
        assert_eq!((found.acknowledged, found.fdatasyncs, found.fsyncs, found.writes, &*found.unsynced_text()), (1, 1, 0, 1, "none"));
    }

    #[test]
    fn a_commit_that_was_not_synced_is_counted() {
        for between in
            ["", "7 sync_file_range(4</d/log>, 0, 9, 0) = 0\n", "7 fsync(5</d/other>) = 0\n", "7 fsync(4</d/log>) = -1 EIO (x)\n"]
        {
            let trace = format!("{START}7 write(4</d/log>, \"x\", 1) = 1\n{between}7 write(1<pipe:[5]>, \"1\\n\", 2) = 2\n");
            assert_eq!(evidence(&trace).unsynced_text(), "log at 1", "{between}");
        }
    }

    #[test]
    fn a_sync_does_not_cover_what_was_written_after_it_began() {
        let trace = format!(
            "{START}8 fdatasync(4</d/log> <unfinished ...>\n7 pwrite64(4</d/log>, \"x\", 1, 0) = 1\n\
             8 <... fdatasync resumed>) = 0\n7 write(1<pipe:[5]>, \"1\\n\", 2) = 2\n"
        );
        assert_eq!(evidence(&trace).unsynced_text(), "log at 1");
    }

    #[test]
    fn a_write_in_two_halves_is_covered_by_a_sync_that_begins_after_it() {
        let trace = format!(
            "{START}8 pwrite64(4</d/log>, \"x\", 1, 0 <unfinished ...>\n7 openat(AT_FDCWD</>, \"/d/x\", O_RDWR) = 9</d/x>\n\
             8 <... pwrite64 resumed>) = 1\n8 fsync(4</d/log>) = 0\n7 write(1<pipe:[5]>, \"1\\n\", 2) = 2\n"
        );
        assert_eq!((&*evidence(&trace).unsynced_text(), evidence(&trace).fsyncs), ("none", 1));
    }

    #[test]
    fn a_file_opened_to_sync_by_itself_needs_no_sync() {
        let trace = format!(
            "7 openat(AT_FDCWD</>, \"/d/log\", O_RDWR|O_DSYNC) = 4</d/log>\n{START}7 write(4</d/log>, \"x\", 1) = 1\n\
             7 write(1<pipe:[5]>, \"1\\n\", 2) = 2\n"
        );
        let found = evidence(&trace);
        assert_eq!((&*found.unsynced_text(), found.synced_opens), ("none", 1));
    }

    #[test]
    fn a_file_that_is_mapped_to_be_written_to_is_named() {
        let mapping = |flags: &str, path: &str| format!("7 mmap(NULL, 9, {flags}, 5<{path}>, 0) = 0x7f\n");
        let trace = [("PROT_READ|PROT_WRITE, MAP_SHARED", "/d/a"), ("PROT_READ, MAP_SHARED", "/d/b"), ("PROT_WRITE, MAP_SHARED", "/e/c")];
        let trace: String = trace.into_iter().map(|(flags, path)| mapping(flags, path)).collect();
        assert_eq!(evidence(&trace).mapped_text(), "a");
    }

    #[test]
    fn calls_before_the_beginning_or_outside_the_folder_are_not_counted() {
        let trace = format!(
            "7 fsync(4</d/log>) = 0\n7 write(4</d/log>, \"x\", 1) = 1\n{START}7 write(2</dev/pts/0>, \"x\", 1) = 1\n\
             7 write(1<pipe:[5]>, \"1\\n\", 2) = 2\n7 write(4</d/log>, \"x\", 1) = 1\n"
        );
        let found = evidence(&trace);
        assert_eq!((found.acknowledged, found.writes, found.fsyncs, &*found.unsynced_text()), (1, 0, 0, "log at 1"));
    }
}
