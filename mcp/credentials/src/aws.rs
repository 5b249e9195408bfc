//! A session of a role at AWS, which the caller's token opens, and the signature of each request with it (toolhive-auth §6.3).

mod answer;
mod config;
mod role;
mod session;

use std::sync::Arc;

use form_urlencoded::Serializer;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body::Body as _;
use jiff::Timestamp;
use mcp_http::Body;
use mcp_http::client::Client as HttpClient;
use mcp_middleware::{Fingerprint, RequestContext, bearer_token};
use mcp_runconfig::is_header_of_aws;
use mcp_store::Bound;
use mcp_wire::headers::remove_where;

use self::role::Roles;
use self::session::{Scope, Session};
use crate::asking::{Asking, Names};
use crate::failure::{AWS_STEP, Failure};
use crate::held::Given;
use crate::provider;
use crate::strategy::{Applied, Strategy};
use crate::token_endpoint::left;

/// The longest body that is signed, in bytes.
const LONGEST_BODY: u64 = 10 << 20;
/// The beginning of names of members of a query by which AWS takes a request for signed.
const AMZ: &str = "x-amz-";

const NAMES: Names = Names {
    provider: "STS",
    failed: "no session of a role was opened",
    counter: ("role_sessions", "Sessions of roles of AWS that were asked for, by the result"),
    given: "opened",
    questions: "role_requests",
    going_on: "role_requests_going_on",
    held: "role_sessions",
};

/// Opens sessions of roles, and has requests signed with them. Clones are one.
#[derive(Clone)]
pub(crate) struct AwsRoles(Arc<Inner>);

struct Inner {
    roles: Roles,
    /// The claim that names a session.
    session_name: String,
    /// The seconds that a session lasts.
    duration: u32,
    scope: Scope,
    client: HttpClient,
    asking: Arc<Asking<Session>>,
}

impl Inner {
    /// Opens a session of `role` (AssumeRoleWithWebIdentity).
    async fn open(&self, role: &str, name: &str, token: &str) -> Result<Given<Session>, Failure> {
        let form = Serializer::new(String::new())
            .append_pair("Action", "AssumeRoleWithWebIdentity")
            .append_pair("Version", "2011-06-15")
            .append_pair("RoleArn", role)
            .append_pair("RoleSessionName", name)
            .append_pair("WebIdentityToken", token)
            .append_pair("DurationSeconds", &self.duration.to_string())
            .finish();
        let answer = provider::post(&self.client, HeaderMap::new(), form, "text/xml").await?;
        answer::read(&answer, Timestamp::now())
    }

    async fn session(
        self: &Arc<Self>,
        headers: &HeaderMap,
        context: &RequestContext,
    ) -> Result<(Fingerprint, Session), Failure> {
        let token = bearer_token(headers).map_err(|_| Failure::NoToken)?;
        let identity = context.identity().filter(|identity| identity.logged_in).ok_or(Failure::NoToken)?;
        let role = self.roles.choose(&identity.claims).map_err(Failure::Forbidden)?;
        let name = role::session_name(&identity.claims, &self.session_name).map_err(Failure::Forbidden)?;
        // Another token of one caller may open a role that this one does not, or with other tags.
        let key = Fingerprint::of(&[role, name, token].join("\n"));
        let ask = || {
            let (this, role, name, token) = (Arc::clone(self), role.to_owned(), name.to_owned(), token.to_owned());
            let rest = left(&identity.claims);
            async move {
                let given = this.open(&role, &name, &token).await?;
                // A session does not outlive the token that opened it.
                Ok(Given { time: rest.map_or(given.time, |rest| given.time.min(rest)), ..given })
            }
        };
        Ok((key, self.asking.get(key, || context.client(), token.len(), ask).await?))
    }
}

impl Strategy for AwsRoles {
    type Used = (Fingerprint, Session);
    const STEP: &'static str = AWS_STEP;
    /// AWS answers 403 to whatever it does not take, a session that was revoked among it.
    const REFUSALS: &'static [StatusCode] = &[StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];

    fn apply<'a>(&'a self, mut request: Request<Body>, context: &'a RequestContext) -> Applied<'a, Self::Used> {
        async move {
            if request.body().size_hint().lower() > LONGEST_BODY {
                let reason = format!("its body has more than the {LONGEST_BODY} bytes that are signed");
                return Err(Failure::TooLarge(reason));
            }
            let (key, session) = self.0.session(request.headers(), context).await?;
            remove_callers(&mut request);
            request.extensions_mut().insert(self.0.scope.signer(session.clone()));
            Ok((request, (key, session)))
        }
        .boxed()
    }

    fn refused(&self, (key, session): Self::Used) -> BoxFuture<'_, ()> {
        self.0.asking.forget(key, session).boxed()
    }

    fn announce(&self) {
        let Inner { client, scope, .. } = &*self.0;
        let (region, service, host) = (&*scope.region, &*scope.service, client.server().host().unwrap_or_default());
        tracing::info!(host, region, service, "requests are signed with roles of AWS, which callers' tokens open");
        if client.is_insecure() {
            tracing::warn!(host, "roles are opened without TLS: anybody on the path can read and change the sessions");
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        self.0.asking.bounds()
    }
}

/// Takes away the token of the caller, and whatever else AWS could take for a signature.
fn remove_callers(request: &mut Request<Body>) {
    remove_where(request.headers_mut(), is_header_of_aws);
    let Some(rest) = request.uri().query().and_then(without_signature) else { return };
    let path = request.uri().path();
    let target = if rest.is_empty() { path.to_owned() } else { format!("{path}?{rest}") };
    let mut parts = request.uri().clone().into_parts();
    // A shorter query is one still.
    parts.path_and_query = target.parse::<PathAndQuery>().ok().or(parts.path_and_query);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// A query without the members of a signature, where it has any.
fn without_signature(query: &str) -> Option<String> {
    let is_other = |member: &&str| {
        form_urlencoded::parse(member.as_bytes()).all(|(name, _)| !name.to_ascii_lowercase().starts_with(AMZ))
    };
    let rest: Vec<_> = query.split('&').filter(is_other).collect();
    (rest.len() < query.split('&').count()).then(|| rest.join("&"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use mcp_http::empty;

    use super::*;

    #[test]
    fn nothing_goes_on_by_which_a_caller_signs() {
        for (target, expected) in [
            ("/mcp", "/mcp"),
            ("/mcp?a=1&b", "/mcp?a=1&b"),
            ("/mcp?X-Amz-Signature=s&a=%2F&x%2Damz-Date=d", "/mcp?a=%2F"),
            ("/?X-AMZ-Security-Token", "/"),
            ("http://proxy/mcp?x-amz-credential=c", "http://proxy/mcp"),
        ] {
            let mut request = Request::post(target).body(empty()).unwrap();
            for name in ["authorization", "x-amz-date", "x-amz-anything", "x_amz_security_token", "content-type"] {
                request.headers_mut().insert(name, HeaderValue::from_static("v"));
            }
            remove_callers(&mut request);
            assert_eq!(request.uri(), expected);
            assert!(request.headers().keys().eq(["content-type"]), "{:?}", request.headers());
        }
    }
}
