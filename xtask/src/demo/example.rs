//! The example's files, laid out in a fresh folder of the demo's own. The example names everything relative to its
//! configuration file, so a copy of its files is a second, separate application.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

const CONFIG: &str = "latent.toml";
const EVENTS: &str = "events.jsonl";

/// An example ready to run.
#[derive(Debug)]
pub(super) struct Example {
    folder: PathBuf,
    data: PathBuf,
}

impl Example {
    /// Copies the files of the example at `source` into `folder`, which is made anew, and its component with them.
    pub(super) fn laid_out(source: &Path, folder: &Path) -> Result<Self, Failure> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(Failure::file(folder))?;
        }
        std::fs::create_dir_all(folder).map_err(Failure::file(folder))?;
        for entry in std::fs::read_dir(source).map_err(Failure::file(source))? {
            let path = entry.map_err(Failure::file(source))?.path();
            if let Some(name) = path.file_name().filter(|_| path.is_file()) {
                copy(&path, &folder.join(name))?;
            }
        }
        let config = std::fs::read_to_string(source.join(CONFIG)).map_err(Failure::file(source.join(CONFIG)))?;
        for component in values(&config, "component") {
            copy(&source.join(component), &folder.join(component))?;
        }
        let data = values(&config, "data_dir").next().ok_or_else(|| Failure::Unexpected {
            what: source.join(CONFIG).display().to_string(),
            problem: "it has no line data_dir = \"…\"".to_owned(),
        })?;
        Ok(Self { folder: folder.to_owned(), data: folder.join(data) })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.join(CONFIG)
    }

    pub(super) fn events(&self) -> PathBuf {
        self.folder.join(EVENTS)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.data.join("control.sock")
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let parent = to.parent().unwrap_or(to);
    std::fs::create_dir_all(parent).map_err(Failure::file(parent))?;
    std::fs::copy(from, to).map(drop).map_err(Failure::file(from))
}

/// The values of lines `key = "value"`. Enough of TOML for a file that stands in this repository and is run by a test.
fn values<'a>(config: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    config.lines().filter_map(move |line| {
        let value = line.trim().strip_prefix(key)?.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
        value.split_once('"').map(|(value, _)| value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: [(&str, &str); 5] = [
        ("latent.toml", "[node]\ndata_dir = \"data\"  # fresh\n[[service]]\ncomponent = \"target/x.wasm\"\n# component = \"no.wasm\"\n"),
        ("bridge.yaml", "manifest_version: 1"),
        ("events.jsonl", "{}"),
        ("target/x.wasm", "component"),
        ("src/lib.rs", "source"),
    ];

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_layout_has_the_files_and_the_component_and_nothing_of_the_run_before() {
        let (source, demo) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        SOURCE.iter().for_each(|(name, text)| write(source.path(), name, text));
        let folder = demo.path().join("demo");
        write(&folder, "data/left-over", "of an earlier run");
        let example = Example::laid_out(source.path(), &folder).unwrap();
        for (name, there) in [("latent.toml", true), ("bridge.yaml", true), ("target/x.wasm", true), ("src/lib.rs", false), ("data", false)]
        {
            assert_eq!(folder.join(name).exists(), there, "{name}");
        }
        assert_eq!(example.socket(), folder.join("data/control.sock"));
    }

    #[test]
    fn a_component_that_was_not_built_is_named() {
        let (source, demo) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        SOURCE.iter().filter(|(name, _)| !name.ends_with(".wasm")).for_each(|(name, text)| write(source.path(), name, text));
        let failure = Example::laid_out(source.path(), &demo.path().join("demo")).unwrap_err();
        assert!(failure.to_string().contains("x.wasm"), "{failure}");
    }
}
