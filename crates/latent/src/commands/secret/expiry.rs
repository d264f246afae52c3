//! When a secret expires, as people write it.

use latent_core::UnixMillis;

use crate::timestamp::parse_timestamp;

/// When a value is no longer used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// It is until it is rotated or revoked.
    Never,
    /// From this moment on.
    At(UnixMillis),
}

const FORMS: &str = "it is none of: `never`; a duration such as `90d`, `12h` or `30min`; a day or time in UTC such as `2027-01-31` or \
                     `2027-01-31T12:00:00Z`";

/// Units with their milliseconds.
const UNITS: [(&str, u64); 3] = [("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl Expiry {
    /// Reads one of the forms. A moment that has passed is for the store to refuse.
    pub(super) fn parse(text: &str, now: UnixMillis) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Never);
        }
        let at = parse_timestamp(text).or_else(|| duration(text).and_then(|millis| now.0.checked_add(millis)));
        at.map(|at| Self::At(UnixMillis(at))).ok_or_else(|| FORMS.to_owned())
    }

    /// The moment, if there is one.
    pub(super) const fn at(self) -> Option<UnixMillis> {
        match self {
            Self::Never => None,
            Self::At(at) => Some(at),
        }
    }
}

fn duration(text: &str) -> Option<u64> {
    let (number, millis) = UNITS.iter().find_map(|(unit, millis)| Some((text.strip_suffix(unit)?, millis)))?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(*millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_duration_from_now_a_day_or_a_time() {
        let now = UnixMillis(1_000);
        for (text, at) in [
            ("90d", Some(1_000 + 90 * 86_400_000)),
            ("12h", Some(1_000 + 12 * 3_600_000)),
            ("30min", Some(1_000 + 30 * 60_000)),
            ("0d", Some(1_000)),
            ("never", None),
            ("2027-01-31", Some(1_801_353_600_000)),
            ("2027-01-31T12:00:00Z", Some(1_801_396_800_000)),
        ] {
            assert_eq!(Expiry::parse(text, now).unwrap().at().map(|at| at.0), at, "{text}");
        }
        for bad in
            ["", "d", "-1d", "+1d", "1.5d", "90", "90 d", "1y", "Never", "18446744073709551615d", "99999999999999999999d", "2027-02-29"]
        {
            assert!(Expiry::parse(bad, now).is_err(), "{bad}");
        }
    }
}
