//! Who calls: the middleware `auth` (toolhive-auth §1).
//!
//! Where the document has an `oidc_config`, a request passes with a token of that OpenID Connect provider alone: a JWT whose signature
//! one of the provider's keys verifies, or a token that the provider vouches for when asked (RFC 7662). Anybody else gets a 401 that says
//! where tokens come from (RFC 6750, RFC 9728). Without it everybody is the local user.
//!
//! What is not checked: the `scope` of a token, which the challenge and the metadata name for clients to ask for. A token that passes goes
//! on to the MCP server in `Authorization`, as ToolHive has it.
//!
//! ```
//! use mcp_middleware::Registry;
//!
//! let mut registry = Registry::default();
//! mcp_authn::register(&mut registry, None);
//! assert!(registry.kinds().eq(["auth"]));
//! ```

mod bearer;
mod cache;
mod claims;
mod config;
mod discovery;
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
mod share;

use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, Middleware, Next, Registry};
use mcp_runconfig::{AuthParameters, chain};

use self::local::Local;
use self::login::Login;
pub use self::metadata::{ProtectedResource, WELL_KNOWN};
use self::refusal::Refusal;

/// Adds `auth`. `client_secret` is the proxy's own password at the provider, which a document does not have in it.
pub fn register(registry: &mut Registry, client_secret: Option<String>) {
    registry.register(chain::AUTH, move |parameters: AuthParameters, context: &BuildContext<'_>| {
        Auth::new(&parameters, client_secret.as_deref(), context)
    });
}

/// Says who calls, and refuses who does not say it.
#[derive(Debug)]
enum Auth {
    Local(Local),
    Login(Box<Login>),
}

impl Auth {
    fn new(parameters: &AuthParameters, secret: Option<&str>, context: &BuildContext<'_>) -> Result<Self, BuildError> {
        // The inner one would put its identity in place of the outer one's.
        if context.is_inside_of(chain::AUTH) {
            return Err(context.error("type", "stands in the chain twice", "keep one of them"));
        }
        Ok(match &parameters.oidc_config {
            Some(oidc) => Self::Login(Box::new(config::login(oidc, secret, context)?)),
            None => Self::Local(Local::new(&context.settings.local_user)),
        })
    }
}

impl Middleware for Auth {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let login = match self {
            Self::Login(login) => login,
            Self::Local(local) => {
                next.context().identify(local.identity());
                return next.call(request);
            }
        };
        Box::pin(async move {
            match login.identify(request.headers(), next.context().peer()).await {
                Ok(identity) => {
                    next.context().identify(identity);
                    next.call(request).await
                }
                Err(refusal) => {
                    log(&refusal, next.context().peer());
                    next.context().deny(chain::AUTH, refusal.reason().to_owned());
                    login.refuse(&refusal)
                }
            }
        })
    }

    fn announce(&self) {
        if let Self::Login(login) = self {
            login.warm_up();
        }
    }
}

fn log(refusal: &Refusal, peer: std::net::SocketAddr) {
    let (client, reason) = (peer.ip(), refusal.reason());
    tracing::info!(%client, reason, "a request was refused: its caller is not known");
}
