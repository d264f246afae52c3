//! Schema files as the operator keeps them: found where the manifest says, in the first of several folders that has them. They are read
//! and never locked or written.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::{BridgeManifest, BusError, limits};

fn config(problem: String) -> BusError {
    BusError::Config { problem }
}

/// The topics with a schema, and its reference.
pub(crate) fn references(manifest: &BridgeManifest) -> impl Iterator<Item = (&str, &str)> {
    manifest.topics.iter().filter_map(|topic| Some((topic.name.as_str(), topic.schema_ref.as_deref()?)))
}

/// Reads and compiles what a manifest refers to, by topic. A file that no folder has is an error.
#[cfg(feature = "nats")]
pub(crate) fn resolve(
    manifest: &BridgeManifest,
    roots: &[PathBuf],
) -> Result<std::collections::BTreeMap<String, std::sync::Arc<super::TopicSchema>>, BusError> {
    let compiled = references(manifest).map(|(topic, reference)| {
        let content = read_source(topic, reference, roots)?.ok_or_else(|| missing_source(topic, reference))?;
        Ok((topic.to_owned(), std::sync::Arc::new(super::TopicSchema::compile(topic, reference, &content)?)))
    });
    compiled.collect()
}

/// The content of a schema file, or nothing when no root has it.
pub(crate) fn read_source(topic: &str, reference: &str, roots: &[PathBuf]) -> Result<Option<Vec<u8>>, BusError> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    for root in roots {
        match read_regular(&root.join(reference)) {
            Ok(Some(content)) => return Ok(Some(content)),
            Ok(None) => {
                let problem = format!("topic {topic:?}: schema_ref {reference:?} is not a regular file; put the file itself there");
                return Err(config(problem));
            }
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {}
            Err(error) => return Err(config(format!("topic {topic:?}: schema_ref {reference:?} cannot be read: {error}"))),
        }
    }
    Ok(None)
}

/// Reads one byte more than is allowed, so that the compiler of schemas names the bound. `None` when it is not a regular file, which is
/// asked first: opening a pipe waits for its other end.
fn read_regular(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(limits::CONTROL_FILE_BYTES.max + 1).read_to_end(&mut content)?;
    Ok(Some(content))
}

pub(crate) fn missing_source(topic: &str, reference: &str) -> BusError {
    config(format!(
        "topic {topic:?}: schema_ref {reference:?} names no file; it is looked for in the manifest's folder, then in the working directory"
    ))
}
