//! One row of the report: which target it has, whether that is met, and its two forms. Pure.

use std::fmt;

use serde::Serialize;

use super::calm::CalmReport;
use super::figure::{Latency, Slice, median, spread};

/// The unit of a row's two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Events a second: more is better, and the ratio is ours to the reference in speed.
    PerSecond,
    /// Time for one: less is better, and the ratio is ours to the reference in time.
    MicrosEach,
    /// Memory of one: less is better. Not a matter of time, so no slice has it.
    BytesEach,
    /// How many there are: less is better. Not a matter of time either.
    Count,
    /// Time of a processor in a second: less is better.
    CpuMicros,
}

/// Where the ratio must lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    const fn number(self) -> f64 {
        match self {
            Self::AtLeast(number) | Self::AtMost(number) => number,
        }
    }

    /// A ratio exactly at the target meets it; one that is no number does not.
    fn is_met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }
}

/// What a row compares.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RowSpec {
    /// As in the table of targets.
    pub(super) id: &'static str,
    /// Which of the row's measurements this is.
    pub(super) case: &'static str,
    pub(super) unit: Unit,
    pub(super) reference_name: &'static str,
    pub(super) target: Target,
}

/// The slices of both sides, round by round.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub(super) ours: Vec<Slice>,
    pub(super) reference: Vec<Slice>,
    pub(super) calm: CalmReport,
}

/// Whether figures are held against their targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judging {
    /// They are.
    Judged,
    /// There were too few to say anything.
    NotJudged,
}

/// See the module. The first fields are the stable form that scripts read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    id: &'static str,
    case: &'static str,
    ours: f64,
    reference: f64,
    reference_name: &'static str,
    ratio: f64,
    target: f64,
    pass: Option<bool>,
    runs: usize,
    unit: &'static str,
    better: &'static str,
    ratio_min: f64,
    ratio_max: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ours_micros: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_micros: Option<Latency>,
    floor_micros: f64,
    #[serde(flatten)]
    calm: CalmReport,
    #[serde(skip)]
    spec: RowSpec,
}

impl Row {
    /// `None` when a side did nothing at all. `floor_micros` is what a small synced write takes in this run.
    pub(super) fn of(spec: RowSpec, measured: Measured, floor_micros: f64, judging: Judging) -> Option<Self> {
        let Measured { ours, reference, calm } = measured;
        let figures = |slices: &[Slice]| slices.iter().map(|slice| spec.unit.figure(slice)).collect::<Option<Vec<_>>>();
        let (ours_figures, reference_figures) = (figures(&ours)?, figures(&reference)?);
        let latency = |slices: Vec<Slice>| Latency::of(slices.into_iter().flat_map(|slice| slice.latencies).collect());
        let row = Self::of_figures(spec, (&ours_figures, &reference_figures), floor_micros, judging)?;
        Some(Self { ours_micros: latency(ours), reference_micros: latency(reference), calm, ..row })
    }

    /// The same for what was not measured in slices. Ours and the reference's, round by round.
    pub(super) fn of_figures(
        spec: RowSpec,
        (ours_figures, reference_figures): (&[f64], &[f64]),
        floor_micros: f64,
        judging: Judging,
    ) -> Option<Self> {
        // Noise that comes and goes disturbs the ratios of rounds less than a ratio of medians.
        let ratios: Vec<_> = ours_figures.iter().zip(reference_figures).map(|(ours, reference)| ours / reference).collect();
        let ratio = median(&ratios)?;
        let (ratio_min, ratio_max) = spread(&ratios)?;
        let pass = (judging == Judging::Judged).then(|| spec.target.is_met_by(ratio));
        Some(Self {
            id: spec.id,
            case: spec.case,
            ours: rounded(median(ours_figures)?),
            reference: rounded(median(reference_figures)?),
            reference_name: spec.reference_name,
            ratio: rounded(ratio),
            target: spec.target.number(),
            pass,
            runs: ratios.len(),
            unit: spec.unit.name(),
            better: if matches!(spec.target, Target::AtLeast(_)) { "higher" } else { "lower" },
            ratio_min: rounded(ratio_min),
            ratio_max: rounded(ratio_max),
            ours_micros: None,
            reference_micros: None,
            floor_micros: rounded(floor_micros),
            calm: CalmReport::default(),
            spec,
        })
    }
}

impl Unit {
    fn figure(self, slice: &Slice) -> Option<f64> {
        let per_second = slice.per_second()?;
        Some(match self {
            Self::PerSecond => per_second,
            Self::MicrosEach => 1e6 / per_second,
            Self::BytesEach | Self::Count | Self::CpuMicros => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "per second",
            Self::MicrosEach => "µs each",
            Self::BytesEach => "bytes each",
            Self::Count => "count",
            Self::CpuMicros => "µs of a processor a second",
        }
    }
}

/// The line for people, and the headings above the first one.
pub(super) const HEADINGS: &str =
    "row   case                      ours         reference    ratio (least to most)   target  result   reference is";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.spec.unit {
            Unit::PerSecond => "/s",
            Unit::MicrosEach => " µs",
            Unit::BytesEach => " B",
            Unit::Count => "",
            Unit::CpuMicros => " µs/s",
        };
        let figure = |number: f64| format!("{}{unit}", grouped(number));
        let ratio = format!("{:.2} ({:.2} to {:.2})", self.ratio, self.ratio_min, self.ratio_max);
        let sign = if matches!(self.spec.target, Target::AtLeast(_)) { '≥' } else { '≤' };
        let result = match self.pass {
            Some(true) => "met",
            Some(false) => "missed",
            None => "-",
        };
        write!(
            f,
            "{:<5} {:<25} {:<12} {:<12} {ratio:<23} {sign} {:<5.2} {result:<8} {}",
            self.id,
            self.case,
            figure(self.ours),
            figure(self.reference),
            self.target,
            self.reference_name
        )?;
        if let Some(ours) = self.ours_micros {
            write!(f, "\n      each call: p50 {:.0} µs, p99 {:.0} µs", ours.p50, ours.p99)?;
        }
        if let Some(reference) = self.reference_micros {
            write!(f, "; of the reference p50 {:.0} µs, p99 {:.0} µs", reference.p50, reference.p99)?;
        }
        if !self.calm.was_calm() {
            write!(f, "\n      {}", self.calm)?;
        }
        Ok(())
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

/// Digits in groups of three; small numbers with one decimal.
fn grouped(number: f64) -> String {
    if number < 100.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn slices(rates: &[u64]) -> Vec<Slice> {
        rates.iter().map(|rate| Slice { units: *rate, elapsed: Duration::from_secs(1), latencies: Vec::new() }).collect()
    }

    fn row(unit: Unit, target: Target, ours: &[u64], reference: &[u64]) -> Option<Row> {
        let spec = RowSpec { id: "Q-04", case: "one at a time", unit, reference_name: "by hand", target };
        let measured = Measured { ours: slices(ours), reference: slices(reference), calm: CalmReport::default() };
        Row::of(spec, measured, 70.0, Judging::Judged)
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // The machine was ten times slower in the second round; the ratio of each round stays.
        let row = row(Unit::PerSecond, Target::AtLeast(0.5), &[500, 50, 600], &[1_000, 100, 1_000]).unwrap();
        assert_eq!((row.ratio, row.ours, row.reference, row.runs), (0.5, 500.0, 1_000.0, 3));
        assert_eq!((row.ratio_min, row.ratio_max, row.pass), (0.5, 0.6, Some(true)));
    }

    #[test]
    fn a_target_is_met_at_its_edge_on_the_right_side() {
        for (target, ours, pass) in [
            (Target::AtLeast(0.5), 499, false),
            (Target::AtLeast(0.5), 500, true),
            (Target::AtLeast(0.5), 501, true),
            (Target::AtMost(0.5), 499, true),
            (Target::AtMost(0.5), 500, true),
            (Target::AtMost(0.5), 501, false),
        ] {
            assert_eq!(row(Unit::PerSecond, target, &[ours], &[1_000]).unwrap().pass, Some(pass), "{target:?} {ours}");
        }
        assert!(!Target::AtLeast(0.0).is_met_by(f64::NAN) && !Target::AtMost(9.0).is_met_by(f64::NAN));
    }

    #[test]
    fn a_row_of_times_compares_times() {
        // Half the speed is twice the time.
        let row = row(Unit::MicrosEach, Target::AtMost(5.0), &[500], &[1_000]).unwrap();
        assert_eq!((row.ours, row.reference, row.ratio, row.pass), (2_000.0, 1_000.0, 2.0, Some(true)));
        assert!(row.to_string().contains("2,000 µs") && row.to_string().contains("≤ 5.00"), "{row}");
    }

    #[test]
    fn too_few_figures_are_not_judged_and_none_are_no_row() {
        let spec = RowSpec { id: "Q-04", case: "c", unit: Unit::PerSecond, reference_name: "by hand", target: Target::AtLeast(0.9) };
        let measured = Measured { ours: slices(&[1]), reference: slices(&[2]), calm: CalmReport::default() };
        let row = Row::of(spec, measured, 70.0, Judging::NotJudged).unwrap();
        assert_eq!(serde_json::to_value(&row).unwrap()["pass"], serde_json::Value::Null);
        assert!(self::row(Unit::PerSecond, Target::AtLeast(0.5), &[0], &[1]).is_none());
        assert!(self::row(Unit::PerSecond, Target::AtLeast(0.5), &[], &[]).is_none());
    }

    #[test]
    fn the_stable_form_has_its_fields() {
        let row = row(Unit::PerSecond, Target::AtLeast(0.5), &[1_234], &[1_000]).unwrap();
        let document = serde_json::to_value(&row).unwrap();
        for (field, value) in [
            ("id", serde_json::json!("Q-04")),
            ("ours", serde_json::json!(1_234.0)),
            ("reference", serde_json::json!(1_000.0)),
            ("reference_name", serde_json::json!("by hand")),
            ("ratio", serde_json::json!(1.234)),
            ("target", serde_json::json!(0.5)),
            ("pass", serde_json::json!(true)),
            ("runs", serde_json::json!(1)),
            ("better", serde_json::json!("higher")),
        ] {
            assert_eq!(document[field], value, "{field}");
        }
    }

    #[test]
    fn large_numbers_are_grouped() {
        for (number, text) in [(7.04, "7.0"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
