//! The files of the project, read once: checks are functions of this value, so a test can hand them a tree of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Folders that hold nothing of the project, by name, at any depth.
const FOREIGN_FOLDERS: &[&str] = &["target", ".git", "node_modules", ".venv"];
/// What a node run from the clone leaves there.
const RUNTIME_FOLDERS: &[&str] = &["data"];
const TEXT_EXTENSIONS: &[&str] = &["rs", "md", "toml", "wit", "yaml", "yml", "txt", "lock", "sh", "py"];
/// Folders whose crates are compiled for another target, from workspaces of their own. `fuzz/` and `benches/` are none of them: what they
/// need beside a Rust toolchain, no check may.
const GUEST_FOLDERS: &[&str] = &["sdk/", "examples/", "guests/"];

/// One thing to mend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File, with a line where there is one.
    pub(crate) place: String,
    /// What is wrong and what to do.
    pub(crate) problem: String,
}

impl Finding {
    pub(crate) fn new(place: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self { place: place.to_string(), problem: problem.to_string() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// Prints what a check found and turns it into its result.
///
/// # Errors
/// [`Failure::Findings`] when there is any.
pub(crate) fn report(check: &'static str, findings: &[Finding]) -> Result<(), Failure> {
    for finding in findings {
        eprintln!("{check}: {finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::Findings { check, count }),
    }
}

/// Paths and texts below the project's root. Paths are relative and written with `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Every file and folder.
    pub(crate) paths: BTreeSet<String>,
    /// Text files.
    pub(crate) texts: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the tree below `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let mut tree = Self::default();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let absolute = root.join(&folder);
            for entry in std::fs::read_dir(&absolute).map_err(Failure::file(&absolute))? {
                let entry = entry.map_err(Failure::file(&absolute))?;
                let relative = folder.join(entry.file_name());
                let kind = entry.file_type().map_err(Failure::file(&relative))?;
                if kind.is_dir() && !is_foreign(&relative) {
                    tree.paths.insert(path_text(&relative));
                    folders.push(relative);
                } else if kind.is_file() {
                    tree.add_file(root, &relative)?;
                }
            }
        }
        Ok(tree)
    }

    fn add_file(&mut self, root: &Path, relative: &Path) -> Result<(), Failure> {
        let name = path_text(relative);
        let is_text = relative.extension().is_some_and(|ext| TEXT_EXTENSIONS.iter().any(|known| ext == *known)) || name == ".ci/run";
        if is_text {
            let text = std::fs::read_to_string(root.join(relative)).map_err(Failure::file(relative))?;
            self.texts.insert(name.clone(), text);
        }
        self.paths.insert(name);
        Ok(())
    }

    /// A tree that exists only here.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.texts.insert((*path).to_owned(), (*text).to_owned());
            let ancestors = Path::new(path).ancestors().map(path_text).filter(|path| !path.is_empty());
            tree.paths.extend(ancestors);
        }
        tree
    }

    /// Text files whose name ends so.
    pub(crate) fn texts_ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts.iter().filter(move |(path, _)| path.ends_with(ending)).map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The folders of all cargo workspaces: the root's (empty) first, then those of guests.
    pub(crate) fn workspace_folders(&self) -> Vec<String> {
        let guests = self.texts_ending("/Cargo.toml").filter(|(path, text)| {
            GUEST_FOLDERS.iter().any(|folder| path.starts_with(folder)) && text.lines().any(|line| line.trim() == "[workspace]")
        });
        let guests = guests.map(|(path, _)| path.trim_end_matches("/Cargo.toml").to_owned());
        std::iter::once(String::new()).chain(guests).collect()
    }
}

fn is_foreign(folder: &Path) -> bool {
    let named = |names: &[&str], name: &std::ffi::OsStr| names.iter().any(|known| name == *known);
    folder.file_name().is_some_and(|name| named(FOREIGN_FOLDERS, name)) || named(RUNTIME_FOLDERS, folder.as_os_str())
}

fn path_text(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The folder this tool was built from, which is where it works.
pub(crate) fn project_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_output_and_runtime_data_are_not_part_of_the_tree() {
        let root = tempfile::tempdir().unwrap();
        let files = ["src/a.rs", "target/b.rs", "sdk/target/c.rs", "data/d.md", "docs/data/e.md", "pic.png"];
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "text").unwrap();
        }
        let tree = Tree::read(root.path()).unwrap();
        assert_eq!(tree.texts.keys().collect::<Vec<_>>(), ["docs/data/e.md", "src/a.rs"]);
        assert_eq!(tree.paths.iter().collect::<Vec<_>>(), ["docs", "docs/data", "docs/data/e.md", "pic.png", "sdk", "src", "src/a.rs"]);
    }

    #[test]
    fn guests_are_workspaces_of_their_own() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]"),
            ("crates/a/Cargo.toml", "[package]"),
            ("crates/a/template/Cargo.toml", "[workspace]"),
            ("sdk/rust/Cargo.toml", "[package]\n[workspace]\n"),
            ("examples/inner/part/Cargo.toml", "[package]"),
            ("fuzz/Cargo.toml", "[workspace]"),
        ]);
        assert_eq!(tree.workspace_folders(), ["", "sdk/rust"]);
    }
}
