//! What commands tell, made comparable. An offset becomes the number of events before it in its partition, since offsets of a broker are the
//! sequences of a stream that partitions share; a uid, which may be derived from an offset, becomes its place; times, measures, activations
//! and components, which differ from run to run, become their names. Everything else has to be the same on both engines.

use std::collections::BTreeMap;

use super::world::TOPICS;
use super::*;

/// Told as a number and compared as a name.
const MEASURES: &[&str] = &[
    "stored_at",
    "parked_at",
    "queued_at",
    "started_at",
    "last_delivery_at",
    "oldest_queued_at",
    "next_attempt_at",
    "wait_micros",
    "run_micros",
    "fuel",
    "memory_bytes",
];
/// Told as text and compared as a name.
const NAMES: &[&str] = &["activation", "component"];
/// `topic/partition/offset`.
const PLACES: &[&str] = &["place", "letter"];

/// What is in the topics, to call offsets and uids by.
pub(super) struct Told {
    engine: Engine,
    offsets: BTreeMap<(String, u64), Vec<u64>>,
    uids: BTreeMap<String, String>,
}

impl Told {
    pub(super) fn of(world: &World) -> Self {
        let (mut offsets, mut uids) = (BTreeMap::new(), BTreeMap::new());
        for (topic, partitions) in TOPICS {
            for partition in 0..partitions {
                let events = readable(&world.env, topic, partition);
                let offset = |event: &Value| event["offset"].as_u64().unwrap();
                for (place, event) in events.iter().enumerate() {
                    uids.insert(event["uid"].as_str().unwrap().to_owned(), format!("{topic}/{partition}/{place}"));
                }
                offsets.insert((topic.to_owned(), u64::from(partition)), events.iter().map(offset).collect());
            }
        }
        Self { engine: world.engine, offsets, uids }
    }

    /// What was told, comparable.
    pub(super) fn of_value(&self, value: Value) -> Value {
        self.within(value, "", 0)
    }

    pub(super) fn of_all(&self, values: Vec<Value>) -> Value {
        Value::Array(values.into_iter().map(|value| self.of_value(value)).collect())
    }

    /// What does not say whose topic and partition it has, has those around it.
    fn within(&self, value: Value, topic: &str, partition: u64) -> Value {
        match value {
            Value::Object(fields) => {
                let topic = fields.get("topic").and_then(Value::as_str).unwrap_or(topic).to_owned();
                let partition = fields.get("partition").and_then(Value::as_u64).unwrap_or(partition);
                fields.into_iter().map(|(name, value)| (name.clone(), self.field(&name, value, &topic, partition))).collect()
            }
            Value::Array(values) => values.into_iter().map(|value| self.within(value, topic, partition)).collect(),
            // Behind the file is the line, which moves with every change of the guest.
            Value::String(text) if text.contains(" panicked at ") => json!(text.split(".rs:").next().unwrap()),
            value => value,
        }
    }

    fn field(&self, name: &str, value: Value, topic: &str, partition: u64) -> Value {
        match &value {
            Value::Number(number) if name == "offset" => json!(self.ordinal(topic, partition, number.as_u64().unwrap())),
            Value::Number(_) if MEASURES.contains(&name) => json!(name),
            Value::String(_) if NAMES.contains(&name) => json!(name),
            Value::String(text) if PLACES.contains(&name) => json!(self.place(text)),
            Value::String(text) if name == "uid" => json!(self.uids.get(text).unwrap_or(text)),
            // Words with the event's place in them.
            Value::String(text) if name == "not_replayable" => {
                assert!(text.contains("in/0/") || text.contains("in/1/"), "{text}");
                json!(name)
            }
            Value::String(text) if name == "engine" => {
                assert_eq!(text, self.engine.word());
                json!(name)
            }
            // Behind the first words is where in the component it was.
            Value::String(text) if name == "detail" || name == "last_error" => json!(text.split("; in ").next().unwrap()),
            _ => self.within(value, topic, partition),
        }
    }

    /// Events before it.
    fn ordinal(&self, topic: &str, partition: u64, offset: u64) -> usize {
        let offsets = self.offsets.get(&(topic.to_owned(), partition)).unwrap_or_else(|| panic!("no {topic}/{partition}"));
        offsets.iter().filter(|before| **before < offset).count()
    }

    fn place(&self, text: &str) -> String {
        let parts: Vec<_> = text.split('/').collect();
        // Another name than a place stays what it is.
        let [topic, partition, offset] = parts[..] else { return text.to_owned() };
        format!("{topic}/{partition}/{}", self.ordinal(topic, partition.parse().unwrap(), offset.parse().unwrap()))
    }
}

/// What `fetch` prints of a partition, on behind what cannot be read.
fn readable(env: &CliEnv, topic: &str, partition: u32) -> Vec<Value> {
    let (mut events, mut from) = (Vec::new(), "0".to_owned());
    loop {
        let partition = partition.to_string();
        let output = env.run(["bus", "fetch", topic, "--partition", &partition, "--offset", &from, "--max", "1000000", "--json"]);
        events.extend(documents(&output));
        if output.status == Some(0) {
            return events;
        }
        let next = error_of(&output)["next"].as_str().unwrap().to_owned();
        let behind = next.split("--offset ").nth(1).unwrap_or_else(|| panic!("{next}"));
        let behind: String = behind.chars().take_while(char::is_ascii_digit).collect();
        assert_ne!(behind, from);
        from = behind;
    }
}

/// Requires what was told to be what `golden/<name>.json` expects. With `LATENT_BLESS` set, what the embedded engine tells is written there.
pub(super) fn assert_told(engine: Engine, name: &str, told: &Value) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/engines/golden").join(name).with_extension("json");
    if std::env::var_os("LATENT_BLESS").is_some() && engine == Engine::Embedded {
        std::fs::write(&path, format!("{told:#}\n")).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let expected = side_of(engine, serde_json::from_str(&expected).unwrap());
    let mut differences = Vec::new();
    compare("", &expected, told, &mut differences);
    assert!(differences.is_empty(), "{engine:?} tells otherwise than {name}.json expects:\n{}\n{told:#}", differences.join("\n"));
}

/// The expected document of one engine: where they differ it has both sides.
fn side_of(engine: Engine, value: Value) -> Value {
    match value {
        Value::Object(mut fields) => match fields.remove("on") {
            Some(mut sides) => sides[engine.word()].take(),
            None => fields.into_iter().map(|(name, value)| (name, side_of(engine, value))).collect(),
        },
        Value::Array(values) => values.into_iter().map(|value| side_of(engine, value)).collect(),
        value => value,
    }
}

/// Names each place where two documents differ.
fn compare(at: &str, expected: &Value, told: &Value, differences: &mut Vec<String>) {
    match (expected, told) {
        (Value::Object(one), Value::Object(other)) if one.keys().eq(other.keys()) => {
            one.iter().for_each(|(name, value)| compare(&format!("{at}/{name}"), value, &other[name], differences));
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).enumerate().for_each(|(index, (one, other))| compare(&format!("{at}/{index}"), one, other, differences));
        }
        _ if expected == told => {}
        _ => differences.push(format!("{at}: expected {expected}, told {told}")),
    }
}
