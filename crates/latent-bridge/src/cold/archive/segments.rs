//! Topics that are archived in segments: what an engine asks the archive for.

use std::sync::PoisonError;

use latent_core::Partition;

use super::{Archive, Fault, Pass};
use crate::BusError;
use crate::cold::export::{AttestedHead, ExportError, ExportTo, Exported, Goal, ItemSource};
use crate::cold::put::PutFault;
use crate::cold::target::ProvenAtFirstPut;

fn fault_of(error: ExportError) -> Fault {
    match error {
        ExportError::Store(error) => Fault::Put(PutFault::Store(error)),
        ExportError::Absent { object } => Fault::Put(PutFault::Absent { object }),
        error => Fault::Bus(error.into()),
    }
}

impl Archive {
    /// Whether a topic is archived in segments. Then nothing is staged for its events: the log keeps them until they are in one.
    pub(crate) fn is_segmented(&self, topic: &str) -> bool {
        self.segmented.contains_key(topic)
    }

    /// Proves every head with the newest key. One that cannot be is told here, and again by the export that it keeps from going on.
    pub(super) fn reseal(&self) {
        let keys = self.outbox.keys();
        if keys.is_empty() {
            return;
        }
        for (topic, partitions) in &self.segmented {
            let resealed = (0..*partitions).map(|partition| self.exporter.reseal(topic, Partition(partition), &*keys));
            let failed: Vec<_> = resealed.filter_map(Result::err).collect();
            if let Some(error) = failed.first() {
                let heads = failed.len();
                tracing::warn!(topic, heads, %error, "heads of an archive could not be proven with the newest control key");
            }
        }
    }

    /// Brings what is due of a partition into segments. When it returns, everything at or below `goal.must` is in the archive.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn export_segments(
        &self,
        pass: &Pass,
        topic: &str,
        partition: Partition,
        source: &dyn ItemSource,
        goal: Goal,
    ) -> Result<Exported, BusError> {
        self.refuse_without_key()?;
        let unreachable = |pass: &Pass| {
            pass.unreachable.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.to_owned());
        };
        let Some(target) = self.targets.get(topic) else {
            return Err(BusError::Config { problem: format!("topic {topic:?} has no cold_uri") });
        };
        if pass.is_given_up(target) {
            unreachable(pass);
            return Err(BusError::NotSent { reason: "its cold store failed and is left alone for now".to_owned() });
        }
        let keys = self.outbox.keys();
        let store = ProvenAtFirstPut::new(target);
        // What leaves a log because of an earlier head relies on the store as well.
        let proven = if goal.must.is_some() { target.prove() } else { Ok(()) };
        let exported = proven.and_then(|()| {
            let to = ExportTo { store: &store, keys: &*keys };
            self.exporter.export(topic, partition, to, source, goal).map_err(|error| store.into_fault().unwrap_or_else(|| fault_of(error)))
        });
        match exported {
            Ok(exported) => {
                pass.note(target, &Ok(()));
                Ok(exported)
            }
            Err(fault) => {
                if matches!(&fault, Fault::Put(fault) if fault.is_of_store()) {
                    unreachable(pass);
                }
                let passing = fault.is_passing();
                let text = fault.to_string();
                pass.keep_problem(format!("{topic}/p{partition} on its way to {}: {text}", target.uri));
                pass.note(target, &Err(fault));
                Err(if passing { BusError::NotSent { reason: text } } else { BusError::Backend(text) })
            }
        }
    }

    /// How many holes were found since this was asked.
    #[cfg(feature = "nats")]
    pub(crate) fn take_holes(&self) -> u64 {
        self.exporter.take_holes()
    }

    /// Up to where a partition is in the archive, as far as that was written down.
    ///
    /// # Errors
    /// When it cannot be read or is not proven.
    pub(crate) fn head(&self, topic: &str, partition: Partition) -> Result<Option<AttestedHead>, BusError> {
        if !self.is_segmented(topic) {
            return Ok(None);
        }
        let keys = self.outbox.keys();
        let head = self.exporter.head(topic, partition, &*keys)?;
        Ok(head.and_then(|head| head.to_json(&*keys).map(|document| AttestedHead { head, document })))
    }
}
