//! Finds the resource of a request by the webhook's own rules.

use portcullis_manifest::{Rule, ScopeType, Webhook};
use portcullis_webhook::Operation;

/// The resource that a request addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

/// The parts of a request from which its resource follows.
pub(super) struct Wanted<'a> {
    pub(super) operation: Operation,
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    pub(super) sub_resource: &'a str,
}

/// The target by the first rule that matches; none when the API server would not call this webhook.
///
/// With a subresource only the rule names the resource: the kind that travels is another one (`autoscaling/v1` Scale).
pub(super) fn target(webhook: &Webhook, wanted: &Wanted<'_>) -> Option<Target> {
    webhook.rules.iter().find_map(|rule| by_rule(rule, wanted))
}

fn by_rule(rule: &Rule, wanted: &Wanted<'_>) -> Option<Target> {
    if !rule.operations.contains(&wanted.operation) {
        return None;
    }
    let plural = rule.resources.iter().find_map(|resource| plural(resource, wanted))?;
    let own = wanted.sub_resource.is_empty();
    let (group, version) = (pick(&rule.groups, wanted.group, own)?, pick(&rule.versions, wanted.version, own)?);
    Some(Target { group, version, plural, namespaced: rule.scope != ScopeType::Cluster })
}

/// The entry that is meant: the wanted one where the rule must have it, else the rule's first.
fn pick(entries: &[String], wanted: &str, must: bool) -> Option<String> {
    if entries.iter().any(|entry| entry == wanted || entry == "*") {
        return Some(wanted.to_owned());
    }
    entries.first().filter(|_| !must).cloned()
}

/// The plural name that an entry of a rule's resources means for this request, if it matches.
fn plural(resource: &str, wanted: &Wanted<'_>) -> Option<String> {
    let (name, sub) = resource.split_once('/').unwrap_or((resource, ""));
    // `pods/*` is for pods, too (apiserver, admission/plugin/webhook/predicates/rules).
    if sub != "*" && sub != wanted.sub_resource {
        return None;
    }
    // Only a rule for every resource leaves the name open; then it is made as most kinds make theirs.
    Some(if name == "*" { format!("{}s", wanted.kind.to_lowercase()) } else { name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_manifest::WebhookKind;

    fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> Rule {
        let owned = |list: &[&str]| list.iter().map(|&entry| entry.to_owned()).collect();
        Rule {
            groups: owned(groups),
            versions: owned(versions),
            resources: owned(resources),
            scope: ScopeType::Namespaced,
            operations: vec![Operation::Create, Operation::Update],
        }
    }

    #[test]
    fn a_request_finds_the_resource_that_the_rules_name_or_none() {
        let own = || rule(&["demo.example"], &["v1", "v2"], &["entities"]);
        let scale = || rule(&["demo.example"], &["v1"], &["entities/scale"]);
        let cases = [
            (own(), Operation::Create, ("demo.example", "v2", "Entity", ""), Some("demo.example/v2 entities")),
            (own(), Operation::Delete, ("demo.example", "v2", "Entity", ""), None),
            (own(), Operation::Create, ("demo.example", "v3", "Entity", ""), None),
            (own(), Operation::Create, ("", "v1", "Entity", ""), None),
            (own(), Operation::Update, ("demo.example", "v1", "Entity", "status"), None),
            (scale(), Operation::Update, ("autoscaling", "v1", "Scale", "scale"), Some("demo.example/v1 entities")),
            (scale(), Operation::Update, ("autoscaling", "v1", "Scale", ""), None),
            (
                rule(&["*"], &["*"], &["*"]),
                Operation::Create,
                ("apps", "v1", "Deployment", ""),
                Some("apps/v1 deployments"),
            ),
            (
                rule(&["*"], &["*"], &["*/*"]),
                Operation::Update,
                ("apps", "v1", "Scale", "scale"),
                Some("apps/v1 scales"),
            ),
            (rule(&[""], &["v1"], &["pods/*"]), Operation::Update, ("", "v1", "Pod", "status"), Some("/v1 pods")),
            (rule(&[""], &["v1"], &["pods/*"]), Operation::Update, ("", "v1", "Pod", ""), Some("/v1 pods")),
        ];
        for (rule, operation, (group, version, kind, sub_resource), found) in cases {
            let shown = format!("{rule:?} {operation} {group}/{version} {kind} {sub_resource}");
            let webhook = Webhook::new("a.b.c", WebhookKind::Validating, "/a", vec![rule]);
            let target = target(&webhook, &Wanted { operation, group, version, kind, sub_resource });
            let told = target.map(|target| format!("{}/{} {}", target.group, target.version, target.plural));
            assert_eq!(told.as_deref(), found, "{shown}");
        }
    }
}
