//! `auth` without login: everybody is the local user (toolhive-runner §2.7).

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::{Request, Response};
use jiff::Timestamp;
use mcp_http::Body;
use mcp_runconfig::webhook;
use serde_json::{Map, Value, json};

use crate::chain::{Next, Step};
use crate::error::{BuildError, Place, parameter};

/// Who called: a request extension that `auth` sets.
#[derive(Clone, Debug)]
pub struct Principal(pub Arc<webhook::Principal>);

/// Names every caller as the local user.
pub(crate) struct Auth {
    user: String,
    /// The principal of the second it was made in; its claims hold times in seconds.
    current: ArcSwap<(i64, Principal)>,
}

impl Auth {
    pub(crate) fn new(parameters: &Value, user: &str, place: Place<'_>) -> Result<Self, BuildError> {
        if !matches!(parameters, Value::Object(_) | Value::Null) {
            return Err(place.error("parameters", "are not an object", "write {} where nobody has to log in"));
        }
        if parameter(parameters, "oidc_config").is_some_and(|config| !config.is_null()) {
            return Err(place.error(
                "parameters.oidc_config",
                "login by OIDC is not supported by this proxy",
                "use a proxy that has it; without the login every caller would be let in",
            ));
        }
        let now = Timestamp::now().as_second();
        Ok(Self { user: user.to_owned(), current: ArcSwap::from_pointee((now, local(user, now))) })
    }

    fn principal(&self) -> Principal {
        let now = Timestamp::now().as_second();
        let current = self.current.load();
        if current.0 == now {
            return current.1.clone();
        }
        let principal = local(&self.user, now);
        self.current.store(Arc::new((now, principal.clone())));
        principal
    }
}

impl Step for Auth {
    fn call<'a>(&'a self, mut request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        request.extensions_mut().insert(self.principal());
        next.call(request)
    }
}

/// The local user at `now` (Unix seconds): its claims expire after a day.
fn local(user: &str, now: i64) -> Principal {
    let (name, email) = (format!("Local User: {user}"), format!("{user}@localhost"));
    let claims = json!({
        "sub": user, "iss": "toolhive-local", "aud": "toolhive", "exp": now + 86_400, "iat": now, "nbf": now,
        "email": email, "name": name,
    });
    let claims = if let Value::Object(claims) = claims { claims } else { Map::new() };
    Principal(Arc::new(webhook::Principal { sub: user.to_owned(), name, email, claims, ..Default::default() }))
}
