//! Schema files: found where the manifest says, compiled, and kept as copies in the data directory, which needs nothing else from then on.
//!
//! A copy's name holds the digest of its content, and lines after the manifest's text say which copy is in force. So a new copy stands
//! beside the old one until the manifest is replaced, in one step, and a copy that was changed does not fit its name. Copies that no line
//! names are left from before the last change and are removed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::directory::{Layout, create_directories, discard, read_control, write_control};
use super::storage::{PathKind, Storage};
use crate::schema::{missing_source, read_source, references};
use crate::{BridgeManifest, BusError, TopicSchema};

/// Begins a line of the manifest's file that names a copy. YAML takes it for a comment.
const LINE_PREFIX: &str = "# schema ";
/// Hex digits of a digest in names and lines: half of a SHA-256, which is enough to tell damage.
const DIGEST_DIGITS: usize = 32;

/// The schemas of a directory's topics, by topic.
#[derive(Debug, Clone, Default)]
pub(super) struct Schemas(BTreeMap<String, Kept>);

#[derive(Debug, Clone)]
struct Kept {
    digest: String,
    schema: Arc<TopicSchema>,
    /// Content that has no copy yet.
    fresh: Option<Arc<[u8]>>,
}

/// Whose copies stay in force where a manifest's schema file is gone.
#[derive(Clone, Copy)]
pub(super) struct InForce<'o> {
    pub(super) manifest: &'o BridgeManifest,
    pub(super) schemas: &'o Schemas,
}

fn config(problem: String) -> BusError {
    BusError::Config { problem }
}

impl Schemas {
    /// Compiled schemas by topic.
    pub(super) fn compiled(&self) -> BTreeMap<String, Arc<TopicSchema>> {
        self.0.iter().map(|(topic, kept)| (topic.clone(), Arc::clone(&kept.schema))).collect()
    }

    /// True when both are the same files.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0.iter().map(|(topic, kept)| (topic, &kept.digest)).eq(other.0.iter().map(|(topic, kept)| (topic, &kept.digest)))
    }

    /// Reads and compiles what a manifest refers to, each file from the first of `roots` that has it. Changes nothing.
    ///
    /// A file that is gone leaves the copy in force if the manifest refers to it as before.
    pub(super) fn resolve(manifest: &BridgeManifest, roots: &[PathBuf], in_force: Option<InForce<'_>>) -> Result<Self, BusError> {
        let mut schemas = BTreeMap::new();
        for (topic, reference) in references(manifest) {
            let kept = match read_source(topic, reference, roots)? {
                Some(content) => {
                    let (digest, schema) = (digest(&content), Arc::new(TopicSchema::compile(topic, reference, &content)?));
                    let has_copy = in_force.is_some_and(|in_force| in_force.digest(topic) == Some(&digest));
                    Kept { digest, schema, fresh: (!has_copy).then(|| content.into()) }
                }
                None => in_force.and_then(|in_force| in_force.copy(topic, reference)).ok_or_else(|| missing_source(topic, reference))?,
            };
            schemas.insert(topic.to_owned(), kept);
        }
        Ok(Self(schemas))
    }

    /// Writes the copies that are not there yet, durably. They count when the manifest's file names them.
    pub(super) fn write_copies(&self, storage: &dyn Storage, layout: &Layout) -> Result<(), BusError> {
        if !self.0.is_empty() {
            create_directories(storage, &layout.schemas())?;
        }
        for (topic, kept) in &self.0 {
            if let Some(content) = &kept.fresh {
                write_control(storage, &layout.schemas().join(copy_name(topic, &kept.digest)), content)?;
            }
        }
        Ok(())
    }

    /// A manifest's text with the lines that name the copies.
    pub(super) fn with_lines(&self, manifest: &str) -> String {
        let lines = self.0.iter().map(|(topic, kept)| format!("{LINE_PREFIX}{topic} {}\n", kept.digest));
        format!("{manifest}{}", lines.collect::<String>())
    }

    /// Reads and compiles the copies that `lines` names.
    pub(super) fn open(storage: &dyn Storage, layout: &Layout, manifest: &BridgeManifest, lines: &Lines) -> Result<Self, BusError> {
        let mut schemas = BTreeMap::new();
        for (topic, reference) in references(manifest) {
            let digest = lines.0.get(topic).ok_or_else(|| {
                config(format!(
                    "manifest.yaml does not say which copy of its schema topic {topic:?} has; restore manifest.yaml from a copy"
                ))
            })?;
            let content = read_copy(storage, layout, topic, digest)?;
            let schema = Arc::new(TopicSchema::compile(topic, reference, &content)?);
            schemas.insert(topic.to_owned(), Kept { digest: digest.clone(), schema, fresh: None });
        }
        Ok(Self(schemas))
    }

    /// Removes copies that are not in force, and unfinished ones. What has no copy's name belongs to others. What cannot be removed stays
    /// until the next opening and does no harm.
    pub(super) fn discard_unused(&self, storage: &dyn Storage, layout: &Layout) {
        let folder = layout.schemas();
        if !storage.kind(&folder).is_ok_and(|kind| kind == PathKind::Directory) {
            return;
        }
        let names = storage.list(&folder).unwrap_or_else(|error| {
            tracing::warn!(file = "schemas", %error, "unused copies of schemas could not be looked for");
            Vec::new()
        });
        for name in names {
            let Some((topic, digest)) = parse_copy_name(name.strip_suffix(".tmp").unwrap_or(&name)) else { continue };
            let in_force = self.0.get(topic).is_some_and(|kept| kept.digest == digest) && !name.ends_with(".tmp");
            if !in_force {
                discard(storage, &folder.join(&name));
            }
        }
    }
}

impl InForce<'_> {
    fn digest(&self, topic: &str) -> Option<&String> {
        self.schemas.0.get(topic).map(|kept| &kept.digest)
    }

    fn copy(self, topic: &str, reference: &str) -> Option<Kept> {
        let same = references(self.manifest).any(|known| known == (topic, reference));
        let kept = self.schemas.0.get(topic).filter(|_| same)?;
        tracing::warn!(topic, schema_ref = reference, "the schema file is gone; the copy in the data directory stays in force");
        Some(Kept { fresh: None, ..kept.clone() })
    }
}

/// Digests by topic, as the manifest's file names them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lines(BTreeMap<String, String>);

/// Takes the lines off the end of a manifest's text. Only the last lines are looked at, since a text in quotes could hold such a line.
pub(super) fn split_lines(text: &str) -> (&str, Lines) {
    let (mut rest, mut lines) = (text, BTreeMap::new());
    loop {
        let start = rest.strip_suffix('\n').map_or(0, |line| line.rfind('\n').map_or(0, |at| at + 1));
        let Some((topic, digest)) = rest.get(start..).and_then(parse_line) else { return (rest, Lines(lines)) };
        lines.insert(topic.to_owned(), digest.to_owned());
        rest = rest.get(..start).unwrap_or_default();
    }
}

fn parse_line(line: &str) -> Option<(&str, &str)> {
    let (topic, digest) = line.strip_prefix(LINE_PREFIX)?.strip_suffix('\n')?.split_once(' ')?;
    is_digest(digest).then_some((topic, digest))
}

fn digest(content: &[u8]) -> String {
    let digits = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    digits.chars().take(DIGEST_DIGITS).collect()
}

fn is_digest(text: &str) -> bool {
    text.len() == DIGEST_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn copy_name(topic: &str, digest: &str) -> String {
    format!("{topic}.{digest}.json")
}

fn parse_copy_name(name: &str) -> Option<(&str, &str)> {
    let (topic, digest) = name.strip_suffix(".json")?.rsplit_once('.')?;
    is_digest(digest).then_some((topic, digest))
}

fn read_copy(storage: &dyn Storage, layout: &Layout, topic: &str, expected: &str) -> Result<Vec<u8>, BusError> {
    let name = copy_name(topic, expected);
    let content = read_control(storage, &layout.schemas().join(&name))?;
    let content = content.ok_or_else(|| {
        config(format!("schemas/{name}, the schema of topic {topic:?}, is missing from the directory; restore it from a copy"))
    })?;
    if digest(&content) != expected {
        let problem = format!(
            "schemas/{name}, the schema of topic {topic:?}, is not what was written: its digest does not fit its name; nothing was touched, restore the file from a copy"
        );
        return Err(config(problem));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn lines_are_taken_off_the_end_only() {
        let none = || Lines(BTreeMap::new());
        let line = format!("# schema a.b {DIGEST}\n");
        let named = Lines(BTreeMap::from([("a.b".to_owned(), DIGEST.to_owned())]));
        assert_eq!(split_lines(&format!("name: x\n{line}")), ("name: x\n", named));
        for text in [
            "",
            "name: x\n",
            &format!("{line}name: x\n"),
            &format!("name: 'x\n# schema a {DIGEST}'\n"),
            "# schema a 0123\n",
            line.trim_end(),
        ] {
            assert_eq!(split_lines(text), (text, none()), "{text:?}");
        }
    }

    #[test]
    fn a_copy_is_named_by_topic_and_digest() {
        assert_eq!(digest(b"abc"), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(parse_copy_name(&copy_name("a.b", DIGEST)), Some(("a.b", DIGEST)));
        for other in
            ["a.json", "a.0123.json", &format!("a.{DIGEST}"), &format!("a.{}.json", DIGEST.to_uppercase()), &format!("{DIGEST}.json")]
        {
            assert_eq!(parse_copy_name(other), None, "{other}");
        }
    }
}
