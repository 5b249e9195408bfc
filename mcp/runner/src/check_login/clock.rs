//! Three clocks: the server's and the provider's, by the `Date` of their answers, and this machine's.

use http::header::{AGE, DATE};
use jiff::fmt::rfc2822::DateTimeParser;
use mcp_authn::LEEWAY;

use crate::check_login::answer::Answer;
use crate::check_login::verdict::{Cause, Finding, Step};

/// The seconds by which the sender's clock is ahead of this machine's, at least: the answer was made between the request and its
/// end. A cache says in `Age` for how long it has kept the answer.
pub(crate) fn ahead(answer: &Answer) -> Option<i64> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let date = PARSER.parse_timestamp(answer.header(DATE.as_str())?).ok()?.as_second();
    let age = answer.header(AGE.as_str()).and_then(|age| age.parse::<u32>().ok()).unwrap_or_default();
    let made = date + i64::from(age);
    Some(made - made.max(answer.asked).min(answer.at))
}

/// Compares the clocks, with the leeway that a proxy has for the times in tokens.
pub(crate) fn judge(server: Option<i64>, provider: Option<i64>) -> Finding {
    let agree = |one: i64, other: i64| (one - other).abs() <= LEEWAY;
    let told = |name: &str, ahead: Option<i64>| match ahead {
        None => format!("{name} sends no Date"),
        Some(0) => format!("{name} has the time of this machine"),
        Some(ahead) if ahead > 0 => format!("{name} is {ahead} s ahead of this machine"),
        Some(ahead) => format!("{name} is {} s behind this machine", -ahead),
    };
    let seen = format!("{}, {}", told("the server", server), told("the provider", provider));
    match (server, provider) {
        (None, None) => Finding::skipped(Step::Clock, seen),
        (Some(server), Some(provider)) if agree(server, provider) => {
            if agree(server, 0) {
                Finding::ok(Step::Clock, seen)
            } else {
                Finding::note(Cause::ClockOfClient, seen)
            }
        }
        (Some(server), Some(_)) if agree(server, 0) => Finding::failed(Cause::ClockOfProvider, seen),
        (Some(_), Some(_)) => Finding::failed(Cause::ClockOfServer, seen),
        (Some(one), None) | (None, Some(one)) if agree(one, 0) => Finding::ok(Step::Clock, seen),
        // Two clocks differ, and nobody can tell which is wrong.
        (Some(_), None) | (None, Some(_)) => Finding::note(Cause::ClockOfClient, seen),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;

    #[test]
    fn the_clock_that_differs_from_the_other_two_is_wrong() {
        for (server, provider, cause) in [
            (Some(0), Some(-LEEWAY), None),
            (Some(3600), Some(0), Some(Cause::ClockOfServer)),
            (Some(0), Some(-3600), Some(Cause::ClockOfProvider)),
            (Some(-3600), Some(-3601), Some(Cause::ClockOfClient)),
            (Some(3600), Some(-3600), Some(Cause::ClockOfServer)),
            (Some(3600), None, Some(Cause::ClockOfClient)),
            (None, Some(1), None),
            (None, None, None),
        ] {
            assert_eq!(judge(server, provider).cause, cause, "{server:?} {provider:?}");
        }
    }

    #[test]
    fn the_age_of_a_cached_answer_counts() {
        let answer = |date: &'static str, age: Option<&'static str>| {
            let headers = [(DATE, Some(date)), (AGE, age)].into_iter();
            let headers: HeaderMap =
                headers.filter_map(|(name, value)| Some((name, HeaderValue::from_static(value?)))).collect();
            Answer { status: StatusCode::OK, headers, body: bytes::Bytes::new(), asked: 784_111_757, at: 784_111_777 }
        };
        for (date, age, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", None, Some(0)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", Some("30"), Some(0)),
            // The answer took 20 seconds.
            ("Sun, 06 Nov 1994 08:49:18 GMT", None, Some(0)),
            ("Sun, 06 Nov 1994 08:48:17 GMT", None, Some(-60)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", None, Some(60)),
            ("yesterday", None, None),
        ] {
            assert_eq!(ahead(&answer(date, age)), expected, "{date} {age:?}");
        }
    }
}
