//! What an installation says of all its webhooks, over what each is registered with: flags, and values of charts.

use std::collections::BTreeMap;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;
use portcullis_manifest::{FailurePolicy, Overrides};
use serde::Deserialize;

#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct OverrideFlags {
    /// What the API server does when no replica answers; a webhook that is registered with Ignore keeps it [default:
    /// what each is registered with]
    #[arg(long, value_name = "POLICY", value_parser = failure_policy())]
    pub(super) failure_policy: Option<FailurePolicy>,
    /// Timeout of every webhook in seconds, 1 to 30 [default: what each is registered with]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u8).range(1..=30))]
    pub(super) timeout_seconds: Option<u8>,
    /// Call webhooks only for objects in namespaces with these labels, in addition to each webhook's own selector: a
    /// label selector in kubectl's syntax, or JSON
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    pub(super) namespace_selector: Option<LabelSelector>,
    /// Call webhooks only for objects with these labels, in the same way
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    pub(super) object_selector: Option<LabelSelector>,
}

impl OverrideFlags {
    pub(super) fn overrides(&self) -> Overrides {
        let Self { failure_policy, timeout_seconds, namespace_selector, object_selector } = self.clone();
        Overrides { failure_policy, timeout_seconds, namespace_selector, object_selector }
    }
}

/// The flags that say the same: their names, each with its value where there is one.
pub(super) fn flags(overrides: &Overrides) -> [(&'static str, Option<String>); 4] {
    let Overrides { failure_policy, timeout_seconds, namespace_selector, object_selector } = overrides;
    [
        ("failure-policy", failure_policy.map(|policy| policy.to_string())),
        ("timeout-seconds", timeout_seconds.map(|seconds| seconds.to_string())),
        ("namespace-selector", namespace_selector.as_ref().map(text)),
        ("object-selector", object_selector.as_ref().map(text)),
    ]
}

fn failure_policy() -> impl TypedValueParser<Value = FailurePolicy> {
    let words = [
        PossibleValue::new("Fail").help("The API server refuses the request"),
        PossibleValue::new("Ignore").help("The API server goes on as if there were no webhook"),
    ];
    PossibleValuesParser::new(words)
        .map(|word| if word == "Ignore" { FailurePolicy::Ignore } else { FailurePolicy::Fail })
}

/// A selector as kubectl takes it; as JSON where that cannot say it.
fn text(selector: &LabelSelector) -> String {
    let expressions = Selector::try_from(selector.clone()).map(|selector| selector.to_string());
    expressions.unwrap_or_else(|_| serde_json::json!(selector).to_string())
}

/// A label selector: `env=prod,tier!=web,region in (a,b),!legacy`, or JSON as in a manifest.
fn selector(text: &str) -> Result<LabelSelector, String> {
    if text.trim_start().starts_with('{') {
        return from_json(text);
    }
    let mut selector = LabelSelector::default();
    for part in parts(text) {
        let requirement = requirement(part.trim())?;
        match (requirement.operator.as_str(), requirement.values.as_deref()) {
            ("=", Some([value])) => {
                let labels = selector.match_labels.get_or_insert_default();
                if labels.insert(requirement.key.clone(), value.clone()).is_some() {
                    return Err(format!("the label {} can have one value: say it once", requirement.key));
                }
            }
            _ => selector.match_expressions.get_or_insert_default().push(requirement),
        }
    }
    Ok(selector)
}

/// A label selector as the API server takes it: the type of k8s-openapi passes over members that it does not know.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Given {
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
    #[serde(default)]
    match_expressions: Vec<Expression>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

fn from_json(text: &str) -> Result<LabelSelector, String> {
    let Given { match_labels, match_expressions } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for (key, value) in &match_labels {
        label(key, [value])?;
    }
    for Expression { key, operator, values } in &match_expressions {
        label(key, values)?;
        if matches!(operator, Operator::In | Operator::NotIn) == values.is_empty() {
            return Err(format!(
                "matchExpressions on {key}: In and NotIn have values, Exists and DoesNotExist have none"
            ));
        }
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// A key and values of labels, as apimachinery validates them.
fn label(key: &str, values: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), String> {
    let name = |text: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        text.len() <= 63 && ends(text.chars().next()) && ends(text.chars().last()) && text.chars().all(inner)
    };
    let domain = |text: &str| {
        let part = |part: &str| name(part) && !part.contains('_') && part == part.to_ascii_lowercase();
        text.len() <= 253 && text.split('.').all(part)
    };
    let (prefix, rest) = key.split_once('/').map_or((None, key), |(prefix, rest)| (Some(prefix), rest));
    if !prefix.is_none_or(domain) || !name(rest) {
        return Err(format!(
            "'{key}' is no key of a label: at most 63 letters, digits, '-', '_' and '.', as in example.com/tier"
        ));
    }
    match values.into_iter().find(|value| !(value.as_ref().is_empty() || name(value.as_ref()))) {
        Some(value) => {
            Err(format!("'{}' is no value of a label: at most 63 letters, digits, '-', '_' and '.'", value.as_ref()))
        }
        None => Ok(()),
    }
}

/// The parts between commas, but for those within parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// One part; an operator `=` for what a manifest says in `matchLabels`.
fn requirement(part: &str) -> Result<LabelSelectorRequirement, String> {
    let wrong = || format!("'{part}' is no part of a selector: write key=value, key!=value, key in (a,b), key or !key");
    let of = |key: &str, operator: &str, values: Option<Vec<&str>>| {
        let (key, values) = (key.trim(), values.map(|values| values.into_iter().map(str::trim).collect::<Vec<_>>()));
        label(key, values.iter().flatten()).map_err(|problem| format!("{}; {problem}", wrong()))?;
        let values = values.map(|values| values.into_iter().map(str::to_owned).collect());
        Ok(LabelSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values })
    };
    if let Some((head, list)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values = Some(list.split(',').collect());
        return match head.trim_end().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => of(key, "In", values),
            Some((key, "notin")) => of(key, "NotIn", values),
            _ => Err(wrong()),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return of(key, "NotIn", Some(vec![value]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return of(key, "=", Some(vec![value]));
    }
    match part.strip_prefix('!') {
        Some(key) => of(key, "DoesNotExist", None),
        None => of(part, "Exists", None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_is_what_kubectl_takes_it_for_and_is_written_so_again() {
        let expression = |key: &str, operator: &str, values: &[&str]| match values {
            [] => json!({ "key": key, "operator": operator }),
            values => json!({ "key": key, "operator": operator, "values": values }),
        };
        let cases = [
            ("env=prod", json!({ "matchLabels": { "env": "prod" } }), "env=prod"),
            ("env == prod, a.b/c=", json!({ "matchLabels": { "env": "prod", "a.b/c": "" } }), "a.b/c=,env=prod"),
            ("env!=prod", json!({ "matchExpressions": [expression("env", "NotIn", &["prod"])] }), "env notin (prod)"),
            (
                "env in (a, b),tier notin (web),new,!old",
                json!({ "matchExpressions": [
                    expression("env", "In", &["a", "b"]), expression("tier", "NotIn", &["web"]),
                    expression("new", "Exists", &[]), expression("old", "DoesNotExist", &[]),
                ] }),
                "env in (a,b),tier notin (web),new,!old",
            ),
            // As a chart writes it.
            (r#"{"matchLabels":{"env":"prod"}}"#, json!({ "matchLabels": { "env": "prod" } }), "env=prod"),
        ];
        for (given, expected, written) in cases {
            let read = selector(given).unwrap();
            assert_eq!(json!(read), expected, "{given}");
            assert_eq!(text(&read), written, "{given}");
            assert_eq!(selector(written).unwrap(), read, "{given}");
        }
        let long = format!("env={}", "x".repeat(64));
        for wrong in [
            "",
            "env=prod,",
            "env=a b",
            "env in a,b",
            "in (a)",
            "env=a,env=b",
            "a/b/c=d",
            "-a=b",
            "A.b/c=d",
            &long,
            "{",
            r#"{"labels":{}}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"Bogus"}]}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"In","value":["b"]}]}"#,
            r#"{"matchLabels":{"a b":"c"}}"#,
        ] {
            assert!(selector(wrong).is_err(), "{wrong:?}: {:?}", selector(wrong));
        }
    }
}
