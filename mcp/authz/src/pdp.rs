//! The questions to a policy decision point, and its answers (toolhive-auth §4.8).

use std::borrow::Cow;

use mcp_runconfig::{ClaimMapping, PdpContext};
use mcp_wire::Members;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::hints::NAMES;
use crate::{Denial, Question, value};

/// The form of the questions to a policy decision point.
#[derive(Clone, Debug)]
pub struct PdpForm {
    /// The names by which it is told claims.
    pub claims: ClaimMapping,
    /// The facts that it is told beside who asks for what.
    pub context: PdpContext,
    /// The name of the MCP server.
    pub server: String,
}

/// The claims of each member of a principal, the first of which counts.
type Claims = [(&'static str, &'static [&'static str])];

const STANDARD: &Claims =
    &[("sub", &["sub"]), ("roles", &["roles"]), ("groups", &["groups"]), ("scopes", &["scopes", "scope"])];
const MPE: &Claims = &[
    ("sub", &["sub"]),
    ("mroles", &["mroles", "roles"]),
    ("mgroups", &["mgroups", "groups"]),
    ("scopes", &["scopes", "scope"]),
    ("mclearance", &["mclearance", "clearance"]),
    ("mannotations", &["mannotations", "annotations"]),
];

#[derive(Serialize)]
struct Asked<'a> {
    principal: &'a Value,
    operation: String,
    resource: String,
    context: Context<'a>,
}

#[derive(Serialize)]
struct Context<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp: Option<Mcp<'a>>,
}

#[derive(Serialize)]
struct Mcp<'a> {
    #[serde(flatten)]
    facts: Option<Facts<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Map<String, Value>>,
}

#[derive(Serialize)]
struct Facts<'a> {
    feature: &'static str,
    operation: &'static str,
    resource_id: &'a str,
}

impl PdpForm {
    /// The principal of the caller with these claims.
    pub fn principal(&self, claims: &Map<String, Value>) -> Value {
        let (members, mut principal) = match self.claims {
            ClaimMapping::Standard => (STANDARD, Map::new()),
            // Policies of this engine read it whether there are any or not.
            ClaimMapping::Mpe => (MPE, Map::from_iter([("mannotations".to_owned(), json!({}))])),
        };
        for (member, names) in members {
            let found = names.iter().find_map(|name| claims.get(*name));
            let value = match found {
                None => continue,
                Some(Value::String(words)) if *member == "scopes" => words.split_whitespace().collect(),
                Some(value) => value.clone(),
            };
            principal.insert((*member).to_owned(), value);
        }
        Value::Object(principal)
    }

    /// The JSON that asks a question of this principal.
    ///
    /// # Errors
    /// The arguments that it is to be told can be read in two ways, or are too many.
    pub fn question(&self, principal: &Value, question: &Question<'_>) -> Result<Vec<u8>, Denial> {
        let [feature, operation] = question.feature.words();
        let PdpContext { include_args, include_operation } = self.context;
        let args = question.arguments.filter(|arguments| include_args && arguments.get() != "null");
        args.map(value::named).transpose()?;
        let hints = NAMES.into_iter().zip(question.hints.0);
        let hints: Map<_, _> = hints.filter_map(|(name, hint)| Some((name.to_owned(), hint?.into()))).collect();
        let annotations = (!hints.is_empty()).then_some(hints);
        let id: &Cow<'_, str> = &question.id;
        let facts = include_operation.then_some(Facts { feature, operation, resource_id: id });
        let told = facts.is_some() || args.is_some() || annotations.is_some();
        let asked = Asked {
            principal,
            operation: format!("mcp:{feature}:{operation}"),
            resource: format!("mrn:mcp:{}:{feature}:{id}", self.server),
            context: Context { mcp: told.then_some(Mcp { facts, args, annotations }) },
        };
        serde_json::to_vec(&asked).map_err(|_| Denial::Refused("the question cannot be written"))
    }

    /// Whether an answer allows what was asked for.
    ///
    /// # Errors
    /// It is none.
    pub fn allows(answer: &[u8]) -> Result<bool, &'static str> {
        // A derived type would take an array for it, too.
        let Members(members) = serde_json::from_slice(answer).map_err(|_| "it is no object")?;
        let mut values = members.iter().filter(|(name, _)| name == "allow").map(|(_, value)| value.get());
        match (values.next(), values.next()) {
            (None, _) | (Some("false"), None) => Ok(false),
            (Some("true"), None) => Ok(true),
            _ => Err("its member allow is not true or false, or is there twice"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feature, Hints};

    #[test]
    fn a_principal_has_the_claims_that_the_mapping_names() {
        for (mapping, claims, principal) in [
            (ClaimMapping::Standard, json!({}), json!({})),
            (
                ClaimMapping::Standard,
                json!({"sub": "u", "scope": "a  b", "roles": ["r"], "groups": "g", "mroles": 1, "email": "e"}),
                json!({"sub": "u", "scopes": ["a", "b"], "roles": ["r"], "groups": "g"}),
            ),
            (ClaimMapping::Standard, json!({"scopes": ["a b"], "scope": "c"}), json!({"scopes": ["a b"]})),
            (ClaimMapping::Mpe, json!({"sub": "u"}), json!({"sub": "u", "mannotations": {}})),
            (
                ClaimMapping::Mpe,
                json!({"roles": ["r"], "mroles": ["m"], "groups": ["g"], "clearance": "top", "annotations": {"a": 1}}),
                json!({"mroles": ["m"], "mgroups": ["g"], "mclearance": "top", "mannotations": {"a": 1}}),
            ),
        ] {
            let form = PdpForm { claims: mapping, context: PdpContext::default(), server: String::new() };
            assert_eq!(form.principal(claims.as_object().unwrap()), principal, "{claims}");
        }
    }

    #[test]
    fn a_question_has_the_facts_that_are_asked_for_and_hints_always() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let arguments = raw(r#"{"n":1.50}"#);
        let call = Question { arguments: Some(&arguments), ..Question::new(Feature::Tool, "echo") };
        let hinted = Question { hints: Hints([Some(true), None, None, None]), ..Question::new(Feature::Tool, "echo") };
        let read = Question::new(Feature::Resource, "file:///a");
        for (include_args, include_operation, question, operation, resource, context) in [
            (false, false, &call, "mcp:tool:call", "mrn:mcp:srv:tool:echo", "{}"),
            (true, false, &call, "mcp:tool:call", "mrn:mcp:srv:tool:echo", r#"{"mcp":{"args":{"n":1.50}}}"#),
            (
                false,
                false,
                &hinted,
                "mcp:tool:call",
                "mrn:mcp:srv:tool:echo",
                r#"{"mcp":{"annotations":{"readOnlyHint":true}}}"#,
            ),
            (
                true,
                true,
                &read,
                "mcp:resource:read",
                "mrn:mcp:srv:resource:file:///a",
                r#"{"mcp":{"feature":"resource","operation":"read","resource_id":"file:///a"}}"#,
            ),
        ] {
            let context_config = PdpContext { include_args, include_operation };
            let form = PdpForm { claims: ClaimMapping::Standard, context: context_config, server: "srv".to_owned() };
            let asked = form.question(&json!({"sub": "u"}), question).unwrap();
            let expected = format!(
                r#"{{"principal":{{"sub":"u"}},"operation":"{operation}","resource":"{resource}","context":{context}}}"#
            );
            assert_eq!(String::from_utf8(asked).unwrap(), expected);
        }
        let two = raw(r#"{"a":1,"A":2}"#);
        let call = Question { arguments: Some(&two), ..Question::new(Feature::Tool, "echo") };
        let context = PdpContext { include_args: true, include_operation: false };
        let form = PdpForm { claims: ClaimMapping::Standard, context, server: String::new() };
        assert!(form.question(&Value::Null, &call).is_err());
    }

    #[test]
    fn an_answer_allows_in_one_way_alone() {
        for (answer, allows) in [
            (r#"{"allow":true}"#, Some(true)),
            (r#"{"allow":true,"why":"x"}"#, Some(true)),
            (r#"{"allow":false}"#, Some(false)),
            ("{}", Some(false)),
            (r#"{"Allow":true}"#, Some(false)),
            (r#"{"allow":false,"allow":true}"#, None),
            (r#"{"allow":"true"}"#, None),
            (r#"{"allow":null}"#, None),
            ("null", None),
            ("", None),
            ("true", None),
            ("[true]", None),
            ("[]", None),
            (r#"[{"allow":true}]"#, None),
            (r#"{"\u0061llow":true}"#, Some(true)),
            (r#"{"allow":[true]}"#, None),
        ] {
            assert_eq!(PdpForm::allows(answer.as_bytes()).ok(), allows, "{answer}");
        }
    }
}
