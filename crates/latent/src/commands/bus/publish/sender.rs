//! Hands batches over and waits for what became of them; waits for a busy log, within bounds, and keeps the order while it does.

use std::time::{Duration, Instant};

use super::faults::LineFault;
use super::rules::{LineEvent, UidOrigin};
use crate::access::{Access, unexpected};
use crate::control::{Answer, ControlError, Fault, NewEvent, Placed, Published, Request};
use crate::limits;

/// First and longest pause between two tries at a busy log.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Lines in the order of the file, within the bounds of a batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    lines: Vec<BatchLine>,
    bytes: usize,
}

/// The largest key in JSON: each byte as an escape of six.
const KEY_JSON_BYTES_MAX: usize = latent_core::limits::KEY_BYTES.max_usize() * 6 + 2;

/// Bytes of a text in JSON, which a request has to hold. Control characters make a key up to six times as long.
fn json_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(KEY_JSON_BYTES_MAX, |json| json.len())
}

#[derive(Debug)]
enum BatchLine {
    Event { number: u64, line: LineEvent },
    Invalid { number: u64, fault: LineFault },
}

impl Batch {
    pub(super) fn push_event(&mut self, number: u64, line: LineEvent) {
        self.bytes = self.bytes.saturating_add(line.event.payload.0.len()).saturating_add(json_bytes(&line.event.key));
        self.lines.push(BatchLine::Event { number, line });
    }

    pub(super) fn push_invalid(&mut self, number: u64, fault: LineFault) {
        self.lines.push(BatchLine::Invalid { number, fault });
    }

    /// True when another line of the largest size might not fit: what is sent stays within `publish_batch_bytes`, or is one record.
    pub(super) fn is_full(&self) -> bool {
        let room = limits::PUBLISH_BATCH_BYTES.max_usize().saturating_sub(self.bytes);
        let largest = latent_core::limits::EVENT_BYTES.max_usize() + KEY_JSON_BYTES_MAX;
        self.lines.len() >= limits::PUBLISH_BATCH_RECORDS.max_usize() || room < largest
    }
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Sent {
    /// In the order of the file.
    pub(super) lines: Vec<SentLine>,
    /// Why nothing more can be sent.
    pub(super) stopped: Option<String>,
}

/// What became of a line.
#[derive(Debug)]
pub(super) enum SentLine {
    /// The log has it.
    Stored(Placed),
    /// The log refused it, or cannot tell.
    Refused { number: u64, fault: Fault },
    /// It is no event.
    Invalid { number: u64, fault: LineFault },
}

/// The way to one topic.
pub(super) struct Sender<'t> {
    access: Access,
    topic: &'t str,
}

impl<'t> Sender<'t> {
    pub(super) fn new(access: Access, topic: &'t str) -> Self {
        Self { access, topic }
    }

    /// Sends a batch and waits for the result of each of its lines.
    pub(super) fn send(&mut self, batch: Batch) -> Sent {
        let events: Vec<_> = batch.lines.iter().filter_map(BatchLine::event).collect();
        let (results, stopped) = self.publish(events);
        let mut results = results.into_iter();
        let missing = || Published::Fault(Fault::unanswered("the answer had too few results"));
        let outcome = |line| match line {
            BatchLine::Invalid { number, fault } => SentLine::Invalid { number, fault },
            BatchLine::Event { number, line } => match results.next().unwrap_or_else(missing) {
                Published::Stored(placed) => SentLine::Stored(placed),
                Published::Fault(fault) => SentLine::Refused { number, fault: explained(fault, line.uid) },
            },
        };
        Sent { lines: batch.lines.into_iter().map(outcome).collect(), stopped }
    }

    /// One result for each event.
    fn publish(&mut self, events: Vec<NewEvent>) -> (Vec<Published>, Option<String>) {
        let mut patience = Patience::begin();
        let (results, stopped) = publish_in_order(events, |events| self.publish_once(events), |progress| patience.wait(progress));
        (results, stopped)
    }

    fn publish_once(&mut self, events: Vec<NewEvent>) -> Try {
        let count = events.len();
        let for_each = |fault: Fault| vec![Published::Fault(fault); count];
        match self.access.try_ask(Request::Publish { topic: self.topic.to_owned(), events }) {
            Ok(Answer::Published(results)) if results.len() == count => (results, None),
            Ok(_) => (for_each(Fault::unanswered("the node answered something else")), Some(unexpected("publishing").why())),
            Err(ControlError::Refused(fault)) => (for_each(fault), None),
            Err(error) if error.may_have_happened() => (for_each(Fault::unanswered(&error.to_string())), Some(error.to_string())),
            Err(error) => (for_each(not_sent(&error)), Some(error.to_string())),
        }
    }
}

/// Why nothing more is sent after this result: a later event of its key would overtake one that the log did not take for now, or of which
/// nobody knows whether it did. Published again it would then lie behind that later one.
fn failed_for_now(result: &Published) -> Option<String> {
    match result {
        // A damaged record that has the event's uid is that event's trouble and does not pass by waiting.
        Published::Fault(fault) if !fault.permanent && fault.kind != "unreadable" => Some(fault.message.clone()),
        _ => None,
    }
}

fn is_busy(result: &Published) -> bool {
    matches!(result, Published::Fault(fault) if fault.is_busy())
}

/// One result for each event handed over, and why there can be no further try.
type Try = (Vec<Published>, Option<String>);

/// Whether the log took anything since the last wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Some,
    None,
}

/// Hands events over, and those that found the log busy again, in their order, until `wait` has had enough. Behind an event that failed for
/// now in another way nothing is handed over any more.
fn publish_in_order(
    events: Vec<NewEvent>,
    mut publish_once: impl FnMut(Vec<NewEvent>) -> Try,
    mut wait: impl FnMut(Progress) -> Waited,
) -> (Vec<Published>, Option<String>) {
    let unanswered = || Published::Fault(Fault::unanswered("the answer had too few results"));
    let mut results: Vec<Published> = events.iter().map(|_| unanswered()).collect();
    let mut left: Vec<(usize, NewEvent)> = events.into_iter().enumerate().collect();
    while !left.is_empty() {
        let (answers, stopped) = publish_once(left.iter().map(|(_, event)| event.clone()).collect());
        let stopped = stopped.or_else(|| answers.iter().filter(|answer| !is_busy(answer)).find_map(failed_for_now));
        let offered = left.len();
        let mut busy = Vec::new();
        for ((at, event), answer) in left.into_iter().zip(answers) {
            if is_busy(&answer) {
                busy.push((at, event));
            }
            if let Some(slot) = results.get_mut(at) {
                *slot = answer;
            }
        }
        let progress = if busy.len() < offered { Progress::Some } else { Progress::None };
        left = busy;
        if stopped.is_some() {
            return (results, stopped);
        }
        if !left.is_empty() && wait(progress) == Waited::LongEnough {
            let stopped = results.iter().find_map(failed_for_now);
            return (results, stopped);
        }
    }
    (results, None)
}

/// What a wait for a busy log ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    TryAgain,
    LongEnough,
}

impl BatchLine {
    fn event(&self) -> Option<NewEvent> {
        if let Self::Event { line, .. } = self { Some(line.event.clone()) } else { None }
    }
}

/// The log advises by uid, which says nothing to whoever did not choose it.
fn explained(fault: Fault, uid: UidOrigin) -> Fault {
    let message = match uid {
        UidOrigin::Line if fault.is_conflict() => "the same line was published before with another key or media type; use the same --key, \
             --key-pointer and --media-type as then, or --fresh-uids to store it once more"
            .to_owned(),
        UidOrigin::Fresh if fault.uncertain => {
            format!("{}; under --fresh-uids another try is another event, so look with `latent bus fetch` first", fault.message)
        }
        UidOrigin::Line | UidOrigin::Given | UidOrigin::Fresh => return fault,
    };
    Fault { message, ..fault }
}

fn not_sent(error: &ControlError) -> Fault {
    Fault { kind: "not-sent".to_owned(), permanent: false, uncertain: false, message: format!("not sent: {error}"), continue_at: None }
}

/// How long a busy log is waited for: `busy_wait_millis` from the last event it took.
struct Patience {
    since: Instant,
    pause: Duration,
}

impl Patience {
    fn begin() -> Self {
        Self { since: Instant::now(), pause: BUSY_PAUSE }
    }

    /// Waits for the next try, unless it has been tried long enough.
    fn wait(&mut self, progress: Progress) -> Waited {
        if progress == Progress::Some {
            *self = Self::begin();
        }
        if self.since.elapsed() >= Duration::from_millis(limits::BUSY_WAIT_MILLIS.default) {
            return Waited::LongEnough;
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(BUSY_PAUSE_MAX);
        Waited::TryAgain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Payload;

    fn event(payload_bytes: usize) -> NewEvent {
        let payload = Payload(vec![0; payload_bytes].into());
        NewEvent { uid: None, key: String::new(), media_type: "a/b".to_owned(), attributes: Vec::new(), payload }
    }

    #[test]
    fn a_batch_is_full_before_the_largest_line_would_not_fit() {
        let full = |sizes: &[usize]| {
            let mut batch = Batch::default();
            sizes.iter().for_each(|size| batch.push_event(1, LineEvent { event: event(*size), uid: UidOrigin::Given }));
            batch.is_full()
        };
        // An empty key has two quotes.
        let largest = 524_288 + 6 * 1_024 + 2;
        let room = 1_048_576 - largest - 2;
        assert_eq!([room - 1, room, room + 1].map(|size| full(&[size])), [false, false, true]);
        assert_eq!([1_023, 1_024, 1_025].map(|count| full(&vec![1; count])), [false, true, true]);
    }

    #[test]
    fn no_batch_makes_a_request_longer_than_a_line() {
        let uid = Some("\\".repeat(256));
        let media_type = "a/".to_owned() + &"\"".repeat(126);
        for (key, payload_bytes) in
            [(String::new(), 0), ("\u{1}".repeat(1_024), 0), ("k".repeat(1_024), 16), ("\u{1}".repeat(1_024), 524_288)]
        {
            let mut batch = Batch::default();
            while !batch.is_full() {
                let event = NewEvent { uid: uid.clone(), key: key.clone(), media_type: media_type.clone(), ..event(payload_bytes) };
                batch.push_event(1, LineEvent { event, uid: UidOrigin::Given });
            }
            let events: Vec<_> = batch.lines.iter().filter_map(BatchLine::event).collect();
            let count = events.len();
            let line = serde_json::to_vec(&Request::Publish { topic: "t".repeat(120), events }).unwrap();
            assert!(line.len() + 100 < limits::CONTROL_LINE_BYTES.max_usize(), "{count} events, {} bytes", line.len());
        }
    }

    #[test]
    fn advice_by_uid_is_replaced_where_nobody_chose_the_uid() {
        let conflict = || Fault::refused("conflict", "conflict: uid u".to_owned());
        let cases = [
            (conflict(), UidOrigin::Given, "conflict: uid u"),
            (conflict(), UidOrigin::Line, "--fresh-uids to store it once more"),
            (Fault::refused("rejected", "rule".to_owned()), UidOrigin::Line, "rule"),
            (Fault::unanswered("gone"), UidOrigin::Fresh, "`latent bus fetch` first"),
            (Fault::unanswered("gone"), UidOrigin::Line, "to learn"),
        ];
        for (fault, uid, words) in cases {
            let (kind, message) = (fault.kind.clone(), explained(fault, uid));
            assert!(message.kind == kind && message.message.ends_with(words), "{message:?}");
        }
    }

    fn uid(event: &NewEvent) -> String {
        event.uid.clone().unwrap_or_default()
    }

    fn stored(uid: String) -> Published {
        Published::Stored(Placed { topic: "t".to_owned(), partition: 0, offset: 0, uid, duplicate: false })
    }

    fn busy() -> Published {
        Published::Fault(Fault { kind: "busy".to_owned(), permanent: false, uncertain: false, message: String::new(), continue_at: None })
    }

    fn events(uids: &[&str]) -> Vec<NewEvent> {
        uids.iter().map(|uid| NewEvent { uid: Some((*uid).to_owned()), ..event(0) }).collect()
    }

    /// Each result as its uid or the kind of its fault.
    fn shown(results: &[Published]) -> Vec<String> {
        let show = |result: &Published| match result {
            Published::Stored(placed) => placed.uid.clone(),
            Published::Fault(fault) => fault.kind.clone(),
        };
        results.iter().map(show).collect()
    }

    #[test]
    fn a_busy_log_is_tried_again_with_what_it_did_not_take_in_the_order_of_the_file() {
        let mut tries = Vec::new();
        let mut waits = Vec::new();
        let take_one = |events: Vec<NewEvent>| {
            tries.push(events.iter().map(uid).collect::<Vec<_>>());
            // Nothing at the second try, else the first of what is offered.
            let taken = usize::from(tries.len() != 2);
            let answers = events.iter().enumerate().map(|(at, event)| if at < taken { stored(uid(event)) } else { busy() });
            (answers.collect(), None)
        };
        let (results, stopped) = publish_in_order(events(&["a", "b", "c"]), take_one, |progress| {
            waits.push(progress);
            Waited::TryAgain
        });
        assert_eq!((shown(&results), stopped), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], None));
        assert_eq!(tries, [vec!["a", "b", "c"], vec!["b", "c"], vec!["b", "c"], vec!["c"]]);
        assert_eq!(waits, [Progress::Some, Progress::None, Progress::Some]);
    }

    #[test]
    fn a_log_that_stays_busy_is_given_up_and_says_so() {
        let always_busy = |events: Vec<NewEvent>| (events.iter().map(|_| busy()).collect(), None);
        let (results, stopped) = publish_in_order(events(&["a", "b"]), always_busy, |_| Waited::LongEnough);
        assert_eq!((shown(&results), stopped), (vec!["busy".to_owned(), "busy".to_owned()], Some(String::new())));
    }

    #[test]
    fn nothing_is_handed_over_behind_an_event_that_may_be_stored_or_was_not() {
        let not_sent = || Published::Fault(Fault { permanent: false, ..Fault::refused("not-sent", "away".to_owned()) });
        let uncertain = || Published::Fault(Fault::unanswered("gone"));
        for (failed, kind) in [(not_sent(), "not-sent"), (uncertain(), "uncertain")] {
            let mut tries = 0;
            let at_second = |events: Vec<NewEvent>| {
                tries += 1;
                (vec![stored(uid(&events[0])), failed.clone(), busy()], None)
            };
            let (results, stopped) = publish_in_order(events(&["a", "b", "c"]), at_second, |_| Waited::TryAgain);
            assert_eq!(shown(&results), ["a", kind, "busy"]);
            assert!(stopped.is_some() && tries == 1, "{stopped:?}");
        }
        let refused =
            |events: Vec<NewEvent>| (vec![Published::Fault(Fault::refused("rejected", String::new())), stored(uid(&events[1]))], None);
        let (results, stopped) = publish_in_order(events(&["a", "b"]), refused, |_| Waited::TryAgain);
        assert_eq!((shown(&results), stopped), (vec!["rejected".to_owned(), "b".to_owned()], None), "refused for good holds nothing up");
    }

    #[test]
    fn a_lost_connection_ends_it_with_every_event_accounted_for() {
        let lost =
            |events: Vec<NewEvent>| (events.iter().map(|_| Published::Fault(Fault::unanswered("gone"))).collect(), Some("gone".to_owned()));
        let (results, stopped) = publish_in_order(events(&["a", "b"]), lost, |_| Waited::TryAgain);
        assert_eq!((shown(&results), stopped), (vec!["uncertain".to_owned(), "uncertain".to_owned()], Some("gone".to_owned())));
    }
}
