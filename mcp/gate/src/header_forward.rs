//! `header-forward`: headers that requests to a remote server get (toolhive-runner §2.19).

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Request, Response};
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, Middleware, Next};
use mcp_runconfig::{HeaderForwardParameters, TOKEN_EXCHANGE, chain, is_reserved_header, same_header};
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
            let member = format!("parameters.add_headers.{name}");
            headers.push((header(&member, name, context)?, header_value(&member, value, context)?));
        }
        for (name, identifier) in &parameters.add_headers_from_secret {
            let member = format!("parameters.add_headers_from_secret.{name}");
            let header = header(&member, name, context)?;
            headers.push((header, header_value(&member, context.secret(&member, identifier)?, context)?));
        }
        Ok(Self(headers))
    }
}

/// A header that the document's `member` names.
fn header(member: &str, name: &str, context: &BuildContext) -> Result<HeaderName, BuildError> {
    let error = |problem: &str, fix: &str| Err(context.error(member, problem, fix));
    let Ok(header) = name.parse::<HeaderName>() else {
        return error("is not the name of a header", "use letters, digits and -");
    };
    if is_reserved_header(header.as_str()) {
        return error("is a header of the connection or of each client, which nobody can add", "remove it");
    }
    if let Some(credential) = context.credential_in(header.as_str()) {
        let problem = format!("is the header of the credential that {credential} shows the server");
        return error(&problem, "remove it, or the credential");
    }
    if same_header(AUTHORIZATION.as_str(), header.as_str()) && context.is_outside_of(TOKEN_EXCHANGE) {
        return error("would be exchanged in place of the caller's token", "put header-forward behind tokenexchange");
    }
    Ok(header)
}

/// The value of a header, which errors do not show.
fn header_value(member: &str, value: &str, context: &BuildContext) -> Result<HeaderValue, BuildError> {
    let problem = "has a value that no header can have";
    let value = value.parse().map_err(|_| context.error(member, problem, "use printable ASCII on one line"));
    let mut value: HeaderValue = value?;
    value.set_sensitive(true);
    Ok(value)
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
