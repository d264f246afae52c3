//! Single events of a partition, what is missing between and around them, and those that nothing proves.

use latent_core::{Offset, StoredRecord};

use super::{FindingKind, GONE, Item, PartitionCheck, VerifyReport, before, content};

impl PartitionCheck<'_> {
    /// A single event under the name of `offset`.
    pub(in crate::cold::verify) fn object(
        &mut self,
        path: &str,
        offset: Offset,
        read: Result<StoredRecord, String>,
        report: &mut VerifyReport,
    ) {
        let is_inside = self.chain.as_ref().is_some_and(|chain| offset <= chain.last);
        if !is_inside {
            self.begin(offset, report);
            self.coverage.saw(offset);
        }
        let stored = match read {
            Ok(stored) if (stored.partition, stored.offset) == (self.partition, offset) => stored,
            Ok(stored) => {
                let problem = format!("it holds partition {} offset {}", stored.partition, stored.offset);
                report.findings.push(self.finding(FindingKind::Misplaced, offset, Some(offset), problem).in_object(path));
                self.object = Some((offset, [0; 32]));
                return;
            }
            Err(problem) => {
                report.findings.push(self.finding(FindingKind::Changed, offset, Some(offset), problem).in_object(path));
                self.object = Some((offset, [0; 32]));
                return;
            }
        };
        report.objects += 1;
        let item = Item::from(stored);
        let digest = content(&item, self.partition);
        let compared = report.compared;
        if is_inside {
            match self.current.binary_search_by_key(&offset, |(known, _)| *known).ok().and_then(|at| self.current.get(at)) {
                Some((_, known)) if *known != digest => {
                    let problem = "it differs from what the segment has at this offset";
                    report.findings.push(self.finding(FindingKind::Different, offset, Some(offset), problem).in_object(path));
                }
                Some(_) => {}
                None => {
                    report.records += 1;
                    match self.hot.as_mut().and_then(|hot| hot.compare_late(&item, &mut report.compared)) {
                        Some(finding) => report.findings.push(finding.in_object(path)),
                        None if report.compared == compared => self.unproven.push(offset, path),
                        None => {}
                    }
                }
            }
            return self.tell_failed_log(report);
        }
        report.records += 1;
        self.check_gap(offset, report);
        self.object = Some((offset, digest));
        match self.hot.as_mut().and_then(|hot| hot.compare(&item, &mut report.compared)) {
            Some(finding) => report.findings.push(finding.in_object(path)),
            None if report.compared == compared => self.unproven.push(offset, path),
            None => {}
        }
        self.tell_failed_log(report);
    }

    /// Something of the partition is there. Where it is the first, what is expected before it is missing.
    pub(super) fn begin(&mut self, first: Offset, report: &mut VerifyReport) {
        if let Some((from, to)) = self.coverage.begin(first) {
            self.absent(from, to, to.0 - from.0 + 1, GONE, report);
        }
    }

    /// Events that are not in the archive: on their way, as far as intents wait, or missing.
    pub(super) fn absent(&self, first: Offset, last: Offset, count: u64, problem: &str, report: &mut VerifyReport) {
        if self.waiting.saturating_sub(report.waiting) >= count {
            report.waiting += count;
        } else {
            report.findings.push(self.finding(FindingKind::Missing, first, Some(last), problem));
        }
    }

    /// Single events, one after the other, where nobody else has offsets.
    fn check_gap(&mut self, offset: Offset, report: &mut VerifyReport) {
        if self.has_segments {
            return;
        }
        match self.object {
            None => {
                // What was stored before there was an archive is nowhere, and nobody promised it.
                let since = self.expected.map_or(offset, |expected| expected.since.min(offset));
                if let Some(hot) = &mut self.hot {
                    hot.begin_at(since);
                }
            }
            Some((last, _)) if self.dense && offset.0 > last.0.saturating_add(1) => {
                let (from, to) = (Offset(last.0 + 1), before(offset));
                let is_hot = self.hot.as_ref().is_some_and(|hot| (hot.bounds().0..hot.bounds().1).contains(&from));
                if !is_hot {
                    let problem = "there are events before and after it; it was lost, or could not be read when it was archived";
                    self.absent(from, to, to.0 - from.0 + 1, problem, report);
                }
            }
            Some(_) => {}
        }
    }

    pub(super) fn tell_unproven(&mut self, report: &mut VerifyReport) {
        if !self.needs_proof {
            return;
        }
        for one in self.unproven.take() {
            let problem = format!(
                "{} that nothing proves: no segment has {}, and it was compared with no log; --accept-unproven takes them, where the archive was once one of single events",
                if one.count == 1 { "a single event".to_owned() } else { format!("{} single events", one.count) },
                if one.count == 1 { "it" } else { "them" },
            );
            report.findings.push(self.finding(FindingKind::Extra, one.first, Some(one.last), problem).in_object(&one.path));
        }
    }
}
