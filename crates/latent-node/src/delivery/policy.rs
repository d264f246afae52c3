//! How often and when an event runs again. Pure.

use latent_core::LimitError;

use super::limits;

/// The delivery policy of one binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliveryPolicy {
    /// Runs of one event, the first included.
    pub deliveries_max: u32,
    /// Events of one partition that may be running or starting at once.
    pub in_flight_max: u32,
    /// Delay before the second run; it doubles with each further one.
    pub retry_delay_millis: u64,
    /// The longest delay, also of those a handler asks for.
    pub retry_delay_max_millis: u64,
    /// The one deadline of a delivery, settling included.
    pub operation_timeout_millis: u64,
}

impl Default for DeliveryPolicy {
    #[allow(clippy::cast_possible_truncation, reason = "both defaults fit 32 bits")]
    fn default() -> Self {
        Self {
            deliveries_max: limits::DELIVERIES.default as u32,
            in_flight_max: limits::IN_FLIGHT.default as u32,
            retry_delay_millis: limits::RETRY_DELAY_MILLIS.default,
            retry_delay_max_millis: limits::RETRY_DELAY_MAX_MILLIS.default,
            operation_timeout_millis: limits::OPERATION_TIMEOUT_MILLIS.default,
        }
    }
}

impl DeliveryPolicy {
    /// Checks every field against its limit.
    ///
    /// # Errors
    /// [`LimitError`] naming the first field out of range.
    pub fn checked(self) -> Result<Self, LimitError> {
        limits::DELIVERIES.check(u64::from(self.deliveries_max))?;
        limits::IN_FLIGHT.check(u64::from(self.in_flight_max))?;
        limits::RETRY_DELAY_MILLIS.check(self.retry_delay_millis)?;
        limits::RETRY_DELAY_MAX_MILLIS.check(self.retry_delay_max_millis)?;
        limits::OPERATION_TIMEOUT_MILLIS.check(self.operation_timeout_millis)?;
        Ok(self)
    }

    /// The delay before the next run after `attempts` runs. A handler's wish replaces the doubling; both stay within the bounds, so
    /// that no handler can make a hot loop.
    pub fn delay_millis(&self, attempts: u32, wished_millis: Option<u64>) -> u64 {
        let shift = attempts.saturating_sub(1).min(32);
        let doubled = self.retry_delay_millis.saturating_mul(1 << shift);
        let shortest = limits::RETRY_DELAY_MILLIS.min;
        wished_millis.unwrap_or(doubled).clamp(shortest, self.retry_delay_max_millis.max(shortest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let policy = DeliveryPolicy { retry_delay_millis: 1_000, retry_delay_max_millis: 5_000, ..DeliveryPolicy::default() };
        assert_eq!([1, 2, 3, 4, u32::MAX].map(|attempts| policy.delay_millis(attempts, None)), [1_000, 2_000, 4_000, 5_000, 5_000]);
    }

    #[test]
    fn a_wished_delay_is_kept_within_the_bounds() {
        let policy = DeliveryPolicy { retry_delay_max_millis: 5_000, ..DeliveryPolicy::default() };
        assert_eq!([0, 10, 700, u64::MAX].map(|wish| policy.delay_millis(1, Some(wish))), [10, 10, 700, 5_000]);
    }

    #[test]
    fn each_field_is_checked_at_its_edge() {
        type Set = fn(&mut DeliveryPolicy, u64);
        #[allow(clippy::cast_possible_truncation)]
        let fields: [(Set, latent_core::Limit); 5] = [
            (|p, v| p.deliveries_max = v as u32, limits::DELIVERIES),
            (|p, v| p.in_flight_max = v as u32, limits::IN_FLIGHT),
            (|p, v| p.retry_delay_millis = v, limits::RETRY_DELAY_MILLIS),
            (|p, v| p.retry_delay_max_millis = v, limits::RETRY_DELAY_MAX_MILLIS),
            (|p, v| p.operation_timeout_millis = v, limits::OPERATION_TIMEOUT_MILLIS),
        ];
        for (set, limit) in fields {
            let with = |value| {
                let mut policy = DeliveryPolicy::default();
                set(&mut policy, value);
                policy.checked().is_ok()
            };
            let edges = [limit.min, limit.max, limit.min - 1, limit.max + 1].map(with);
            assert_eq!(edges, [true, true, false, false], "{}", limit.name);
        }
    }
}
