//! Real guest components for tests: the sources are in `guests/`, the build script compiles them.
//!
//! A guest without a host test is dead weight, so a test crate that runs guests says [`each_guest_has_tests!`] at its root and does
//! not compile until it has a module of tests for every one of them.

use std::path::{Path, PathBuf};

/// One guest, compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// Name of its folder in `guests/`.
    pub name: &'static str,
    /// The component.
    pub component: &'static [u8],
}

/// A handler that does what its event's payload says; the verbs are in `guests/behave/src/lib.rs`.
pub const BEHAVE: Guest = Guest { name: "behave", component: include_bytes!(concat!(env!("LATENT_TEST_GUESTS_DIR"), "/behave.wasm")) };

/// A component that exports `wasi:cli/run` and no handler.
pub const COMMAND: Guest = Guest { name: "command", component: include_bytes!(concat!(env!("LATENT_TEST_GUESTS_DIR"), "/command.wasm")) };

/// A handler that publishes its event to the topic `out`, to measure what an event costs from topic to topic.
pub const FORWARD: Guest = Guest { name: "forward", component: include_bytes!(concat!(env!("LATENT_TEST_GUESTS_DIR"), "/forward.wasm")) };

/// A handler that does nothing, to measure what an activation costs by itself.
pub const NOTHING: Guest = Guest { name: "nothing", component: include_bytes!(concat!(env!("LATENT_TEST_GUESTS_DIR"), "/nothing.wasm")) };

/// A component that exports plain functions of every type and no handler; `guests/plain/wit/shapes.wit` lists them.
pub const PLAIN: Guest = Guest { name: "plain", component: include_bytes!(concat!(env!("LATENT_TEST_GUESTS_DIR"), "/plain.wasm")) };

/// A handler that publishes its payload to the topic `out` as often as its key says, to measure what a publication costs a function.
pub const REPEAT: Guest = Guest { name: "repeat", component: include_bytes!(concat!(env!("LATENT_TEST_GUESTS_DIR"), "/repeat.wasm")) };

/// Every guest.
pub const ALL: [Guest; 6] = [BEHAVE, COMMAND, FORWARD, NOTHING, PLAIN, REPEAT];

impl Guest {
    /// The component's file, for tests that give a path to a command.
    pub fn path(&self) -> PathBuf {
        Path::new(env!("LATENT_TEST_GUESTS_DIR")).join(self.name).with_extension("wasm")
    }
}

/// Fails to compile where the calling module has no child module of tests named after each guest.
#[macro_export]
macro_rules! each_guest_has_tests {
    () => {
        use {self::behave as _, self::command as _, self::forward as _, self::nothing as _, self::plain as _, self::repeat as _};
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_folder_of_guests_is_listed_and_every_listed_guest_is_a_component() {
        let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
        let folders = std::fs::read_dir(guests).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = folders.filter(|path| path.join("Cargo.toml").is_file()).collect();
        found.sort();
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ALL.map(|guest| guest.name));
        for guest in ALL {
            assert!(guest.component.starts_with(b"\0asm\x0d\0\x01\0"), "{} is not a component", guest.name);
            assert_eq!(std::fs::read(guest.path()).unwrap(), guest.component);
        }
    }

    /// The SDK carries the interfaces with it, so that it can be copied into a project as it is.
    #[test]
    fn the_sdk_s_copy_of_the_interfaces_is_the_interfaces() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (source, copy) = (files_below(&root.join("wit")), files_below(&root.join("sdk/rust/wit")));
        assert!(!source.is_empty());
        assert_eq!(copy, source, "copy `wit/` to `sdk/rust/wit/`");
    }

    fn files_below(folder: &Path) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path.strip_prefix(folder).unwrap().to_owned(), std::fs::read_to_string(&path).unwrap());
                }
            }
        }
        files
    }

    #[test]
    fn the_macro_names_every_guest() {
        let macro_text = include_str!("lib.rs").split("macro_rules! each_guest_has_tests").nth(1).unwrap();
        for guest in ALL {
            assert!(macro_text.contains(&format!("self::{} as _", guest.name)), "{}", guest.name);
        }
    }
}
