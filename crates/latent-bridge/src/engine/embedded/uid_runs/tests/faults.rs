//! Each call of the storage fails in turn.

use super::storage::FailingStorage;
use super::*;

const COVERED: SequenceRange = SequenceRange { first: 0, next: 12_000 };

/// Four runs over a storage that works until it is told otherwise.
struct Scene {
    _directory: TempDir,
    storage: FailingStorage,
    store: RunStore,
    runs: UidRuns,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let storage = FailingStorage::default();
        let store = store_over(Arc::new(storage.clone()), directory.path(), MANY_BYTES);
        let runs = set_of(&store, &[0, 1, 2, 3].map(|at| range(at * 3_000, (at + 1) * 3_000)));
        Self { _directory: directory, storage, store, runs }
    }

    /// Nothing unfinished is left, and every entry is found in the runs from before, and after opening again.
    #[track_caller]
    fn assert_as_before(&self, number: u64) {
        let left = names(&self.store.directory);
        assert!(left.iter().all(|name| !name.ends_with(".tmp")), "call {number} left {left:?}");
        assert_finds_all(&self.runs, COVERED);
        assert_finds_all(&self.store.open().unwrap(), COVERED);
    }
}

/// Does `act` with its first call failing, then with its second, and so on until none is left; says how many there were. After each,
/// with the storage working again, `check` gets the result, which must be an error unless `act` can do without what failed.
fn each_failing_call<T>(act: impl Fn(&Scene) -> T, check: impl Fn(&Scene, T, u64)) -> u64 {
    for number in 1.. {
        let scene = Scene::new();
        scene.storage.fail(number);
        let result = act(&scene);
        if !scene.storage.take_failed() {
            return number - 1;
        }
        check(&scene, result, number);
    }
    unreachable!("the calls of one action end")
}

#[test]
fn a_write_that_fails_leaves_the_old_runs_usable() {
    let added = range(12_000, 15_000);
    let calls = each_failing_call(
        |scene| scene.store.write(written(added)),
        |scene, written, number| {
            assert!(matches!(written, Err(BusError::Io { .. })), "call {number}");
            scene.assert_as_before(number);
        },
    );
    assert_eq!(calls, 7, "open, two chunks, header, sync, rename, directory");
}

#[test]
fn a_merge_that_fails_leaves_the_old_runs_usable() {
    let calls = each_failing_call(
        |scene| scene.store.merge(&scene.runs.merge_due().unwrap(), 0, &mut || ControlFlow::Continue(())),
        |scene, merged, number| {
            assert!(matches!(merged, Err(BusError::Io { .. })), "call {number}");
            scene.assert_as_before(number);
        },
    );
    assert!(calls > 80, "each page read and each chunk written: {calls}");
}

#[test]
fn an_opening_that_fails_names_the_file_and_one_that_does_not_finds_everything() {
    let calls = each_failing_call(
        |scene| scene.store.open(),
        |scene, opened, number| match opened {
            Err(BusError::Io { file, .. }) => {
                assert!(!file.contains('/'), "call {number}");
                scene.assert_as_before(number);
            }
            Err(error) => panic!("call {number}: {error}"),
            Ok(runs) => {
                let missing = runs.uncovered(COVERED);
                let found = |entry: &UidEntry| {
                    finds(&runs, *entry) == Ok(true) || missing.iter().any(|gap| (gap.first..gap.next).contains(&entry.sequence))
                };
                assert!(entries(COVERED).iter().all(found), "call {number}");
            }
        },
    );
    assert!(calls > 12, "{calls}");
}

#[test]
fn a_lookup_that_fails_says_so_and_marks_its_run() {
    let scene = Scene::new();
    scene.storage.fail(1);
    let entry = entries(range(7_000, 7_001))[0];
    assert!(matches!(finds(&scene.runs, entry), Err(BusError::Io { operation: "read", kind: std::io::ErrorKind::Other, .. })));
    assert!(scene.storage.take_failed());
    assert_eq!(scene.runs.uncovered(COVERED), [range(6_000, 9_000)]);
    assert_eq!(finds(&scene.runs, entry), Ok(true), "what can be read again is used until it was made again");
}

#[test]
fn a_file_that_cannot_be_removed_stays_until_the_next_opening() {
    let mut stayed = 0;
    for number in 1.. {
        let scene = Scene::new();
        scene.store.write(written(COVERED)).unwrap();
        scene.storage.fail(number);
        let opened = scene.store.open();
        if !scene.storage.take_failed() {
            break;
        }
        if let Ok(runs) = opened
            && names(&scene.store.directory).len() == 2
        {
            assert_eq!(ranges_of(&runs), [(0, 12_000)], "call {number}");
            assert_eq!(ranges_of(&scene.store.open().unwrap()), [(0, 12_000)]);
            assert_eq!(names(&scene.store.directory).len(), 1, "call {number}");
            stayed += 1;
        }
    }
    assert_eq!(stayed, 4, "each of the four contained runs once");
}
