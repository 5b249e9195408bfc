//! Settings of all webhooks of an installation, which override those that each is registered with: flags, and values of
//! charts.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;
use portcullis_manifest::{FailurePolicy, Overrides};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Defines the flags. Each sets the field of [`Overrides`] that has its name, and has a function that writes the value.
macro_rules! flags {
    ($($(#[$attribute:meta])* $field:ident: $Value:ty => $text:expr,)+) => {
        #[derive(clap::Args, Clone, Debug, Default)]
        pub(super) struct OverrideFlags {
            $($(#[$attribute])* $field: Option<$Value>,)+
        }

        impl OverrideFlags {
            pub(super) fn overrides(&self) -> Overrides {
                Overrides { $($field: self.$field.clone(),)+ }
            }
        }

        /// The flags that set these overrides: their names, each with its value if it has one.
        pub(super) fn flags(overrides: &Overrides) -> Vec<(String, Option<String>)> {
            vec![$((stringify!($field).replace('_', "-"), overrides.$field.as_ref().map($text)),)+]
        }
    };
}

flags! {
    /// The API server's action when no replica answers; a webhook that is registered with Ignore keeps it [default:
    /// what each is registered with]
    #[arg(long, value_name = "POLICY", value_parser = failure_policy())]
    failure_policy: FailurePolicy => ToString::to_string,
    /// Timeout of every webhook in seconds, 1 to 30 [default: what each is registered with]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u8).range(1..=30))]
    timeout_seconds: u8 => ToString::to_string,
    /// Call webhooks only for objects in namespaces with these labels, in addition to each webhook's own selector: a
    /// label selector in kubectl's syntax, or JSON
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    namespace_selector: LabelSelector => text,
    /// Call webhooks only for objects with these labels, in the same way
    #[arg(long, value_name = "SELECTOR", value_parser = selector)]
    object_selector: LabelSelector => text,
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
    expressions.unwrap_or_else(|_| json!(selector).to_string())
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

/// A label selector as in a manifest. The type of k8s-openapi passes over members that it does not know, which are refused
/// here; the API server validates keys, operators and values.
fn from_json(text: &str) -> Result<LabelSelector, String> {
    let given: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let read = LabelSelector::deserialize(&given).map_err(|error| error.to_string())?;
    if json!(read) == given { Ok(read) } else { Err(format!("only this of it is a label selector: {}", json!(read))) }
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
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(wrong());
        }
        let values = values.map(|values| values.into_iter().map(|value| value.trim().to_owned()).collect());
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
    use super::*;

    #[test]
    fn a_selector_parses_as_kubectl_does_and_round_trips() {
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
            // A chart writes selectors as JSON.
            (r#"{"matchLabels":{"env":"prod"}}"#, json!({ "matchLabels": { "env": "prod" } }), "env=prod"),
        ];
        for (given, expected, written) in cases {
            let read = selector(given).unwrap();
            assert_eq!(json!(read), expected, "{given}");
            assert_eq!(text(&read), written, "{given}");
            assert_eq!(selector(written).unwrap(), read, "{given}");
        }
        for wrong in [
            "",
            "env=prod,",
            "env in a,b",
            "in (a)",
            "env=a,env=b",
            "{",
            r#"{"labels":{}}"#,
            r#"{"matchExpressions":[{"key":"a","operator":"In","value":["b"]}]}"#,
        ] {
            assert!(selector(wrong).is_err(), "{wrong:?}: {:?}", selector(wrong));
        }
    }
}
