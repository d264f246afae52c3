use super::*;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// The tolerance: exactly this much is no jump.
const EDGE: i64 = 5 * MINUTE;

/// A machine with its clocks, moved by hand.
#[derive(Debug, Clone, Copy)]
struct Machine {
    unix: i64,
    steady: i64,
    boot: Option<BootId>,
}

impl Machine {
    /// Some day, an hour after a boot.
    const fn new() -> Self {
        Self { unix: 20_000 * DAY, steady: HOUR, boot: Some(BootId(1)) }
    }

    fn now(&self) -> Observation {
        Observation {
            unix: UnixMillis(u64::try_from(self.unix).unwrap()),
            steady: MonoTime::from_millis(u64::try_from(self.steady).unwrap()),
            boot: self.boot,
        }
    }

    fn passes(&mut self, millis: i64) -> Observation {
        self.steady += millis;
        self.jumps(millis)
    }

    fn jumps(&mut self, millis: i64) -> Observation {
        self.unix += millis;
        self.now()
    }

    /// Off for so long, and started anew.
    fn boots_after(&mut self, millis: i64) -> Observation {
        let BootId(boot) = self.boot.unwrap();
        *self = Self { unix: self.unix + millis, steady: 20 * SECOND, boot: Some(BootId(boot + 1)) };
        self.now()
    }

    fn first(&self) -> ClockGuard {
        ClockGuard::begin(Remembered::Nothing, self.now())
    }

    /// The next process, with what this one left.
    fn restarts(&self, guard: &ClockGuard) -> ClockGuard {
        ClockGuard::begin(Remembered::Record(guard.record().unwrap()), self.now())
    }
}

fn jump(hold: Option<Hold>) -> Option<i64> {
    hold.map(|hold| match hold.cause {
        HoldCause::Jump { millis } => millis,
        HoldCause::Unknown => panic!("the cause is not known"),
    })
}

#[test]
fn a_step_is_a_jump_beyond_the_tolerance_and_not_at_it() {
    for step in [EDGE - 1, EDGE, EDGE + 1, HOUR, 300 * DAY] {
        for step in [step, -step] {
            let mut machine = Machine::new();
            let mut guard = machine.first();
            assert_eq!(guard.observe(machine.passes(0)), None);
            let held = guard.observe(machine.jumps(step));
            assert_eq!(jump(held), (step.abs() > EDGE).then_some(step), "{step}");
        }
    }
}

#[test]
fn time_that_passes_on_both_clocks_is_no_jump_however_long_nobody_looked() {
    for passed in [0, MINUTE, DAY, 5_000 * DAY] {
        let mut machine = Machine::new();
        let mut guard = machine.first();
        assert_eq!(guard.observe(machine.passes(passed)), None, "a stopped process, a machine that slept: {passed}");
    }
}

#[test]
fn a_clock_that_is_steered_is_followed_and_one_that_runs_away_is_not() {
    for (ppm, held) in [(0, false), (500, false), (-500, false), (1_000, false), (3_000, true), (-3_000, true)] {
        let mut machine = Machine::new();
        let mut guard = machine.first();
        let mut ever = false;
        for _ in 0..60 * 24 * 30 {
            machine.jumps(MINUTE * ppm / 1_000_000);
            ever |= guard.observe(machine.passes(MINUTE)).is_some();
        }
        assert_eq!(ever, held, "a month at {ppm} ppm");
    }
}

#[test]
fn a_clock_that_is_looked_at_often_is_followed_as_well() {
    let mut machine = Machine::new();
    let mut guard = machine.first();
    // 800 ppm for a week, two looks a second.
    for _ in 0..7 * 24 * 720 {
        for _ in 0..10 {
            assert_eq!(guard.observe(machine.passes(500)), None);
        }
        machine.jumps(4);
    }
}

#[test]
fn small_steps_in_a_short_time_add_up_and_in_a_long_time_do_not() {
    let held_after = |pause: i64| {
        let mut machine = Machine::new();
        let mut guard = machine.first();
        (1..=20).find(|_| {
            machine.passes(pause);
            guard.observe(machine.jumps(4 * MINUTE)).is_some()
        })
    };
    assert_eq!([held_after(MINUTE), held_after(DAY), held_after(3 * DAY)], [Some(2), Some(2), None]);
}

#[test]
fn a_clock_that_comes_back_heals_and_one_that_comes_half_way_does_not() {
    for sign in [1, -1] {
        let mut machine = Machine::new();
        let mut guard = machine.first();
        assert!(guard.observe(machine.jumps(sign * DAY)).is_some());
        assert!(guard.observe(machine.passes(100 * DAY)).is_some(), "time alone does not make it right");
        assert_eq!(jump(guard.observe(machine.jumps(-sign * (DAY - HOUR)))), Some(sign * HOUR));
        assert_eq!(guard.observe(machine.jumps(-sign * (HOUR - EDGE))), None);
        assert!(guard.observe(machine.jumps(sign)).is_some(), "what was believed before is still what counts");
    }
}

#[test]
fn a_hold_says_since_when() {
    let mut machine = Machine::new();
    let mut guard = machine.first();
    let right = machine.passes(HOUR).unix;
    let held = guard.observe(machine.jumps(-DAY)).unwrap();
    assert_eq!(held, Hold { since: right, cause: HoldCause::Jump { millis: -DAY } });
    assert_eq!(guard.observe(machine.passes(HOUR)), Some(held));
}

#[test]
fn an_operator_can_say_that_the_clock_is_right() {
    let mut machine = Machine::new();
    let mut guard = machine.first();
    assert!(guard.observe(machine.jumps(DAY)).is_some());
    guard.confirm(machine.now());
    assert_eq!((guard.hold(), guard.is_record_due()), (None, true));
    assert_eq!(guard.observe(machine.passes(MINUTE)), None);
    assert_eq!(machine.restarts(&guard).hold(), None);
    assert_eq!(jump(guard.observe(machine.jumps(-DAY))), Some(-DAY), "back where it was is a jump now");
}

#[test]
fn a_process_in_the_same_boot_knows_what_passed_while_none_ran() {
    for (jumped, held) in [(0, None), (EDGE, None), (-EDGE, None), (HOUR, Some(HOUR)), (-HOUR, Some(-HOUR))] {
        let mut machine = Machine::new();
        let guard = machine.first();
        machine.passes(MINUTE);
        machine.jumps(jumped);
        assert_eq!(jump(machine.restarts(&guard).hold()), held, "{jumped}");
    }
}

#[test]
fn after_a_boot_only_a_clock_that_went_back_can_be_told() {
    let cases =
        [(0, None), (MINUTE, None), (DAY, None), (4_000 * DAY, None), (-EDGE, None), (-EDGE - 1, Some(-EDGE - 1)), (-DAY, Some(-DAY))];
    for (off, held) in cases {
        let mut machine = Machine::new();
        let guard = machine.first();
        machine.boots_after(off);
        let mut next = machine.restarts(&guard);
        assert_eq!(jump(next.hold()), held, "{off}");
        if held.is_none() {
            assert_eq!(jump(next.observe(machine.jumps(EDGE + 1))), Some(EDGE + 1 + off.min(0)).filter(|far| *far > EDGE));
        }
    }
}

#[test]
fn a_clock_that_went_back_over_a_boot_heals_when_it_has_caught_up() {
    let mut machine = Machine::new();
    let guard = machine.first();
    machine.boots_after(-DAY);
    let mut next = machine.restarts(&guard);
    assert_eq!(jump(next.hold()), Some(-DAY));
    // A restart in that boot changes nothing: nobody knows how long the machine was off.
    let mut third = machine.restarts(&next);
    for guard in [&mut next, &mut third] {
        let mut machine = machine;
        assert!(guard.observe(machine.jumps(DAY - EDGE - 1)).is_some());
        assert_eq!(guard.observe(machine.jumps(30 * DAY)), None);
        assert!(guard.observe(machine.jumps(DAY)).is_some(), "and is watched exactly from there");
    }
}

#[test]
fn a_hold_outlives_processes_and_boots_until_the_clock_is_set_right() {
    for jumped in [DAY, -DAY] {
        let mut machine = Machine::new();
        let mut guard = machine.first();
        assert!(guard.observe(machine.jumps(jumped)).is_some());
        let since = guard.hold().unwrap().since;
        machine.passes(HOUR);
        let mut same_boot = machine.restarts(&guard);
        assert_eq!((jump(same_boot.hold()), same_boot.hold().unwrap().since), (Some(jumped), since));
        let mut rebooted = machine;
        rebooted.boots_after(HOUR);
        let mut other_boot = rebooted.restarts(&same_boot);
        let mut again = rebooted;
        again.boots_after(HOUR);
        let mut third_boot = again.restarts(&other_boot);
        for (machine, guard) in [(&mut machine, &mut same_boot), (&mut rebooted, &mut other_boot), (&mut again, &mut third_boot)] {
            assert_eq!(guard.hold().unwrap().since, since);
            assert!(guard.observe(machine.passes(HOUR)).is_some(), "{jumped}");
            assert_eq!(guard.observe(machine.jumps(-jumped)), None, "{jumped}");
        }
    }
}

#[test]
fn a_confirmation_outlives_processes_and_boots() {
    let mut machine = Machine::new();
    let mut guard = machine.first();
    guard.observe(machine.jumps(DAY));
    guard.confirm(machine.passes(MINUTE));
    machine.passes(MINUTE);
    let next = machine.restarts(&guard);
    machine.boots_after(HOUR);
    assert_eq!([next.hold(), machine.restarts(&next).hold()], [None, None]);
}

#[test]
fn what_was_left_by_a_time_to_come_is_a_clock_that_went_back() {
    let machine = Machine::new();
    let future = UnixMillis(u64::try_from(machine.unix + 400 * DAY).unwrap());
    let record = ClockRecord { believed_from: future, believed_to: Some(future), seen: future, steady: None, held_since: None };
    assert_eq!(jump(ClockGuard::begin(Remembered::Record(record), machine.now()).hold()), Some(-400 * DAY));
}

#[test]
fn what_is_damaged_holds_until_somebody_confirms_and_stays_as_it_is() {
    let mut machine = Machine::new();
    let mut guard = ClockGuard::begin(Remembered::Damaged, machine.now());
    let held = Some(Hold { since: machine.now().unix, cause: HoldCause::Unknown });
    assert_eq!((guard.observe(machine.passes(DAY)), guard.record()), (held, None));
    guard.confirm(machine.now());
    assert!(guard.hold().is_none() && guard.record().is_some());
}

#[test]
fn without_a_boot_to_compare_with_a_process_still_watches_its_own_time() {
    let mut machine = Machine { boot: None, ..Machine::new() };
    let mut guard = machine.first();
    assert!(guard.observe(machine.jumps(HOUR)).is_some());
    let record = guard.record().unwrap();
    assert_eq!(record.steady, None);
    machine.steady = 0;
    assert_eq!(jump(machine.restarts(&guard).hold()), Some(HOUR), "a hold is not forgotten with the process");
    guard.confirm(machine.now());
    machine.passes(DAY);
    assert_eq!(machine.restarts(&guard).hold(), None);
}

#[test]
fn the_record_is_due_at_once_after_a_change_and_else_from_time_to_time() {
    let mut machine = Machine::new();
    let mut guard = machine.first();
    let interval = i64::try_from(limits::CLOCK_RECORD_SECONDS.default).unwrap() * SECOND;
    assert!(guard.is_record_due());
    guard.handle_recorded();
    for (passed, due) in [(0, false), (interval - 1, false), (1, true)] {
        guard.observe(machine.passes(passed));
        assert_eq!(guard.is_record_due(), due, "{passed}");
    }
    guard.handle_recorded();
    for jumped in [HOUR, -HOUR] {
        guard.observe(machine.jumps(jumped));
        assert!(guard.is_record_due(), "held, then healed");
        guard.handle_recorded();
        assert!(!guard.is_record_due());
    }
}

#[test]
fn no_time_is_too_far_to_be_compared() {
    let far = [0, 1, u64::MAX / 1_000, u64::MAX];
    for (one, other) in far.iter().flat_map(|one| far.map(|other| (*one, other))) {
        let at =
            |unix: u64, steady: u64| Observation { unix: UnixMillis(unix), steady: MonoTime::from_micros(steady), boot: Some(BootId(1)) };
        let mut guard = ClockGuard::begin(Remembered::Nothing, at(one, other));
        let held = guard.observe(at(other, other)).is_some();
        assert_eq!(held, one.abs_diff(other) > limits::CLOCK_JUMP_MILLIS.default, "{one} {other}");
        let again = ClockGuard::begin(Remembered::Record(guard.record().unwrap()), at(other, other));
        assert_eq!(again.hold().is_some(), held);
    }
}
