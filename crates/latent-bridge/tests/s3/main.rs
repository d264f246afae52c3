//! The archive on a store that speaks S3 (B-086): `s3s-fs`, in this process, on a free port. With `AV_COLD_S3_URL` and the `AWS_` variables
//! of a store of your own, `s3://bucket/prefix`, that one is used instead.
//!
//! The store is told where it is by its environment, which a process has once, so that each case runs in a child.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failing helper is a failing test"
)]

mod faults;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use latent_bridge::cold::restore::{Progress, Restoration};
use latent_bridge::cold::segment::SegmentSizes;
use latent_bridge::cold::verify::{Known, Verification};
use latent_bridge::cold::{ArchiveOptions, ControlKeys, open_archive};
use latent_bridge::embedded::EngineOptions;
use latent_bridge::manifest::ColdFormat;
use latent_bridge::{BridgeManifest, BusError, EmbeddedBroker, EventBus, RetentionSpec, TopicSpec};
use latent_core::{Clock as _, Partition, SystemClock, UnixMillis};
use latent_testkit::ManualClock;
use serde_json::json;

const URL: &str = "AV_COLD_S3_URL";
const BUCKET: &str = "cold";
const ACCESS: &str = "test-access";
const SECRET: &str = "test-secret";
const HOUR: u64 = 3_600_000;

/// Serves the folder `root` for as long as the test runs.
fn serve(root: &Path) -> SocketAddr {
    serve_as(s3s_fs::FileSystem::new(root).unwrap())
}

/// Serves `store` for as long as the test runs.
fn serve_as(store: impl s3s::S3) -> SocketAddr {
    let mut builder = s3s::service::S3ServiceBuilder::new(store);
    builder.set_auth(s3s::auth::SimpleAuth::from_single(ACCESS, SECRET));
    let service = builder.build();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let io = hyper_util::rt::TokioIo::new(socket);
                    let server = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                    drop(server.serve_connection(io, service).await);
                });
            }
        });
    });
    address
}

/// Runs the case `name` of this program in a child that knows where the store is.
fn in_child(name: &str, url: &str, variables: &[(&str, &str)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--ignored", "--nocapture"]).env(URL, url).envs(variables.iter().copied());
    let output = child.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{name}: {out}\n{err}");
}

fn variables(endpoint: &str) -> [(&str, &str); 6] {
    [
        ("AWS_ENDPOINT", endpoint),
        ("AWS_ACCESS_KEY_ID", ACCESS),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ALLOW_HTTP", "true"),
        // B-071: not for the client.
        ("ENDPOINT", "http://127.0.0.1:1"),
    ]
}

fn manifest(uri: &str) -> BridgeManifest {
    let retention = RetentionSpec { hot_hours: 1, cold_uri: Some(uri.to_owned()), ..RetentionSpec::default() };
    let topic = TopicSpec { name: "t".to_owned(), partitions: 2, retention, schema_ref: None };
    BridgeManifest { manifest_version: 1, name: "s3".to_owned(), replication_factor: 1, topics: vec![topic] }
}

fn options() -> EngineOptions {
    let archive = ArchiveOptions { control_keys: vec![[7; 32]], ..ArchiveOptions::default() };
    let clock = Arc::new(ManualClock::starting_at(UnixMillis(1_800_000_000_000)));
    EngineOptions { archive, clock, ..EngineOptions::default() }
}

/// B-086: what expires is there, and a second pass does nothing; a directory opened again finds the same objects and is content.
#[test]
fn what_expires_lies_in_the_store_and_a_second_pass_does_nothing() {
    let unique = format!("run-{}-{}", std::process::id(), SystemClock::start().unix());
    if let Ok(url) = std::env::var(URL) {
        return in_child("child_archives", &format!("{}/{unique}", url.trim_end_matches('/')), &[]);
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join(BUCKET)).unwrap();
    let endpoint = format!("http://{}", serve(root.path()));
    in_child("child_archives", &format!("s3://{BUCKET}/{unique}"), &variables(&endpoint));
    let folder = root.path().join(BUCKET).join(unique);
    let objects: usize = (0..2).map(|partition| std::fs::read_dir(folder.join(format!("t/p{partition}"))).unwrap().count()).sum();
    assert_eq!(objects, 20);
    assert!(folder.join("latent-probe/create-only.json").is_file());
}

/// Segments there: written, looked at again by another process, verified with their heads, and restored.
#[test]
fn segments_lie_in_the_store_once_are_verified_there_and_come_back_from_it() {
    let unique = format!("segments-{}-{}", std::process::id(), SystemClock::start().unix());
    if let Ok(url) = std::env::var(URL) {
        return in_child("child_archives_in_segments", &format!("{}/{unique}", url.trim_end_matches('/')), &[]);
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join(BUCKET)).unwrap();
    let endpoint = format!("http://{}", serve(root.path()));
    in_child("child_archives_in_segments", &format!("s3://{BUCKET}/{unique}"), &variables(&endpoint));
}

/// BUG-69: a store whose conditional writes are switched off is refused at the start, and no unconditional write is ever tried.
#[test]
fn without_conditional_writes_a_store_is_refused_at_the_start() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join(BUCKET)).unwrap();
    let endpoint = format!("http://{}", serve(root.path()));
    let off = [&variables(&endpoint)[..], &[("AWS_CONDITIONAL_PUT", "disabled")]].concat();
    in_child("child_is_refused", &format!("s3://{BUCKET}/x"), &off);
    assert_eq!(std::fs::read_dir(root.path().join(BUCKET)).unwrap().count(), 0);
}

#[test]
#[ignore = "run in a child that knows a store"]
fn child_archives() {
    let directory = tempfile::tempdir().unwrap();
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&std::env::var(URL).unwrap()), options()).unwrap();
    for n in 0..20 {
        broker.publish_idempotent("t", &format!("key-{n}"), &json!({ "n": n }), &format!("uid-{n}")).unwrap();
    }
    let copy = tempfile::tempdir().unwrap();
    let then = UnixMillis(1_800_000_000_000 + HOUR + 1);
    let report = broker.maintain(then).unwrap();
    assert_eq!((report.expired_records, report.intents_completed, report.intents_pending), (20, 20, 0), "{report:?}");
    let again = broker.maintain(then).unwrap();
    assert_eq!((again.expired_records, again.archived_records, again.intents_failed), (0, 0, 0), "{again:?}");
    // The same events again, as after a restored backup: the objects that are there are found to be the same.
    let second = EmbeddedBroker::provision_with(copy.path(), &manifest(&std::env::var(URL).unwrap()), options()).unwrap();
    for n in 0..20 {
        second.publish_idempotent("t", &format!("key-{n}"), &json!({ "n": n }), &format!("uid-{n}")).unwrap();
    }
    let report = second.maintain(then).unwrap();
    assert_eq!((report.expired_records, report.intents_completed, report.intents_quarantined), (20, 20, 0), "{report:?}");
}

fn contents(bus: &dyn EventBus) -> Vec<Vec<(String, String, Vec<u8>)>> {
    let of = |partition| {
        let fetched = bus.submit_fetch("t", Partition(partition), latent_core::Offset(0), 1_000).wait().unwrap();
        fetched
            .into_iter()
            .map(|stored| (stored.record.uid.as_str().to_owned(), stored.record.key, stored.record.payload.to_vec()))
            .collect()
    };
    (0..2).map(of).collect()
}

#[test]
#[ignore = "run in a child that knows a store"]
fn child_archives_in_segments() {
    let (directory, uri) = (tempfile::tempdir().unwrap(), std::env::var(URL).unwrap());
    let mut manifest = manifest(&uri);
    manifest.topics[0].retention.cold_format = Some(ColdFormat::Segments);
    let small = || {
        let mut options = options();
        options.archive.segment_sizes = SegmentSizes { items: 7, ..SegmentSizes::default() };
        options
    };
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest, small()).unwrap();
    let publish = |bus: &EmbeddedBroker, numbers: std::ops::Range<u32>| {
        for n in numbers {
            bus.publish_idempotent("t", &format!("key-{n}"), &json!({ "n": n }), &format!("uid-{n}")).unwrap();
        }
    };
    publish(&broker, 0..40);
    let all = contents(&broker);
    let then = UnixMillis(1_800_000_000_000 + HOUR + 1);
    let report = broker.maintain(then).unwrap();
    assert_eq!((report.expired_records, report.archived_records, report.unarchived_topics.len()), (40, 40, 0), "{report:?}");
    drop(broker);
    // Another process goes on behind what is there, of which it asks the store.
    let broker = EmbeddedBroker::open_with(directory.path(), small()).unwrap();
    assert_eq!(broker.maintain(then).unwrap().archived_records, 0);
    let keys = ControlKeys::new(&[[7; 32]]).unwrap();
    let heads: Vec<_> = (0..2).map(|partition| broker.archive_head("t", Partition(partition)).unwrap().unwrap().head).collect();
    let store = open_archive(&uri).unwrap();
    let archive = Verification {
        store: &*store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: &heads,
        log: Some(&broker),
        dense: true,
        known: Known::default(),
    };
    let verified = archive.run(&mut |_| {}).unwrap();
    assert_eq!((verified.findings.kept(), verified.records, verified.unattested_ends), (&[][..], 40, 0));
    let segments: u64 = heads.iter().map(|head| head.segments).sum();
    assert!(segments >= 6 && verified.segments == segments && verified.proven_segments == segments, "{verified:?}");
    let (other, mut plain) = (tempfile::tempdir().unwrap(), manifest.clone());
    plain.topics[0].retention = RetentionSpec::default();
    let other = EmbeddedBroker::provision_with(other.path(), &plain, options()).unwrap();
    let restoration = Restoration { archive: Verification { log: None, ..archive }, bus: &other, key_by_key: false, into: None };
    let restored = restoration.run(Progress::of("s3"), &mut |_| Ok(()), &mut |_| {}).unwrap();
    assert_eq!(restored.partitions.iter().map(|partition| partition.records).sum::<u64>(), 40);
    assert_eq!(contents(&other), all);
}

#[test]
#[ignore = "run in a child that knows a store"]
fn child_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused =
        EmbeddedBroker::provision_with(directory.path(), &manifest(&std::env::var(URL).unwrap()), options()).map(drop).unwrap_err();
    assert!(matches!(&refused, BusError::Config { problem } if problem.contains("conditional writes")), "{refused}");
}
