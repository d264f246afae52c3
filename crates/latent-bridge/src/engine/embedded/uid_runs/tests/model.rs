//! Random histories against a map: writing, merging, expiring, damaging, reopening in any order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::storage::FailingStorage;
use super::*;

/// Few hashes, close together and far apart, so that they collide and fall into the same pages.
const HASHES: [u64; 6] = [0, 1, 1 << 40, 1 << 63, (1 << 63) + 1, u64::MAX];

#[derive(Debug, Clone)]
enum Step {
    /// The next sequences get these hashes, by number, and a run is written over them. A hole is a sequence without a record.
    Write { hashes: Vec<Option<usize>> },
    /// What is due is merged.
    Merge,
    /// Merging begins and is stopped.
    MergeStopped,
    /// This many sequences more expire.
    Expire { count: u64 },
    /// The set is opened again from its files.
    Reopen,
    /// The file of one run is lost; opened again, the gap is written anew from the model.
    Lose { run: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let hash = prop_oneof![1 => Just(None), 9 => (0..HASHES.len() + 300).prop_map(Some)];
    let step = prop_oneof![
        6 => prop::collection::vec(hash, 1..400).prop_map(|hashes| Step::Write { hashes }),
        3 => Just(Step::Merge),
        1 => Just(Step::MergeStopped),
        1 => (0_u64..600).prop_map(|count| Step::Expire { count }),
        1 => Just(Step::Reopen),
        1 => (0_usize..20).prop_map(|run| Step::Lose { run }),
    ];
    prop::collection::vec(step, 1..40)
}

/// The first few numbers are the hashes that collide; the others are spread.
fn hash_numbered(number: usize) -> UidHash {
    HASHES.get(number).map_or_else(|| hash_of(number as u64), |hash| UidHash(*hash))
}

struct Model {
    store: RunStore,
    runs: UidRuns,
    /// What the log would have: the hash of each record by its sequence.
    log: BTreeMap<u64, UidHash>,
    first_live: u64,
    next: u64,
    _directory: TempDir,
}

impl Model {
    fn new(filter_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = store_over(Arc::new(FailingStorage::default()), directory.path(), filter_bytes);
        Self { store, runs: UidRuns::default(), log: BTreeMap::new(), first_live: 0, next: 0, _directory: directory }
    }

    fn entry(sequence: u64, hash: UidHash) -> UidEntry {
        UidEntry { hash, sequence, at: u32::try_from(sequence).unwrap() }
    }

    fn replace(&mut self, successor: Successor) {
        self.runs = successor.runs;
        successor.dropped.iter().for_each(|run| self.store.remove(run));
    }

    fn write(&mut self, range: SequenceRange) {
        let entries = self.log.range(range.first..range.next).map(|(sequence, hash)| Self::entry(*sequence, *hash)).collect();
        let run = self.store.write(RunToWrite { entries, ..written(range) }).unwrap();
        self.replace(self.runs.with(run));
    }

    fn live(&self) -> SequenceRange {
        range(self.first_live, self.next)
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Write { hashes } => {
                let first = self.next;
                self.next += hashes.len() as u64;
                let records = (first..).zip(hashes).filter_map(|(sequence, hash)| Some((sequence, hash_numbered((*hash)?))));
                self.log.extend(records);
                self.write(range(first, self.next));
            }
            Step::Merge => {
                if let Some(plan) = self.runs.merge_due() {
                    let merged = self.store.merge(&plan, self.first_live, &mut || ControlFlow::Continue(())).unwrap();
                    self.replace(self.runs.with(merged.unwrap()));
                }
            }
            Step::MergeStopped => {
                if let Some(plan) = self.runs.merge_due() {
                    // A small merge may be over before its first pause; what it made is found at the next opening.
                    self.store.merge(&plan, self.first_live, &mut || ControlFlow::Break(())).unwrap();
                }
            }
            Step::Expire { count } => {
                self.first_live = self.next.min(self.first_live + count);
                if let Some(successor) = self.runs.pruned(self.first_live) {
                    self.replace(successor);
                }
            }
            Step::Reopen => self.runs = self.store.open().unwrap(),
            Step::Lose { run } => {
                if let Some(run) = self.runs.iter().nth(*run) {
                    self.store.remove(run);
                }
                self.runs = self.store.open().unwrap();
                self.runs.uncovered(self.live()).into_iter().for_each(|gap| self.write(gap));
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.runs.uncovered(self.live()), []);
        for number in 0..HASHES.len() + 310 {
            let hash = hash_numbered(number);
            let live = self.log.range(self.first_live..).filter(|(_, of)| **of == hash);
            let expected: BTreeSet<_> = live.map(|(sequence, hash)| Self::entry(*sequence, *hash)).collect();
            let found: BTreeSet<_> = all_candidates(&self.runs, hash, self.first_live).unwrap().into_iter().collect();
            assert_eq!(found, expected, "hash {number}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_history_finds_exactly_what_is_live(steps in steps(), filter_bytes in prop_oneof![Just(0), Just(2_000), Just(MANY_BYTES)]) {
        let mut model = Model::new(filter_bytes);
        for step in &steps {
            model.step(step);
            model.check();
        }
    }
}
