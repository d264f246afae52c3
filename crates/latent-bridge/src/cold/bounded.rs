//! A store whose calls may hang, as those of a folder on a network do: each has the time of a connector's operation (B-081, B-082), and is
//! left behind after it. What it does then all the same is found by the next attempt.
//!
//! A call that hangs keeps a thread and what it was to write until the system lets it go. There are few of those: beyond them no call
//! is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::store::{ColdError, ColdStore, Listed, PutEnd};
use crate::connector::{ConnectorExecutor, ConnectorFault};
use crate::{BusError, limits};

/// Name of the thread that runs calls.
pub(crate) const THREAD: &str = "latent-cold-store";

/// See the module.
pub(crate) struct BoundedStore {
    store: Arc<dyn ColdStore>,
    executor: ConnectorExecutor,
    limit: Duration,
    /// Calls whose time is over and that have not ended.
    overdue: Arc<AtomicU64>,
}

const RUNS: u8 = 0;
const HAS_ENDED: u8 = 1;
const IS_LATE: u8 = 2;

/// One call, as it and who waits for it see it.
#[derive(Clone)]
struct Running {
    state: Arc<AtomicU8>,
    overdue: Arc<AtomicU64>,
}

impl Running {
    /// Its time is over.
    fn give_up(&self) {
        if self.state.compare_exchange(RUNS, IS_LATE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.overdue.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Dropped by the thread of the call when it ends, however it does.
struct Ending(Running);

impl Drop for Ending {
    fn drop(&mut self) {
        if self.0.state.swap(HAS_ENDED, Ordering::SeqCst) == IS_LATE {
            self.0.overdue.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl BoundedStore {
    /// Bounds the calls of `store`.
    ///
    /// # Errors
    /// [`BusError::Backend`] when the system gives no thread.
    pub(crate) fn new(store: Arc<dyn ColdStore>) -> Result<Self, BusError> {
        Self::within(Duration::from_millis(limits::CONNECTOR_OPERATION_MILLIS.default), store)
    }

    /// As [`BoundedStore::new`], with another time for each call.
    pub(crate) fn within(limit: Duration, store: Arc<dyn ColdStore>) -> Result<Self, BusError> {
        Ok(Self { store, executor: ConnectorExecutor::new(THREAD)?, limit, overdue: Arc::default() })
    }

    fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        object: &str,
        call: impl FnOnce(&dyn ColdStore) -> Result<T, ColdError> + Send + 'static,
    ) -> Result<T, ColdError> {
        let overdue = self.overdue.load(Ordering::SeqCst);
        if overdue >= limits::COLD_OVERDUE_CALLS.default {
            let reason = format!("{overdue} earlier calls hang; it is tried again when one of them has ended");
            return Err(ColdError::Failed { operation, object: object.to_owned(), reason });
        }
        let store = Arc::clone(&self.store);
        let running = Running { state: Arc::default(), overdue: Arc::clone(&self.overdue) };
        let ending = Ending(running.clone());
        let doing = move || {
            let _ending = ending;
            call(&*store)
        };
        let ended = self.executor.submit_within(self.limit, async move { tokio::task::spawn_blocking(doing).await }).wait();
        match ended {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(of_fault(ConnectorFault::Interrupted, operation, object)),
            Err(fault) => {
                running.give_up();
                Err(of_fault(fault, operation, object))
            }
        }
    }
}

/// What a connector's fault is to who called a store.
pub(crate) fn of_fault(fault: ConnectorFault, operation: &'static str, object: &str) -> ColdError {
    match fault {
        ConnectorFault::TimedOut => ColdError::Timeout { operation, object: object.to_owned() },
        fault => ColdError::Failed { operation, object: object.to_owned(), reason: fault.to_string() },
    }
}

impl ColdStore for BoundedStore {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        let of = path.to_owned();
        self.call("put", path, move |store| store.put_new(&of, bytes))
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        let of = path.to_owned();
        self.call("get", path, move |store| store.get(&of, bytes_max))
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        let (of, behind) = (prefix.to_owned(), after.to_owned());
        self.call("list", prefix, move |store| store.list_after(&of, &behind, count_max))
    }
}

#[cfg(test)]
mod tests {
    use super::super::doubles::{HangingStore, MemoryStore};
    use super::*;

    #[test]
    fn calls_run_on_the_connector_and_say_what_the_store_says() {
        let memory = Arc::new(MemoryStore::new());
        let store = BoundedStore::new(Arc::clone(&memory) as _).unwrap();
        assert_eq!(store.put_new("a", Bytes::from_static(b"x")), Ok(PutEnd::Created));
        assert_eq!(store.put_new("a", Bytes::from_static(b"x")), Ok(PutEnd::Exists));
        assert_eq!(store.get("a", 9), Ok(Some(Bytes::from_static(b"x"))));
        assert_eq!(store.list_after("", "", 9).unwrap().len(), 1);
        memory.set_down(true);
        assert!(matches!(store.get("a", 9), Err(ColdError::Failed { .. })));
    }

    /// BUG-71. No time at all, so that every call is over it, as one that hangs is over any.
    #[test]
    fn calls_that_hang_are_left_behind_and_so_many_of_them_that_no_more_are_made_until_one_ends() {
        let hanging = Arc::new(HangingStore::default());
        let store = BoundedStore::within(Duration::ZERO, Arc::clone(&hanging) as _).unwrap();
        let put = |n: u64| store.put_new(&format!("{n}"), Bytes::from_static(b"x")).unwrap_err();
        let max = limits::COLD_OVERDUE_CALLS.default;
        hanging.hang(true);
        for n in 0..max {
            assert!(matches!(put(n), ColdError::Timeout { operation: "put", .. }), "{n}");
        }
        for n in [max, max + 1] {
            let refused = put(n).to_string();
            assert!(refused.contains("8 earlier calls hang"), "{refused}");
        }
        hanging.hang(false);
        latent_testkit::wait_until("what hung ends", || store.overdue.load(Ordering::SeqCst) == 0);
        assert_eq!(hanging.store.objects().len() as u64, max, "what was refused was never begun");
        hanging.hang(true);
        assert!(matches!(put(max), ColdError::Timeout { .. }), "and calls are made again");
        hanging.hang(false);
    }

    #[test]
    fn a_call_has_ten_seconds() {
        assert_eq!(BoundedStore::new(Arc::new(MemoryStore::new())).unwrap().limit, Duration::from_secs(10));
    }

    #[test]
    fn the_faults_of_the_connector_are_those_of_the_store() {
        assert!(matches!(of_fault(ConnectorFault::TimedOut, "put", "x"), ColdError::Timeout { .. }));
        let text = of_fault(ConnectorFault::Closed, "put", "x").to_string();
        assert!(text.contains("connector runtime is closed"), "{text}");
        assert!(of_fault(ConnectorFault::TimedOut, "put", "x").to_string().contains("connector operation timed out"));
    }
}
