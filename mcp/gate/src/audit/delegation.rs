//! Actors and subjects: the claim `act` of a token (RFC 8693 §4.1).

use serde::Serialize;
use serde_json::{Map, Value};

use super::text::cut;

/// The actors of a token, the current one first.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Delegation {
    chain: Vec<Actor>,
    /// Whether there are more actors than are listed.
    truncated: bool,
    /// The number of those.
    omitted: usize,
    /// Whether the claim is something else than a chain of actors.
    malformed: bool,
    #[serde(rename = "malformedReason", skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Actor {
    #[serde(skip_serializing_if = "String::is_empty")]
    iss: String,
    sub: String,
}

impl Delegation {
    /// The actors in the claims, `depth` of them at most; `None` where nobody acts for the subject.
    pub(super) fn of(claims: &Map<String, Value>, depth: usize) -> Option<Self> {
        let mut next = Some(claims.get("act")?);
        let mut delegation = Self::default();
        while let Some(act) = next {
            let text = |name: &str| act.get(name).and_then(Value::as_str).unwrap_or_default();
            let reason = match act {
                Value::Object(_) if text("sub").is_empty() => Some("an actor has no sub"),
                Value::Object(_) => None,
                _ => Some("act is no object"),
            };
            if reason.is_some() {
                (delegation.malformed, delegation.reason) = (true, reason);
                break;
            }
            if delegation.chain.len() < depth {
                delegation.chain.push(Actor { iss: cut(text("iss")).to_owned(), sub: cut(text("sub")).to_owned() });
            } else {
                delegation.omitted += 1;
            }
            next = act.get("act");
        }
        delegation.truncated = delegation.omitted > 0;
        Some(delegation)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_chain_of_actors_is_cut_at_its_depth_and_a_broken_one_is_told() {
        let actor = |sub: &str| json!({"iss": "https://i", "sub": sub});
        let mut two = actor("a");
        two["act"] = json!({"sub": "b"});
        for (claims, expected) in [
            (json!({}), Value::Null),
            (
                json!({"act": actor("a")}),
                json!({"chain": [{"iss": "https://i", "sub": "a"}], "truncated": false, "omitted": 0, "malformed": false}),
            ),
            (
                json!({"act": two}),
                json!({"chain": [{"iss": "https://i", "sub": "a"}], "truncated": true, "omitted": 1, "malformed": false}),
            ),
            (
                json!({"act": "a"}),
                json!({"chain": [], "truncated": false, "omitted": 0, "malformed": true, "malformedReason": "act is no object"}),
            ),
            (
                json!({"act": {"sub": "a", "act": {}}}),
                json!({"chain": [{"sub": "a"}], "truncated": false, "omitted": 0, "malformed": true, "malformedReason": "an actor has no sub"}),
            ),
        ] {
            let Value::Object(claims) = claims else { unreachable!() };
            assert_eq!(serde_json::to_value(Delegation::of(&claims, 1)).unwrap(), expected, "{claims:?}");
        }
    }
}
