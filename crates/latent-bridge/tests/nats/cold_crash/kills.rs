//! A real process that is killed before a message of its own reaches the broker, or before one of the broker's reaches it. It is this test
//! binary run again with an environment variable, behind a proxy that stops at that message.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use latent_bridge::NatsBus;
use latent_bridge::cold::{ArchiveOptions, open_archive};
use latent_testkit::proxy::{At, Direction, Fault, FaultProxy, FaultWatch};
use latent_testkit::{require_broker, wait_until};

use super::scenes::Scene;
use super::{places_max, spread};
use crate::cold::{KEY, Site};
use crate::live::options_with;

/// Set in a child: the folder of everything, the proxy, the number of the scene, the tag.
const CHILD: &str = "LATENT_BRIDGE_TEST_ARCHIVE_CHILD";
const NAME: &str = "cold_crash::kills::child_archives_until_it_is_killed";

fn archive(folder: &Path) -> ArchiveOptions {
    ArchiveOptions { control_keys: vec![KEY], outbox: Some(folder.join("outbox")), ..ArchiveOptions::default() }
}

fn uri(folder: &Path) -> String {
    folder.join("cold").to_str().unwrap().to_owned()
}

/// Not a test of its own: without the variable it has nothing to do.
#[test]
fn child_archives_until_it_is_killed() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = words.split('|').collect();
    let (folder, scene) = (PathBuf::from(words[0]), Scene::ALL[words[2].parse::<usize>().unwrap()]);
    let mut options = options_with(&[words[1].parse::<SocketAddrV4>().unwrap()], std::fs::read(folder.join("ca.der")).unwrap());
    options.archive = Some(archive(&folder));
    let bus = NatsBus::open_with(scene.options(options), &scene.manifest(&uri(&folder))).unwrap();
    let published = scene.play(&bus, words[3]);
    if published.is_some_and(|published| published.is_ok()) {
        std::fs::write(folder.join("acknowledged"), "").unwrap();
        wait_until("the upload ends", || intents(&folder) == 0);
    }
}

fn intents(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder.join("outbox")).unwrap();
    names.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "json")).count()
}

fn child(folder: &Path, proxy: &FaultProxy, scene: Scene, tag: &str) -> Child {
    let number = Scene::ALL.iter().position(|one| *one == scene).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([NAME, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("{}|{}|{number}|{tag}", folder.display(), proxy.address()));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Each message begins with one of these in the direction of its own, and nothing else of these tests does.
const fn beginning(direction: Direction) -> &'static [u8] {
    match direction {
        Direction::ToBroker => b"PUB ",
        Direction::ToClient => b"MSG ",
    }
}

/// Kills a child before a message passes; without one, lets it come to its end. How many messages passed in this direction, and whether it was
/// killed: what it says when it leaves may be one message more or fewer.
fn run(site: &Site, scene: Scene, direction: Direction, message: Option<u64>) -> (u64, bool) {
    let folder = site.folder.path();
    let tag = scene.tag();
    scene.prepare(site, &uri(folder), &tag);
    drop(std::fs::remove_file(folder.join("acknowledged")));
    let proxy = FaultProxy::start(&site.broker);
    let stop = |message| proxy.inject(None, direction, At::BeforeNext(beginning(direction).to_vec(), message), Fault::Stall);
    let watch = message.map(stop);
    let mut child = child(folder, &proxy, scene, &tag);
    let mut ended = None;
    wait_until("the child is at its message, or done", || {
        ended = child.try_wait().unwrap();
        ended.is_some() || watch.as_ref().is_some_and(FaultWatch::is_reached)
    });
    if ended.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(ended.is_none_or(|status| status.success()), "{tag}: {direction:?}, message {message:?}: {ended:?}");
    let passed = proxy.transcript(direction).windows(4).filter(|window| *window == beginning(direction)).count();
    drop(proxy);
    let is_there = scene != Scene::Publishing || intents(folder) > 0 || folder.join("acknowledged").exists();
    let store = open_archive(&uri(folder)).unwrap();
    let context = format!("{tag}: {direction:?}, message {message:?}");
    scene.settle(site, &uri(folder), &*store, (&tag, is_there), &context);
    (u64::try_from(passed).unwrap(), ended.is_none())
}

#[test]
fn a_process_that_is_killed_at_a_message_to_or_from_the_broker_leaves_each_event_once_or_not_at_all() {
    require_broker!();
    for scene in Scene::ALL {
        let mut site = Site::start();
        site.folders = true;
        std::fs::write(site.folder.path().join("ca.der"), site.broker.ca().root_der()).unwrap();
        drop(NatsBus::provision_with(scene.options(site.options()), &scene.manifest(&uri(site.folder.path()))).unwrap());
        let mut rows = Vec::new();
        // The first time some folders and heads are made.
        run(&site, scene, Direction::ToBroker, None);
        for direction in [Direction::ToBroker, Direction::ToClient] {
            let (whole, _) = run(&site, scene, direction, None);
            let places = spread(whole, places_max());
            let killed = places.iter().filter(|place| run(&site, scene, direction, Some(**place)).1).count();
            assert!(killed + 2 >= places.len() && killed > 0, "{scene:?} {direction:?}: {killed} of {} were killed", places.len());
            rows.push(format!("{killed} of {whole} messages {}", if direction == Direction::ToBroker { "to it" } else { "from it" }));
        }
        println!("{}: killed at {}; each event is on the broker once and in the archive once, or nowhere", scene.word(), rows.join(", "));
    }
}
