//! The activation's log.

use latent_wasmtime::ActivationReport;

use crate::bench::Bench;

async fn logged(log_bytes: u64, payload: &str) -> ActivationReport {
    let report = Bench::behave().with_budget(|budget| (budget.log_bytes, budget.cpu_fuel) = (log_bytes, 1_000_000_000)).run(payload).await;
    assert_eq!(report.outcome.kind(), "success", "{report:?}");
    report
}

#[tokio::test]
async fn lines_of_every_source_stand_in_order_and_none_can_forge_another() {
    let report = logged(65_536, "log").await;
    let lines: Vec<_> = report.log.iter().map(|line| format!("{} {}", line.source, line.text)).collect();
    assert_eq!(lines, ["debug one", "stdout two", "warn three", "stderr four", "error five\\nerror: forged \\u{1b}[31m"]);
    assert_eq!(report.log_bytes_cut, 0);
}

#[tokio::test]
async fn a_flood_is_cut_at_the_budget_and_counted() {
    // Each line of 100 bytes costs 101.
    for (log_bytes, whole, last, cut) in [(302, 2, 99, 701), (303, 3, 100, 700), (304, 3, 100, 700), (0, 0, 0, 1_000)] {
        let report = logged(log_bytes, "log-flood:1000").await;
        let lengths: Vec<_> = report.log.iter().map(|line| line.text.len()).collect();
        assert_eq!(lengths.iter().filter(|length| **length == 100).count(), whole, "{log_bytes}");
        assert_eq!((lengths.last().copied().unwrap_or(0), report.log_bytes_cut), (last, cut), "{log_bytes}");
    }
}

#[tokio::test]
async fn standard_output_shares_the_budget() {
    let report = logged(5_000, "stdout-flood:2000000").await;
    assert_eq!(report.log.iter().map(|line| line.text.len()).sum::<usize>(), 4_999);
    assert_eq!(report.log_bytes_cut, 2_000_000 - 4_999);
}
