//! What is said, in the order in which it was said, on a thread of its own: whoever reads slowly holds up neither node nor builds.
//!
//! Invariants: what waits is bounded in number and in bytes; an activation that finds no room is counted, and the count is said where
//! it is missing; anything else waits for room, as long as somebody may still read.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use super::message::{Message, Paint};
use crate::error::CliError;
use crate::limits;
use crate::output::Output;

/// Messages that wait to be printed. Pure.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: VecDeque<Message>,
    bytes: usize,
    messages_max: usize,
    bytes_max: usize,
    left_out: u64,
    is_closed: bool,
}

impl Backlog {
    fn new(messages_max: usize, bytes_max: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, messages_max, bytes_max, left_out: 0, is_closed: false }
    }

    /// One message always has room, however large.
    fn has_room_for(&self, message: &Message) -> bool {
        let fits = self.bytes.saturating_add(message.bytes()) <= self.bytes_max;
        self.waiting.is_empty() || (fits && self.waiting.len() < self.messages_max)
    }

    fn push(&mut self, message: Message) {
        if message.is_activation() && !self.has_room_for(&message) {
            self.left_out += 1;
            return;
        }
        // Those left out ended before this.
        if self.left_out > 0 {
            let left_out = Message::LeftOut(std::mem::take(&mut self.left_out));
            self.append(left_out);
        }
        self.append(message);
    }

    fn append(&mut self, message: Message) {
        self.bytes = self.bytes.saturating_add(message.bytes());
        self.waiting.push_back(message);
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.left_out == 0
    }

    /// The oldest message.
    fn pop(&mut self) -> Option<Message> {
        if let Some(message) = self.waiting.pop_front() {
            self.bytes = self.bytes.saturating_sub(message.bytes());
            return Some(message);
        }
        (self.left_out > 0).then(|| Message::LeftOut(std::mem::take(&mut self.left_out)))
    }
}

#[derive(Debug)]
struct Shared {
    backlog: Mutex<Backlog>,
    changed: Condvar,
}

/// Says things. Copies say them in the same place.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    shared: Arc<Shared>,
}

/// The thread that prints.
pub(super) struct Printer {
    voice: Voice,
    ended: mpsc::Receiver<Result<(), CliError>>,
}

impl Voice {
    /// Prints to `output` from now on.
    ///
    /// # Errors
    /// [`CliError::Node`] when the system refuses the thread.
    pub(super) fn printing(mut output: Output, paint: Paint) -> Result<(Self, Printer), CliError> {
        let backlog = Backlog::new(limits::DEV_WAITING_MESSAGES.max_usize(), limits::DEV_WAITING_BYTES.max_usize());
        let voice = Self { shared: Arc::new(Shared { backlog: Mutex::new(backlog), changed: Condvar::new() }) };
        let (end, ended) = mpsc::channel();
        let printing = voice.clone();
        let print = move || {
            let printed = printing.print(&mut output, paint);
            printing.close();
            // Nobody waits for it when the command ends for another reason.
            let _ = end.send(printed);
        };
        let spawned = std::thread::Builder::new().name("latent-voice".to_owned()).spawn(print);
        spawned.map_err(|error| CliError::Node {
            what: "there is no thread to print with".to_owned(),
            why: error.to_string(),
            next: "free threads and run it again".to_owned(),
        })?;
        let printer = Printer { voice: voice.clone(), ended };
        Ok((voice, printer))
    }

    /// Says something. Anything but an activation waits until there is room for it; after the end nothing is said.
    pub(super) fn say(&self, message: Message) {
        let no_room = |backlog: &mut Backlog| !backlog.is_closed && !message.is_activation() && !backlog.has_room_for(&message);
        let waited = self.shared.changed.wait_while(self.lock(), no_room);
        let mut backlog = waited.unwrap_or_else(PoisonError::into_inner);
        if !backlog.is_closed {
            backlog.push(message);
            drop(backlog);
            self.shared.changed.notify_all();
        }
    }

    /// Prints until the end, and gives the reader what there is whenever nothing more waits.
    fn print(&self, output: &mut Output, paint: Paint) -> Result<(), CliError> {
        while let Some(message) = self.next() {
            output.painted(&message.document(), || message.text(paint))?;
            if self.lock().is_empty() {
                output.flush()?;
            }
        }
        output.flush()
    }

    /// Waits for the next message; `None` after the end.
    fn next(&self) -> Option<Message> {
        let nothing = |backlog: &mut Backlog| backlog.is_empty() && !backlog.is_closed;
        let waited = self.shared.changed.wait_while(self.lock(), nothing);
        let message = waited.unwrap_or_else(PoisonError::into_inner).pop();
        self.shared.changed.notify_all();
        message
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.shared.changed.notify_all();
    }

    // No guarded section can panic half-way.
    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.shared.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Printer {
    /// Lets what was said be printed, for at most this time: a reader that does not read must not keep the command.
    ///
    /// # Errors
    /// [`CliError::Output`] when standard output could not be written.
    pub(super) fn end(self, within: Duration) -> Result<(), CliError> {
        self.voice.close();
        self.ended.recv_timeout(within).unwrap_or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::entry;
    use super::*;

    fn activation(log_bytes: usize) -> Message {
        Message::Activation(Box::new(entry(&["x".repeat(log_bytes).as_str()])))
    }

    fn note() -> Message {
        Message::Note("something".to_owned())
    }

    fn shown(backlog: &mut Backlog) -> Vec<String> {
        let word = |message: &Message| match message {
            Message::Activation(_) => "activation".to_owned(),
            Message::LeftOut(count) => format!("left out {count}"),
            _ => "other".to_owned(),
        };
        std::iter::from_fn(|| backlog.pop()).map(|message| word(&message)).collect()
    }

    #[test]
    fn activations_fit_up_to_their_number_and_are_counted_beyond_it() {
        let mut backlog = Backlog::new(3, usize::MAX);
        (0..3).for_each(|_| backlog.push(activation(0)));
        assert_eq!(shown(&mut backlog), ["activation"; 3]);
        (0..5).for_each(|_| backlog.push(activation(0)));
        assert_eq!(shown(&mut backlog), ["activation", "activation", "activation", "left out 2"]);
        backlog.push(activation(0));
        assert_eq!(shown(&mut backlog), ["activation"], "the count begins again");
    }

    #[test]
    fn activations_fit_up_to_their_bytes_exactly() {
        let bytes = activation(100).bytes();
        for (bytes_max, left_out) in [(2 * bytes - 1, true), (2 * bytes, false), (2 * bytes + 1, false)] {
            let mut backlog = Backlog::new(10, bytes_max);
            backlog.push(activation(100));
            backlog.push(activation(100));
            let expected = if left_out { ["activation", "left out 1"] } else { ["activation", "activation"] };
            assert_eq!(shown(&mut backlog), expected, "{bytes_max}");
        }
    }

    #[test]
    fn what_is_left_out_is_said_where_it_is_missing() {
        let mut backlog = Backlog::new(1, usize::MAX);
        backlog.push(activation(0));
        backlog.push(activation(0));
        assert!(!backlog.has_room_for(&note()), "it waits for room");
        backlog.push(note());
        assert_eq!(shown(&mut backlog), ["activation", "left out 1", "other"]);
    }

    #[test]
    fn one_message_has_room_however_large_it_is() {
        let mut backlog = Backlog::new(1, 1);
        backlog.push(activation(1_000_000));
        assert_eq!(shown(&mut backlog), ["activation"]);
    }
}
