//! The callers that policies were asked about last. To tell policies of claims takes longer than most decisions.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use mcp_authz::{Caller, Denial};
use mcp_middleware::Identity;

/// The most callers that are kept, and the largest of them, in bytes: 16 MiB together.
const MOST: usize = 512;
const SIZE: usize = 32 << 10;

/// Callers by the address of their identity, which whoever logs in anew has anew.
#[derive(Debug, Default)]
pub(super) struct Callers(RwLock<HashMap<usize, Known>>);

/// A caller. Nothing else is at the address of its identity while that is kept.
#[derive(Debug)]
struct Known {
    caller: Arc<Caller>,
    _identity: Arc<Identity>,
}

impl Callers {
    /// The caller with this identity, which `make` makes where it is not known.
    pub(super) fn of(
        &self,
        identity: &Arc<Identity>,
        make: impl FnOnce() -> Result<Caller, Denial>,
    ) -> Result<Arc<Caller>, Denial> {
        let place = Arc::as_ptr(identity).addr();
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return Ok(Arc::clone(&known.caller));
        }
        let caller = Arc::new(make()?);
        if caller.size() <= SIZE {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(place, Known { caller: Arc::clone(&caller), _identity: Arc::clone(identity) });
        }
        Ok(caller)
    }
}

#[cfg(test)]
mod tests {
    use mcp_authz::{ClaimSource, Policies};
    use mcp_runconfig::CedarConfig;
    use serde_json::json;

    use super::*;

    fn identity(text: &str) -> Arc<Identity> {
        let claims = json!({"sub": "ann", "text": text}).as_object().unwrap().clone();
        Arc::new(Identity { claims, ..Identity::default() })
    }

    #[test]
    fn a_caller_is_made_once_and_their_number_is_bounded() {
        let policy = "permit(principal, action, resource);".to_owned();
        let policies = Policies::parse(&CedarConfig { policies: vec![policy], ..CedarConfig::default() }, "").unwrap();
        let callers = Callers::default();
        let of = |identity: &Arc<Identity>| {
            let mut is_made = false;
            let make = || {
                is_made = true;
                Caller::new(&policies, &identity.claims, ClaimSource::Request)
            };
            let _ = callers.of(identity, make).unwrap();
            is_made
        };
        let (one, same_claims, long) = (identity("x"), identity("x"), identity(&"x".repeat(SIZE)));
        for (identity, made) in [(&one, true), (&one, false), (&same_claims, true), (&long, true), (&long, true)] {
            assert_eq!(of(identity), made);
        }
        for _ in 0..3 * MOST {
            of(&identity("y"));
            assert!(callers.0.read().unwrap().len() <= MOST);
        }
    }
}
