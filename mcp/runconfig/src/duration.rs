//! Durations as Go writes them: `1h30m`, `250ms`, `1.5s`.

use serde_json::Value;

use crate::decode::wrong_type;

/// A text that is not a Go duration. The author has to write another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// The text does not follow the grammar.
    #[error("{0:?} is not a duration; write a number and a unit such as \"10s\", \"500ms\" or \"1m30s\"")]
    Malformed(String),
    /// The value does not fit 64-bit nanoseconds (about 292 years).
    #[error("{0:?} is too long a duration; write one under 2562047h")]
    TooLong(String),
}

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // micro sign
    ("μs", 1_000), // Greek mu
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a Go duration into nanoseconds (Go `time.ParseDuration`).
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let malformed = || DurationError::Malformed(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(malformed());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(malformed)?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(malformed)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| too_long())?.into() };
        total += whole * scale;
        // Digits past the 18th cannot move a nanosecond of any unit.
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let digits: i128 = fraction.parse::<u64>().map_err(|_| malformed())?.into();
            total += digits * scale / 10_i128.pow(u32::try_from(fraction.len()).map_err(|_| malformed())?);
        }
        if total > 1 << 63 {
            return Err(too_long());
        }
        rest = next;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| too_long())
}

/// The nanoseconds of a duration in a document: a Go duration, or an integer, as Go itself writes durations.
pub(crate) fn nanoseconds(value: &Value) -> Result<i64, String> {
    match value {
        Value::String(text) => parse(text).map_err(|error| error.to_string()),
        value => {
            value.as_i64().ok_or_else(|| wrong_type(value, "a Go duration such as \"5s\", or integer nanoseconds"))
        }
    }
}

/// Writes nanoseconds as Go does (Go `Duration.String`): `1h0m0s`, `1.5s`, `250ms`, `0s`.
pub fn format(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{nanos}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(nanos, 1_000_000)),
        _ => {
            let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = decimal(rest, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

fn decimal(nanos: u64, unit: u64) -> String {
    let width = unit.ilog10() as usize;
    let text = format!("{}.{:0width$}", nanos / unit, nanos % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn go_durations_are_read_and_what_is_not_one_is_an_error() {
        let good: [(&str, i64); 12] = [
            ("0", 0),
            ("-0", 0),
            ("5s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("-250ms", -250_000_000),
            ("+1us", 1_000),
            ("3µs", 3_000),
            ("1.0000000000000000000000001s", 1_000_000_000),
            ("-9223372036854775808ns", i64::MIN),
        ];
        for (text, nanos) in good {
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
        for text in ["", "-", "5", "5 s", " 5s", "s", ".s", "1.2.3s", "5S", "5d", "1h ", "0x1s", "٣s", "１s", "5s-1s"]
        {
            assert!(matches!(parse(text), Err(DurationError::Malformed(_))), "{text}: {:?}", parse(text));
        }
        for text in ["9223372036854775808ns", "2562048h", "99999999999999999999h", "2562047h2562047h"] {
            assert!(matches!(parse(text), Err(DurationError::TooLong(_))), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (10_000_000_000, "10s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (-1_500_000_000, "-1.5s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(format(nanos), text);
        }
    }

    proptest! {
        #[test]
        fn a_written_duration_reads_back(nanos: i64) {
            prop_assert_eq!(parse(&format(nanos)), Ok(nanos));
        }

        #[test]
        fn any_text_is_an_answer_or_an_error_never_a_panic(text in "\\PC{0,24}|[-+0-9.nuµmsh]{0,40}") {
            let _ = parse(&text);
        }
    }
}
