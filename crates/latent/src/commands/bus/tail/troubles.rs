//! Which partitions of a topic cannot be read for now, when each is tried again, and what is said of it. Pure: it is told of time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::control::Fault;

/// First and longest pause before a partition that could not be read is tried again. A try may take as long as a request may.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// Partitions that a line names at most.
const NAMED_MAX: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    of: BTreeMap<u32, Trouble>,
    /// Partitions whose trouble began and was not told yet.
    begun: Vec<u32>,
    /// Partitions whose trouble is over, which was not told yet.
    ended: Vec<u32>,
    /// Whether any partition was ever read.
    anything_read: bool,
}

#[derive(Debug)]
struct Trouble {
    fault: Fault,
    next_try: Duration,
    pause: Duration,
}

/// What there is to say about some partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) partitions: Vec<u32>,
    /// Why they cannot be read; none: they can be again.
    pub(super) fault: Option<Fault>,
}

/// The broker does not answer now, and may again.
pub(super) fn is_outage(fault: &Fault) -> bool {
    !fault.permanent && matches!(&*fault.kind, "timeout" | "not-sent" | "busy")
}

impl Troubles {
    /// Whether a partition is to be read now.
    pub(super) fn is_due(&self, partition: u32, now: Duration) -> bool {
        self.of.get(&partition).is_none_or(|trouble| trouble.next_try <= now)
    }

    /// It was read.
    pub(super) fn read(&mut self, partition: u32) {
        self.anything_read = true;
        let Some(over) = self.of.remove(&partition) else { return };
        self.ended.push(partition);
        if is_outage(&over.fault) {
            // What ended for one has probably ended for all.
            self.of.values_mut().filter(|trouble| is_outage(&trouble.fault)).for_each(|trouble| trouble.next_try = Duration::ZERO);
        }
    }

    /// It could not be read. The same trouble again is not told again.
    pub(super) fn failed(&mut self, partition: u32, fault: Fault, now: Duration) {
        let known = self.of.remove(&partition);
        let is_new = known.as_ref().is_none_or(|known| known.fault.kind != fault.kind);
        // What is answered at once takes no time from the others.
        let grows = !matches!(&*fault.kind, "not-sent" | "busy");
        let pause = known.filter(|_| grows).map_or(PAUSE, |known| (known.pause * 2).min(PAUSE_MAX));
        self.of.insert(partition, Trouble { fault, next_try: now + pause, pause });
        if is_new {
            self.begun.push(partition);
        }
    }

    /// True when none of `partitions` can be read now.
    pub(super) fn is_everything(&self, partitions: usize) -> bool {
        self.of.len() >= partitions
    }

    /// A fault that will hardly pass: nothing could ever be read, and not because the broker does not answer.
    pub(super) fn hopeless(&self, partitions: usize) -> Option<&Fault> {
        let hopeless = !self.anything_read && self.is_everything(partitions);
        let mut faults = self.of.values().map(|trouble| &trouble.fault);
        hopeless.then(|| faults.find(|fault| !is_outage(fault))).flatten()
    }

    /// What was not told yet, partitions with equal trouble together.
    pub(super) fn tell(&mut self) -> Vec<Told> {
        let mut told: Vec<Told> = Vec::new();
        for partition in std::mem::take(&mut self.begun) {
            let Some(trouble) = self.of.get(&partition) else { continue };
            match told.iter_mut().find(|told| told.fault.as_ref().is_some_and(|fault| fault.kind == trouble.fault.kind)) {
                Some(told) => told.partitions.push(partition),
                None => told.push(Told { partitions: vec![partition], fault: Some(trouble.fault.clone()) }),
            }
        }
        let ended = std::mem::take(&mut self.ended);
        if !ended.is_empty() {
            told.push(Told { partitions: ended, fault: None });
        }
        told
    }

    /// The partitions that are left unread, and why, at the end. A broker that is away as a whole leaves nothing out: it was waited for.
    pub(super) fn unread(&self, partitions: usize) -> Option<(Vec<u32>, &Fault)> {
        let first = self.of.values().find(|trouble| !is_outage(&trouble.fault)).or_else(|| self.of.values().next())?;
        let is_away = self.is_everything(partitions) && is_outage(&first.fault);
        (!is_away).then(|| (self.of.keys().copied().collect(), &first.fault))
    }
}

impl Told {
    /// In words. `partitions` is how many the topic has.
    pub(super) fn words(&self, topic: &str, partitions: usize) -> String {
        let which = named(&self.partitions);
        let is = if self.partitions.len() == 1 { "is" } else { "are" };
        match &self.fault {
            None => format!("{which} of {topic} {is} read again"),
            Some(fault) if is_outage(fault) && self.partitions.len() == partitions => {
                format!("the broker does not answer and is waited for: {}", fault.message)
            }
            Some(fault) => {
                let others = if self.partitions.len() < partitions { ", the others go on" } else { "" };
                format!("{which} of {topic} cannot be read now and {is} tried again{others}: {}", fault.message)
            }
        }
    }
}

/// `partition 3`, `partitions 0, 1, 2`.
pub(crate) fn named(partitions: &[u32]) -> String {
    let named: Vec<_> = partitions.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let more = partitions.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("partition{} {}{more}", if partitions.len() == 1 { "" } else { "s" }, named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: &str) -> Fault {
        Fault { permanent: false, ..Fault::refused(kind, format!("{kind}: words")) }
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_partition_that_fails_is_left_alone_for_longer_each_time_and_told_once() {
        let mut troubles = Troubles::default();
        troubles.read(0);
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..7 {
            assert!(troubles.is_due(1, at(now)) && troubles.is_due(0, at(now)));
            troubles.failed(1, fault("backend"), at(now));
            let due = (now..).find(|second| troubles.is_due(1, at(*second))).unwrap();
            pauses.push(due - now);
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16]);
        let told = troubles.tell();
        assert_eq!(told, [Told { partitions: vec![1], fault: Some(fault("backend")) }]);
        assert_eq!(told[0].words("t", 2), "partition 1 of t cannot be read now and is tried again, the others go on: backend: words");
        troubles.failed(1, fault("io"), at(now));
        assert_eq!(troubles.tell()[0].fault, Some(fault("io")), "another trouble is told");
        troubles.read(1);
        let told = troubles.tell();
        assert_eq!((told.len(), told[0].words("t", 2)), (1, "partition 1 of t is read again".to_owned()));
        assert!(troubles.tell().is_empty() && troubles.is_due(1, at(now)));
    }

    #[test]
    fn a_broker_that_is_away_is_one_line_however_many_partitions_there_are() {
        let mut troubles = Troubles::default();
        (0..20).for_each(|partition| troubles.failed(partition, fault("not-sent"), at(0)));
        let told = troubles.tell();
        assert_eq!((told.len(), told[0].partitions.len()), (1, 20));
        assert_eq!(told[0].words("t", 20), "the broker does not answer and is waited for: not-sent: words");
        assert!(told[0].words("t", 21).starts_with("partitions 0, 1, 2, 3, 4, 5, 6, 7 and 12 more of t cannot"), "{told:?}");
        assert_eq!((troubles.hopeless(20), troubles.unread(20)), (None, None), "it may come back");
        assert!(troubles.is_everything(20) && !troubles.is_everything(21));
        troubles.failed(5, fault("not-sent"), at(1));
        assert!(troubles.is_due(5, at(2)) && !troubles.is_due(5, at(1)), "it is looked for every second");
        troubles.read(3);
        assert!(troubles.is_due(5, at(1)), "it came back for one");
    }

    #[test]
    fn what_is_unread_at_the_end_and_what_will_never_be_read() {
        let mut troubles = Troubles::default();
        troubles.failed(0, fault("timeout"), at(0));
        assert_eq!(troubles.unread(2), Some((vec![0], &fault("timeout"))), "the other one was read");
        troubles.failed(1, fault("backend"), at(0));
        assert_eq!(troubles.hopeless(2), Some(&fault("backend")));
        assert_eq!(troubles.unread(2), Some((vec![0, 1], &fault("backend"))));
        troubles.read(0);
        troubles.failed(0, fault("backend"), at(0));
        assert_eq!(troubles.hopeless(2), None, "it was read before");
    }
}
