//! Nobody has to log in: everybody is the local user (toolhive-runner §2.7).

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use mcp_middleware::Identity;
use serde_json::{Map, Value, json};

/// The local user.
#[derive(Debug)]
pub(crate) struct Local {
    user: String,
    /// The identity of the second it was made in; its claims hold times in seconds.
    current: ArcSwap<(i64, Arc<Identity>)>,
}

impl Local {
    pub(crate) fn new(user: &str) -> Self {
        let now = Timestamp::now().as_second();
        Self { user: user.to_owned(), current: ArcSwap::from_pointee((now, local(user, now))) }
    }

    pub(crate) fn identity(&self) -> Arc<Identity> {
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
