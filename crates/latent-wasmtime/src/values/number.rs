//! Numbers that are written as strings: 64-bit integers and floats.

use std::fmt::{LowerExp, Write as _};
use std::str::FromStr;

/// The integer that `text` is the one canonical spelling of: digits without leading zeros, `-` before a negative one.
pub(super) fn integer<T: FromStr + ToString>(text: &str) -> Option<T> {
    // The longest spelling has 20 bytes; nothing longer is worth a parse.
    let number: T = if text.len() <= 20 { text.parse().ok()? } else { return None };
    (number.to_string() == text).then_some(number)
}

/// What both float types can do, so that one grammar serves them.
pub(super) trait Float: Copy + FromStr + LowerExp + std::fmt::Display {
    const NAN: Self;
    const INFINITY: Self;
    const NEG_INFINITY: Self;
    fn is_finite(self) -> bool;
    fn is_nan(self) -> bool;
    fn is_sign_negative(self) -> bool;
}

macro_rules! float {
    ($float:ty) => {
        impl Float for $float {
            const NAN: Self = <$float>::NAN;
            const INFINITY: Self = <$float>::INFINITY;
            const NEG_INFINITY: Self = <$float>::NEG_INFINITY;
            fn is_finite(self) -> bool {
                <$float>::is_finite(self)
            }
            fn is_nan(self) -> bool {
                <$float>::is_nan(self)
            }
            fn is_sign_negative(self) -> bool {
                <$float>::is_sign_negative(self)
            }
        }
    };
}
float!(f32);
float!(f64);

/// The float that `text` spells: `nan`, `inf`, `-inf`, or `-`? digits (`.` digits)? (`e` sign? digits)?, rounded to nearest. `None` for
/// anything else, and for a decimal that only infinity could stand for.
pub(super) fn float<T: Float>(text: &str) -> Option<T> {
    match text {
        "nan" => Some(T::NAN),
        "inf" => Some(T::INFINITY),
        "-inf" => Some(T::NEG_INFINITY),
        _ if is_decimal(text.as_bytes()) => text.parse().ok().filter(|number: &T| number.is_finite()),
        _ => None,
    }
}

/// Narrower than the standard library's grammar, which also takes `+1`, `.5`, `5.` and `infinity`.
fn is_decimal(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let Some(mut rest) = after_digits(unsigned) else { return false };
    if let [b'.', fraction @ ..] = rest {
        let Some(after) = after_digits(fraction) else { return false };
        rest = after;
    }
    match rest {
        [] => true,
        [b'e' | b'E', b'+' | b'-', digits @ ..] | [b'e' | b'E', digits @ ..] => after_digits(digits).is_some_and(<[u8]>::is_empty),
        _ => false,
    }
}

/// What follows one digit or more.
fn after_digits(text: &[u8]) -> Option<&[u8]> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 { None } else { text.get(digits..) }
}

/// Decimal exponents that are written out in digits, as in ECMAScript; others get an `e`.
const PLAIN_EXPONENTS: std::ops::RangeInclusive<i32> = -6..=20;

/// The shortest spelling that [`float`] reads back as the same number; every NaN is `nan`.
pub(super) fn float_text<T: Float>(number: T) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if !number.is_finite() {
        return if number.is_sign_negative() { "-inf" } else { "inf" }.to_owned();
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{number:e}");
    let exponent = text.rsplit('e').next().and_then(|exponent| exponent.parse().ok()).unwrap_or(0);
    if PLAIN_EXPONENTS.contains(&exponent) { number.to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_has_one_spelling() {
        for (text, expected) in [("0", Some(0)), ("7", Some(7)), ("18446744073709551615", Some(u64::MAX))] {
            assert_eq!(integer::<u64>(text), expected, "{text}");
        }
        let refused = ["", "+7", "07", "00", "-0", "-1", " 7", "7 ", "7.0", "7e0", "18446744073709551616", "0x7", "٧", "1_000"];
        for text in refused {
            assert_eq!(integer::<u64>(text), None, "{text:?}");
        }
        for (text, expected) in [("-9223372036854775808", Some(i64::MIN)), ("9223372036854775807", Some(i64::MAX)), ("-7", Some(-7))] {
            assert_eq!(integer::<i64>(text), expected, "{text}");
        }
        for text in ["-9223372036854775809", "9223372036854775808", "-0", "-07", "--7", "+0"] {
            assert_eq!(integer::<i64>(text), None, "{text:?}");
        }
    }

    #[test]
    fn floats_are_read_by_their_grammar_and_nothing_else() {
        let table = [("0", 0.0), ("-0.5", -0.5), ("1e300", 1e300), ("1E+2", 100.0), ("25e-1", 2.5), ("007.50", 7.5), ("1e-9999", 0.0)];
        for (text, expected) in table {
            assert_eq!(float::<f64>(text), Some(expected), "{text}");
        }
        let refused = [
            "",
            "-",
            "+1",
            ".5",
            "5.",
            "-.5",
            "1e",
            "1e+",
            "1e1.5",
            "e5",
            "1 ",
            " 1",
            "NaN",
            "-nan",
            "Inf",
            "infinity",
            "+inf",
            "1_0",
            "0x1",
            "1e400",
            "-1e400",
            "1e99999999999999999999",
            "1,5",
            "1f",
            "٣",
        ];
        for text in refused {
            assert_eq!(float::<f64>(text), None, "{text:?}");
        }
        assert_eq!(float::<f32>("3.5e38"), None);
        assert_eq!(float::<f32>("3.4028235e38"), Some(f32::MAX));
    }

    #[test]
    fn floats_are_written_as_short_as_they_read_back() {
        let table = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (1e20, "100000000000000000000"),
            (1e21, "1e21"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.5e-7, "1.5e-7"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::from_bits(1), "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-f64::NAN, "nan"),
        ];
        for (number, text) in table {
            assert_eq!(float_text(number), text);
        }
        assert_eq!(float_text(0.1_f32), "0.1");
        assert_eq!(float_text(f32::from_bits(1)), "1e-45");
    }

    proptest::proptest! {
        #[test]
        fn every_float_reads_back_as_itself(wide: u64, narrow: u32) {
            let (wide, narrow) = (f64::from_bits(wide), f32::from_bits(narrow));
            let (wide_back, narrow_back) = (float::<f64>(&float_text(wide)).unwrap(), float::<f32>(&float_text(narrow)).unwrap());
            proptest::prop_assert!(wide.is_nan() && wide_back.is_nan() || wide.to_bits() == wide_back.to_bits());
            proptest::prop_assert!(narrow.is_nan() && narrow_back.is_nan() || narrow.to_bits() == narrow_back.to_bits());
        }
    }
}
