//! The requests that a rule of a webhook configuration reaches.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use portcullis_manifest::Rule;

use super::configuration::Entry;
use super::subject::Kind;

const ANY: &str = "*";

/// A request, as rules see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) operation: &'a str,
    pub(super) group: &'a str,
    /// None: whatever the version is.
    pub(super) version: Option<&'a str>,
    /// Plural, with `/subresource` where one is meant.
    pub(super) resource: &'a str,
}

impl Entry {
    /// Whether it is called for such requests.
    pub(super) fn covers(&self, asked: Asked<'_>) -> bool {
        self.rules.iter().any(|rule| covers(rule, asked))
    }

    /// Whether it is called for updates of this kind.
    pub(super) fn covers_updates_of(&self, kind: &Kind) -> bool {
        let Kind { group, plural, .. } = kind;
        self.covers(Asked { operation: "UPDATE", group, version: None, resource: plural })
    }
}

fn covers(rule: &RuleWithOperations, asked: Asked<'_>) -> bool {
    let lists = |list: &Option<Vec<String>>, wanted: &str| list.iter().flatten().any(|one| one == ANY || one == wanted);
    lists(&rule.operations, asked.operation)
        && lists(&rule.api_groups, asked.group)
        && asked.version.is_none_or(|version| lists(&rule.api_versions, version))
        && rule.resources.iter().flatten().any(|pattern| resource_covers(pattern, asked.resource))
}

/// `*` is every resource without its subresources, `*/*` all, `pods/*` all subresources of pods, `*/scale` all scales.
fn resource_covers(pattern: &str, resource: &str) -> bool {
    let part = |pattern: &str, part: &str| pattern == ANY || pattern == part;
    match (pattern.split_once('/'), resource.split_once('/')) {
        (None, None) => part(pattern, resource),
        (Some((ANY, ANY)), None) => true,
        (Some((plural, sub)), Some((of, asked))) => part(plural, of) && part(sub, asked),
        _ => false,
    }
}

/// The requests of a registered rule that the entry does not reach: resource, operation and versions.
pub(super) fn missing<'r>(rules: &'r [Rule], entry: &Entry) -> Vec<(&'r str, &'static str, &'r [String])> {
    let mut missing = Vec::new();
    for rule in rules {
        for resource in &rule.resources {
            for operation in &rule.operations {
                let operation = operation.as_str();
                let all = rule.groups.iter().all(|group| {
                    rule.versions
                        .iter()
                        .all(|version| entry.covers(Asked { operation, group, version: Some(version), resource }))
                });
                if !all {
                    missing.push((resource.as_str(), operation, rule.versions.as_slice()));
                }
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reaches_what_the_api_server_says_it_reaches() {
        for (pattern, resource, reached) in [
            ("orders", "orders", true),
            ("orders", "orders/status", false),
            ("*", "orders", true),
            ("*", "orders/status", false),
            ("*/*", "orders", true),
            ("*/*", "orders/status", true),
            ("orders/*", "orders/status", true),
            ("orders/*", "orders", false),
            ("*/status", "orders/status", true),
            ("*/status", "orders/scale", false),
            ("waiters", "orders", false),
        ] {
            assert_eq!(resource_covers(pattern, resource), reached, "{pattern} {resource}");
        }
    }
}
