//! What must hold in the end, read from the topics.
//!
//! Always: every event is one output or one dead letter, each stored once; outputs of a key are in the order of its events; no event
//! begins before the one before it in its key has its output or its dead letter.
//!
//! An event that would have succeeded may be *worn out*: parked as exhausted because its runs could not publish while a broker was away, also
//! after its output was stored.
//!
//! A run may be seen *out of turn*, after a later event of its key began: when a broker that was killed forgot a settlement, or when what a
//! run wrote arrived after its connection broke. Such runs store nothing twice. Both are counted, and are a failure anywhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use latent_core::StoredRecord;

use super::faults::Faults;
use super::publishing::{Kind, uid};
use super::world::{World, stored};

/// How long after a fault its consequences are seen: leases, deadlines and a connection that is made again.
const CONSEQUENCES_MILLIS: u64 = 30_000;

/// Dead letters by the event's offset: the reason, and when each was stored.
type Letters = BTreeMap<u64, Vec<(String, u64)>>;

struct Input {
    key: String,
    kind: Kind,
    /// The one before it in its key.
    before: Option<u64>,
}

/// How an event ended.
#[derive(Debug, Default)]
struct End {
    done: u64,
    /// Reason, and when it was stored.
    letters: Vec<(String, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Verdict {
    outputs: u64,
    rejected: u64,
    exhausted: u64,
    /// Parked as exhausted though they would have succeeded, or been rejected.
    worn_out: u64,
    runs: u64,
    /// Runs of events of which a later one of their key had begun.
    out_of_turn: u64,
    /// Runs that began while another of their key had not ended, and ended later.
    overlapping: u64,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { outputs, rejected, exhausted, worn_out, runs, out_of_turn, overlapping } = self;
        write!(
            f,
            "{outputs} outputs, {rejected} parked as rejected, {exhausted} as exhausted, each once, in {runs} runs; lost 0, stored twice 0, \
             out of order 0, stranded 0; after a broken connection or a killed broker {worn_out} worn out, {out_of_turn} runs out of turn, {overlapping} at once"
        )
    }
}

impl Verdict {
    pub(super) fn of(world: &World, (events, attempts_max): (u64, u32), faults: &Faults) -> Self {
        let bus = world.bus();
        let inputs = inputs(stored(&bus, "in"), events);
        let letters = letters(&stored(&bus, "dead"), &inputs, attempts_max);
        let mut verdict = Self::default();
        let (done, problems) = verdict.read(&stored(&bus, "out"), (&inputs, &letters), faults);
        assert!(problems.is_empty(), "{} problems: {:#?}", problems.len(), &problems[..problems.len().min(20)]);
        for (offset, input) in &inputs {
            let end =
                End { done: done.get(offset).copied().unwrap_or_default(), letters: letters.get(offset).cloned().unwrap_or_default() };
            verdict.count(*offset, input, &end, faults);
        }
        verdict
    }

    /// Every event ended once, as its kind says.
    fn count(&mut self, offset: u64, input: &Input, end: &End, faults: &Faults) {
        let reasons: Vec<&str> = end.letters.iter().map(|(reason, _)| reason.as_str()).collect();
        match (input.kind, end.done, &reasons[..]) {
            (Kind::Once | Kind::Late, 1, []) => self.outputs += 1,
            (Kind::Reject, 0, ["rejected"]) => self.rejected += 1,
            (Kind::Fail, 0, ["exhausted"]) => self.exhausted += 1,
            // One that was to be rejected is worn out as any other: its runs could not note that they began.
            (Kind::Reject, 0, ["exhausted"]) | (Kind::Once | Kind::Late, 0 | 1, ["exhausted"])
                if faults.excuse(end.letters[0].1, CONSEQUENCES_MILLIS) =>
            {
                self.worn_out += 1;
                self.outputs += end.done;
            }
            _ => panic!("event {offset} of kind {:?}: {end:?}", input.kind),
        }
    }

    /// Goes through what the functions wrote, in its order for each key. Gives the outputs of each event, and what must not be.
    fn read(
        &mut self,
        written: &[StoredRecord],
        (inputs, letters): (&BTreeMap<u64, Input>, &Letters),
        faults: &Faults,
    ) -> (HashMap<u64, u64>, Vec<String>) {
        let (mut done, mut problems, mut uids) = (HashMap::<u64, u64>::new(), Vec::new(), BTreeSet::new());
        let ended: BTreeSet<String> = written.iter().map(text).filter(|text| text.starts_with("ended")).map(run_of).collect();
        // By key: the highest event that began, the highest output, and the run that has not ended yet though it will.
        let (mut highest, mut last_done, mut open) =
            (HashMap::<&str, u64>::new(), HashMap::<&str, u64>::new(), HashMap::<&str, String>::new());
        for record in written {
            let (text, at) = (text(record), record.record.stored_at.0);
            let mut words = text.split(' ');
            let (what, offset) = (words.next().unwrap(), words.next().unwrap().parse::<u64>().unwrap());
            let Some(input) = inputs.get(&offset) else { panic!("foreign: {text}") };
            let key = input.key.as_str();
            assert_eq!(record.record.key, key, "{text}");
            if !uids.insert(record.record.uid.as_str()) {
                problems.push(format!("stored twice: {text}"));
            }
            match what {
                "done" => {
                    *done.entry(offset).or_default() += 1;
                    if last_done.insert(key, offset).is_some_and(|last| last >= offset) {
                        problems.push(format!("output out of order: {key} {text}"));
                    }
                }
                "begun" => {
                    self.runs += 1;
                    if highest.get(key).is_none_or(|highest| *highest < offset) {
                        let over = input.before.is_none_or(|before| {
                            let parked = letters.get(&before).is_some_and(|letters| letters.iter().any(|(_, stored)| *stored <= at));
                            parked || done.contains_key(&before)
                        });
                        if !over {
                            problems.push(format!("begun before {:?} had ended: {key} {text} at {at}", input.before));
                        }
                        highest.insert(key, offset);
                    } else if highest[key] > offset {
                        self.out_of_turn += 1;
                        if !faults.excuse(at, CONSEQUENCES_MILLIS) {
                            problems.push(format!("out of turn: {key} {text} at {at}"));
                        }
                    }
                    if let Some(other) = open.get(key) {
                        self.overlapping += 1;
                        if !faults.excuse(at, CONSEQUENCES_MILLIS) {
                            problems.push(format!("at once with {other}: {key} {text} at {at}"));
                        }
                    }
                    let run = run_of(text);
                    if ended.contains(&run) {
                        open.insert(key, run);
                    }
                }
                "ended" => {
                    if open.get(key) == Some(&run_of(text)) {
                        open.remove(key);
                    }
                }
                _ => panic!("foreign: {text}"),
            }
        }
        (done, problems)
    }
}

fn text(record: &StoredRecord) -> &str {
    std::str::from_utf8(&record.record.payload).unwrap()
}

fn run_of(text: &str) -> String {
    text.rsplit(' ').next().unwrap().to_owned()
}

/// What was published, by its offset: each uid once and no other.
fn inputs(mut records: Vec<StoredRecord>, events: u64) -> BTreeMap<u64, Input> {
    records.sort_by_key(|record| record.offset);
    let number = |record: &StoredRecord| text(record).rsplit(':').next().unwrap().parse::<u64>().unwrap();
    let numbers: BTreeSet<u64> = records.iter().map(number).collect();
    assert!(records.len() as u64 == events && numbers.into_iter().eq(0..events), "{} events", records.len());
    let mut last = HashMap::<String, u64>::new();
    let input = |record: &StoredRecord| {
        assert_eq!(record.record.uid.as_str(), uid(number(record)));
        let key = record.record.key.clone();
        let before = last.insert(key.clone(), record.offset.0);
        (record.offset.0, Input { key, kind: Kind::of(number(record)), before })
    };
    records.iter().map(input).collect()
}

/// Dead letters by the event's offset: why, and when.
fn letters(records: &[StoredRecord], inputs: &BTreeMap<u64, Input>, attempts_max: u32) -> Letters {
    let mut letters = Letters::new();
    for record in records {
        let attribute = |name: &str| {
            let found = record.record.attributes.iter().find(|(found, _)| *found == name);
            found.unwrap_or_else(|| panic!("{name} of {record:?}")).1.to_owned()
        };
        let offset = attribute("Latent-Dead-Offset").parse().unwrap();
        let (reason, attempts): (_, u32) = (attribute("Latent-Dead-Reason"), attribute("Latent-Dead-Attempts").parse().unwrap());
        assert_eq!(record.record.key, inputs[&offset].key);
        assert!(reason != "exhausted" || attempts >= attempts_max, "{record:?}");
        letters.entry(offset).or_default().push((reason, record.record.stored_at.0));
    }
    letters
}
