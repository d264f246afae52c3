//! The files of a new project, and writing them where nothing is yet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::sdk;

/// Words that cargo or Rust keep for themselves, and the library beside the function.
const RESERVED: &[&str] = &[
    "abstract",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "struct",
    "super",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
    "test",
    "core",
    "std",
    "alloc",
    "proc_macro",
    "latent-sdk",
    "latent_sdk",
    "serde_json",
    "serde-json",
];

/// Why no project was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectError {
    /// The name cannot be a package, a topic and a folder.
    #[error("{name:?} cannot be the name of a project")]
    Name {
        /// As given.
        name: String,
    },
    /// Something is there already.
    #[error("{} is there already and not empty", .0.display())]
    NotEmpty(PathBuf),
    /// A file could not be written.
    #[error("{} could not be written", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ProjectError {
    /// The name used in machine-readable output and `docs/errors.md`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Name { .. } => "project-name",
            Self::NotEmpty(_) => "project-not-empty",
            Self::Write { .. } => "project-write",
        }
    }

    /// Why.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Name { .. } => {
                "a name is at most 48 letters, digits, `-` and `_`, begins with a letter, and is no word of Rust or cargo".to_owned()
            }
            Self::NotEmpty(_) => "a new project never writes over files".to_owned(),
            Self::Write { source, .. } => source.to_string(),
        }
    }

    /// What to do.
    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::Name { .. } => "choose a name like order-triage".to_owned(),
            Self::NotEmpty(_) => "choose another name or move the folder away".to_owned(),
            Self::Write { .. } => "make room or get the right to write there, remove what was begun, and run it again".to_owned(),
        }
    }
}

/// A name that is a cargo package, a trigger id, the first token of two topics, and a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectName(String);

impl ProjectName {
    const BYTES_MAX: usize = 48;

    pub(super) fn parse(name: &str) -> Result<Self, ProjectError> {
        let characters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
        let reserved = RESERVED.contains(&&*name.to_lowercase());
        if !characters || !begins || name.len() > Self::BYTES_MAX || reserved {
            return Err(ProjectError::Name { name: name.to_owned() });
        }
        Ok(Self(name.to_owned()))
    }

    /// What cargo calls the built library.
    fn artifact(&self) -> String {
        self.0.replace('-', "_")
    }
}

/// Relative paths and contents.
#[derive(Debug)]
pub(super) struct Project {
    files: Vec<(PathBuf, String)>,
}

impl Project {
    /// A Rust project.
    pub(super) fn rust(name: ProjectName) -> Self {
        let fill = |text: &str| text.replace("{{name}}", &name.0).replace("{{artifact}}", &name.artifact());
        let own = TEMPLATE.iter().map(|(path, text)| (PathBuf::from(path), fill(text)));
        let library = sdk::FILES.iter().map(|(path, text)| (Path::new("latent-sdk").join(path), (*text).to_owned()));
        Self { files: own.chain(library).collect() }
    }

    /// Writes every file below `folder`, which must be missing or empty; returns how many.
    pub(super) fn write(&self, folder: &Path) -> Result<usize, ProjectError> {
        refuse_occupied(folder)?;
        for (path, text) in &self.files {
            let file = folder.join(path);
            let write = || {
                fs::create_dir_all(file.parent().unwrap_or(folder))?;
                fs::write(&file, text)
            };
            write().map_err(|source| ProjectError::Write { file: file.clone(), source })?;
        }
        Ok(self.files.len())
    }
}

fn refuse_occupied(folder: &Path) -> Result<(), ProjectError> {
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(ProjectError::NotEmpty(folder.to_owned())),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(ProjectError::NotEmpty(folder.to_owned())),
        Err(source) => Err(ProjectError::Write { file: folder.to_owned(), source }),
    }
}

macro_rules! template {
    ($($path:literal = $file:literal;)*) => {
        &[$(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/template/rust/", $file)))),*]
    };
}

const TEMPLATE: &[(&str, &str)] = template! {
    ".gitignore" = "gitignore";
    "Cargo.toml" = "Cargo.toml.in";
    "README.md" = "README.md.in";
    "bridge.yaml" = "bridge.yaml.in";
    "events.jsonl" = "events.jsonl";
    "latent.toml" = "latent.toml.in";
    "rust-toolchain.toml" = "rust-toolchain.toml";
    "src/lib.rs" = "lib.rs.in";
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, NamedFiles};

    #[test]
    fn names_that_cannot_serve_everywhere_are_refused() {
        for good in ["triage", "order-triage", "a", "A_b-9", &"x".repeat(48)] {
            assert!(ProjectName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "9a", "-a", "_a", "a.b", "a/b", "..", "a b", "é", "fn", "Self", "test", "latent-sdk", &"x".repeat(49)] {
            assert!(ProjectName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_project_has_a_valid_configuration_and_no_placeholder_left() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("order-triage");
        let project = Project::rust(ProjectName::parse("order-triage").unwrap());
        let count = project.write(&folder).unwrap();
        assert_eq!(count, TEMPLATE.len() + sdk::FILES.len());
        assert!(project.files.iter().all(|(path, text)| path.starts_with("latent-sdk") || !text.contains("{{")));
        let loaded = config::load(&folder.join("latent.toml"), NamedFiles::NotNeeded).unwrap();
        assert_eq!(loaded.warnings, []);
        let component = folder.join("target/wasm32-wasip2/release/order_triage.wasm");
        assert_eq!(loaded.config.services[0].component, component);
    }

    #[test]
    fn nothing_is_written_over() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::rust(ProjectName::parse("a").unwrap());
        let occupied = temp.path().join("occupied");
        fs::create_dir(&occupied).unwrap();
        assert!(project.write(&occupied).is_ok(), "an empty folder is taken");
        assert!(matches!(project.write(&occupied), Err(ProjectError::NotEmpty(_))));
        let file = temp.path().join("file");
        fs::write(&file, "mine").unwrap();
        assert!(matches!(project.write(&file), Err(ProjectError::NotEmpty(_))));
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }
}
