//! A store whose calls may hang, as those of a folder on a network do: each has the time of a connector's operation (B-081, B-082), and is
//! left behind after it. What it does then all the same is found by the next attempt.

use std::sync::Arc;

use bytes::Bytes;

use super::store::{ColdError, ColdStore, Listed, PutEnd};
use crate::BusError;
use crate::connector::{ConnectorExecutor, ConnectorFault};

/// Name of the thread that runs calls.
pub(crate) const THREAD: &str = "latent-cold-store";

/// See the module.
pub(crate) struct BoundedStore {
    store: Arc<dyn ColdStore>,
    executor: ConnectorExecutor,
}

impl BoundedStore {
    /// Bounds the calls of `store`.
    ///
    /// # Errors
    /// [`BusError::Backend`] when the system gives no thread.
    pub(crate) fn new(store: Arc<dyn ColdStore>) -> Result<Self, BusError> {
        Ok(Self { store, executor: ConnectorExecutor::new(THREAD)? })
    }

    fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        object: &str,
        call: impl FnOnce(&dyn ColdStore) -> Result<T, ColdError> + Send + 'static,
    ) -> Result<T, ColdError> {
        let store = Arc::clone(&self.store);
        let ended = self.executor.run(async move { tokio::task::spawn_blocking(move || call(&*store)).await });
        match ended {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(of_fault(ConnectorFault::Interrupted, operation, object)),
            Err(fault) => Err(of_fault(fault, operation, object)),
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
    use super::super::doubles::MemoryStore;
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

    #[test]
    fn the_faults_of_the_connector_are_those_of_the_store() {
        assert!(matches!(of_fault(ConnectorFault::TimedOut, "put", "x"), ColdError::Timeout { .. }));
        let text = of_fault(ConnectorFault::Closed, "put", "x").to_string();
        assert!(text.contains("connector runtime is closed"), "{text}");
        assert!(of_fault(ConnectorFault::TimedOut, "put", "x").to_string().contains("connector operation timed out"));
    }
}
