//! The middleware `auth`, which authenticates callers (toolhive-auth §1).
//!
//! Where the document has an `oidc_config`, a request passes with a token of that OpenID Connect provider alone: a JWT
//! whose signature one of the provider's keys verifies, or a token that the provider vouches for when asked (RFC 7662).
//! Anybody else gets a 401 that says where tokens come from (RFC 6750, RFC 9728). Without it everybody is the local
//! user.
//!
//! The `scope` of a token is not checked: the challenge and the metadata name it for clients to ask for. A
//! token that passes goes on to the MCP server in `Authorization`, as ToolHive has it (toolhive-auth §1.10).
//!
//! An answer that belongs to no call ends when the token that opened it expires; the stream of events that answers a
//! call, ten minutes later.
//!
//! ```
//! use mcp_middleware::Registry;
//!
//! let mut registry = Registry::default();
//! mcp_authn::register(&mut registry);
//! assert!(registry.kinds().eq(["auth"]));
//! ```

mod cache;
mod claims;
mod config;
mod discovery;
mod expiry;
mod fetch;
mod flight;
mod introspection;
mod jws;
mod keys;
mod local;
mod login;
mod metadata;
mod provider;
mod refusal;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response};
use jiff::Timestamp;
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, Guard, Identity, Middleware, Next, Outcome, Registry, RequestContext};
use mcp_runconfig::{AuthParameters, chain};
use mcp_store::Bound;
use mcp_wire::headers::opens_stream;
use serde_json::{Map, Value};
use tokio::time::timeout;

pub use self::claims::LEEWAY;
pub use self::discovery::{ProviderMetadata, metadata_url as provider_metadata_url};
use self::expiry::{CALL, Opened, end_after};
pub use self::introspection::basic;
pub use self::jws::unverified_claims;
use self::local::Local;
use self::login::Login;
use self::metadata::ProtectedResource;
pub use self::metadata::metadata_url as resource_metadata_url;
use self::refusal::Refusal;

/// Adds `auth`.
pub fn register(registry: &mut Registry) {
    registry
        .register(chain::AUTH, |parameters: AuthParameters, context| async move { Auth::new(&parameters, &context) });
}

/// The identity of a caller whose token has these claims; `None` where they name nobody. Whether such a token is valid
/// is not checked.
pub fn identity(claims: Map<String, Value>) -> Option<Arc<Identity>> {
    claims::identity(claims).ok()
}

/// The identity of everybody where nobody has to log in: the local user of this name.
pub fn local_identity(user: &str) -> Arc<Identity> {
    Local::new(user).identity()
}

/// Says who calls, and refuses who does not say it.
#[derive(Debug)]
enum Auth {
    Local(Local),
    Login { login: Box<Login>, resource: ProtectedResource, guard: Guard },
}

impl Auth {
    fn new(parameters: &AuthParameters, context: &BuildContext) -> Result<Self, BuildError> {
        // The inner one would put its identity in place of the outer one's.
        context.check_single()?;
        Ok(match &parameters.oidc_config {
            Some(oidc) => Self::Login {
                login: Box::new(config::login(oidc, context)?),
                resource: ProtectedResource::of(oidc),
                guard: context.guard(),
            },
            None => Self::Local(Local::new(&context.settings.local_user)),
        })
    }
}

impl Middleware for Auth {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let (login, guard) = match self {
            Self::Login { login, guard, .. } => (login, guard),
            Self::Local(local) => {
                next.context().identify(local.identity());
                return next.call(request);
            }
        };
        Box::pin(async move {
            let context = next.context();
            let started = Instant::now();
            let (caller, token) = match login.identify(request.headers(), &context.client()).await {
                Ok(identified) => identified,
                Err(refusal) => {
                    context.decided(guard, refusal.outcome(), started);
                    return refuse(login, context, &refusal);
                }
            };
            context.decided(guard, Outcome::Allowed, started);
            context.identify_by(token, Arc::clone(&caller.identity));
            let Some(expires) = caller.expires else { return login.challenge(next.call(request).await) };
            let by_call = !opens_stream(request.method(), request.headers());
            let client = context.peer().ip();
            let opened = Opened { by_call, client, caller: caller.identity, method: request.method().clone() };
            if by_call {
                let response = login.challenge(next.call(request).await);
                return end_after(left(expires).saturating_add(CALL), opened, response);
            }
            // Some servers send the head of a stream with its first event.
            match timeout(left(expires), next.call(request)).await {
                Ok(response) => end_after(left(expires), opened, login.challenge(response)),
                Err(_) => refuse(login, context, &Refusal::Invalid("token expired".to_owned())),
            }
        })
    }

    fn announce(&self) {
        if let Self::Login { login, .. } = self {
            login.warm_up();
        }
    }

    fn document(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
        match self {
            Self::Login { resource, .. } => resource.answer(method, path, headers),
            Self::Local(_) => None,
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        match self {
            Self::Login { login, .. } => login.bounds(),
            Self::Local(_) => Vec::new(),
        }
    }
}

fn refuse(login: &Login, context: &RequestContext, refusal: &Refusal) -> Response<Body> {
    let (client, reason) = (context.peer().ip(), refusal.reason());
    tracing::info!(%client, reason, "a request was refused: its caller is not known");
    context.deny(chain::AUTH, reason.to_owned());
    login.refuse(refusal)
}

/// The time until `expires`, in Unix seconds.
fn left(expires: i64) -> Duration {
    let seconds = expires.saturating_sub(Timestamp::now().as_second());
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
