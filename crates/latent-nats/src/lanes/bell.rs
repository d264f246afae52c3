//! Which lanes are to be looked at: left by whoever touched them, taken by the task that carries.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// See the module.
#[derive(Default)]
pub(super) struct Bell {
    touched: Mutex<BTreeSet<usize>>,
    rung: Notify,
}

impl Bell {
    pub(super) fn ring(&self, place: usize) {
        let is_first = {
            let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
            touched.insert(place);
            touched.len() == 1
        };
        // Whoever takes them takes them all.
        if is_first {
            self.rung.notify_one();
        }
    }

    pub(super) fn take(&self) -> BTreeSet<usize> {
        std::mem::take(&mut self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) async fn rung(&self) {
        self.rung.notified().await;
    }
}
