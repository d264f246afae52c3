//! Virtual time beside real sockets.

use std::sync::mpsc::{Sender, channel};

/// While it lives, paused time moves only when the test moves it (`tokio::time::advance`), although the bytes of a fixture come in their
/// own time. Without it a paused runtime jumps to the next timer whenever it waits for a socket.
#[derive(Debug)]
#[must_use = "time stands as long as this lives"]
pub struct StandingTime {
    _ends_the_wait: Sender<()>,
}

impl StandingTime {
    /// To be called in a test that starts paused.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn hold() -> Self {
        let (end, ended) = channel::<()>();
        // A runtime does not let paused time jump while a thread of it may be at work.
        drop(tokio::task::spawn_blocking(move || ended.recv()));
        Self { _ends_the_wait: end }
    }
}
