//! A store that topics name, and whether it was shown to replace nothing.

use std::sync::{Arc, Mutex, PoisonError};

use super::fault::Fault;
use super::intent::Intent;
use super::object;
use super::options::ArchiveOptions;
use super::places;
use super::probe::{Probed, probe};
use super::put::{PutFault, put};
use super::store::ColdStore;
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
