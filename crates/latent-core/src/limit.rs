//! A limit with a name, a default and a range, so that documentation, configuration and tests speak of the same number.

/// One named bound. Every crate lists its own in `limits.rs`; `docs/limits.md` is checked against those lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Name as it appears in configuration, errors and documentation.
    pub name: &'static str,
    /// Unit of the number: `bytes`, `ms`, `count`.
    pub unit: &'static str,
    /// Value in force when nothing is configured.
    pub default: u64,
    /// Smallest value allowed, inclusive.
    pub min: u64,
    /// Largest value allowed, inclusive.
    pub max: u64,
    /// What it bounds, in a few words.
    pub bounds: &'static str,
}

/// A value outside a limit's range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value} {unit}, outside {min} to {max}; choose a value in that range")]
pub struct LimitError {
    /// The limit's name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The value seen.
    pub value: u64,
    /// Smallest value allowed.
    pub min: u64,
    /// Largest value allowed.
    pub max: u64,
}

impl Limit {
    /// Accepts `value` if it lies in `min..=max`.
    ///
    /// # Errors
    /// [`LimitError`] naming the limit, the value and the range.
    pub const fn check(&self, value: u64) -> Result<u64, LimitError> {
        if value < self.min || value > self.max {
            return Err(LimitError { name: self.name, unit: self.unit, value, min: self.min, max: self.max });
        }
        Ok(value)
    }

    /// The default as a `usize`, for sizing collections. Defaults fit 32 bits, which a test of each list checks.
    #[allow(clippy::cast_possible_truncation, reason = "supported targets are 64 bit")]
    pub const fn default_usize(&self) -> usize {
        self.default as usize
    }

    /// The upper bound as a `usize`.
    #[allow(clippy::cast_possible_truncation, reason = "supported targets are 64 bit")]
    pub const fn max_usize(&self) -> usize {
        self.max as usize
    }

    /// True when the default lies in the range and the range is not empty: what every entry of a list must satisfy.
    pub const fn is_consistent(&self) -> bool {
        self.min <= self.default && self.default <= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_accepts_its_edges_and_refuses_one_beyond() {
        const L: Limit = Limit { name: "x", unit: "count", default: 5, min: 2, max: 9, bounds: "x" };
        assert_eq!((L.check(2), L.check(9)), (Ok(2), Ok(9)));
        for value in [0, 1, 10, u64::MAX] {
            let refused = L.check(value).unwrap_err();
            assert_eq!((refused.value, refused.min, refused.max), (value, 2, 9));
        }
    }
}
