//! on this side of the guest: what a publication allocates in steady state, and what a provider holds that nobody uses. The
//! counts are exact, so that one more is seen; the target is 8.
//!
//! A process of its own, because the allocator that counts is the process's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(unsafe_code, reason = "an allocator cannot be written without it; this one counts and hands on")]

#[path = "broker/bench.rs"]
#[allow(dead_code, reason = "written for the tests of the broker; these use some of it")]
mod bench;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latent_capabilities::{
    ActivationCapabilityRuntime, AuditRing, CompletionAccount, EventBinding, EventPublisher, PublishFuture, PublishRequest, Session,
    SessionSpec,
};
use latent_core::{ActivationId, Clock, Deadline, Epoch, LogicalTopic, ProviderId, PublicationId};
use latent_nats::{MappingDraft, NatsCredential, NatsPublisher};
use latent_secrets::{NewSecret, SecretName, TlsBinding};
use latent_testkit::require_broker;

use crate::bench::{Bench, Setup, event, receipt, tenant};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        HELD_BYTES.set(HELD_BYTES.get() + layout.size() as i64);
        // SAFETY: the caller keeps the promises of this very method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD_BYTES.set(HELD_BYTES.get() - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Counts what the provider allocates, from the call to the end of its future.
struct Counted {
    provider: NatsPublisher,
    allocations: Arc<AtomicU64>,
}

impl EventPublisher for Counted {
    fn publish(&self, request: PublishRequest) -> PublishFuture {
        let allocations = Arc::clone(&self.allocations);
        let before = ALLOCATIONS.get();
        let mut future = self.provider.publish(request);
        let mut count = ALLOCATIONS.get() - before;
        // The box around this counts for nobody but the test.
        Box::pin(std::future::poll_fn(move |context| {
            let before = ALLOCATIONS.get();
            let polled = future.as_mut().poll(context);
            count += ALLOCATIONS.get() - before;
            if polled.is_ready() {
                allocations.store(count, Ordering::Relaxed);
            }
            polled
        }))
    }
}

/// By then nothing grows any more: no list of publications, no ring of records, no buffer.
const STEADY_AFTER: usize = 96;
const COUNTED: usize = 64;

/// What is counted is the thread's, but for sockets: one of these tests at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn a_publication_in_steady_state_allocates_eight_times_in_broker_pool_and_transport() {
    require_broker!();
    let _alone = ALONE.lock().await;
    let bench = Bench::start(Setup::default());
    // A small ring of audit records is full soon; one that grows is not in its steady state.
    let capabilities = Arc::new(ActivationCapabilityRuntime::new(CompletionAccount::default(), Arc::new(AuditRing::new(16))));
    let allocations = Arc::new(AtomicU64::new(0));
    let reference = bench.publisher.reference().clone();
    let counted = Counted { provider: bench.publisher.clone(), allocations: Arc::clone(&allocations) };
    capabilities.providers().install(reference.clone(), None, Arc::new(counted)).unwrap();
    let topics = [LogicalTopic::parse("out").unwrap()].into();
    let binding = EventBinding { publication: PublicationId(1), tenant: tenant("shop"), provider: reference, topics };
    capabilities.install_events(capabilities.compile_events([binding]).unwrap()).unwrap();
    let session = Session::open(SessionSpec {
        activation: ActivationId::from_random([1; 16]),
        tenant: tenant("shop"),
        publication: PublicationId(1),
        origin: None,
        outbound_requests: 1_000,
        deadline: Deadline::after(bench.clock.mono(), 60_000),
        capabilities,
        clock: Arc::clone(&bench.clock) as _,
    });
    let mut counts = Vec::new();
    for number in 0..STEADY_AFTER + COUNTED {
        // What the guest's event is lifted into is counted apart, in `latent-wasmtime`.
        let draft = event(&format!("k-{number}"));
        let before = ALLOCATIONS.get();
        let completion = session.publish(draft).await;
        let outcome = completion.tell();
        let all = ALLOCATIONS.get() - before;
        receipt(outcome);
        let of_provider = allocations.load(Ordering::Relaxed);
        // One box is the test's.
        counts.push((all - of_provider - 1, of_provider));
    }
    let steady = &counts[STEADY_AFTER..];
    // Of the broker: the media type, the event and what an attempt and its caller share. Of pool and transport: the future, the uid, a TLS record each
    // way and the record's plaintext.
    assert!(steady.iter().all(|counted| *counted == (3, 5)), "{counts:?}");
}

const MAPPINGS: usize = 16;

/// What counts as idle: 16 mappings, each of a tenant with a credential of its own, installed and never used.
#[tokio::test]
async fn sixteen_idle_mappings_hold_at_most_128_kib_and_no_socket() {
    require_broker!();
    let _alone = ALONE.lock().await;
    let bench = Bench::start(Setup::default());
    let mapping = |number: usize| MappingDraft {
        tenant: Some(format!("tenant-{number}")),
        topic: Some("out".to_owned()),
        subject: Some(format!("tenant-{number}.out")),
        stream: Some("ORD".to_owned()),
    };
    let mut draft = bench.draft();
    draft.mappings = Some((0..MAPPINGS).map(mapping).collect());
    draft.roots.as_mut().unwrap().public = true;
    let provider = ProviderId::parse("idle").unwrap();
    let (server_name, port) = (bench.publisher.config().server_name().to_owned(), bench.publisher.config().address().port());
    let bindings: Vec<_> = (0..MAPPINGS)
        .map(|number| {
            let name = SecretName::parse(&format!("idle-{number}")).unwrap();
            let tenant = tenant(&format!("tenant-{number}"));
            let binding = TlsBinding { tenant, provider: provider.clone(), server_name: server_name.clone(), port };
            bench.secrets.put(NewSecret::tls(&name, &binding, b"a password", None), bench.clock.unix()).unwrap();
            (name, binding)
        })
        .collect();
    let (before, sockets_before) = (HELD_BYTES.get(), sockets());
    let credential = |(name, binding): &(SecretName, TlsBinding)| {
        let handle = bench.secrets.bind_tls_credential(name, binding, bench.clock.unix()).unwrap();
        NatsCredential::password(binding.tenant.clone(), "user", handle)
    };
    let credentials = bindings.iter().map(credential).collect();
    let publisher = NatsPublisher::install(&bench.pools, provider, Epoch(1), None, draft.check().unwrap(), credentials).unwrap();
    let held = HELD_BYTES.get() - before;
    assert!(held <= 128 << 10, "{held} bytes");
    assert_eq!(sockets(), sockets_before);
    assert_eq!(publisher.snapshot().connections, 0);
}

/// Sockets of this process.
fn sockets() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_socket = |path: std::path::PathBuf| std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
    entries.flatten().filter(|entry| is_socket(entry.path())).count()
}
