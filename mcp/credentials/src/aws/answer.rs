//! The answer of STS to AssumeRoleWithWebIdentity.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use jiff::Timestamp;

use super::session::Session;
use crate::failure::Failure;
use crate::held::{Given, LONGEST, usable};

/// The codes of errors that pass.
const THROTTLED: [&str; 9] = [
    "IDPCommunicationError",
    "InternalFailure",
    "RequestLimitExceeded",
    "RequestTimeout",
    "ServiceUnavailable",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];

/// Reads the answer, which came `now`.
pub(super) fn read(answer: &Response<Bytes>, now: Timestamp) -> Result<Given<Session>, Failure> {
    let text = std::str::from_utf8(answer.body()).unwrap_or_default();
    if answer.status() != StatusCode::OK {
        return Err(refused(answer, element(text, "Code").unwrap_or_default()));
    }
    let unusable = |problem: &str| Failure::Unusable(format!("the answer of STS has {problem}"));
    let member = |name: &str| {
        let value = element(text, "Credentials").and_then(|members| element(members, name));
        value.filter(|value| !value.is_empty()).ok_or_else(|| unusable(&format!("no {name}")))
    };
    let (key, secret, token) = (member("AccessKeyId")?, member("SecretAccessKey")?, member("SessionToken")?);
    if HeaderValue::from_str(token).is_err() || HeaderValue::from_str(key).is_err() || token.len() > LONGEST {
        return Err(unusable("a SessionToken that fits no header"));
    }
    let until: Timestamp = member("Expiration")?.parse().map_err(|_| unusable("an Expiration that is no time"))?;
    let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    if left.is_zero() {
        return Err(unusable("a session that has expired"));
    }
    Ok(Given { credential: Session::new(key, secret, token), time: usable(left) })
}

/// The text in the first element of this name, whose start tag has no attributes. Keys, tokens, times and codes have nothing that XML escapes.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

fn refused(answer: &Response<Bytes>, code: &str) -> Failure {
    let status = answer.status();
    // Anything else could be a part of a token.
    let is_code = !code.is_empty() && code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let code = if is_code { code } else { "no error that has a code" };
    let reason = format!("STS answers {status}: {code}");
    if THROTTLED.contains(&code) || matches!(status.as_u16(), 408 | 429 | 500..) {
        return Failure::unavailable_until(reason, answer.headers());
    }
    match (status.as_u16(), code) {
        (400..=403, "ExpiredTokenException" | "ExpiredToken" | "InvalidIdentityToken" | "IDPRejectedClaim") => {
            Failure::Refused(reason)
        }
        (400..=403, "AccessDenied" | "AccessDeniedException") => Failure::Forbidden(reason),
        _ => Failure::Unusable(reason),
    }
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn answer(status: u16, body: &str) -> Response<Bytes> {
        Response::builder().status(status).body(body.to_owned().into()).unwrap()
    }

    fn given(members: &[(&str, &str)]) -> String {
        let members: Vec<_> = members.iter().map(|(name, text)| format!("<{name}>{text}</{name}>\n")).collect();
        let members = members.concat();
        let user = "<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn></AssumedRoleUser>";
        format!(
            "<R xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">{user}<Credentials>{members}\n</Credentials></R>"
        )
    }

    fn read_now(answer: &Response<Bytes>) -> Result<Given<Session>, Failure> {
        read(answer, NOW.parse().unwrap())
    }

    #[test]
    fn a_session_is_used_until_a_little_before_it_expires() {
        for (until, seconds) in
            [("2026-01-01T01:00:00Z", 3570), ("2026-01-01T00:15:00.5Z", 870), ("2026-01-01T00:01:40Z", 90)]
        {
            let members =
                [("SessionToken", "t/+="), ("SecretAccessKey", "s"), ("Expiration", until), ("AccessKeyId", "k")];
            let given = read_now(&answer(200, &given(&members))).unwrap();
            assert_eq!(given.time.as_secs(), seconds, "{until}");
            assert!(given.credential == Session::new("k", "s", "t/+="));
        }
    }

    #[test]
    fn an_answer_without_a_session_is_no_use() {
        let long = "x".repeat(LONGEST + 1);
        let good = [
            ("AccessKeyId", "k"),
            ("SecretAccessKey", "s3cr3t"),
            ("SessionToken", "t"),
            ("Expiration", "2026-01-01T01:00:00Z"),
        ];
        let with = |at: usize, value: &str| {
            let mut members = good.map(|(name, text)| (name, text.to_owned()));
            value.clone_into(&mut members[at].1);
            given(&members.each_ref().map(|(name, text)| (*name, &**text)))
        };
        for body in [
            String::new(),
            "{}".to_owned(),
            given(&good[1..]),
            given(&good[..3]),
            with(0, ""),
            with(1, ""),
            with(2, "a\nb"),
            with(2, &long),
            with(3, "soon"),
            with(3, NOW),
            with(3, "2025-01-01T00:00:00Z"),
            given(&good).replace("Credentials", "Other"),
        ] {
            let failure = read_now(&answer(200, &body)).err().expect("it is of no use");
            assert!(failure.name() == "unusable" && !failure.reason().contains("s3cr3t"), "{body}: {failure:?}");
        }
    }

    #[test]
    fn a_refusal_says_who_can_mend_it() {
        for (status, code, name) in [
            (400, "ExpiredTokenException", "refused"),
            (400, "InvalidIdentityToken", "refused"),
            (403, "IDPRejectedClaim", "refused"),
            (403, "AccessDenied", "forbidden"),
            (400, "Throttling", "unavailable"),
            (429, "", "unavailable"),
            (400, "IDPCommunicationError", "unavailable"),
            (503, "ServiceUnavailable", "unavailable"),
            (500, "AccessDenied", "unavailable"),
            (400, "ValidationError", "unusable"),
            (403, "RegionDisabledException", "unusable"),
            (403, "", "unusable"),
            (404, "<html>", "unusable"),
            (302, "", "unusable"),
            (400, "of s3cr3t", "unusable"),
        ] {
            let body = format!(
                "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>s3cr3t</Message></Error></ErrorResponse>"
            );
            let failure = read_now(&answer(status, &body)).err().expect("it is of no use");
            assert_eq!(failure.name(), name, "{status} {code}: {failure:?}");
            assert!(!failure.reason().contains("s3cr3t"), "{failure:?}");
        }
        let mut throttled = answer(400, "<Code>Throttling</Code>");
        throttled.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("7"));
        let told = read_now(&throttled).err().expect("it is of no use").answer("AWS credential exchange");
        assert_eq!((told.status().as_u16(), &told.headers()[RETRY_AFTER]), (503, &HeaderValue::from_static("7")));
    }
}
