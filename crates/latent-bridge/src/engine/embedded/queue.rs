//! The bounded way to the writer thread. Publications and state log entries have bounds of their own, so that a flood of
//! publications cannot keep deliveries from being settled; their order among each other is kept.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::{BusError, limits};

/// Whose bound a command counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Publications.
    Records,
    /// State log entries.
    State,
}

/// A bound in commands and bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

/// How much a command weighs and whether it may share a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) lane: Lane,
    /// Records or entries.
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) grouping: Grouping,
}

/// Whether a command may share a group with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grouping {
    /// With the commands before and after it.
    Shared,
    /// With none: what came before it is finished first.
    Alone,
}

/// See the module.
pub(super) struct Queue<C> {
    state: Mutex<State<C>>,
    filled: Condvar,
    records_max: Bound,
    state_max: Bound,
}

struct State<C> {
    waiting: VecDeque<(Cost, C)>,
    records: Bound,
    state: Bound,
    closed: bool,
}

impl<C> State<C> {
    fn used(&mut self, lane: Lane) -> &mut Bound {
        match lane {
            Lane::Records => &mut self.records,
            Lane::State => &mut self.state,
        }
    }
}

impl<C> Queue<C> {
    pub(super) fn new(records_max: Bound, state_max: Bound) -> Self {
        let none = Bound { count: 0, bytes: 0 };
        let state = State { waiting: VecDeque::new(), records: none, state: none, closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), records_max, state_max }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        // The guarded sections cannot panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a command over and wakes the writer, or says which bound is reached. Never waits.
    pub(super) fn push(&self, cost: Cost, command: C) -> Result<(), BusError> {
        self.push_quietly(cost, command)?;
        self.wake();
        Ok(())
    }

    /// As [`Queue::push`], without waking the writer: for who is going to see to the command itself.
    pub(super) fn push_quietly(&self, cost: Cost, command: C) -> Result<(), BusError> {
        let (max, count_limit, bytes_limit) = match cost.lane {
            Lane::Records => (self.records_max, limits::QUEUE_RECORDS.name, limits::QUEUE_BYTES.name),
            Lane::State => (self.state_max, limits::STATE_QUEUE_ENTRIES.name, limits::STATE_QUEUE_BYTES.name),
        };
        let mut state = self.lock();
        if state.closed {
            return Err(BusError::NotSent { reason: "the log is closed".to_owned() });
        }
        let used = state.used(cost.lane);
        // What is larger than the whole bound may still go alone.
        if used.count > 0 && used.count.saturating_add(cost.count) > max.count {
            return Err(BusError::Busy { limit: count_limit });
        }
        if used.count > 0 && used.bytes.saturating_add(cost.bytes) > max.bytes {
            return Err(BusError::Busy { limit: bytes_limit });
        }
        used.count = used.count.saturating_add(cost.count);
        used.bytes = used.bytes.saturating_add(cost.bytes);
        state.waiting.push_back((cost, command));
        Ok(())
    }

    /// Wakes the writer.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    /// How many commands wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Waits until there are commands. False when the queue is closed and empty.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return false;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Takes as many commands as share one group; none when none wait.
    pub(super) fn take(&self, group: Bound) -> Vec<C> {
        self.take_while(group, |_| true)
    }

    /// The same, ending before the first that is not `wanted`.
    pub(super) fn take_while(&self, group: Bound, wanted: impl Fn(&C) -> bool) -> Vec<C> {
        let mut state = self.lock();
        let mut taken = Vec::new();
        let mut sum = Bound { count: 0, bytes: 0 };
        let next = |waiting: &VecDeque<(Cost, C)>, sum: Bound, first: bool| {
            let front = waiting.front().filter(|(cost, command)| (first || joins(*cost, sum, group)) && wanted(command));
            front.map(|(cost, _)| *cost)
        };
        while let Some(cost) = next(&state.waiting, sum, taken.is_empty()) {
            sum = Bound { count: sum.count.saturating_add(cost.count), bytes: sum.bytes.saturating_add(cost.bytes) };
            let used = state.used(cost.lane);
            used.count = used.count.saturating_sub(cost.count);
            used.bytes = used.bytes.saturating_sub(cost.bytes);
            taken.extend(state.waiting.pop_front().map(|(_, command)| command));
            if cost.grouping == Grouping::Alone {
                break;
            }
        }
        taken
    }

    /// Refuses everything from now on; what is waiting can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    /// Refuses everything from now on and hands back what was waiting.
    pub(super) fn abandon(&self) -> VecDeque<(Cost, C)> {
        let mut state = self.lock();
        state.closed = true;
        std::mem::take(&mut state.waiting)
    }
}

/// Whether a command may join others of this sum. The first is always taken, whatever its size.
fn joins(cost: Cost, sum: Bound, group: Bound) -> bool {
    cost.grouping == Grouping::Shared
        && sum.count.saturating_add(cost.count) <= group.count
        && sum.bytes.saturating_add(cost.bytes) <= group.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Bound = Bound { count: 100, bytes: 1_000 };

    fn cost(bytes: u64) -> Cost {
        Cost { lane: Lane::Records, count: 1, bytes, grouping: Grouping::Shared }
    }

    fn queue(count: u64, bytes: u64) -> Queue<u32> {
        Queue::new(Bound { count, bytes }, WIDE)
    }

    #[test]
    fn the_count_is_bounded_at_its_edge_and_names_the_limit() {
        let queue = queue(2, 1_000);
        assert!(queue.push(cost(1), 0).is_ok() && queue.push(cost(1), 1).is_ok());
        assert_eq!(queue.push(cost(1), 2), Err(BusError::Busy { limit: "log_queue_records" }));
        assert!(queue.push(Cost { lane: Lane::State, ..cost(1) }, 3).is_ok(), "the other lane has room");
        assert_eq!(queue.take(WIDE), vec![0, 1, 3]);
        assert!(queue.push(cost(1), 4).is_ok());
    }

    #[test]
    fn the_bytes_are_bounded_at_their_edge_and_one_large_command_may_go_alone() {
        let queue = queue(10, 100);
        assert!(queue.push(cost(60), 0).is_ok() && queue.push(cost(40), 1).is_ok());
        assert_eq!(queue.push(cost(1), 2), Err(BusError::Busy { limit: "log_queue_bytes" }));
        assert_eq!(queue.take(WIDE), vec![0, 1]);
        assert!(queue.push(cost(101), 3).is_ok());
        assert!(queue.push(cost(0), 4).is_err());
    }

    #[test]
    fn a_group_is_bounded_in_count_and_bytes() {
        let queue = queue(10, 1_000);
        (0..5).for_each(|n| queue.push(cost(10), n).unwrap());
        assert_eq!(queue.take(Bound { count: 2, bytes: 100 }), vec![0, 1]);
        assert_eq!(queue.take(Bound { count: 9, bytes: 29 }), vec![2, 3]);
        assert_eq!(queue.take(Bound { count: 9, bytes: 9 }), vec![4]);
    }

    #[test]
    fn commands_are_taken_up_to_the_first_that_is_not_wanted() {
        let queue = queue(10, 1_000);
        (0..4).for_each(|n| queue.push(cost(1), n).unwrap());
        assert_eq!(queue.take_while(WIDE, |n| *n != 2), vec![0, 1]);
        assert_eq!(queue.take_while(WIDE, |n| *n != 2), Vec::<u32>::new());
        assert_eq!(queue.take(WIDE), vec![2, 3]);
    }

    #[test]
    fn a_command_that_goes_alone_parts_the_groups_around_it() {
        let queue = queue(10, 1_000);
        queue.push(cost(1), 0).unwrap();
        queue.push(Cost { grouping: Grouping::Alone, ..cost(1) }, 1).unwrap();
        queue.push(cost(1), 2).unwrap();
        assert_eq!([queue.take(WIDE), queue.take(WIDE), queue.take(WIDE)], [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn a_closed_queue_refuses_and_drains() {
        let queue = queue(10, 1_000);
        queue.push(cost(1), 0).unwrap();
        queue.close();
        assert!(matches!(queue.push(cost(1), 1), Err(BusError::NotSent { .. })));
        assert_eq!((queue.wait(), queue.take(WIDE), queue.wait()), (true, vec![0], false));
    }
}
