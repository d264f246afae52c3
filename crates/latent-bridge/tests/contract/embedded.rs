//! The contract on the embedded engine.

use latent_bridge::{BridgeManifest, EmbeddedBroker, InOrder};

use super::{Engine, Numbering};
use crate::support::fixtures::{quick, scratch, small_limits};

struct Embedded {
    broker: EmbeddedBroker,
    directory: tempfile::TempDir,
}

impl Engine for Embedded {
    const NUMBERING: Numbering = Numbering::Dense;

    fn provision(manifest: &BridgeManifest) -> Self {
        let directory = scratch();
        let broker = EmbeddedBroker::provision_with(directory.path(), manifest, quick(small_limits())).unwrap();
        Self { broker, directory }
    }

    fn in_order(&self) -> &dyn InOrder {
        &self.broker
    }

    fn reopen(self) -> Self {
        let Self { broker, directory } = self;
        drop(broker);
        let broker = EmbeddedBroker::open_with(directory.path(), quick(small_limits())).unwrap();
        Self { broker, directory }
    }
}

super::contract_tests!(Embedded);
