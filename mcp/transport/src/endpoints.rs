//! Which requests are for MCP: where guards judge messages, a proxy serves no others.

use http::header::{ACCEPT, ALLOW, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use mcp_http::{Body, text};
use percent_encoding::percent_decode_str;

use crate::carriers::Carried;

/// The paths of a proxy whose guards judge messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Paths that serve MCP, without their last slash. `None`: every path does, since the server's URL replaces it.
    mcp: Option<Vec<String>>,
    /// Paths, and prefixes as in `/docs/*`, that are open.
    open: Vec<String>,
    /// Whether the server speaks HTTP+SSE (MCP 2024-11-05).
    sse: bool,
}

/// A request that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It is for MCP: guards judge it.
    Mcp,
    /// Its path is open: guards that judge messages pass it by.
    Open,
}

/// A request that is for no endpoint. Give its [`answer`](Self::answer) to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misrouted {
    /// Nothing is served at its path.
    Path,
    /// The path is an endpoint, and this is no request of MCP to it.
    Method {
        /// The methods that are served.
        allow: &'static str,
        /// A clause that says what a request has to be.
        rule: &'static str,
    },
}

impl Endpoints {
    /// Paths `mcp`, or all where there are none, and paths `open`, of a server that speaks HTTP+SSE or streamable HTTP.
    pub(crate) fn new(mcp: Option<Vec<String>>, open: Vec<String>, sse: bool) -> Self {
        let mcp = mcp.map(|paths| paths.iter().map(|path| without_slash(path).to_owned()).collect());
        Self { mcp, open, sse }
    }

    /// The route of a request.
    ///
    /// # Errors
    /// No such path (404), or not this method on it (405).
    pub fn route(&self, request: &Parts) -> Result<Route, Misrouted> {
        let path = request.uri.path();
        if self.serves(path) {
            return self.method(request).map(|()| Route::Mcp);
        }
        // The path of a message does not matter: it goes to the place that the stream of its session named, or nowhere.
        let is_message = self.sse && request.method == Method::POST;
        if is_message && Carried::by(request) != Carried::Nothing {
            return Ok(Route::Mcp);
        }
        if self.open.iter().any(|open| is_below(open, path)) {
            return Ok(Route::Open);
        }
        if is_message {
            return Ok(Route::Mcp);
        }
        Err(Misrouted::Path)
    }

    fn serves(&self, path: &str) -> bool {
        self.mcp.as_ref().is_none_or(|mcp| mcp.iter().any(|mcp| mcp == without_slash(path)))
    }

    fn method(&self, request: &Parts) -> Result<(), Misrouted> {
        let (served, allow, rule) = match request.method {
            Method::POST | Method::OPTIONS => return Ok(()),
            Method::GET => {
                let streams = request.headers.get_all(ACCEPT).iter().any(|accept| {
                    let accept = accept.to_str().unwrap_or_default().to_ascii_lowercase();
                    accept.split([',', ';']).any(|kind| kind.trim() == "text/event-stream")
                });
                (streams, "POST, OPTIONS", "a GET opens a stream of an MCP session and has to accept text/event-stream")
            }
            Method::DELETE => {
                let ends = !self.sse && Carried::by(request) != Carried::Nothing;
                (ends, "GET, POST, OPTIONS", "a DELETE ends an MCP session and has to name it")
            }
            _ => (false, "GET, POST, DELETE, OPTIONS", "MCP has no such method"),
        };
        if served { Ok(()) } else { Err(Misrouted::Method { allow, rule }) }
    }
}

impl Misrouted {
    /// One word for metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Method { .. } => "method",
        }
    }

    /// 404 or 405, in a sentence that names what an author can do.
    pub fn answer(self) -> Response<Body> {
        match self {
            Self::Path => {
                let sentence = "Not Found: this proxy judges MCP messages and serves MCP endpoints alone; the workload's \
                     annotation portcullis.dev/mcp-paths adds endpoints, and portcullis.dev/open-paths lets requests to other \
                     paths pass unjudged";
                text(StatusCode::NOT_FOUND, sentence)
            }
            Self::Method { allow, rule } => {
                let sentence = format!(
                    "Method Not Allowed: {rule}; the workload's annotation portcullis.dev/open-paths lets other requests pass, \
                     to paths where no MCP is served"
                );
                let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, sentence);
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
                answer
            }
        }
    }
}

/// `path` without a last slash, which makes no difference to endpoints.
pub(crate) fn without_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Whether `open` is `path`, or a prefix above it. A path that some servers take for another one is below none.
fn is_below(open: &str, path: &str) -> bool {
    let Some(folder) = open.strip_suffix('*') else { return open == path };
    let Some(rest) = path.strip_prefix(folder) else { return false };
    !rest.is_empty() && !rest.starts_with('/') && !is_disguised(rest)
}

/// Whether some server reads another path in `rest`: by dots for segments, by slashes, escapes and parameters that show once it is decoded, or
/// by bytes that are no text.
fn is_disguised(rest: &str) -> bool {
    let Ok(plain) = percent_decode_str(rest).decode_utf8() else { return true };
    let slashes = |path: &str| path.matches('/').count();
    slashes(&plain) != slashes(rest)
        || plain.contains("//")
        || plain.contains(['\\', ';', '%'])
        || plain.chars().any(char::is_control)
        || rest.to_ascii_lowercase().contains("%2e")
        || plain.split('/').any(|segment| matches!(segment.trim(), "." | ".."))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|path| (*path).to_owned()).collect()
    }

    fn routed(endpoints: &Endpoints, request: &str) -> Result<Route, u16> {
        let mut parts = request.split(' ');
        let request = Request::builder().method(parts.next().unwrap()).uri(parts.next().unwrap());
        let request = parts.fold(request, |request, header| {
            let (name, value) = header.split_once(':').unwrap();
            request.header(name, value)
        });
        let (parts, ()) = request.body(()).unwrap().into_parts();
        endpoints.route(&parts).map_err(|misrouted| {
            let answer = misrouted.answer();
            assert_eq!(answer.headers().contains_key(ALLOW), misrouted.reason() == "method");
            answer.status().as_u16()
        })
    }

    #[test]
    fn requests_to_other_paths_and_methods_do_not_pass() {
        let streamable = Endpoints::new(Some(words(&["/mcp", "/api/mcp", "/"])), words(&["/docs/*", "/status"]), false);
        let sse = Endpoints::new(Some(words(&["/sse"])), words(&["/docs/*"]), true);
        let every = Endpoints::new(None, Vec::new(), false);
        let (mcp, open) = (Ok(Route::Mcp), Ok(Route::Open));
        for (endpoints, request, expected) in [
            (&streamable, "POST /mcp", mcp),
            (&streamable, "POST /mcp/?a=b", mcp),
            (&streamable, "POST /", mcp),
            (&streamable, "POST http://host/api/mcp", mcp),
            (&streamable, "OPTIONS /mcp", mcp),
            (&streamable, "POST /MCP", Err(404)),
            (&streamable, "POST /%6dcp", Err(404)),
            (&streamable, "POST /mcp//", Err(404)),
            (&streamable, "POST //mcp", Err(404)),
            (&streamable, "POST /x/../mcp", Err(404)),
            (&streamable, "POST /api/tools/danger", Err(404)),
            (&streamable, "GET /api/tools/danger?confirm=1", Err(404)),
            (&streamable, "OPTIONS /api/items/5", Err(404)),
            (&streamable, "DELETE /api/items/5", Err(404)),
            (&streamable, "POST /sse", Err(404)),
            (&streamable, "GET /mcp", Err(405)),
            (&streamable, "GET /mcp accept:text/html,*/*;q=0.8", Err(405)),
            (&streamable, "GET /mcp accept:application/json,Text/Event-Stream;q=1", mcp),
            (&streamable, "HEAD /mcp", Err(405)),
            (&streamable, "PUT /mcp", Err(405)),
            (&streamable, "post /mcp", Err(405)),
            (&streamable, "DELETE /mcp", Err(405)),
            (&streamable, "DELETE /mcp mcp-session-id:x", mcp),
            (&streamable, "DELETE /mcp?sessionId=x", mcp),
            (&streamable, "PUT /status", open),
            (&streamable, "GET /status/", Err(404)),
            (&streamable, "GET /docs/a/b.html?x=%2e", open),
            (&streamable, "GET /docs/%20a", open),
            (&streamable, "GET /docs", Err(404)),
            (&streamable, "GET /docs/", Err(404)),
            (&streamable, "GET /docs//mcp", Err(404)),
            (&streamable, "GET /docs/../mcp", Err(404)),
            (&streamable, "GET /docs/..", Err(404)),
            (&streamable, "GET /docs/%2E%2e/mcp", Err(404)),
            (&streamable, "GET /docs/.%2e/mcp", Err(404)),
            (&streamable, "GET /docs/..%2fmcp", Err(404)),
            (&streamable, "GET /docs/..;/mcp", Err(404)),
            (&streamable, "GET /docs/%252e%252e/mcp", Err(404)),
            (&streamable, "GET /docs/%u002e%u002e/mcp", Err(404)),
            (&streamable, "GET /docs/%c0%ae%c0%ae/mcp", Err(404)),
            (&streamable, "GET /docs/.%09./mcp", Err(404)),
            (&streamable, "GET /docs/..%20/mcp", Err(404)),
            (&streamable, "GET /docs/a%0d", Err(404)),
            (&streamable, "GET /docs/%C3%A9", open),
            (&streamable, "GET /docsx", Err(404)),
            (&sse, "GET /sse accept:text/event-stream", mcp),
            (&sse, "POST /sse", mcp),
            (&sse, "POST /messages/?session_id=x", mcp),
            (&sse, "GET /messages/ accept:text/event-stream", Err(404)),
            (&sse, "POST /docs/a", open),
            (&sse, "POST /docs/a?session_id=x", mcp),
            (&sse, "DELETE /sse mcp-session-id:x", Err(405)),
            (&sse, "GET /mcp accept:text/event-stream", Err(404)),
            (&every, "POST /whatever", mcp),
            (&every, "GET /whatever", Err(405)),
            (&every, "PATCH /whatever", Err(405)),
        ] {
            assert_eq!(routed(endpoints, request), expected, "{request}");
        }
    }
}
