//! `auth` without login: everybody is the local user (toolhive-runner §2.7).

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::{Request, Response};
use jiff::Timestamp;
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, Identity, Middleware, Next};
use mcp_runconfig::AuthParameters;
use serde_json::{Map, Value, json};

/// Names every caller as the local user.
pub(crate) struct Auth {
    user: String,
    /// The identity of the second it was made in; its claims hold times in seconds.
    current: ArcSwap<(i64, Arc<Identity>)>,
}

impl Auth {
    pub(crate) fn new(parameters: AuthParameters, context: &BuildContext<'_>) -> Result<Self, BuildError> {
        if parameters.oidc_config.is_some() {
            return Err(context.error(
                "parameters.oidc_config",
                "login by OIDC is not supported by this proxy",
                "use a proxy that has it; without the login every caller would be let in",
            ));
        }
        let user = context.settings.local_user.clone();
        let now = Timestamp::now().as_second();
        let current = ArcSwap::from_pointee((now, local(&user, now)));
        Ok(Self { user, current })
    }

    fn identity(&self) -> Arc<Identity> {
        let now = Timestamp::now().as_second();
        let current = self.current.load();
        if current.0 == now {
            return Arc::clone(&current.1);
        }
        let identity = local(&self.user, now);
        self.current.store(Arc::new((now, Arc::clone(&identity))));
        identity
    }
}

impl Middleware for Auth {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.context().identify(self.identity());
        next.call(request)
    }
}

/// The local user at `now` (Unix seconds): its claims expire after a day.
fn local(user: &str, now: i64) -> Arc<Identity> {
    let (name, email) = (format!("Local User: {user}"), format!("{user}@localhost"));
    let claims = json!({
        "sub": user, "iss": "toolhive-local", "aud": "toolhive", "exp": now + 86_400, "iat": now, "nbf": now,
        "email": email, "name": name,
    });
    let claims = if let Value::Object(claims) = claims { claims } else { Map::new() };
    Arc::new(Identity { logged_in: false, subject: user.to_owned(), name, email, claims, ..Identity::default() })
}
