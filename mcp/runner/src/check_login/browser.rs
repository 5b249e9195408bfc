//! CORS: a client in a browser may do and read less than other programs.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HeaderName,
};

use crate::check_login::answer::{Answer, Call};
use crate::check_login::verdict::{Cause, Finding, Status, Step};
use crate::text::quoted;

/// The headers that a page sends with a call.
pub(crate) const SENT: &str = "authorization,content-type,mcp-protocol-version,mcp-session-id";
/// The headers that a page has to read.
const READ: [&str; 2] = ["www-authenticate", "mcp-session-id"];

/// The calls of a page.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) preflight: Call,
    /// The call without a token.
    pub(crate) refused: Call,
    pub(crate) resource: Option<Call>,
    pub(crate) provider: Option<Call>,
}

/// Judges what a page of `origin` is told. `demanded`: it is a step, and not a note.
pub(crate) fn judge(calls: &Calls, origin: &str, demanded: bool) -> Finding {
    let problem = preflight(&calls.preflight, origin)
        .or_else(|| refusal(&calls.refused, origin))
        .or_else(|| document(calls.resource.as_ref(), origin, Cause::ResourceMetadataUnreadable))
        .or_else(|| document(calls.provider.as_ref(), origin, Cause::ProviderMetadataUnreadable));
    match problem {
        None => Finding::ok(Step::Browser, format!("a page of {} may call and read", quoted(origin))),
        Some((cause, seen)) => {
            let finding = Finding::failed(cause, format!("for a page of {}: {seen}", quoted(origin)));
            if demanded { finding } else { Finding { status: Status::Note, ..finding } }
        }
    }
}

type Problem = Option<(Cause, String)>;

fn preflight(call: &Call, origin: &str) -> Problem {
    let answer = call.answer.as_ref().ok().filter(|answer| answer.status.is_success() && allows(answer, origin));
    let Some(answer) = answer else {
        return Some((Cause::PreflightRefused, format!("{call}{}", told(call))));
    };
    let allowed = list(answer, &ACCESS_CONTROL_ALLOW_HEADERS);
    let is_allowed = |name: &str| allowed.iter().any(|known| known == name || known == "*" && name != "authorization");
    let missing: Vec<_> = SENT.split(',').filter(|name| !is_allowed(name)).collect();
    (!missing.is_empty())
        .then(|| (Cause::PreflightHeaders, format!("{call}, which does not allow {}", missing.join(", "))))
}

fn refusal(call: &Call, origin: &str) -> Problem {
    let Some(answer) = call.answer.as_ref().ok().filter(|answer| allows(answer, origin)) else {
        return Some((Cause::AnswerUnreadable, format!("{call}{}", told(call))));
    };
    let exposed = list(answer, &ACCESS_CONTROL_EXPOSE_HEADERS);
    let hidden: Vec<_> =
        READ.into_iter().filter(|name| !exposed.iter().any(|known| known == name || known == "*")).collect();
    (!hidden.is_empty()).then(|| (Cause::HeadersHidden, format!("{call}, which does not expose {}", hidden.join(", "))))
}

fn document(call: Option<&Call>, origin: &str, cause: Cause) -> Problem {
    let call = call.filter(|call| !call.answer.as_ref().is_ok_and(|answer| allows(answer, origin)))?;
    Some((cause, format!("{call}{}", told(call))))
}

/// Whether there is one such header, and it allows the origin: a browser takes no two, even if they are equal.
fn allows(answer: &Answer, origin: &str) -> bool {
    let mut all = answer.headers.get_all(ACCESS_CONTROL_ALLOW_ORIGIN).iter();
    all.next().is_some_and(|allowed| allowed == "*" || allowed == origin) && all.next().is_none()
}

/// The origins that an answer allows, for a report.
fn told(call: &Call) -> String {
    let (Ok(answer), name) = (&call.answer, ACCESS_CONTROL_ALLOW_ORIGIN) else { return String::new() };
    let all: Vec<_> =
        answer.headers.get_all(&name).iter().map(|value| quoted(&String::from_utf8_lossy(value.as_bytes()))).collect();
    if all.is_empty() { format!(", without {name}") } else { format!(", with {name} {}", all.join(" and ")) }
}

/// The names in all headers of one name, in lower case.
fn list(answer: &Answer, name: &HeaderName) -> Vec<String> {
    let values = answer.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

    use super::*;

    fn call(status: u16, headers: &[(&'static str, &'static str)]) -> Call {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let answer = Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: bytes::Bytes::new(),
            asked: 0,
            at: 0,
        };
        Call { method: Method::OPTIONS, url: Uri::from_static("https://h/mcp"), answer: Ok(answer) }
    }

    #[test]
    fn a_page_needs_every_header_by_its_name() {
        let (any, page) = (("access-control-allow-origin", "*"), ("access-control-allow-origin", "https://page"));
        let headers = |names| ("access-control-allow-headers", names);
        let exposed = |names| ("access-control-expose-headers", names);
        let good =
            || (call(204, &[page, headers(SENT)]), call(401, &[any, exposed("Mcp-Session-Id, WWW-Authenticate")]));
        for (preflight, refused, resource, cause) in [
            (good().0, good().1, call(200, &[any]), None),
            (
                call(204, &[any, headers("*, Authorization")]),
                call(401, &[page, exposed("*")]),
                call(200, &[page]),
                None,
            ),
            (call(204, &[any, headers("*")]), good().1, call(200, &[any]), Some(Cause::PreflightHeaders)),
            (call(401, &[]), good().1, call(200, &[any]), Some(Cause::PreflightRefused)),
            (
                call(204, &[("access-control-allow-origin", "https://other")]),
                good().1,
                call(200, &[any]),
                Some(Cause::PreflightRefused),
            ),
            (good().0, call(401, &[]), call(200, &[any]), Some(Cause::AnswerUnreadable)),
            (good().0, call(401, &[any, exposed("Mcp-Session-Id")]), call(200, &[any]), Some(Cause::HeadersHidden)),
            (good().0, good().1, call(200, &[]), Some(Cause::ResourceMetadataUnreadable)),
            // The proxy and an Ingress add one each.
            (good().0, good().1, call(200, &[any, any]), Some(Cause::ResourceMetadataUnreadable)),
        ] {
            let calls = Calls { preflight, refused, resource: Some(resource), provider: None };
            let (note, step) = (judge(&calls, "https://page", false), judge(&calls, "https://page", true));
            assert_eq!((note.cause, step.cause), (cause, cause));
            if cause.is_some() {
                assert_eq!((note.status, step.status), (Status::Note, Status::Failed));
            }
        }
    }
}
