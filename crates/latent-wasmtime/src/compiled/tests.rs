//! Real directories, real components and a real engine: what is loaded, what is not, and what it costs.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

use tempfile::TempDir;

use super::*;
use crate::EngineOptions;

static ENGINE: LazyLock<WasmEngine> = LazyLock::new(one_cell);

fn one_cell() -> WasmEngine {
    WasmEngine::new(EngineOptions { cells: 1, ..EngineOptions::default() }).unwrap()
}

/// Components that differ in nothing but their digest, so their entries are equally large.
fn component(number: u8) -> Vec<u8> {
    let mut component = wat::parse_str("(component (core module (func (export \"f\"))))").unwrap();
    component.extend([0, 3, 1, b'n', number]);
    component
}

/// A directory for a cache.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("compiled")
    }

    fn open(&self) -> CompiledCache {
        CompiledCache::open(&self.path(), CompiledCacheOptions::default()).unwrap()
    }

    fn bounded(&self, bytes_max: u64) -> CompiledCache {
        CompiledCache::within(Folder::open(&self.path()).unwrap(), bytes_max).unwrap()
    }

    fn refusal(&self) -> CompiledCacheError {
        CompiledCache::open(&self.path(), CompiledCacheOptions::default()).unwrap_err()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The file of a component on [`ENGINE`].
    fn entry(&self, component: &[u8]) -> PathBuf {
        self.file(&EntryName { digest: ComponentDigest::of(component), engine: ENGINE.identity() }.to_string())
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn used_at(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}

fn prepare(cache: &CompiledCache, component: &[u8]) {
    let prepared = ENGINE.prepare_cached(cache, component).unwrap();
    assert_eq!(prepared.digest(), ComponentDigest::of(component));
}

fn load(cache: &CompiledCache, component: &[u8]) -> bool {
    ENGINE.load_cached(cache, ComponentDigest::of(component)).unwrap().is_some()
}

#[test]
fn a_component_is_compiled_once_and_then_loaded_by_its_digest_alone() {
    let place = Place::new();
    let guest = latent_test_guests::BEHAVE.component;
    let compiled = one_cell().prepare_cached(&place.open(), guest).unwrap();

    let (engine, cache) = (one_cell(), place.open());
    let loaded = engine.load_cached(&cache, ComponentDigest::of(guest)).unwrap().unwrap();
    assert_eq!(cache.counts(), CompiledCacheCounts { loaded: 1, ..CompiledCacheCounts::default() });
    assert_eq!((loaded.digest(), loaded.exports_handler(), loaded.code_bytes()), (compiled.digest(), true, compiled.code_bytes()));
    assert!(loaded.imports().eq(compiled.imports()));
    engine.prepare_cached(&cache, guest).unwrap();
    assert_eq!(cache.counts(), CompiledCacheCounts { loaded: 2, ..CompiledCacheCounts::default() });
}

#[test]
fn what_is_not_there_is_missing_and_gets_compiled() {
    let place = Place::new();
    let cache = place.open();
    assert!(!load(&cache, &component(1)));
    prepare(&cache, &component(1));
    assert_eq!(cache.counts(), CompiledCacheCounts { missing: 2, stored: 1, ..CompiledCacheCounts::default() });
}

#[test]
fn what_may_not_run_is_neither_kept_nor_admitted_from_the_cache() {
    let place = Place::new();
    let cache = place.open();
    let foreign = wat::parse_str("(component (import \"acme:db/sql@1.0.0\" (instance)))").unwrap();
    assert!(matches!(ENGINE.prepare_cached(&cache, &foreign), Err(WasmError::ImportRefused { .. })));
    assert_eq!((cache.counts().stored, ENGINE.prepare_cached(&cache, b"no component").err()), (0, Some(WasmError::NotWasm)));

    let name = EntryName { digest: ComponentDigest::of(&foreign), engine: ENGINE.identity() };
    cache.0.store(&name, &component::compile(ENGINE.wasmtime(), &foreign).unwrap());
    assert!(matches!(ENGINE.load_cached(&cache, name.digest), Err(WasmError::ImportRefused { .. })));
    assert_eq!(cache.counts().loaded, 1);
}

/// That the entry of component 1 is refused, removed, and compiled again.
fn assert_refused(place: &Place, what: &str) {
    let cache = place.open();
    assert!(!load(&cache, &component(1)), "{what}");
    assert_eq!(cache.counts(), CompiledCacheCounts { refused: 1, ..CompiledCacheCounts::default() }, "{what}");
    assert!(!place.entry(&component(1)).exists(), "{what}");
    prepare(&cache, &component(1));
    assert!(load(&cache, &component(1)), "{what}");
}

#[test]
fn an_entry_changed_in_any_byte_is_removed_and_compiled_again() {
    let place = Place::new();
    prepare(&place.open(), &component(1));
    let entry = place.entry(&component(1));
    let good = fs::read(&entry).unwrap();
    for at in (0..HEADER_BYTES).step_by(5).chain((HEADER_BYTES..good.len()).step_by(good.len() / 50)).chain([good.len() - 1]) {
        let mut changed = good.clone();
        changed[at] ^= 1;
        fs::write(&entry, changed).unwrap();
        assert_refused(&place, &format!("byte {at}"));
    }
}

#[test]
fn an_entry_of_another_length_is_removed_and_compiled_again() {
    let place = Place::new();
    prepare(&place.open(), &component(1));
    let entry = place.entry(&component(1));
    let good = fs::read(&entry).unwrap();
    for bytes in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, good.len() - 1, good.len() + 1] {
        let mut changed = good.clone();
        changed.resize(bytes, 0);
        fs::write(&entry, changed).unwrap();
        assert_refused(&place, &format!("{bytes} bytes"));
    }
}

#[test]
fn an_entry_of_another_component_or_another_cache_is_not_loaded() {
    let (place, other) = (Place::new(), Place::new());
    prepare(&place.open(), &component(2));
    fs::rename(place.entry(&component(2)), place.entry(&component(1))).unwrap();
    assert_refused(&place, "another component under this name");

    prepare(&other.open(), &component(1));
    fs::copy(other.entry(&component(1)), place.entry(&component(1))).unwrap();
    assert_refused(&place, "sealed with another key");
}

#[test]
fn what_is_no_file_of_ours_in_an_entry_place_is_never_followed() {
    let (place, other) = (Place::new(), Place::new());
    prepare(&place.open(), &component(1));
    prepare(&other.open(), &component(1));
    let entry = place.entry(&component(1));
    fs::rename(&entry, other.file("target")).unwrap();
    symlink(other.file("target"), &entry).unwrap();
    assert_refused(&place, "symbolic link");

    fs::remove_file(&entry).unwrap();
    fs::create_dir(&entry).unwrap();
    let cache = place.open();
    prepare(&cache, &component(1));
    assert_eq!((cache.counts().refused, cache.counts().not_stored), (1, 1));
}

#[test]
fn an_engine_of_another_configuration_has_entries_of_its_own() {
    let mut config = wasmtime::Config::new();
    config.consume_fuel(false).epoch_interruption(true);
    let other = EngineIdentity::of(&wasmtime::Engine::new(&config).unwrap());
    assert!(other != ENGINE.identity());
    assert!(one_cell().identity() == ENGINE.identity(), "the same configuration is the same identity");

    let place = Place::new();
    let cache = place.open();
    prepare(&cache, &component(1));
    let foreign = EntryName { digest: ComponentDigest::of(&component(1)), engine: other };
    fs::rename(place.entry(&component(1)), place.file(&foreign.to_string())).unwrap();
    assert!(!load(&cache, &component(1)));
    assert_eq!(cache.counts().missing, 2);
}

#[test]
fn the_directory_and_its_key_are_made_for_the_owner_alone() {
    let place = Place::new();
    place.open();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&place.path()), mode(&place.file("key"))), (0o700, 0o600));
    assert_eq!((place.names(), fs::metadata(place.file("key")).unwrap().len()), (vec!["key".to_owned()], 32));
    let key = fs::read(place.file("key")).unwrap();
    place.open();
    assert_eq!(fs::read(place.file("key")).unwrap(), key, "a key is made once");
}

#[test]
fn a_directory_open_to_others_is_refused_with_what_to_do() {
    let place = Place::new();
    place.open();
    for mode in [0o701, 0o710, 0o702, 0o720, 0o755, 0o777] {
        set_mode(&place.path(), mode);
        let refusal = place.refusal();
        assert_eq!(refusal, CompiledCacheError::DirectoryOpen { path: place.path(), mode });
        assert!(refusal.to_string().contains("chmod 700"), "{refusal}");
    }
    set_mode(&place.path(), 0o700);
    place.open();
}

#[test]
fn a_key_file_that_others_can_open_or_that_is_no_key_is_refused() {
    let place = Place::new();
    place.open();
    let key = place.file("key");
    for mode in [0o604, 0o640, 0o660] {
        set_mode(&key, mode);
        assert_eq!(place.refusal(), CompiledCacheError::KeyOpen { path: key.clone(), mode });
    }
    set_mode(&key, 0o600);
    for bytes in [0, 31, 33] {
        fs::write(&key, vec![1; bytes]).unwrap();
        assert_eq!(place.refusal(), CompiledCacheError::KeyMalformed { path: key.clone(), expected: 32 }, "{bytes} bytes");
    }
    fs::remove_file(&key).unwrap();
    symlink("elsewhere", &key).unwrap();
    assert_eq!(place.refusal(), CompiledCacheError::KeyMalformed { path: key.clone(), expected: 32 });
    fs::remove_file(&key).unwrap();
    place.open();
}

#[test]
fn a_path_that_is_no_directory_or_leads_elsewhere_is_refused() {
    let place = Place::new();
    let real = place.0.path().join("real");
    CompiledCache::open(&real, CompiledCacheOptions::default()).unwrap();
    symlink(&real, place.path()).unwrap();
    let not_a_directory = |path: PathBuf| CompiledCacheError::NotADirectory { path };
    assert_eq!(place.refusal(), not_a_directory(place.path()));
    let with_slash = place.0.path().join("compiled/");
    assert_eq!(CompiledCache::open(&with_slash, CompiledCacheOptions::default()).unwrap_err(), not_a_directory(with_slash));

    fs::remove_file(place.path()).unwrap();
    fs::write(place.path(), "").unwrap();
    assert_eq!(place.refusal(), not_a_directory(place.path()));
    let below_a_file = CompiledCache::open(&place.file("deeper"), CompiledCacheOptions::default());
    assert!(matches!(below_a_file, Err(CompiledCacheError::NotADirectory { .. } | CompiledCacheError::Io { .. })));
}

#[test]
fn a_directory_or_key_of_another_user_is_refused() {
    let user = rustix::process::geteuid().as_raw();
    if user != 0 {
        // Only root can give files away. Everybody else knows a directory that belongs to root.
        let refused = CompiledCache::open(Path::new("/"), CompiledCacheOptions::default()).unwrap_err();
        assert_eq!(refused, CompiledCacheError::Foreign { path: "/".into(), owner: 0, user });
        return;
    }
    let place = Place::new();
    place.open();
    for path in [place.file("key"), place.path()] {
        chown(&path, Some(12_345), None).unwrap();
        assert_eq!(place.refusal(), CompiledCacheError::Foreign { path: path.clone(), owner: 12_345, user });
        chown(&path, Some(user), None).unwrap();
    }
}

fn full(file: &mut File, parts: &[&[u8]]) -> io::Result<()> {
    file.write_all(&parts[0][..10])?;
    Err(io::ErrorKind::StorageFull.into())
}

#[test]
fn a_full_disk_costs_the_cache_and_nothing_else() {
    let place = Place::new();
    let mut folder = Folder::open(&place.path()).unwrap();
    folder.write = full;
    let cache = CompiledCache::within(folder, 1 << 20).unwrap();
    for round in 1..=2 {
        prepare(&cache, &component(1));
        assert_eq!(cache.counts(), CompiledCacheCounts { missing: round, not_stored: round, ..CompiledCacheCounts::default() });
        assert_eq!(place.names(), ["key"], "nothing half written stays");
    }
}

#[test]
fn a_directory_that_vanished_costs_the_cache_and_nothing_else() {
    let place = Place::new();
    let cache = place.open();
    fs::remove_dir_all(place.path()).unwrap();
    prepare(&cache, &component(1));
    assert_eq!(cache.counts(), CompiledCacheCounts { missing: 1, not_stored: 1, ..CompiledCacheCounts::default() });
}

#[test]
fn entries_fit_the_bound_exactly_and_the_longest_unused_goes_first() {
    let place = Place::new();
    let entry_bytes = {
        prepare(&place.open(), &component(0));
        let bytes = fs::metadata(place.entry(&component(0))).unwrap().len();
        fs::remove_file(place.entry(&component(0))).unwrap();
        bytes
    };
    let cache = place.bounded(3 * entry_bytes);
    for (number, used) in [(1, 20), (2, 10), (3, 30)] {
        prepare(&cache, &component(number));
        used_at(&place.entry(&component(number)), used);
    }
    assert_eq!((cache.counts().stored, cache.counts().evicted), (3, 0), "exactly the bound");
    assert!(load(&cache, &component(2)), "used again, so the first to go is another one");
    prepare(&cache, &component(4));
    let kept = |number| place.entry(&component(number)).exists();
    assert_eq!([1, 2, 3, 4].map(kept), [false, true, true, true]);

    assert_eq!(place.bounded(3 * entry_bytes - 1).counts().evicted, 1, "a bound that became smaller holds from the opening on");
    assert!(!kept(3));
}

#[test]
fn a_component_larger_than_the_whole_cache_is_not_kept_and_removes_nothing() {
    let place = Place::new();
    prepare(&place.open(), &component(1));
    let entry_bytes = fs::metadata(place.entry(&component(1))).unwrap().len();
    let cache = place.bounded(entry_bytes);
    let mut larger =
        wat::parse_str(format!("(component (core module (memory 1) (data (i32.const 0) \"{}\")))", "x".repeat(50_000))).unwrap();
    larger.extend([0, 2, 1, b'n']);
    prepare(&cache, &larger);
    assert_eq!((cache.counts().not_stored, cache.counts().evicted), (1, 0));
    assert!(load(&cache, &component(1)));
}

#[test]
fn entries_of_another_engine_go_first() {
    let place = Place::new();
    prepare(&place.open(), &component(1));
    let entry = place.entry(&component(1));
    let cache = place.bounded(2 * fs::metadata(&entry).unwrap().len());
    used_at(&entry, 1);
    let foreign = place.file(&format!("{}-{}", "0".repeat(64), "1".repeat(64)));
    fs::copy(&entry, &foreign).unwrap();
    prepare(&cache, &component(2));
    assert!(entry.exists() && !foreign.exists());
}

#[test]
fn what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays() {
    let place = Place::new();
    place.open();
    fs::write(place.file(".new-00000000000000aa"), "half").unwrap();
    let writing = File::create(place.file(".new-00000000000000bb")).unwrap();
    writing.lock().unwrap();
    fs::write(place.file("notes.txt"), "not ours").unwrap();
    let cache = place.open();
    assert_eq!(place.names(), [".new-00000000000000bb", "key", "notes.txt"]);
    prepare(&cache, &component(1));
    drop(writing);
    place.open();
    assert_eq!(place.names().len(), 3);
    assert!(load(&place.open(), &component(1)));
}

#[test]
fn several_at_once_on_one_new_directory_agree_on_a_key_and_never_see_half_an_entry() {
    let place = Place::new();
    let caches: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (engine, cache) = (one_cell(), place.open());
                    for number in (0..5).cycle().take(20) {
                        engine.prepare_cached(&cache, &component(number)).unwrap();
                    }
                    cache
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for cache in &caches {
        let counts = cache.counts();
        assert_eq!((counts.refused, counts.loaded + counts.missing, counts.missing), (0, 20, counts.stored + counts.not_stored));
        assert!((0..5).all(|number| load(cache, &component(number))));
    }
    assert_eq!(place.names().len(), 6);
}

#[test]
fn the_bound_of_a_cache_is_checked_at_its_edges() {
    let place = Place::new();
    let limit = limits::COMPILED_CACHE_BYTES;
    let open = |bytes_max| CompiledCache::open(&place.path(), CompiledCacheOptions { bytes_max });
    for bad in [0, limit.min - 1, limit.max + 1] {
        assert!(matches!(open(bad), Err(CompiledCacheError::Limit(refused)) if refused.value == bad), "{bad}");
    }
    assert!(!place.path().exists(), "what is refused leaves no trace");
    assert!(open(limit.min).is_ok() && open(limit.max).is_ok());
}
