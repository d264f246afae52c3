//! Webhooks from a seed: many repositories of very different activity, every kind of webhook, some lines sent twice, and some that are no
//! webhook at all.

use std::fmt::Write as _;

use crate::class_table;
use crate::kills::Chance;

const REPOSITORIES: u64 = 300;

/// So many lines, one JSON object each.
pub(crate) fn webhooks(count: usize, chance: &mut Chance) -> String {
    let kinds: Vec<_> = class_table().into_keys().collect();
    let mut lines: Vec<String> = Vec::with_capacity(count);
    for n in 0..count {
        let line = match chance.below(100) {
            0..3 if !lines.is_empty() => lines[usize::try_from(chance.below(lines.len() as u64)).unwrap()].clone(),
            3..6 => malformed(n, chance),
            _ => webhook(n, &kinds[usize::try_from(chance.below(kinds.len() as u64)).unwrap()], chance),
        };
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

/// Squared, so that a few repositories have most of the events.
fn repository(chance: &mut Chance) -> String {
    let number = chance.below(REPOSITORIES);
    format!("owner-{}/repo-{}", number % 17, number * number / REPOSITORIES)
}

fn webhook(n: usize, kind: &str, chance: &mut Chance) -> String {
    let mut body = String::new();
    for _ in 0..chance.below(40) {
        let _ = write!(body, "{:016x}", chance.next());
    }
    let repository = repository(chance);
    format!(r#"{{"event":"{kind}","n":{n},"payload":{{"action":"opened","repository":{{"full_name":"{repository}"}},"body":"{body}"}}}}"#)
}

/// No webhook, but of a repository: it has its place in the order of a key.
fn malformed(n: usize, chance: &mut Chance) -> String {
    let repository = repository(chance);
    format!(r#"{{"event":"","n":{n},"payload":{{"repository":{{"full_name":"{repository}"}}}}}}"#)
}
