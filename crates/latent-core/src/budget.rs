//! What one activation may use.

use crate::{CoreError, limits};

/// The limits of one activation. Every field is a ceiling; there is no "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Instructions, in the engine's fuel units.
    pub cpu_fuel: u64,
    /// Linear memory in bytes, over all memories of the component.
    pub memory_bytes: u64,
    /// Wall time in milliseconds.
    pub wall_time_millis: u64,
    /// Publications that may be attempted; a refused reservation charges nothing.
    pub outbound_requests: u64,
    /// Bytes of log, stdout and stderr together; what is beyond is cut and counted.
    pub log_bytes: u64,
    /// Calls to other services. Reserved: nothing offers such calls yet.
    pub child_calls: u64,
    /// Reserved for a later durable-intent model; neither charged nor reported.
    pub effect_count: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            cpu_fuel: limits::BUDGET_FUEL.default,
            memory_bytes: limits::BUDGET_MEMORY_BYTES.default,
            wall_time_millis: limits::BUDGET_WALL_TIME_MILLIS.default,
            outbound_requests: limits::BUDGET_OUTBOUND_REQUESTS.default,
            log_bytes: limits::BUDGET_LOG_BYTES.default,
            child_calls: 0,
            effect_count: 0,
        }
    }
}

impl Budget {
    /// Checks every field against its limit.
    ///
    /// # Errors
    /// [`CoreError::Limit`] naming the first field out of range.
    pub fn checked(self) -> Result<Self, CoreError> {
        limits::BUDGET_FUEL.check(self.cpu_fuel)?;
        limits::BUDGET_MEMORY_BYTES.check(self.memory_bytes)?;
        limits::BUDGET_WALL_TIME_MILLIS.check(self.wall_time_millis)?;
        limits::BUDGET_OUTBOUND_REQUESTS.check(self.outbound_requests)?;
        limits::BUDGET_LOG_BYTES.check(self.log_bytes)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_checked_at_its_edge() {
        type Set = fn(&mut Budget, u64);
        let fields: [(Set, crate::Limit); 5] = [
            (|b, v| b.cpu_fuel = v, limits::BUDGET_FUEL),
            (|b, v| b.memory_bytes = v, limits::BUDGET_MEMORY_BYTES),
            (|b, v| b.wall_time_millis = v, limits::BUDGET_WALL_TIME_MILLIS),
            (|b, v| b.outbound_requests = v, limits::BUDGET_OUTBOUND_REQUESTS),
            (|b, v| b.log_bytes = v, limits::BUDGET_LOG_BYTES),
        ];
        for (set, limit) in fields {
            let with = |value| {
                let mut budget = Budget::default();
                set(&mut budget, value);
                budget.checked()
            };
            assert!(with(limit.min).is_ok() && with(limit.max).is_ok(), "{}", limit.name);
            assert!(with(limit.max + 1).is_err(), "{}", limit.name);
            if limit.min > 0 {
                assert!(with(limit.min - 1).is_err(), "{}", limit.name);
            }
        }
    }
}
