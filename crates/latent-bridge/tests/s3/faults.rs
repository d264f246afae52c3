//! A store that speaks S3 and does what stores do on a bad day: the archive gets its events there once, or refuses the store. What is put,
//! got and stored are those of `s3s-fs`; a fault stands before or behind it.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::Mutex;

use latent_bridge::cold::verify::{Known, Verification};
use latent_bridge::cold::{ControlKeys, open_archive};
use latent_bridge::{EmbeddedBroker, EventBus as _};
use latent_core::UnixMillis;
use s3s::dto::{GetObjectInput, GetObjectOutput, ListObjectsV2Input, ListObjectsV2Output, PutObjectInput, PutObjectOutput};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;
use serde_json::json;

use crate::{BUCKET, HOUR, URL, in_child, manifest, options, serve_as, variables};

/// Times that a call for one object fails: more than the client tries within one of ours.
const FAILURES: u32 = 3;
const EVENTS: u64 = 12;

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It knows no conditional writes and says so (status 501).
    NoConditions,
    /// It knows none and takes everything.
    IgnoresConditions,
    /// It is asked for too much (status 503) and does nothing.
    Busy,
    /// It puts the object and fails to say so (status 500).
    Forgetful,
    /// Somebody else is putting at this moment (status 409), and then did not.
    Contended,
    /// The same, and then it cannot read what it has.
    Unreadable,
}

struct Faulty {
    store: FileSystem,
    fault: Fault,
    /// Calls that failed already, by operation and object.
    failed: Mutex<BTreeMap<(&'static str, String), u32>>,
}

impl Faulty {
    /// Whether this call is one of the first ones for its object.
    fn is_early(&self, operation: &'static str, key: &str) -> bool {
        let mut failed = self.failed.lock().unwrap();
        let count = failed.entry((operation, key.to_owned())).or_default();
        *count += 1;
        *count <= FAILURES
    }
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = S3Result<S3Response<T>>> + Send + 'a>>;

// The trait is one of `async_trait`: these are the signatures that it writes.
impl S3 for Faulty {
    fn put_object<'s, 'a>(&'s self, mut request: S3Request<PutObjectInput>) -> Answer<'a, PutObjectOutput>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let (key, is_conditional) = (request.input.key.clone(), request.input.if_none_match.is_some());
            let is_early = self.is_early("put", &key);
            match self.fault {
                Fault::NoConditions if is_conditional => {
                    return Err(s3_error!(NotImplemented, "A header you provided implies functionality that is not implemented"));
                }
                Fault::IgnoresConditions => request.input.if_none_match = None,
                Fault::Busy if is_early => return Err(s3_error!(SlowDown)),
                Fault::Contended if is_early => return Err(s3_error!(OperationAborted)),
                Fault::Forgetful | Fault::Unreadable if is_early => {
                    drop(self.store.put_object(request).await);
                    return Err(s3_error!(InternalError));
                }
                _ => {}
            }
            self.store.put_object(request).await
        })
    }

    fn get_object<'s, 'a>(&'s self, request: S3Request<GetObjectInput>) -> Answer<'a, GetObjectOutput>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let is_early = self.is_early("get", &request.input.key);
            match self.fault {
                Fault::Unreadable if is_early => Err(s3_error!(InternalError)),
                _ => self.store.get_object(request).await,
            }
        })
    }

    fn list_objects_v2<'s, 'a>(&'s self, request: S3Request<ListObjectsV2Input>) -> Answer<'a, ListObjectsV2Output>
    where
        's: 'a,
        Self: 'a,
    {
        self.store.list_objects_v2(request)
    }
}

fn run(case: &str, fault: Fault, look: impl FnOnce(&Path)) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join(BUCKET)).unwrap();
    let store = Faulty { store: FileSystem::new(root.path()).unwrap(), fault, failed: Mutex::default() };
    let endpoint = format!("http://{}", serve_as(store));
    in_child(case, &format!("s3://{BUCKET}/x"), &variables(&endpoint));
    look(&root.path().join(BUCKET).join("x"));
}

/// BUG-69, of a store that is served: what it says and what it does are both seen at the start, and nothing of an event is put there.
#[test]
fn a_served_store_without_or_with_ignored_conditions_is_refused_at_the_start() {
    run("child_is_refused", Fault::NoConditions, |folder| assert!(!folder.exists()));
    run("faults::child_is_refused_as_one_that_overwrites", Fault::IgnoresConditions, |folder| {
        let names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["latent-probe"]);
    });
}

/// What fails for a while, before or after it was done, ends with one object for each event: nothing is quarantined, nothing is lost.
#[test]
fn a_served_store_that_fails_for_a_while_has_every_event_once_in_the_end() {
    for fault in [Fault::Busy, Fault::Forgetful, Fault::Contended, Fault::Unreadable] {
        run("faults::child_archives_in_the_end", fault, |folder| {
            let count = |partition| std::fs::read_dir(folder.join(format!("t/p{partition}"))).unwrap().count() as u64;
            assert_eq!(count(0) + count(1), EVENTS, "{fault:?}");
        });
    }
}

#[test]
#[ignore = "run in a child that knows a store"]
fn child_is_refused_as_one_that_overwrites() {
    let directory = tempfile::tempdir().unwrap();
    let refused = EmbeddedBroker::provision_with(directory.path(), &manifest(&std::env::var(URL).unwrap()), options()).map(drop);
    let problem = refused.unwrap_err().to_string();
    assert!(problem.contains("overwrites what was archived"), "{problem}");
}

#[test]
#[ignore = "run in a child that knows a store"]
fn child_archives_in_the_end() {
    let (directory, uri) = (tempfile::tempdir().unwrap(), std::env::var(URL).unwrap());
    // The probe of a store that cannot be asked yet is no refusal: it is asked again.
    let broker = EmbeddedBroker::provision_with(directory.path(), &manifest(&uri), options()).unwrap();
    for n in 0..EVENTS {
        broker.publish_idempotent("t", &format!("key-{n}"), &json!({ "n": n }), &format!("uid-{n}")).unwrap();
    }
    let mut has_waited = false;
    for round in 1.. {
        assert!(round <= 20, "it never ends");
        let report = broker.maintain(UnixMillis(1_800_000_000_000 + round * HOUR + 1)).unwrap();
        assert_eq!(report.intents_quarantined, 0, "{report:?}");
        let hot: u64 = broker.statistics()[0].partitions.iter().map(|partition| partition.records).sum();
        if hot == 0 && report.intents_pending == 0 {
            break;
        }
        has_waited = true;
    }
    assert!(has_waited, "the fault was never met");
    let store = open_archive(&uri).unwrap();
    let keys = ControlKeys::new(&[[7; 32]]).unwrap();
    let archive = Verification {
        store: &*store,
        topic: None,
        partition: None,
        keys: Some(&keys),
        heads: &[],
        log: Some(&broker),
        dense: true,
        known: Known::default(),
    };
    let verified = archive.run(&mut |_| {}).unwrap();
    assert_eq!((verified.findings.kept(), verified.records), (&[][..], EVENTS));
}
