//! A store that topics name, and whether it was shown to replace nothing.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::fault::Fault;
use super::intent::Intent;
use super::object;
use super::options::ArchiveOptions;
use super::places;
use super::probe::{PROBE_OBJECT, Probed, probe};
use super::put::{PutFault, put};
use super::store::{ColdError, ColdStore, Listed, PutEnd};
use crate::BusError;
use crate::embedded::Storage;

/// A store that topics name.
pub(super) struct Target {
    pub(super) uri: String,
    pub(super) store: Arc<dyn ColdStore>,
    proof: Mutex<Proof>,
}

#[derive(Clone, PartialEq, Eq)]
enum Proof {
    Unknown,
    CreatesOnly,
    Unfit(String),
}

impl Target {
    /// Opens the store at `uri`, and asks it, if that is wanted, whether it can be used.
    pub(super) fn open(uri: &str, storage: &Arc<dyn Storage>, options: &ArchiveOptions, tag: &str) -> Result<Self, BusError> {
        let store = match &options.stores {
            Some(stores) => stores.open(uri)?,
            None => {
                let make = if options.probes_at_start { places::Make::Now } else { places::Make::BeforeTheFirstObject };
                places::open(uri, storage, tag, make)?
            }
        };
        let target = Self { uri: uri.to_owned(), store, proof: Mutex::new(Proof::Unknown) };
        if !options.probes_at_start {
            return Ok(target);
        }
        match target.prove() {
            Ok(()) => {}
            Err(Fault::Unfit { problem, .. }) => {
                return Err(BusError::Config { problem: format!("retention.cold_uri {uri:?} must not be used: {problem}") });
            }
            Err(fault) => {
                tracing::warn!(uri, %fault, "a cold store cannot be asked yet; what is to be archived waits");
            }
        }
        Ok(target)
    }

    /// Makes sure, once, that the store never overwrites.
    pub(super) fn prove(&self) -> Result<(), Fault> {
        let mut proof = self.proof.lock().unwrap_or_else(PoisonError::into_inner);
        if *proof == Proof::Unknown {
            *proof = match probe(&*self.store) {
                Probed::CreatesOnly => Proof::CreatesOnly,
                Probed::Unfit(problem) => Proof::Unfit(problem),
                Probed::Unknown(error) => return Err(PutFault::from(error).into()),
            };
        }
        match &*proof {
            Proof::Unfit(problem) => Err(Fault::Unfit { uri: self.uri.clone(), problem: problem.clone() }),
            _ => Ok(()),
        }
    }

    /// Makes sure that the object of an intent lies in the store.
    pub(super) fn upload(&self, intent: &Intent) -> Result<(), Fault> {
        self.prove()?;
        let Some(stored) = intent.stored() else {
            return Err(BusError::Backend("an archive intent without offset cannot be uploaded".to_owned()).into());
        };
        let path = object::object_path(&intent.topic, stored.partition, stored.offset);
        Ok(put(&*self.store, &path, &object::encode(&stored))?)
    }
}

/// The store of a target for whoever may find that nothing is to be written: it is proven before the first object, so that who writes none
/// leaves no probe there.
pub(super) struct ProvenAtFirstPut<'t> {
    target: &'t Target,
    fault: Mutex<Option<Fault>>,
}

impl<'t> ProvenAtFirstPut<'t> {
    pub(super) const fn new(target: &'t Target) -> Self {
        Self { target, fault: Mutex::new(None) }
    }

    /// Why the store was not proven, if that was the reason.
    pub(super) fn into_fault(self) -> Option<Fault> {
        self.fault.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ColdStore for ProvenAtFirstPut<'_> {
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutEnd, ColdError> {
        match self.target.prove() {
            Ok(()) => self.target.store.put_new(path, bytes),
            Err(fault) => {
                let refused = ColdError::Failed { operation: "probe", object: PROBE_OBJECT.to_owned(), reason: fault.to_string() };
                *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
                Err(refused)
            }
        }
    }

    fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Bytes>, ColdError> {
        self.target.store.get(path, bytes_max)
    }

    fn list_after(&self, prefix: &str, after: &str, count_max: usize) -> Result<Vec<Listed>, ColdError> {
        self.target.store.list_after(prefix, after, count_max)
    }
}
