use latent_test_guests::{BEHAVE, PLAIN};
use latent_wasmtime::{EngineOptions, WasmEngine};

use super::*;

fn backend() -> WasmBackend {
    WasmBackend::new(WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).unwrap())
}

struct Files {
    temp: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { temp: tempfile::tempdir().unwrap() }
    }

    fn shelf(&self) -> Shelf {
        Shelf::open(&self.temp.path().join("components")).unwrap()
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let file = self.temp.path().join(name);
        fs::write(&file, content).unwrap();
        file
    }

    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.temp.path().join("components")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn what_is_known_of_a_component_is_what_it_is() {
    let files = Files::new();
    let facts = files.shelf().take_in(&files.write("plain.wasm", PLAIN.component), &backend()).unwrap();
    assert_eq!((facts.digest(), facts.exports_handler), (Some(ComponentDigest::of(PLAIN.component)), false));
    let contracts = facts.contracts();
    let work = &contracts[&ContractName::parse("demo:plain/work@1.0.0").unwrap()];
    assert!(work.contains(&FunctionName::parse("divide").unwrap()));
    assert!(facts.imports.contains("latent:events/publisher@0.2.0"), "{:?}", facts.imports);
}

#[test]
fn a_file_that_did_not_change_is_not_loaded_again_also_by_the_next_process() {
    let files = Files::new();
    let behave = files.write("behave.wasm", BEHAVE.component);
    let mut shelf = files.shelf();
    let (first, second) = (backend(), backend());
    let facts = shelf.take_in(&behave, &first).unwrap();
    assert_eq!(first.snapshot().components, 1);
    shelf.write_down();
    assert_eq!(files.shelf().take_in(&behave, &second).unwrap(), facts);
    assert_eq!(second.snapshot().components, 0);
    assert_eq!(shelf.shelved().read(facts.digest().unwrap()).as_deref(), Ok(BEHAVE.component));
}

#[test]
fn a_file_with_other_content_is_looked_at_again_and_the_old_component_stays_until_the_next_start() {
    let files = Files::new();
    let file = files.write("function.wasm", BEHAVE.component);
    let mut shelf = files.shelf();
    let old = shelf.take_in(&file, &backend()).unwrap();
    files.write("function.wasm", PLAIN.component);
    let new = shelf.take_in(&file, &backend()).unwrap();
    assert_ne!(old.digest(), new.digest());
    assert!(shelf.shelved().read(old.digest().unwrap()).is_ok());
    shelf.tidy(&[file].into());
    assert!(shelf.shelved().read(old.digest().unwrap()).is_err());
    assert_eq!(files.kept().len(), 2, "the new one and what is known: {:?}", files.kept());
}

#[test]
fn damaged_knowledge_costs_a_look_and_nothing_else() {
    let files = Files::new();
    let behave = files.write("behave.wasm", BEHAVE.component);
    let mut shelf = files.shelf();
    let facts = shelf.take_in(&behave, &backend()).unwrap();
    shelf.write_down();
    let known = files.temp.path().join("components").join(KNOWN);
    let text = fs::read_to_string(&known).unwrap();
    let other_program = text.replace(env!("CARGO_PKG_VERSION"), "0.0.0");
    for damaged in [&text[..text.len() / 2], "", "{}", &other_program] {
        fs::write(&known, damaged).unwrap();
        let again = backend();
        assert_eq!(files.shelf().take_in(&behave, &again).unwrap(), facts);
        assert_eq!(again.snapshot().components, 1, "{damaged:.40}");
    }
}

#[test]
fn what_is_missing_from_the_shelf_comes_back_from_its_file() {
    let files = Files::new();
    let behave = files.write("behave.wasm", BEHAVE.component);
    let mut shelf = files.shelf();
    let digest = shelf.take_in(&behave, &backend()).unwrap().digest().unwrap();
    let copy = shelf.shelved().file(digest);
    // Gone, cut short, changed: the next reader heals it.
    let damages: [&dyn Fn(); 3] = [&|| fs::remove_file(&copy).unwrap(), &|| fs::write(&copy, "").unwrap(), &|| {
        let mut damaged = BEHAVE.component.to_vec();
        damaged[1_000] ^= 1;
        fs::write(&copy, damaged).unwrap();
    }];
    for damage in damages {
        damage();
        assert_eq!(shelf.shelved().read(digest).as_deref(), Ok(BEHAVE.component));
        assert_eq!(fs::read(&copy).unwrap(), BEHAVE.component);
    }
    // Gone, and its file holds something else: who asks is told what to do, and taking the file in again works.
    fs::remove_file(&copy).unwrap();
    files.write("behave.wasm", PLAIN.component);
    assert!(shelf.shelved().read(digest).unwrap_err().contains("latent reload"));
    files.write("behave.wasm", BEHAVE.component);
    assert_eq!(shelf.take_in(&behave, &backend()).unwrap().digest(), Some(digest));
    assert!(shelf.shelved().read(digest).is_ok());
}

#[test]
fn what_cannot_be_taken_in_says_why_and_leaves_nothing_behind() {
    let files = Files::new();
    let mut shelf = files.shelf();
    let missing = shelf.take_in(&files.temp.path().join("missing.wasm"), &backend());
    assert!(matches!(missing, Err(ShelfError::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound));
    let folder = shelf.take_in(files.temp.path(), &backend());
    assert!(matches!(folder, Err(ShelfError::Unreadable(_))), "{folder:?}");
    let garbage = shelf.take_in(&files.write("garbage.wasm", b"nothing"), &backend());
    assert!(matches!(garbage, Err(ShelfError::Unusable(LoadError::Component(_)))), "{garbage:?}");
    assert!(files.kept().is_empty(), "{:?}", files.kept());
}

#[test]
fn only_what_the_shelf_made_is_ever_removed() {
    let files = Files::new();
    let mut shelf = files.shelf();
    let theirs = ["README.md", "plain.wasm", "aa.wasm", &format!("{}.wat", "a".repeat(64)), &format!("{}.wasm", "A".repeat(64))];
    theirs.iter().for_each(|name| _ = files.write(&format!("components/{name}"), b"theirs"));
    let ours = [format!("{}.wasm", "a".repeat(64)), format!("{}.wasm.new", "b".repeat(64))];
    ours.iter().for_each(|name| _ = files.write(&format!("components/{name}"), b"stale"));
    shelf.tidy(&BTreeSet::new());
    let mut expected: Vec<_> = theirs.iter().map(ToString::to_string).chain([KNOWN.to_owned()]).collect();
    expected.sort();
    assert_eq!(files.kept(), expected);
}

#[test]
fn a_directory_that_others_can_write_to_or_that_leads_elsewhere_is_no_shelf() {
    use std::os::unix::fs::PermissionsExt as _;
    let files = Files::new();
    let dir = files.temp.path().join("components");
    files.shelf();
    for mode in [0o777, 0o750, 0o701] {
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(Shelf::open(&dir), Err(ShelfOpenError::OpenToOthers { mode: told, .. }) if told == mode), "{mode:o}");
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&dir, files.temp.path().join("link")).unwrap();
    assert!(matches!(Shelf::open(&files.temp.path().join("link")), Err(ShelfOpenError::NotADirectory { .. })));
    assert!(Shelf::open(&dir).is_ok());
}

#[test]
fn a_copy_that_cannot_be_kept_costs_the_copy_and_nothing_else() {
    let files = Files::new();
    let behave = files.write("behave.wasm", BEHAVE.component);
    let mut shelf = files.shelf();
    let digest = ComponentDigest::of(BEHAVE.component);
    // A directory in its place: no file can take that name.
    fs::create_dir(shelf.shelved().file(digest)).unwrap();
    assert_eq!(shelf.take_in(&behave, &backend()).unwrap().digest(), Some(digest));
    assert_eq!(shelf.shelved().read(digest).as_deref(), Ok(BEHAVE.component));
}
