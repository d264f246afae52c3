//! The rows of triggers on a broker: what each one compares, and with which target.

use std::time::{Duration, Instant};

use super::super::super::activation::NOTHING;
use super::super::super::figure::{Latency, Slice};
use super::super::super::measure::{Pair, Session, interrupted};
use super::super::super::publish::{Target, broken, resident_bytes};
use super::super::super::row::{Row, RowSpec, Target as Wanted, Unit};
use super::super::guest::FORWARD;
use super::MANY;
use super::idle::{Held, Idle};
use super::ours::{self, EVENT, Half, Installed, Running, STALL};
use super::wire::ByHand;
use crate::error::CliError;
use crate::stop::StopSignal;

/// The consumer of our side of Q-20, and that of the other one; behind them those that are idle.
const OURS: usize = 0;
const HAND: usize = 1;
const FIRST: usize = 2;
/// Wait after a round without messages: what the configuration takes when nothing is said.
const INTERVAL: u64 = latent_nats::triggers::limits::POLL_INTERVAL_MILLIS.default;
const SLOW_INTERVAL: u64 = latent_nats::triggers::limits::POLL_INTERVAL_MILLIS.max;
/// Installations that are measured together, so that pages of 4 KiB are small beside them.
const INSTALLATIONS: usize = 8;
/// What one dormant binding may take.
const BINDING_BYTES: f64 = 2_048.0;
/// Between two looks at whether a message is settled.
const LOOK: Duration = Duration::from_micros(200);
/// A hundredth of a processor.
const CPU_SPARE: Duration = Duration::from_millis(10);
/// Within this every binding is visited.
const ROUND: Duration = Duration::from_secs(1);

/// A figure of what is idle: its unit, what it is compared with, and what is added to that.
type Figure = (Unit, &'static str, fn(&Held) -> f64, f64);

/// Where finished rows go.
type Report<'r> = &'r mut dyn FnMut(&Row) -> Result<(), CliError>;

/// See the module.
pub(in super::super) struct Bench {
    pub(in super::super) target: Target,
    pub(in super::super) hand: ByHand,
}

impl Bench {
    pub(in super::super) fn connect(target: Target) -> Result<Self, CliError> {
        Ok(Self { hand: ByHand::connect(&target)?, target })
    }

    /// One round trip without a message.
    pub(in super::super) fn ping(&self) -> Result<(), CliError> {
        self.hand.ping()
    }

    fn installed(&self, half: &Half, session: &Session, name: &str, bindings: usize, interval: u64) -> Result<Installed, CliError> {
        half.install(&self.target, &session.scratch.folder(name)?, FIRST..FIRST + bindings, interval)
    }

    /// one binding whose function does nothing.
    pub(in super::super) fn one_binding(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        let messages = session.plan.publications;
        let half = Half::start(NOTHING)?;
        let mut installed = Some(half.install(&self.target, &session.scratch.folder("one")?, OURS..OURS + 1, INTERVAL)?);
        let ours = || {
            self.hand.store(OURS, EVENT, messages)?;
            let taken = installed.take().ok_or_else(|| broken("measuring Q-20", &"an earlier measurement failed"))?;
            let (back, slice) = half.handle(taken, messages)?;
            installed = Some(back);
            Ok(slice)
        };
        let hand = || {
            self.hand.store(HAND, EVENT, messages)?;
            self.hand.handle(HAND, messages)
        };
        let spec = RowSpec {
            id: "Q-20",
            case: "v1, one binding",
            unit: Unit::PerSecond,
            reference_name: "three round trips by hand, one connection",
            target: Wanted::AtLeast(0.85),
        };
        report(&session.row(spec, Pair { ours: Box::new(ours), reference: Box::new(hand) })?)
    }

    /// from a stored message to the first act of its function.
    pub(in super::super) fn wake_up(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        let half = Half::start(FORWARD)?;
        for (case, name, bindings) in [("v1, one binding", "wake-one", 1), ("v1, 256 bindings", "wake-many", MANY)] {
            let mut installed = Some(self.installed(&half, session, name, bindings, INTERVAL)?);
            let (samples, stop) = (session.plan.wake_ups, session.stop.clone());
            let mut taken = 0;
            let ours = || {
                let given = installed.take().ok_or_else(|| broken("measuring Q-22", &"an earlier measurement failed"))?;
                let running = half.run(given);
                let one = |number| self.woken(&half, &running, number, bindings, &stop);
                let latencies = (taken..taken + samples).map(one).collect::<Result<Vec<_>, _>>()?;
                taken += samples;
                installed = Some(half.stop(running)?);
                Ok(Slice { units: samples, elapsed: latencies.iter().sum(), latencies }.narrowed_to(Latency::median))
            };
            let allowed = || {
                let sweep = self.hand.inspect(FIRST..FIRST + bindings)?;
                Ok(Slice { units: 1, elapsed: Duration::from_millis(INTERVAL) + sweep, latencies: Vec::new() })
            };
            let spec = RowSpec {
                id: "Q-22",
                case,
                unit: Unit::MicrosEach,
                reference_name: "100 ms, and one inspection of each binding by hand",
                target: Wanted::AtMost(1.0),
            };
            report(&session.row(spec, Pair { ours: Box::new(ours), reference: Box::new(allowed) })?)?;
        }
        Ok(())
    }

    /// From one stored message to the first act of its function. It comes at any moment of a round, and for any binding.
    fn woken(&self, half: &Half, running: &Running, number: u64, bindings: usize, stop: &StopSignal) -> Result<Duration, CliError> {
        std::thread::sleep(Duration::from_millis(number * 37 % INTERVAL));
        let consumer = FIRST + usize::try_from(number).unwrap_or_default() * 61 % bindings;
        let acknowledged = running.monitor.snapshot().acknowledged;
        let _earlier = half.asked_at();
        let stored_at = self.hand.store(consumer, EVENT, 1)?;
        let since = Instant::now();
        while running.monitor.snapshot().acknowledged == acknowledged {
            interrupted(stop)?;
            if since.elapsed() > STALL {
                return Err(broken("measuring Q-22", &format!("nothing happens: {:?}", running.monitor.snapshot())));
            }
            std::thread::sleep(LOOK);
        }
        let asked_at = half.asked_at().ok_or_else(|| broken("measuring Q-22", &"the function did nothing"))?;
        Ok(asked_at.saturating_duration_since(stored_at))
    }

    /// 256 idle bindings beside one.
    pub(in super::super) fn idle(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        self.dormant(session, report)?;
        for (interval, name, cases) in [
            (INTERVAL, "fast", ["sockets", "tasks", "CPU, rests of 100 ms", "a round, rests of 100 ms"]),
            (SLOW_INTERVAL, "slow", ["", "", "CPU, rests of 1 s", ""]),
        ] {
            let (half, all) = (Half::start(NOTHING)?, FIRST..FIRST + MANY);
            let many = self.installed(&half, session, &format!("many-{name}"), MANY, interval)?;
            let one = self.installed(&half, session, &format!("one-{name}"), 1, interval)?;
            let (mut many, mut one) = (Idle::of(&half, many, &all), Idle::of(&half, one, &(FIRST..FIRST + 1)));
            let (mut of_many, mut of_one) = (Vec::new(), Vec::new());
            for _ in 0..session.plan.rounds {
                of_many.push(many.held(session.plan.idle, &session.stop)?);
                of_one.push(one.held(session.plan.idle, &session.stop)?);
            }
            self.tell(cases, [&of_many, &of_one], session, report)?;
        }
        Ok(())
    }

    fn tell(&self, cases: [&'static str; 4], held: [&[Held]; 2], session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let figures: [Figure; 4] = [
            (Unit::Count, "those of one idle binding", |held| held.sockets as f64, 0.0),
            (Unit::Count, "those of one idle binding", |held| held.tasks as f64, 0.0),
            (Unit::CpuMicros, "that of one, and 1 % of a core", |held| held.cpu.as_secs_f64() * 1e6, micros(CPU_SPARE)),
            (Unit::MicrosEach, "1 s", |held| held.round.as_secs_f64() * 1e6, micros(ROUND)),
        ];
        for (case, (unit, reference_name, figure, spare)) in cases.into_iter().zip(figures).filter(|(case, _)| !case.is_empty()) {
            let is_round = unit == Unit::MicrosEach;
            let (mut ours, mut reference) = (held[0].iter(), held[1].iter());
            let next = |of: &mut std::slice::Iter<'_, Held>| {
                of.next().map(figure).ok_or_else(|| broken("measuring Q-23", &"nothing was measured"))
            };
            let spec = RowSpec { id: "Q-23", case, unit, reference_name, target: Wanted::AtMost(1.0) };
            let row = session.figures(spec, || next(&mut ours), || if is_round { Ok(spare) } else { Ok(next(&mut reference)? + spare) })?;
            report(&row)?;
        }
        Ok(())
    }

    fn dormant(&self, session: &mut Session, report: Report<'_>) -> Result<(), CliError> {
        let mut kept = Vec::new();
        let folders: Vec<_> = (0..session.plan.rounds * INSTALLATIONS).map(|number| format!("dormant-{number}")).collect();
        let folders = folders.iter().map(|name| session.scratch.folder(name)).collect::<Result<Vec<_>, _>>()?;
        let mut folders = folders.chunks(INSTALLATIONS);
        let spec = RowSpec {
            id: "Q-23",
            case: "bytes of each of 256",
            unit: Unit::BytesEach,
            reference_name: "2 KiB for a binding",
            target: Wanted::AtMost(1.0),
        };
        let each = || {
            let before = resident_bytes()?;
            for folder in folders.next().unwrap_or_default() {
                kept.push(ours::dormant(&self.target, folder, FIRST..FIRST + MANY, INTERVAL)?);
            }
            // What the allocator had free is used first, so a round can look like none at all.
            Ok(resident_bytes()?.saturating_sub(before).max(1) as f64 / (INSTALLATIONS * MANY) as f64)
        };
        report(&session.figures(spec, each, || Ok(BINDING_BYTES))?)
    }
}
