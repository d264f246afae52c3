//! Derived files of a closed log, in every state they can be found in: everything acknowledged is there, known, and there once.

use std::path::{Path, PathBuf};

use latent_bridge::{BusError, EmbeddedBroker};

use crate::support::fixtures::{Seeded, copy_directory, manifest, quick, scratch};
use crate::support::history::{Kept, check_directory, files, keep, past, records, tiny, wait_for_merges};

const DERIVED: [&str; 3] = [".idx", ".uids", "watermark"];

/// Changes one derived file after the other, each in a copy of its own, and checks the copy.
fn each_file(directory: &Path, kept: &[Kept], what: &str, change: impl Fn(&Path)) {
    for file in files(directory, "a", &DERIVED) {
        let copy = copy_directory(directory);
        let path = copy.path().join(file.strip_prefix(directory).unwrap());
        change(&path);
        check_directory(copy.path(), kept, &format!("{what}: {}", path.display()));
    }
}

#[test]
fn a_past_has_every_kind_of_derived_file() {
    let (directory, kept) = past(50);
    assert!(files(directory.path(), "a", &[".seg"]).len() > 5);
    assert!(files(directory.path(), "a", &[".idx"]).len() > 4);
    let runs = files(directory.path(), "a", &[".uids"]).len();
    assert!(runs > 1 && runs < files(directory.path(), "a", &[".idx"]).len(), "some are merged: {runs}");
    check_directory(directory.path(), &kept, "untouched");
}

#[test]
fn a_missing_empty_or_overgrown_derived_file_costs_nothing() {
    let (directory, kept) = past(50);
    each_file(directory.path(), &kept, "missing", |path| std::fs::remove_file(path).unwrap());
    each_file(directory.path(), &kept, "empty", |path| std::fs::write(path, b"").unwrap());
    let garbage: Vec<u8> = (0..2_097_152_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    each_file(directory.path(), &kept, "2 MiB of garbage", |path| std::fs::write(path, &garbage).unwrap());
    each_file(directory.path(), &kept, "2 MiB of zeros", |path| std::fs::write(path, vec![0; 2_097_152]).unwrap());
    for ending in DERIVED {
        let copy = copy_directory(directory.path());
        files(copy.path(), "a", &[ending]).iter().for_each(|path| std::fs::remove_file(path).unwrap());
        check_directory(copy.path(), &kept, &format!("every {ending} missing"));
    }
    files(directory.path(), "a", &DERIVED).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    check_directory(directory.path(), &kept, "all of them missing");
}

#[test]
fn a_derived_file_torn_at_any_512_bytes_or_with_any_page_flipped_costs_nothing() {
    let (directory, kept) = past(50);
    let mut seeded = Seeded(3);
    for file in files(directory.path(), "a", &DERIVED) {
        let content = std::fs::read(&file).unwrap();
        let relative = file.strip_prefix(directory.path()).unwrap();
        for cut in (0..content.len()).step_by(512) {
            let copy = copy_directory(directory.path());
            std::fs::write(copy.path().join(relative), &content[..cut]).unwrap();
            check_directory(copy.path(), &kept, &format!("{} torn at {cut}", relative.display()));
        }
        for page in (0..content.len()).step_by(4_096) {
            let copy = copy_directory(directory.path());
            let mut flipped = content.clone();
            let end = content.len().min(page + 4_096);
            flipped[page..end].iter_mut().for_each(|byte| *byte ^= 0xff);
            flipped[page + seeded.below(end - page)] ^= 1;
            std::fs::write(copy.path().join(relative), flipped).unwrap();
            check_directory(copy.path(), &kept, &format!("{} flipped at {page}", relative.display()));
        }
    }
}

#[test]
fn a_folder_or_link_in_place_of_a_derived_file_is_refused_by_name_or_costs_nothing() {
    let (directory, kept) = past(50);
    for file in files(directory.path(), "a", &DERIVED) {
        let copy = copy_directory(directory.path());
        let path = copy.path().join(file.strip_prefix(directory.path()).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match EmbeddedBroker::open_with(copy.path(), quick(tiny())).map(drop) {
            Ok(()) => {}
            Err(error @ (BusError::Io { .. } | BusError::Config { .. })) => assert!(error.to_string().contains(&name), "{name}: {error}"),
            Err(error) => panic!("{name}: {error}"),
        }
        std::fs::remove_dir(&path).unwrap();
        check_directory(copy.path(), &kept, &format!("{name} was a folder"));
    }
    let elsewhere = scratch();
    each_file(directory.path(), &kept, "a link to the file", |path| {
        let target = elsewhere.path().join(path.file_name().unwrap());
        std::fs::copy(path, &target).unwrap();
        std::fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink(&target, path).unwrap();
    });
    each_file(directory.path(), &kept, "a link to nowhere", |path| {
        std::fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink("nowhere", path).unwrap();
    });
}

/// Every derived file of `from` put into `into` under its own name, over what is there.
fn put_back(from: &Path, topic: &str, into: &Path) {
    for file in files(from, topic, &DERIVED) {
        std::fs::copy(&file, into.join("topics/a").join(file.file_name().unwrap())).unwrap();
    }
}

/// Goes on in a copy of `directory`: that copy, and all that was kept.
fn gone_on(directory: &Path, kept: &[Kept], prefix: &str, count: usize) -> (tempfile::TempDir, Vec<Kept>) {
    let copy = copy_directory(directory);
    let broker = EmbeddedBroker::open_with(copy.path(), quick(tiny())).unwrap();
    let more = keep(&broker, "a", records(prefix, count));
    wait_for_merges(&broker);
    (copy, [kept, &more].concat())
}

#[test]
fn derived_files_from_an_older_copy_or_from_another_future_of_it_cost_nothing() {
    let (old, kept) = past(20);
    for count in [1, 6, 11, 40] {
        let (ours, ours_kept) = gone_on(old.path(), &kept, "ours", count);
        let (theirs, _) = gone_on(old.path(), &kept, "them", count + 3);
        let stale = copy_directory(ours.path());
        put_back(old.path(), "a", stale.path());
        check_directory(stale.path(), &ours_kept, &format!("{count} later, from the older copy"));
        // The other future's watermark is no derived file of this one: it says what was given there.
        let other = copy_directory(ours.path());
        for file in files(theirs.path(), "a", &[".idx", ".uids"]) {
            std::fs::copy(&file, other.path().join("topics/a").join(file.file_name().unwrap())).unwrap();
        }
        check_directory(other.path(), &ours_kept, &format!("{count} later, from another future"));
    }
}

#[test]
fn derived_files_of_another_topic_or_store_cost_nothing() {
    let (ours, kept) = past(50);
    let (theirs, _) = past(50);
    let copy = copy_directory(ours.path());
    put_back(theirs.path(), "a", copy.path());
    check_directory(copy.path(), &kept, "of another store");
    let directory = scratch();
    let topics = [("a", 3), ("b", 3)];
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&topics), quick(tiny())).unwrap();
    let mut kept = keep(&broker, "a", records("old", 50));
    kept.extend(keep(&broker, "b", records("old", 50)));
    wait_for_merges(&broker);
    drop(broker);
    put_back(directory.path(), "b", directory.path());
    check_directory(directory.path(), &kept, "of another topic");
}

#[test]
fn leftovers_and_strays_beside_the_log_cost_nothing_and_what_is_not_ours_stays() {
    let (directory, kept) = past(50);
    let folder = directory.path().join("topics/a");
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let ours: Vec<_> = files(directory.path(), "a", &[".idx", ".uids", "watermark"]).iter().map(name).collect();
    let mut leftovers: Vec<_> = ours.iter().map(|name| format!("{name}.tmp")).collect();
    leftovers.extend(["next.zeros".to_owned(), "next.zeros.tmp".to_owned()]);
    for content in [&b""[..], b"half a file", &[0; 5_000]] {
        for leftover in &leftovers {
            std::fs::write(folder.join(leftover), content).unwrap();
        }
        for stray in ["notes.txt", "0.seg", "00000000000000000000.seg.bak", "x.idx", "1-2.uids"] {
            std::fs::write(folder.join(stray), content).unwrap();
        }
        let copy = copy_directory(directory.path());
        check_directory(copy.path(), &kept, "leftovers");
        for stray in ["notes.txt", "0.seg", "00000000000000000000.seg.bak", "x.idx", "1-2.uids"] {
            assert_eq!(std::fs::read(copy.path().join("topics/a").join(stray)).unwrap(), content, "{stray}");
        }
    }
    leftovers.iter().for_each(|leftover| {
        std::fs::remove_file(folder.join(leftover)).unwrap();
        std::fs::create_dir(folder.join(leftover)).unwrap();
    });
    match EmbeddedBroker::open_with(directory.path(), quick(tiny())).map(drop) {
        Ok(()) | Err(BusError::Io { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    leftovers.iter().for_each(|leftover| drop(std::fs::remove_dir(folder.join(leftover))));
    check_directory(directory.path(), &kept, "folders where temporary files go");
}

#[test]
fn runs_that_overlap_or_claim_more_than_the_log_has_double_and_hide_nothing() {
    let (old, kept) = past(20);
    let (ours, ours_kept) = gone_on(old.path(), &kept, "ours", 30);
    // All runs of both: equal entries, in runs that overlap.
    for file in files(old.path(), "a", &[".uids"]) {
        std::fs::copy(&file, ours.path().join("topics/a").join(file.file_name().unwrap())).unwrap();
    }
    check_directory(ours.path(), &ours_kept, "runs of before and after a merge");
    // The log went back to the older copy and the runs stayed.
    for file in files(ours.path(), "a", &[".uids", ".idx"]) {
        std::fs::copy(&file, old.path().join("topics/a").join(file.file_name().unwrap())).unwrap();
    }
    check_directory(old.path(), &kept, "runs that claim more than the log");
}
