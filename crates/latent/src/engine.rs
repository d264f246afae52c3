//! The engines there are, and how this program opens the embedded one: the one place where its options are chosen.

use std::path::Path;

use latent_bridge::cold::ArchiveOptions;
use latent_bridge::embedded::EngineOptions;

/// What keeps the topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Files in a data directory.
    Embedded,
    /// Streams on a broker. An offset is a stream's sequence there: those of a partition have gaps.
    Nats,
}

impl Engine {
    /// The word of configurations and documents.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Nats => "nats",
        }
    }

    /// The engine with this word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        [Self::Embedded, Self::Nats].into_iter().find(|engine| engine.word() == word)
    }
}

/// Options under which others see `holder` as the owner of the directory. `manifest` is the file that a command brings the directory to;
/// what that manifest refers to lies in its folder. A directory that is opened as it is has copies of its own and needs none.
pub(crate) fn engine_options(holder: &str, manifest: Option<&Path>) -> EngineOptions {
    // A command looks at the log; a store that is away must not keep it waiting.
    let archive = ArchiveOptions { probes_at_start: false, ..ArchiveOptions::default() };
    let options = EngineOptions { holder: holder.to_owned(), archive, ..EngineOptions::default() };
    // A bare file name has the empty path as its parent, which names the working directory.
    match manifest.and_then(Path::parent) {
        Some(folder) => options.with_manifest_folder(folder),
        None => options,
    }
}
