//! `header-forward`: headers that requests to a remote server get (toolhive-runner §2.19).

use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Response};
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, Middleware, Next};
use mcp_runconfig::{HeaderForwardParameters, chain, is_reserved_header, same_header};
use mcp_wire::headers::remove_where;

/// Sets headers of each request, under the names that the author wrote, in place of the client's that some server takes for them.
pub(crate) struct HeaderForward(Vec<(HeaderName, HeaderValue)>);

impl HeaderForward {
    pub(crate) fn new(parameters: HeaderForwardParameters, context: &BuildContext) -> Result<Self, BuildError> {
        if context.is_outside_of(chain::AUTH) {
            let problem = "stands outside of auth, which would take the document's headers for the caller's";
            return Err(context.error("type", problem, "put it behind auth"));
        }
        let mut headers = Vec::new();
        for (name, value) in &parameters.add_headers {
            headers.push(header(name, value, "add_headers", context)?);
        }
        for (name, identifier) in &parameters.add_headers_from_secret {
            let member = format!("parameters.add_headers_from_secret.{name}");
            let value = context.secret(&member, identifier)?;
            // Files that Secrets are made of end with a line break more often than not.
            let value = value.trim_end_matches(['\r', '\n']);
            headers.push(header(name, value, "add_headers_from_secret", context)?);
        }
        Ok(Self(headers))
    }
}

/// A header of the document, whose errors do not show its value.
fn header(
    name: &str,
    value: &str,
    list: &str,
    context: &BuildContext,
) -> Result<(HeaderName, HeaderValue), BuildError> {
    let error = |problem: &str, fix: &str| context.error(&format!("parameters.{list}.{name}"), problem, fix);
    let header: HeaderName =
        name.parse().map_err(|_| error("is not the name of a header", "use letters, digits and -"))?;
    if is_reserved_header(header.as_str()) {
        return Err(error("is a header of the connection or of each client, which nobody can add", "remove it"));
    }
    let mut value: HeaderValue =
        value.parse().map_err(|_| error("has a value that no header can have", "use printable ASCII on one line"))?;
    value.set_sensitive(true);
    Ok((header, value))
}

impl Middleware for HeaderForward {
    fn call<'a>(&'a self, mut request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let headers = request.headers_mut();
        remove_where(headers, |name| self.0.iter().any(|(own, _)| same_header(own.as_str(), name)));
        for (name, value) in &self.0 {
            headers.insert(name, value.clone());
        }
        next.call(request)
    }
}
