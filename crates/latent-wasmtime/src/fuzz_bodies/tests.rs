//! The corpus replayed on a stable compiler, and seeded mutations of it (D-32).
//!
//! `LATENT_FUZZ_SECONDS` mutates for so long, shared between the targets, instead of a fixed number of times; `cargo xtask fuzz` sets it.
//! A failure names target, input and seed, which make the same bytes again.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use latent_test_guests::ALL as GUESTS;

use super::components;
use super::mutations::{self, Seeded};
use super::{TARGETS, Target};
use crate::values::fuzz_bodies::corpus as values_corpus;

const SECONDS_VAR: &str = "LATENT_FUZZ_SECONDS";
const BLESS_VAR: &str = "LATENT_BLESS_CORPUS";
/// Mutations of all inputs of a target when no time is given. Components are compiled, which takes thousands of times as long.
const VALUES_MUTATIONS: u64 = 12_000;
const COMPONENT_MUTATIONS: u64 = 120;

struct Input {
    target: &'static Target,
    name: String,
    content: Cow<'static, [u8]>,
    /// One of so many rounds mutates it: large inputs have their turn less often.
    rarity: u64,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz-corpus")
}

/// The committed inputs of a target, and for components the test guests, whose code the toolchain of the day makes.
fn inputs(target: &'static Target) -> Vec<Input> {
    let entries = std::fs::read_dir(folder().join(target.name)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let committed = paths.into_iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        Input { target, name, content: std::fs::read(path).unwrap().into(), rarity: 1 }
    });
    let guests = GUESTS.iter().filter(|_| target.name == "component");
    let guests = guests.map(|guest| Input { target, name: guest.name.to_owned(), content: guest.component.into(), rarity: 200 });
    committed.chain(guests).collect()
}

/// Everything of the corpus that our own code makes.
fn made() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut made = values_corpus();
    made.push(("component", "handler", components::handler()));
    made.push(("component", "functions", components::functions()));
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
        assert!(kept == content, "{target}/{name} differs; if it was meant to change, run this test with {BLESS_VAR}=1");
    }
}

fn mutated(input: &Input, seed: u64, others: &[&[u8]]) -> Vec<u8> {
    let mutate = if input.target.name == "component" { mutations::component } else { mutations::bytes };
    mutate(&input.content, others, &mut Seeded(seed))
}

/// What broke, or nothing.
fn failure(input: &Input, seed: u64, others: &[&[u8]]) -> Option<String> {
    let bytes = mutated(input, seed, others);
    let broken = catch_unwind(AssertUnwindSafe(|| (input.target.body)(&bytes))).is_err();
    broken.then(|| format!("{} broke on {} mutated with seed {seed}", input.target.name, input.name))
}

/// Replays and mutates for `mutations`, or for this share of the time that was given.
fn hold(target: &'static Target, mutations: u64) {
    let inputs = inputs(target);
    assert!(!inputs.is_empty(), "{} has no corpus", target.name);
    super::run(target.name, b"");
    inputs.iter().for_each(|input| (target.body)(&input.content));
    let others: Vec<&[u8]> = inputs.iter().map(|input| &*input.content).collect();
    let seconds = std::env::var(SECONDS_VAR).ok().map(|text| text.parse::<f64>().unwrap() / TARGETS.len() as f64);
    let seconds = seconds.map(Duration::from_secs_f64);
    let (start, mut done) = (Instant::now(), 0);
    for round in 0_u64.. {
        for input in inputs.iter().filter(|input| round % input.rarity == 0) {
            if seconds.map_or(done == mutations, |seconds| start.elapsed() >= seconds) {
                println!("{}: {done} mutations", target.name);
                return;
            }
            assert_eq!(failure(input, round, &others), None);
            done += 1;
        }
    }
}

#[test]
fn values_hold_for_their_corpus_and_for_mutations_of_it() {
    hold(&TARGETS[0], VALUES_MUTATIONS);
}

#[test]
fn components_hold_for_their_corpus_and_for_mutations_of_it() {
    hold(&TARGETS[1], COMPONENT_MUTATIONS);
}

#[test]
fn a_body_that_breaks_is_found_and_named_with_its_seed() {
    static PLANTED: Target = Target { name: "planted", body: |bytes| assert!(bytes.len() >= 40, "planted") };
    let input = Input { target: &PLANTED, name: "forty".to_owned(), content: vec![1; 40].into(), rarity: 1 };
    let found = (0..VALUES_MUTATIONS).find_map(|seed| failure(&input, seed, &[&input.content])).unwrap();
    assert!(found.starts_with("planted broke on forty mutated with seed "), "{found}");
}

#[test]
fn damage_to_a_component_reaches_what_lies_behind_its_frame() {
    let component = components::functions();
    let sound = |seed| {
        let damaged = mutations::component(&component, &[&component], &mut Seeded(seed));
        damaged != component && wasmparser::Parser::new(0).parse_all(&damaged).all(|payload| payload.is_ok())
    };
    let framed = (0..200).filter(|seed| sound(*seed)).count();
    assert!(framed > 100, "{framed} of 200");
}
