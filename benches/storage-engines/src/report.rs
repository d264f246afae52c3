//! Figures as a table for people and as one JSON object a line for programs. All that is decided here is how rounds become one number.

use clap::ValueEnum;
use serde_json::json;

use crate::calm::CalmReport;
use crate::engine::Name;
use crate::measure::Series;
use crate::workload::Workload;

/// One row of the report.
pub(crate) struct Row<'s> {
    series: &'s Series,
    /// Median of the rounds.
    per_second: f64,
    /// Median of the rounds' ratios, which noise that comes and goes disturbs less than a ratio of medians.
    ratio_to_raw: f64,
}

/// Rows of a workload, in the order of its series. The first series is what the others are compared with.
pub(crate) fn rows(series: &[Series]) -> Vec<Row<'_>> {
    let Some(raw) = series.first() else { return Vec::new() };
    let row = |series| Row { series, per_second: median(&series.per_second), ratio_to_raw: ratio(series, raw) };
    series.iter().map(row).collect()
}

/// One JSON object a line.
pub(crate) fn json_lines(workload: Workload, rows: &[Row<'_>]) -> String {
    let line = |row: &Row<'_>| {
        let line = json!({
            "workload": name(workload), "engine": row.series.contender.to_string(), "per_second": row.per_second.round(),
            "ratio_to_raw": (row.ratio_to_raw * 1_000.0).round() / 1_000.0, "runs": row.series.per_second.len(),
        });
        format!("{line}\n")
    };
    rows.iter().map(line).collect()
}

/// A table in Markdown, so that a page can take it as it is, and our engine against the best store that does the same job.
pub(crate) fn table(workload: Workload, rows: &[Row<'_>], calm: CalmReport) -> String {
    let mut text = format!("| {} | events/s | slowest to fastest round | ratio to raw |\n|---|---|---|---|\n", name(workload));
    for row in rows {
        let (slowest, fastest) = spread(&row.series.per_second);
        text += &format!(
            "| {} | {} | {} to {} | {:.2} |\n",
            row.series.contender,
            grouped(row.per_second),
            grouped(slowest),
            grouped(fastest),
            row.ratio_to_raw
        );
    }
    if let Some((rival, ratio)) = against_the_best_rival(rows) {
        text += &format!("\nlatent against the best store at the same job, {}: {ratio:.2}\n", rival.contender);
    }
    text + &format!("{calm}\n\n")
}

fn against_the_best_rival<'s>(rows: &[Row<'s>]) -> Option<(&'s Series, f64)> {
    let ours = rows.iter().find(|row| row.series.contender.engine == Name::Latent)?;
    let rivals = rows.iter().filter(|row| row.series.contender.engine.is_rival());
    let best = rivals.max_by(|one, other| one.per_second.total_cmp(&other.per_second))?;
    Some((best.series, ratio(ours.series, best.series)))
}

fn ratio(series: &Series, to: &Series) -> f64 {
    median(&series.per_second.iter().zip(&to.per_second).map(|(rate, to)| rate / to).collect::<Vec<_>>())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(upper), 0) => sorted.get(middle.wrapping_sub(1)).map_or(*upper, |lower| f64::midpoint(*lower, *upper)),
        (Some(middle), _) => *middle,
        (None, _) => f64::NAN,
    }
}

fn spread(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(*value), most.max(*value)))
}

fn name(workload: Workload) -> String {
    workload.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Digits in groups of three.
fn grouped(number: f64) -> String {
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
    use super::*;
    use crate::engine::{Job, Persist};
    use crate::workload::{Contender, Grouping};

    fn series(engine: Name, per_second: &[f64]) -> Series {
        Series { contender: Contender { engine, grouping: Grouping::Own }, per_second: per_second.to_vec() }
    }

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middles() {
        for (values, expected) in [(&[3.0, 1.0, 2.0][..], 2.0), (&[4.0, 1.0, 2.0, 3.0], 2.5), (&[7.0], 7.0)] {
            assert!((median(values) - expected).abs() < 1e-9, "{values:?}");
        }
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine was ten times slower in the second round; the ratio of each round stays.
        let all = [
            series(Name::RawPreallocated, &[1_000.0, 100.0, 1_000.0]),
            series(Name::Redb(Job::Log), &[200.0, 20.0, 200.0]),
            series(Name::Fjall(Job::Append, Persist::SyncData), &[900.0, 90.0, 900.0]),
            series(Name::Latent, &[500.0, 50.0, 500.0]),
        ];
        let rows = rows(&all);
        assert_eq!(rows.iter().map(|row| (row.ratio_to_raw * 10.0).round()).collect::<Vec<_>>(), [10.0, 2.0, 9.0, 5.0]);
        let (rival, ratio) = against_the_best_rival(&rows).unwrap();
        assert_eq!((rival.contender.to_string(), ratio.to_string()), ("redb-log".to_owned(), "2.5".to_owned()));
        let lines = json_lines(Workload::OneAtATime, &rows);
        assert_eq!(
            lines.lines().nth(3).unwrap(),
            r#"{"engine":"latent","per_second":500.0,"ratio_to_raw":0.5,"runs":3,"workload":"one-at-a-time"}"#
        );
    }

    #[test]
    fn large_numbers_are_grouped() {
        for (number, text) in [(7.0, "7"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
