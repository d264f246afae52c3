//! The events that everything is measured with: JSON as webhooks send it, under an explicit uid, spread by key over the partitions.
//!
//! The same number gives the same event. An event is made outside what is timed, in both forms: as the record our log takes, and as the
//! body that the loops by hand write, which has the layout and the size of the one our log writes.

use std::fmt::Write as _;

use bytes::Bytes;
use latent_core::{Attributes, CoreError, MediaType, NewRecord, Uid};

use crate::error::CliError;

/// Different keys.
const KEYS: u64 = 64;
/// Bytes of a body before its texts.
const LENGTHS_BYTES: usize = 16;
/// Where the lengths of uid, key and media type stand in a body, of 2 bytes each, and that of the payload, of 4.
const SHORT_LENGTHS_AT: [usize; 3] = [0, 2, 4];
const PAYLOAD_LENGTH_AT: usize = 12;

/// Which kind of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PayloadSize {
    /// About 300 bytes.
    Small,
    /// About 7 KB, as a code host's webhooks are.
    Large,
}

/// The body of the event with this number: what the loops by hand store.
pub(super) fn body(size: PayloadSize, number: u64) -> Result<Vec<u8>, CliError> {
    let record = record(size, number)?;
    Ok(encoded(&uid(number), record.key(), record.media_type().as_str(), record.payload()))
}

/// The record of the event with this number: what our log takes.
pub(super) fn record(size: PayloadSize, number: u64) -> Result<NewRecord, CliError> {
    record_under(&key(number), size, number)
}

/// The same under another key.
pub(super) fn record_under(key: &str, size: PayloadSize, number: u64) -> Result<NewRecord, CliError> {
    let made = || -> Result<NewRecord, CoreError> {
        let payload = Bytes::from(payload(size, number));
        NewRecord::new(Some(Uid::parse(&uid(number))?), key, MediaType::json(), Attributes::default(), payload)
    };
    made().map_err(|error| CliError::Bench { doing: format!("making event {number}"), reason: error.to_string() })
}

/// The uid of an event. It grows with the number, as a minted one does.
pub(super) fn uid(number: u64) -> String {
    format!("01930000-0000-7000-8000-{number:012x}")
}

/// The key of an event.
pub(super) fn key(number: u64) -> String {
    format!("acme/service-{:02}", number % KEYS)
}

fn encoded(uid: &str, key: &str, media_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(LENGTHS_BYTES + uid.len() + key.len() + media_type.len() + payload.len());
    for length in [uid.len(), key.len(), media_type.len(), 0] {
        body.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
    }
    for length in [0, payload.len()] {
        body.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
    for part in [uid.as_bytes(), key.as_bytes(), media_type.as_bytes(), payload] {
        body.extend_from_slice(part);
    }
    body
}

/// The payload of a body without attributes. `None` when its lengths do not fit.
pub(super) fn payload_of(body: &[u8]) -> Option<&[u8]> {
    let short = |at: usize| Some(usize::from(u16::from_le_bytes(body.get(at..at + 2)?.try_into().ok()?)));
    let texts = SHORT_LENGTHS_AT.into_iter().map(short).sum::<Option<usize>>()?;
    let length = u32::from_le_bytes(body.get(PAYLOAD_LENGTH_AT..LENGTHS_BYTES)?.try_into().ok()?);
    let start = LENGTHS_BYTES + texts;
    body.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

/// Numbers without an order that follow from the one they start with.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        // A Weyl sequence through a mixing function, as in SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    fn one_of<'w>(&mut self, words: &[&'w str]) -> &'w str {
        let at = self.below(words.len() as u64);
        usize::try_from(at).ok().and_then(|at| words.get(at)).copied().unwrap_or_default()
    }
}

const USERS: &[&str] = &["ada", "grace-h", "linus42", "margaret", "ken.t", "barbara-l", "edsger", "octo-bot"];
const WORDS: &[&str] = &[
    "fix",
    "retry",
    "the",
    "flaky",
    "pool",
    "when",
    "a",
    "socket",
    "closes",
    "early",
    "naïve",
    "cache",
    "\\\"quoted\\\"",
    "of",
    "32",
    "→",
];

fn payload(size: PayloadSize, number: u64) -> String {
    let mut dice = Dice(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut out = String::with_capacity(if size == PayloadSize::Small { 384 } else { 8_192 });
    let shape = match (size, number % 4) {
        (PayloadSize::Large, _) => large,
        (PayloadSize::Small, 0) => push,
        (PayloadSize::Small, 1) => comment,
        (PayloadSize::Small, 2) => payment,
        (PayloadSize::Small, _) => readings,
    };
    // Writing to a text cannot fail.
    let _ = shape(&mut out, number, &mut dice);
    out
}

fn push(out: &mut String, number: u64, dice: &mut Dice) -> std::fmt::Result {
    write!(
        out,
        "{{\"event\":\"push\",\"repository\":{{\"id\":{},\"full_name\":\"{}\",\"private\":{}}},\"ref\":\"refs/heads/topic-{}\",\
         \"before\":\"{:016x}{:016x}\",\"after\":\"{:016x}{:016x}\",\"commits\":{},\"forced\":false,\"sender\":{{\"login\":\"{}\",\
         \"id\":{}}},\"at\":\"{}\"}}",
        dice.below(900_000_000),
        key(number),
        number.is_multiple_of(3),
        dice.below(5_000),
        dice.roll(),
        dice.roll(),
        dice.roll(),
        dice.roll(),
        dice.below(20),
        dice.one_of(USERS),
        dice.below(60_000_000),
        moment(number)
    )
}

fn comment(out: &mut String, number: u64, dice: &mut Dice) -> std::fmt::Result {
    write!(
        out,
        "{{\"event\":\"issue_comment\",\"action\":\"{}\",\"repository\":\"{}\",\"issue\":{{\"number\":{},\"labels\":[\"bug\",\"{}\"],\
         \"milestone\":null,\"locked\":false}},\"comment\":{{\"id\":{},\"user\":\"{}\",\"at\":\"{}\",\"body\":\"",
        dice.one_of(&["created", "edited", "deleted"]),
        key(number),
        dice.below(9_000),
        dice.one_of(&["p1", "p2", "help wanted", "area/network"]),
        dice.below(4_000_000_000),
        dice.one_of(USERS),
        moment(number)
    )?;
    sentence(out, 8 + dice.below(8), dice)?;
    out.write_str("\"}}")
}

fn payment(out: &mut String, number: u64, dice: &mut Dice) -> std::fmt::Result {
    write!(
        out,
        "{{\"event\":\"payment.{}\",\"id\":\"pay_{:016x}\",\"livemode\":true,\"amount\":{}.{:02},\"currency\":\"{}\",\"customer\":\
         {{\"id\":\"cus_{:012x}\",\"email\":\"{}@example.com\"}},\"lines\":[{{\"sku\":\"A-{}\",\"count\":{}}},{{\"sku\":\"B-{}\",\
         \"count\":{}}}],\"created\":{}}}",
        dice.one_of(&["succeeded", "failed", "refunded"]),
        dice.roll(),
        dice.below(9_000),
        dice.below(100),
        dice.one_of(&["EUR", "USD", "CHF"]),
        dice.roll() >> 16,
        dice.one_of(USERS),
        dice.below(10_000),
        1 + dice.below(9),
        dice.below(10_000),
        1 + dice.below(9),
        1_700_000_000 + number
    )
}

fn readings(out: &mut String, number: u64, dice: &mut Dice) -> std::fmt::Result {
    write!(
        out,
        "{{\"event\":\"reading\",\"device\":\"{}/{:04x}\",\"at\":\"{}\",\"ok\":true,\"values\":[",
        key(number),
        number,
        moment(number)
    )?;
    for at in 0..16 {
        let separator = if at == 0 { "" } else { "," };
        write!(out, "{separator}{}.{:04}", dice.below(120), dice.below(10_000))?;
    }
    write!(
        out,
        "],\"unit\":\"{}\",\"firmware\":\"{}.{}.{}\",\"battery\":null}}",
        dice.one_of(&["°C", "kPa", "lx"]),
        3,
        dice.below(20),
        dice.below(50)
    )
}

/// Members that hold a link each, as webhooks of code hosts have by the dozen.
const LINKS: &[&str] = &[
    "archive",
    "assignees",
    "blobs",
    "branches",
    "clone",
    "collaborators",
    "comments",
    "commits",
    "compare",
    "contents",
    "contributors",
    "deployments",
    "downloads",
    "events",
    "forks",
    "git_commits",
    "git_refs",
    "git_tags",
    "hooks",
    "issue_comment",
    "issue_events",
    "issues",
    "keys",
    "labels",
    "languages",
    "merges",
    "milestones",
    "notifications",
    "pulls",
    "releases",
    "stargazers",
    "statuses",
    "subscribers",
    "subscription",
    "tags",
    "teams",
    "trees",
];
const PERSON_LINKS: &[&str] =
    &["avatar", "followers", "following", "gists", "starred", "subscriptions", "organizations", "repos", "events"];

fn large(out: &mut String, number: u64, dice: &mut Dice) -> std::fmt::Result {
    write!(
        out,
        "{{\"event\":\"push\",\"number\":{number},\"at\":\"{}\",\"repository\":{{\"id\":{}",
        moment(number),
        dice.below(900_000_000)
    )?;
    let name = key(number);
    for link in LINKS {
        write!(out, ",\"{link}_url\":\"https://api.example.com/repos/{name}/{link}{{/id}}\"")?;
    }
    write!(
        out,
        ",\"size\":{},\"stars\":{},\"language\":\"{}\",\"has_wiki\":true,\"fork\":false,\"mirror\":null,\"topics\":[\"events\",\"wasm\"],\"owner\":",
        dice.below(90_000),
        dice.below(5_000),
        dice.one_of(&["Rust", "Go", "TypeScript"])
    )?;
    person(out, dice)?;
    out.write_str("},\"sender\":")?;
    person(out, dice)?;
    out.write_str(",\"commits\":[")?;
    for at in 0..6 + dice.below(3) {
        if at > 0 {
            out.write_char(',')?;
        }
        commit(out, number, dice)?;
    }
    out.write_str("]}")
}

fn person(out: &mut String, dice: &mut Dice) -> std::fmt::Result {
    let user = dice.one_of(USERS);
    write!(out, "{{\"login\":\"{user}\",\"id\":{},\"site_admin\":false", dice.below(60_000_000))?;
    for link in PERSON_LINKS {
        write!(out, ",\"{link}_url\":\"https://api.example.com/users/{user}/{link}{{/other}}\"")?;
    }
    out.write_char('}')
}

fn commit(out: &mut String, number: u64, dice: &mut Dice) -> std::fmt::Result {
    write!(out, "{{\"id\":\"{:016x}{:016x}\",\"distinct\":true,\"at\":\"{}\",\"message\":\"", dice.roll(), dice.roll(), moment(number))?;
    sentence(out, 10 + dice.below(20), dice)?;
    let (user, first, second) = (dice.one_of(USERS), dice.below(40), dice.below(40));
    write!(
        out,
        "\",\"author\":{{\"name\":\"{user}\",\"email\":\"{user}@example.com\"}},\"added\":[],\"removed\":[\"docs/old-{first}.md\"],\
         \"modified\":[\"src/part-{first}/mod.rs\",\"src/part-{second}/tests.rs\",\"README.md\"]}}"
    )
}

fn sentence(out: &mut String, words: u64, dice: &mut Dice) -> std::fmt::Result {
    for at in 0..words {
        let separator = if at == 0 { "" } else { " " };
        write!(out, "{separator}{}", dice.one_of(WORDS))?;
    }
    Ok(())
}

fn moment(number: u64) -> String {
    let (minutes, seconds) = (number / 60 % 60, number % 60);
    format!("2026-03-{:02}T{:02}:{minutes:02}:{seconds:02}Z", 1 + number / 86_400 % 28, number / 3_600 % 24)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn payloads_are_json_of_about_the_stated_size_and_follow_from_their_number() {
        for (size, sizes) in [(PayloadSize::Small, 220..=400), (PayloadSize::Large, 6_000..=8_000)] {
            let lengths: Vec<_> = (0..200)
                .map(|number| {
                    let payload = payload(size, number);
                    assert!(serde_json::from_str::<Value>(&payload).unwrap().is_object(), "{payload}");
                    assert!(sizes.contains(&payload.len()), "{} bytes: {payload}", payload.len());
                    assert_eq!(payload, super::payload(size, number));
                    payload.len()
                })
                .collect();
            assert!(lengths.iter().collect::<BTreeSet<_>>().len() > 10, "they are not all alike");
        }
        let mean = (0..400).map(|number| payload(PayloadSize::Small, number).len()).sum::<usize>() / 400;
        assert!((270..=330).contains(&mean), "{mean}");
    }

    #[test]
    fn a_body_ends_with_its_payload() {
        for size in [PayloadSize::Small, PayloadSize::Large] {
            let (record, body) = (record(size, 7).unwrap(), body(size, 7).unwrap());
            assert_eq!(payload_of(&body), Some(&**record.payload()));
            let texts = uid(7).len() + key(7).len() + "application/json".len();
            assert_eq!(body.len(), LENGTHS_BYTES + texts + record.payload().len());
        }
        for cut in [&[][..], &[0; 15], &[255; 16]] {
            assert_eq!(payload_of(cut), None);
        }
    }

    #[test]
    fn uids_ascend_and_keys_reach_every_partition() {
        assert!((0..100).map(uid).collect::<Vec<_>>().is_sorted());
        let partitions: BTreeSet<_> = (0..KEYS).map(|number| latent_core::partition_for(&key(number), 8).0).collect();
        assert_eq!(partitions.len(), 8);
    }
}
