//! The answer to a caller without a token (RFC 6750 §3, RFC 9728 §5.1).

use http::{HeaderMap, StatusCode, Uri};

use crate::check_login::answer::{Answer, Call, NoAnswer, fails, is_safe, shown};
use crate::check_login::verdict::{Cause, Finding, Judged, Step};
use crate::text::quoted;

/// The parameters of a challenge that a client reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) resource_metadata: Option<String>,
    pub(crate) scope: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) description: Option<String>,
}

/// Whether the server answers at all.
pub(crate) fn reach<'a>(url: &Uri, call: &'a Call) -> Judged<&'a Answer> {
    let answer = call.answer.as_ref().map_err(|error| {
        let cause = match error {
            NoAnswer::Slow(_) => Cause::ServerSlow,
            NoAnswer::TooLong(_) => Cause::ServerTooLong,
            NoAnswer::Certificate(_) => Cause::ServerCertificate,
            NoAnswer::Unreachable(_) => Cause::ServerUnreachable,
        };
        Finding::failed(cause, call.to_string())
    })?;
    let finding = if is_safe(url) {
        Finding::ok(Step::Reach, call.to_string())
    } else {
        Finding::note(Cause::PlainHttp, format!("{call}, unencrypted"))
    };
    Ok((answer, finding))
}

/// Whether the answer makes a client log in.
pub(crate) fn judge(call: &Call, answer: &Answer) -> Judged<Challenge> {
    let cause = match answer.status {
        StatusCode::UNAUTHORIZED => {
            let challenge = Challenge::read(&answer.headers);
            let finding = match &challenge {
                Some(Challenge { resource_metadata: Some(url), scope, .. }) => {
                    let scope = scope.as_deref().map(|scope| format!(", scope {}", quoted(scope))).unwrap_or_default();
                    Finding::ok(Step::Challenge, format!("401 with resource_metadata {}{scope}", quoted(&shown(url))))
                }
                Some(_) => {
                    Finding::note(Cause::NoPointer, "401 with Bearer, and no resource_metadata in WWW-Authenticate")
                }
                None => Finding::note(Cause::NoPointer, "401 without WWW-Authenticate: Bearer"),
            };
            return Ok((challenge.unwrap_or_default(), finding));
        }
        StatusCode::FORBIDDEN => Cause::ServerForbids,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Cause::WrongPath,
        status if status.is_success() => Cause::NoLogin,
        status if status.is_redirection() => Cause::ServerRedirects,
        status if fails(status) => Cause::ServerFails,
        _ => Cause::NoChallenge,
    };
    Err(Finding::failed(cause, format!("{call}, and not 401")))
}

impl Challenge {
    /// The challenges of the scheme `Bearer` in `headers` as one, as clients read them: what is before a proxy adds its own.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(http::header::WWW_AUTHENTICATE).iter();
        let all = values.flat_map(|value| challenges(&String::from_utf8_lossy(value.as_bytes())));
        let bearer: Vec<_> = all.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).collect();
        let parameters = || bearer.iter().flat_map(|(_, parameters)| parameters);
        let get = |name: &str| {
            parameters().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        if bearer.is_empty() {
            return None;
        }
        Some(Self {
            resource_metadata: get("resource_metadata"),
            scope: get("scope"),
            error: get("error"),
            description: get("error_description"),
        })
    }

    /// The error that it tells, as a report shows it.
    pub(crate) fn told(&self) -> String {
        let parts = [("error", &self.error), ("error_description", &self.description), ("scope", &self.scope)];
        let parts = parts.iter().filter_map(|(name, value)| Some(format!("{name}={}", quoted(value.as_deref()?))));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// A scheme with its parameters.
type Scheme = (String, Vec<(String, String)>);

/// The challenges in a header (RFC 9110 §11.6.1): commas part challenges and parameters alike.
fn challenges(mut rest: &str) -> Vec<Scheme> {
    let mut found: Vec<Scheme> = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',', '=', '"']);
        if rest.is_empty() {
            return found;
        }
        let end = rest.find([' ', '\t', ',', '=', '"']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
        if let (Some(value), Some((_, parameters))) = (value, found.last_mut()) {
            let (value, after) = parameter(value.trim_start_matches([' ', '\t']));
            parameters.push((word.to_owned(), value));
            rest = after;
        } else {
            found.push((word.to_owned(), Vec::new()));
            rest = after;
        }
    }
}

/// The value of a parameter, a token or a quoted string, and what comes after it.
fn parameter(text: &str) -> (String, &str) {
    let Some(inner) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([' ', '\t', ',']).unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in inner.char_indices() {
        match c {
            '"' if !escaped => return (value, inner.get(at + 1..).unwrap_or_default()),
            '\\' if !escaped => escaped = true,
            c => {
                value.push(c);
                escaped = false;
            }
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::WWW_AUTHENTICATE;

    use super::*;

    #[test]
    fn plain_http_is_noted_outside_of_this_machine() {
        for (url, cause) in [
            ("http://mcp.ns.svc/mcp", Some(Cause::PlainHttp)),
            ("http://127.0.0.1:8080/mcp", None),
            ("https://mcp.example/mcp", None),
        ] {
            let (status, headers) = (StatusCode::UNAUTHORIZED, HeaderMap::new());
            let answer = Answer { status, headers, body: bytes::Bytes::new(), asked: 0, at: 0 };
            let call = Call { method: http::Method::POST, url: Uri::from_static(url), answer: Ok(answer) };
            let (_, finding) = reach(&call.url, &call).unwrap();
            assert_eq!(finding.cause, cause, "{url}");
        }
    }

    #[test]
    fn the_bearer_challenge_is_found_among_others() {
        let challenge = |metadata: Option<&str>, scope: Option<&str>, error: Option<&str>| Challenge {
            resource_metadata: metadata.map(str::to_owned),
            scope: scope.map(str::to_owned),
            error: error.map(str::to_owned),
            description: None,
        };
        for (headers, expected) in [
            (
                &[r#"Bearer resource_metadata="https://a/b", scope="x y""#][..],
                Some(challenge(Some("https://a/b"), Some("x y"), None)),
            ),
            (
                &[r#"bearer  realm = "a, b=\"c\"" ,error=invalid_token"#],
                Some(challenge(None, None, Some("invalid_token"))),
            ),
            (&[r#"Basic realm="x", Bearer SCOPE="y", DPoP algs="ES256""#], Some(challenge(None, Some("y"), None))),
            (&["Negotiate YWJj==", "Bearer"], Some(challenge(None, None, None))),
            (
                &[r#"Bearer realm="in front""#, r#"Bearer resource_metadata="https://a", error_description="größer""#],
                Some(Challenge {
                    description: Some("größer".to_owned()), ..challenge(Some("https://a"), None, None)
                }),
            ),
            (&[r#"Bearer scope="open"#], Some(challenge(None, Some("open"), None))),
            (&["Basic realm=Bearer"], None),
            (&["", ",,=\"\""], None),
            (&[], None),
        ] {
            let values = headers.iter().map(|value| (WWW_AUTHENTICATE, HeaderValue::try_from(*value).unwrap()));
            assert_eq!(Challenge::read(&values.collect()), expected, "{headers:?}");
        }
    }
}
