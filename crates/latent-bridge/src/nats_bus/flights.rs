//! Publications that were handed over and not answered yet: bounded in number and bytes, each with one deadline. A machine without I/O:
//! it is told of time and of answers, and says whose turn it is.
//!
//! The broker tells a refused permission without saying of which publication, only of which subject. A publication is taken for refused
//! when as many refusals came for its subject as publications to it are in flight; until then any of them may have been stored. The client
//! loses refusals that come faster than they are heard, so nothing more goes to a subject while it is refused, and what is left when
//! all refusals must have been heard is uncertain. So is one that was sent again because another one of its uid was being stored: of that
//! one a refusal says nothing.

use std::collections::BTreeMap;

use latent_core::MonoTime;

/// Names one flight; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FlightNumber(pub(super) u64);

/// A subject, as a number of its owner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SubjectNumber {
    pub(super) topic: usize,
    pub(super) partition: u32,
}

/// See the module. `C` is what is in flight.
#[derive(Debug)]
pub(super) struct Flights<C> {
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
    next: u64,
    /// By number, which is the order of boarding and so of deadlines.
    aboard: BTreeMap<FlightNumber, Flight<C>>,
    /// Refusals that came for a subject and belong to nobody yet.
    refusals: BTreeMap<SubjectNumber, usize>,
}

#[derive(Debug)]
struct Flight<C> {
    subject: SubjectNumber,
    bytes: usize,
    deadline: MonoTime,
    /// Another publication of its uid was being stored when it was sent first.
    was_in_process: bool,
    cargo: C,
}

/// One that ended because its subject was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused<C> {
    pub(super) cargo: C,
    /// Nothing of its uid can have been stored by it, or for it.
    pub(super) is_certain: bool,
}

/// There is no room; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl<C> Flights<C> {
    pub(super) const fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { count_max, bytes_max, bytes: 0, next: 0, aboard: BTreeMap::new(), refusals: BTreeMap::new() }
    }

    /// Takes one more. Deadlines must not fall from one call to the next. One alone is taken whatever its bytes.
    pub(super) fn board(&mut self, subject: SubjectNumber, bytes: usize, deadline: MonoTime, cargo: C) -> Result<FlightNumber, Full> {
        let is_full = self.aboard.len() >= self.count_max || self.bytes.saturating_add(bytes) > self.bytes_max;
        if is_full && !self.aboard.is_empty() {
            return Err(Full);
        }
        let number = FlightNumber(self.next);
        self.next = self.next.wrapping_add(1);
        self.bytes += bytes;
        self.aboard.insert(number, Flight { subject, bytes, deadline, was_in_process: false, cargo });
        Ok(number)
    }

    /// What is in flight under this number.
    pub(super) fn get(&self, number: FlightNumber) -> Option<&C> {
        self.aboard.get(&number).map(|flight| &flight.cargo)
    }

    /// It was not taken because another one of its uid was being stored, and is sent again.
    pub(super) fn note_in_process(&mut self, number: FlightNumber) {
        if let Some(flight) = self.aboard.get_mut(&number) {
            flight.was_in_process = true;
        }
    }

    /// Whether a refusal after this would leave open what became of its uid.
    pub(super) fn was_in_process(&self, number: FlightNumber) -> bool {
        self.aboard.get(&number).is_some_and(|flight| flight.was_in_process)
    }

    /// Everything that is in flight, which ends here.
    pub(super) fn end_all(&mut self) -> Vec<C> {
        self.refusals.clear();
        self.bytes = 0;
        std::mem::take(&mut self.aboard).into_values().map(|flight| flight.cargo).collect()
    }

    /// Its answer came, or it is taken back. `None` when it has ended already.
    pub(super) fn land(&mut self, number: FlightNumber) -> Option<C> {
        let flight = self.remove(number)?;
        if !self.refusals.is_empty() && !self.is_aboard(flight.subject) {
            self.refusals.remove(&flight.subject);
        }
        Some(flight.cargo)
    }

    /// Those whose deadline has passed. One of the refusals that came for a subject counts as its.
    pub(super) fn overdue(&mut self, now: MonoTime) -> Vec<C> {
        let mut ended = Vec::new();
        while let Some((number, flight)) = self.aboard.first_key_value() {
            if flight.deadline > now {
                break;
            }
            let number = *number;
            let Some(flight) = self.remove(number) else { break };
            if let Some(refusals) = self.refusals.get_mut(&flight.subject) {
                *refusals = refusals.saturating_sub(1);
                if *refusals == 0 {
                    self.refusals.remove(&flight.subject);
                }
            }
            ended.push(flight.cargo);
        }
        ended
    }

    /// The broker refused a publication to this subject.
    pub(super) fn refuse(&mut self, subject: SubjectNumber) {
        if self.is_aboard(subject) {
            *self.refusals.entry(subject).or_default() += 1;
        }
    }

    /// Those that were certainly refused. To be asked after each [`Flights::refuse`], [`Flights::land`] and [`Flights::overdue`].
    pub(super) fn refused(&mut self) -> Vec<Refused<C>> {
        if self.refusals.is_empty() {
            return Vec::new();
        }
        let due = |(subject, refusals): (&SubjectNumber, &usize)| {
            let aboard = self.aboard.values().filter(|flight| flight.subject == *subject).count();
            (aboard <= *refusals).then_some(*subject)
        };
        let subjects: Vec<_> = self.refusals.iter().filter_map(due).collect();
        let mut ended = Vec::new();
        for subject in subjects {
            self.refusals.remove(&subject);
            let ended_now = self.remove_all(subject, FlightNumber(u64::MAX));
            ended.extend(ended_now.into_iter().map(|flight| Refused { is_certain: !flight.was_in_process, cargo: flight.cargo }));
        }
        ended
    }

    /// Whether publications to this subject are being refused: nothing more should go there until those in flight have ended.
    pub(super) fn is_refused(&self, subject: SubjectNumber) -> bool {
        self.refusals.contains_key(&subject)
    }

    /// The subjects that are being refused, and the number that the next flight would have.
    pub(super) fn refusals(&self) -> (Vec<SubjectNumber>, FlightNumber) {
        (self.refusals.keys().copied().collect(), FlightNumber(self.next))
    }

    /// All refusals of those that boarded before `number` have been told or were lost: what of them is left is uncertain. Where others that
    /// boarded since are being refused too, which is true afterwards by [`Flights::is_refused`], they are to be settled next: their refusals
    /// may all have been told by now, and none of those that were told before counts for them.
    pub(super) fn settle(&mut self, subject: SubjectNumber, number: FlightNumber) -> Vec<C> {
        let ended = self.remove_all(subject, number).into_iter().map(|flight| flight.cargo).collect();
        if !self.is_aboard(subject) {
            self.refusals.remove(&subject);
        } else if let Some(refusals) = self.refusals.get_mut(&subject) {
            *refusals = 0;
        }
        ended
    }

    /// When the next deadline passes.
    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        self.aboard.first_key_value().map(|(_, flight)| flight.deadline)
    }

    fn is_aboard(&self, subject: SubjectNumber) -> bool {
        self.aboard.values().any(|flight| flight.subject == subject)
    }

    /// Those of a subject that boarded before a number.
    fn remove_all(&mut self, subject: SubjectNumber, before: FlightNumber) -> Vec<Flight<C>> {
        let of_subject = self.aboard.range(..before).filter(|(_, flight)| flight.subject == subject);
        let numbers: Vec<_> = of_subject.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    fn remove(&mut self, number: FlightNumber) -> Option<Flight<C>> {
        let flight = self.aboard.remove(&number)?;
        self.bytes -= flight.bytes;
        Some(flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SubjectNumber = SubjectNumber { topic: 0, partition: 0 };
    const B: SubjectNumber = SubjectNumber { topic: 0, partition: 1 };

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(millis)
    }

    #[test]
    fn number_and_bytes_are_bounded_and_one_alone_always_has_room() {
        let mut flights = Flights::new(2, 10);
        let first = flights.board(A, 100, at(10), 'a').unwrap();
        assert_eq!(flights.board(A, 0, at(10), 'x'), Err(Full));
        assert_eq!(flights.land(first), Some('a'));
        let first = flights.board(A, 5, at(10), 'a').unwrap();
        assert_eq!(flights.board(A, 6, at(10), 'x'), Err(Full), "one byte too many");
        flights.board(A, 5, at(10), 'b').unwrap();
        assert_eq!(flights.board(A, 0, at(10), 'x'), Err(Full), "one too many");
        assert_eq!(flights.land(first), Some('a'));
        assert!(flights.board(A, 5, at(10), 'c').is_ok());
        assert_eq!(flights.land(first), None, "a number is never given twice");
    }

    #[test]
    fn each_ends_once_by_its_answer_or_its_deadline() {
        let mut flights = Flights::new(8, 1_000);
        let a = flights.board(A, 1, at(10), 'a').unwrap();
        let b = flights.board(A, 1, at(10), 'b').unwrap();
        let c = flights.board(B, 1, at(20), 'c').unwrap();
        assert_eq!(flights.next_deadline(), Some(at(10)));
        assert_eq!(flights.land(a), Some('a'));
        assert!(flights.overdue(MonoTime::from_micros(9_999)).is_empty());
        assert_eq!(flights.overdue(at(10)), ['b']);
        assert_eq!((flights.land(b), flights.next_deadline()), (None, Some(at(20))));
        assert_eq!((flights.land(c), flights.next_deadline()), (Some('c'), None));
    }

    fn certainly(cargos: &[char]) -> Vec<Refused<char>> {
        cargos.iter().map(|cargo| Refused { cargo: *cargo, is_certain: true }).collect()
    }

    #[test]
    fn a_refusal_ends_a_flight_only_when_it_can_be_no_other() {
        let mut flights = Flights::new(8, 1_000);
        let a = flights.board(A, 1, at(10), 'a').unwrap();
        flights.board(A, 1, at(20), 'b').unwrap();
        flights.board(B, 1, at(20), 'c').unwrap();
        flights.refuse(A);
        assert!(flights.refused().is_empty(), "of the two either may be the refused one");
        assert!(flights.is_refused(A) && !flights.is_refused(B));
        assert_eq!(flights.land(a), Some('a'), "this one was stored");
        assert_eq!(flights.refused(), certainly(&['b']));
        assert!(flights.refused().is_empty() && !flights.is_refused(A));
        flights.refuse(B);
        assert_eq!(flights.refused(), certainly(&['c']));
        flights.refuse(B);
        flights.board(B, 1, at(30), 'd').unwrap();
        assert!(flights.refused().is_empty(), "a refusal that came before it is not its");
    }

    #[test]
    fn one_that_ends_without_an_answer_takes_a_refusal_with_it() {
        let mut flights = Flights::new(8, 1_000);
        flights.board(A, 1, at(10), 'a').unwrap();
        flights.board(A, 1, at(20), 'b').unwrap();
        flights.refuse(A);
        assert_eq!((flights.overdue(at(10)), flights.refused()), (vec!['a'], vec![]), "which of them was refused is never known");
        assert_eq!(flights.overdue(at(20)), ['b']);
        for deadline in [30, 30, 30] {
            flights.board(A, 1, at(deadline), 'x').unwrap();
            flights.refuse(A);
        }
        assert_eq!(flights.refused(), certainly(&['x', 'x', 'x']));
        assert_eq!((flights.bytes, flights.refusals.len()), (0, 0));
    }

    #[test]
    fn what_is_left_when_all_refusals_must_have_come_is_uncertain() {
        let mut flights = Flights::new(8, 1_000);
        for cargo in ['a', 'b', 'c'] {
            flights.board(A, 1, at(10), cargo).unwrap();
        }
        flights.refuse(A);
        let (subjects, before) = flights.refusals();
        assert_eq!(subjects, [A]);
        let later = flights.board(A, 1, at(10), 'd').unwrap();
        assert_eq!(flights.settle(A, before), ['a', 'b', 'c']);
        assert!(flights.refused().is_empty(), "what was told before is no refusal of the later one");
        assert_eq!(flights.land(later), Some('d'));
        assert_eq!((flights.bytes, flights.is_refused(A)), (0, false));
    }

    #[test]
    fn those_that_boarded_meanwhile_and_are_refused_too_are_settled_next() {
        let mut flights = Flights::new(8, 1_000);
        flights.board(A, 1, at(10), 'a').unwrap();
        flights.board(A, 1, at(10), 'b').unwrap();
        flights.refuse(A);
        let (_, before) = flights.refusals();
        flights.refuse(A);
        assert_eq!(flights.refused(), certainly(&['a', 'b']), "told after all, so others may board");
        flights.board(A, 1, at(10), 'c').unwrap();
        flights.board(A, 1, at(10), 'd').unwrap();
        flights.refuse(A);
        assert!(flights.settle(A, before).is_empty() && flights.refused().is_empty() && flights.is_refused(A));
        let (subjects, before) = flights.refusals();
        assert_eq!((subjects, flights.settle(A, before)), (vec![A], vec!['c', 'd']), "though no refusal is told any more");
        assert!(!flights.is_refused(A));
        flights.board(A, 1, at(20), 'e').unwrap();
        flights.board(A, 1, at(20), 'f').unwrap();
        flights.refuse(A);
        flights.settle(A, FlightNumber(0));
        assert_eq!((flights.overdue(at(20)), flights.is_refused(A)), (vec!['e', 'f'], false));
    }

    #[test]
    fn one_that_was_sent_again_is_never_certainly_refused() {
        let mut flights = Flights::new(8, 1_000);
        let a = flights.board(A, 1, at(10), 'a').unwrap();
        flights.board(A, 1, at(10), 'b').unwrap();
        flights.note_in_process(a);
        assert!(flights.was_in_process(a));
        (0..2).for_each(|_| flights.refuse(A));
        assert_eq!(flights.refused(), [Refused { cargo: 'a', is_certain: false }, Refused { cargo: 'b', is_certain: true }]);
    }
}
