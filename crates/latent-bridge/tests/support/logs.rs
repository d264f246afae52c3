//! What the engine logs, as text: of one thread while a closure runs, and of every thread as far as it names a folder under watch.

use std::fmt::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One event: its level, and its fields as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// The result of `call` and what was logged on this thread meanwhile.
pub(crate) fn said_by<T>(call: impl FnOnce() -> T) -> (T, Vec<Said>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&said);
    let keep = move |event: Said| into.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    // With one listener alone, whether anybody listens at a place is decided by the thread that first gets there, which may be that of another
    // test.
    let _another = tracing::Dispatch::new(Listener(|_| {}));
    let result = tracing::subscriber::with_default(Listener(keep), call);
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (result, said)
}

/// Texts that no log may hold, and the events that held one all the same.
#[derive(Default)]
struct Watch {
    forbidden: Vec<String>,
    caught: Vec<Said>,
}

static WATCH: OnceLock<Mutex<Watch>> = OnceLock::new();

/// From now on, events of all threads of this process are caught when they hold this text.
pub(crate) fn forbid(text: &str) {
    let watch = WATCH.get_or_init(|| {
        tracing::subscriber::set_global_default(Listener(catch)).unwrap();
        Mutex::default()
    });
    watch.lock().unwrap_or_else(PoisonError::into_inner).forbidden.push(text.to_owned());
}

fn catch(event: Said) {
    let Some(watch) = WATCH.get() else { return };
    let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    if watch.forbidden.iter().any(|text| event.text.contains(text)) {
        watch.caught.push(event);
    }
}

/// The events caught that hold this text.
pub(crate) fn caught(text: &str) -> Vec<Said> {
    let watch = WATCH.get().map(|watch| watch.lock().unwrap_or_else(PoisonError::into_inner));
    watch.map_or_else(Vec::new, |watch| watch.caught.iter().filter(|event| event.text.contains(text)).cloned().collect())
}

struct Listener<F>(F);

impl<F: Fn(Said) + Send + Sync + 'static> Subscriber for Listener<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        (self.0)(Said { level: *event.metadata().level(), text: text.0 });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}
