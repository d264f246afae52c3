//! Whose turn it is to reserve: tenants in rotation, the units of a tenant first come first served. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use latent_core::TenantId;

/// Units that wait for a permit, by tenant. A unit stands in its line once.
#[derive(Debug, Default)]
pub(super) struct Lines {
    indexes: BTreeMap<TenantId, usize>,
    lines: Vec<VecDeque<usize>>,
    waiting: BTreeSet<usize>,
    next: usize,
    /// Tenants that were refused in this round.
    refused: BTreeSet<usize>,
}

impl Lines {
    /// The index of a tenant's line.
    pub(super) fn tenant(&mut self, tenant: &TenantId) -> usize {
        if let Some(index) = self.indexes.get(tenant) {
            return *index;
        }
        let index = self.lines.len();
        self.indexes.insert(tenant.clone(), index);
        self.lines.push(VecDeque::new());
        index
    }

    /// Puts a unit at the end of its tenant's line, unless it stands there already.
    pub(super) fn join(&mut self, tenant: usize, unit: usize) {
        if let Some(line) = self.lines.get_mut(tenant).filter(|_| !self.waiting.contains(&unit)) {
            line.push_back(unit);
            self.waiting.insert(unit);
        }
    }

    /// The unit could not be served: it keeps its place, and its tenant waits for the next round.
    pub(super) fn refused(&mut self, tenant: usize, unit: usize) {
        if let Some(line) = self.lines.get_mut(tenant) {
            line.push_front(unit);
            self.waiting.insert(unit);
            self.refused.insert(tenant);
        }
    }

    /// Starts a round: everybody may ask again.
    pub(super) fn begin_round(&mut self) {
        self.refused.clear();
    }

    /// The next unit, which leaves its line; `None` when all lines are empty or refused.
    pub(super) fn next(&mut self) -> Option<(usize, usize)> {
        for _ in 0..self.lines.len() {
            let tenant = self.next % self.lines.len();
            self.next = tenant + 1;
            if self.refused.contains(&tenant) {
                continue;
            }
            if let Some(unit) = self.lines.get_mut(tenant).and_then(VecDeque::pop_front) {
                self.waiting.remove(&unit);
                return Some((tenant, unit));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> (Lines, usize, usize) {
        let mut lines = Lines::default();
        let a = lines.tenant(&TenantId::parse("a").unwrap());
        let b = lines.tenant(&TenantId::parse("b").unwrap());
        assert_eq!(lines.tenant(&TenantId::parse("a").unwrap()), a);
        (lines, a, b)
    }

    #[test]
    fn tenants_take_turns_however_long_a_line_is() {
        let (mut lines, a, b) = lines();
        (0..5).for_each(|unit| lines.join(a, unit));
        lines.join(b, 9);
        lines.begin_round();
        let order: Vec<_> = std::iter::from_fn(|| lines.next()).collect();
        assert_eq!(order, [(a, 0), (b, 9), (a, 1), (a, 2), (a, 3), (a, 4)]);
    }

    #[test]
    fn a_refused_tenant_keeps_its_place_and_does_not_hold_up_others() {
        let (mut lines, a, b) = lines();
        lines.join(a, 0);
        lines.join(b, 9);
        lines.begin_round();
        assert_eq!(lines.next(), Some((a, 0)));
        lines.refused(a, 0);
        assert_eq!((lines.next(), lines.next()), (Some((b, 9)), None));
        lines.begin_round();
        assert_eq!(lines.next(), Some((a, 0)));
    }

    #[test]
    fn a_unit_stands_in_line_once() {
        let (mut lines, a, _) = lines();
        lines.join(a, 0);
        lines.join(a, 0);
        lines.begin_round();
        assert_eq!((lines.next(), lines.next()), (Some((a, 0)), None));
    }
}
