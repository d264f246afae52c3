//! Milliseconds since 1970 as people read them.

const MILLIS_A_DAY: u64 = 86_400_000;

/// RFC 3339 in UTC, with milliseconds. A year beyond 9999 is written with the digits it needs.
pub(crate) fn timestamp(unix_millis: u64) -> String {
    format!("{}.{:03}Z", date_and_time(unix_millis), unix_millis % 1_000)
}

/// As [`timestamp`], cut to whole seconds.
pub(crate) fn timestamp_seconds(unix_millis: u64) -> String {
    format!("{}Z", date_and_time(unix_millis))
}

/// A day, or a time with whole seconds, in UTC: `2027-01-31`, `2027-01-31T12:00:00Z`. From 1970 to 9999.
pub(crate) fn parse_timestamp(text: &str) -> Option<u64> {
    let (day, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let [year, month, day] = numbers(day, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time.strip_suffix('Z')?, ':', [2, 2, 2])?;
    if year < 1970 || hour > 23 || minute > 59 || second > 59 || day == 0 {
        return None;
    }
    let months = usize::try_from(month.checked_sub(1)?).ok()?;
    let lengths = month_lengths(year);
    if day > *lengths.get(months)? {
        return None;
    }
    let days = (1970..year).map(days_in_year).sum::<u64>() + lengths.iter().take(months).sum::<u64>() + day - 1;
    Some(days * MILLIS_A_DAY + ((hour * 60 + minute) * 60 + second) * 1_000)
}

/// Numbers of so many digits each, with `between` between them.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (found, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *found = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// How long it is from `now` to `moment`, both in milliseconds since 1970: `now` when it is due, else rounded up, like `in 12 s`.
pub(crate) fn time_until(moment: u64, now: u64) -> String {
    match moment.saturating_sub(now).div_ceil(1_000) {
        0 => "now".to_owned(),
        seconds @ 1..=119 => format!("in {seconds} s"),
        seconds @ 120..=7_199 => format!("in {} min", seconds.div_ceil(60)),
        seconds => format!("in {} h", seconds.div_ceil(3_600)),
    }
}

fn date_and_time(unix_millis: u64) -> String {
    let (days, in_day) = (unix_millis / MILLIS_A_DAY, unix_millis % MILLIS_A_DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// The Gregorian date of a day counted from 1970-01-01. Whole 400-year cycles are taken off first; what is left is found by walking,
/// at most 400 years and twelve months.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let mut year = 1970 + days / DAYS_IN_400_YEARS * 400;
    let mut left = days % DAYS_IN_400_YEARS;
    while left >= days_in_year(year) {
        left -= days_in_year(year);
        year += 1;
    }
    let mut month = 1;
    for length in month_lengths(year) {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

const fn month_lengths(year: u64) -> [u64; 12] {
    let february = if days_in_year(year) == 366 { 29 } else { 28 };
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

const fn days_in_year(year: u64) -> u64 {
    if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_written_as_known() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_799_999, "2024-02-28T23:59:59.999Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (millis, text) in known {
            assert_eq!(timestamp(millis), text);
        }
        assert!(timestamp(u64::MAX).ends_with('Z'));
        assert_eq!(timestamp_seconds(1_709_164_799_999), "2024-02-28T23:59:59Z");
    }

    #[test]
    fn what_is_written_is_read_and_what_is_no_time_is_not() {
        for millis in [0, 951_782_400_000, 1_709_164_799_000, 1_735_689_599_000, 4_107_542_400_000, 253_402_300_799_000] {
            assert_eq!(parse_timestamp(&timestamp_seconds(millis)), Some(millis));
        }
        assert_eq!(parse_timestamp("2000-02-29"), Some(951_782_400_000));
        for bad in [
            "",
            "2027",
            "2027-01",
            "2027-00-01",
            "2027-13-01",
            "2027-01-00",
            "2027-01-32",
            "2100-02-29",
            "1969-12-31",
            "10000-01-01",
            "2027-1-1",
            "2027-01-01-01",
            "2027-01-01T",
            "2027-01-01T00:00:00",
            "2027-01-01T24:00:00Z",
            "2027-01-01T00:60:00Z",
            "2027-01-01T00:00:60Z",
            "2027-01-01T00:00Z",
            "2027-01-01 00:00:00Z",
            "+027-01-01",
            "2027-01-01T00:00:00+01:00",
        ] {
            assert_eq!(parse_timestamp(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_time_to_come_is_rounded_up_in_the_unit_people_use() {
        let known = [(0, "now"), (1, "in 1 s"), (12_000, "in 12 s"), (119_000, "in 119 s"), (119_001, "in 2 min"), (7_199_001, "in 2 h")];
        for (millis, text) in known {
            assert_eq!(time_until(5_000 + millis, 5_000), text);
        }
        assert_eq!(time_until(0, 5_000), "now");
    }
}
