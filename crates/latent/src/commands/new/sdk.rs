//! The library for functions, carried in the program so that a project builds without a copy of this repository.

macro_rules! sdk {
    ($($path:literal)*) => {
        &[$(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/rust/", $path)))),*]
    };
}

/// Every file of the library, by its path in it.
pub(super) const FILES: &[(&str, &str)] = sdk! {
    "Cargo.toml"
    "src/bindings.rs"
    "src/context.rs"
    "src/event.rs"
    "src/handled.rs"
    "src/handler.rs"
    "src/lib.rs"
    "src/log.rs"
    "src/publish.rs"
    "wit/latent-context/context.wit"
    "wit/latent-events/events.wit"
    "wit/latent-log/log.wit"
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn files_below(folder: &Path, root: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files_below(&path, root, found);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }

    #[test]
    fn every_file_of_the_library_is_carried() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/rust");
        let mut found = BTreeSet::from([PathBuf::from("Cargo.toml")]);
        for folder in ["src", "wit"] {
            files_below(&root.join(folder), &root, &mut found);
        }
        let carried: BTreeSet<_> = FILES.iter().map(|(path, _)| PathBuf::from(path)).collect();
        assert_eq!(carried, found);
    }
}
