//! The corpus replayed on a stable compiler, and seeded mutations of it (D-32).
//!
//! `LATENT_FUZZ_SECONDS` mutates for so long instead of a fixed number of times; `cargo xtask fuzz` sets it. A failure names target, input
//! and seed, which make the same bytes again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{TARGETS, Target};
use crate::cold::fuzz_bodies::corpus as cold_json_corpus;
use crate::cold::segment::tests::corpus as cold_corpus;
use crate::engine::embedded::fuzz_bodies::corpus as log_corpus;

const SECONDS_VAR: &str = "LATENT_FUZZ_SECONDS";
const BLESS_VAR: &str = "LATENT_BLESS_CORPUS";
/// Mutations of each input when no time is given.
const MUTATIONS: u64 = 2_000;

/// splitmix64: its whole state is the seed that a failure names.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap()
    }
}

struct Input {
    target: &'static Target,
    name: String,
    content: Vec<u8>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz-corpus")
}

fn committed() -> Vec<Input> {
    let mut inputs = Vec::new();
    for target in TARGETS {
        let entries = std::fs::read_dir(folder().join(target.name)).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        inputs.extend(paths.into_iter().map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            Input { target, name, content: std::fs::read(path).unwrap() }
        }));
    }
    inputs
}

const SCHEMA: &str = r##"{"$defs": {"id": {"type": "integer", "minimum": 0}}, "type": "object", "required": ["id"],
 "properties": {"id": {"$ref": "#/$defs/id"}, "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}},
 "more": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}}"##;
const PAYLOAD: &str = r#"{"id": 7, "tags": ["a", "B"], "more": {"id": 1, "more": null}}"#;
const MANIFEST: &str = r#"manifest_version: 1
name: corpus
replication_factor: 3
topics:
  - name: orders.placed
    partitions: 8
    retention: { hot_hours: 72, dedup_hours: 24, cold_uri: "file:///archive", cold_format: segments }
    schema_ref: schemas/order.json
  - { name: plain, partitions: 1 }
"#;

/// Everything of the corpus that our own code makes.
fn made() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut made = log_corpus();
    made.extend(cold_corpus());
    made.extend(cold_json_corpus());
    made.push(("manifest", "two-topics", MANIFEST.into()));
    made.push(("manifest", "flow", b"{manifest_version: 1, name: x, topics: [{name: t, partitions: 1}]}".to_vec()));
    made.push(("schema", "recursive-with-payload", format!("{SCHEMA}\0{PAYLOAD}").into()));
    made.push(("schema", "any", b"true\0[]".to_vec()));
    made
}

#[test]
fn the_corpus_is_what_the_code_writes() {
    for (target, name, content) in made() {
        let path = folder().join(target).join(name);
        if std::env::var_os(BLESS_VAR).is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &content).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_default();
        assert!(kept == content, "{target}/{name} differs; if the format was meant to change, run this test with {BLESS_VAR}=1");
    }
}

/// A changed input. Zeros are left alone half of the time: most of a page is nothing else.
fn mutated(content: &[u8], others: &[&[u8]], seeded: &mut Seeded) -> Vec<u8> {
    let mut out = content.to_vec();
    for _ in 0..=seeded.below(4) {
        let mut at = seeded.below(out.len());
        if seeded.below(2) == 0 {
            at = (at..out.len()).find(|at| out[*at] != 0).unwrap_or(at);
        }
        let end = (at + 1 + seeded.below(64)).min(out.len());
        let number: u64 = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX][seeded.below(8)];
        match seeded.below(8) {
            _ if out.is_empty() => out.extend_from_slice(content),
            0 | 1 => out[at] ^= 1 << seeded.below(8),
            2 => out[at] = u8::try_from(seeded.below(256)).unwrap(),
            3 => out.iter_mut().skip(at).zip(&number.to_le_bytes()[..[1, 2, 4, 8][seeded.below(4)]]).for_each(|(to, from)| *to = *from),
            4 => drop(out.drain(at..end)),
            5 => drop(out.splice(at..at, out[at..end].to_vec())),
            6 => out.truncate(at),
            _ => {
                let other = others[seeded.below(others.len())];
                let from = seeded.below(other.len());
                let until = (from + 1 + seeded.below(512)).min(other.len());
                out.splice(at..end, other.get(from..until).unwrap_or_default().iter().copied());
            }
        }
    }
    out
}

/// What broke, or nothing.
fn failure(target: &Target, input: &Input, seed: u64, others: &[&[u8]]) -> Option<String> {
    let bytes = mutated(&input.content, others, &mut Seeded(seed));
    let broken = catch_unwind(AssertUnwindSafe(|| (target.body)(&bytes))).is_err();
    broken.then(|| format!("{} broke on {} mutated with seed {seed}", target.name, input.name))
}

#[test]
fn every_target_holds_for_its_corpus_and_for_mutations_of_it() {
    let inputs = committed();
    for target in TARGETS {
        assert!(inputs.iter().any(|input| input.target.name == target.name), "{} has no corpus", target.name);
        super::run(target.name, b"");
    }
    inputs.iter().for_each(|input| (input.target.body)(&input.content));
    let seconds = std::env::var(SECONDS_VAR).ok().map(|text| text.parse().unwrap()).map(Duration::from_secs);
    let (start, mut round) = (Instant::now(), 0);
    while seconds.map_or(round < MUTATIONS, |seconds| start.elapsed() < seconds) {
        for input in &inputs {
            let others: Vec<&[u8]> =
                inputs.iter().filter(|other| other.target.name == input.target.name).map(|other| &*other.content).collect();
            assert_eq!(failure(input.target, input, round, &others), None);
        }
        round += 1;
    }
}

#[test]
fn a_body_that_breaks_is_found_and_named_with_its_seed() {
    static PLANTED: Target = Target { name: "planted", body: |bytes| assert!(bytes.len() >= 40, "planted") };
    let input = Input { target: &PLANTED, name: "forty".to_owned(), content: vec![1; 40] };
    let found = (0..MUTATIONS).find_map(|seed| failure(&PLANTED, &input, seed, &[&input.content])).unwrap();
    assert!(found.starts_with("planted broke on forty mutated with seed "), "{found}");
}
