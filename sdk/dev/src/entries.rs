//! Webhook configurations that call a URL.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use portcullis_manifest::{
    Deadlock, FailurePolicy, NAMESPACE_NAME, ScopeType, ServiceRef, Webhook, WebhookKind, mutating_configuration,
    validating_configuration,
};

use super::mark::Mark;

/// The place that the API server calls, and the authority that it trusts there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// `https://host[:port]`.
    pub(super) url: String,
    /// The CA in PEM; without it, the roots of the API server's own system count.
    pub(super) ca_pem: Option<String>,
}

impl Target {
    pub(super) fn client_config(&self, path: &str) -> WebhookClientConfig {
        WebhookClientConfig {
            url: Some(format!("{}{path}", self.url)),
            ca_bundle: self.ca_pem.as_ref().map(|pem| ByteString(pem.clone().into_bytes())),
            service: None,
        }
    }
}

/// The requests that a session asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    /// Only requests in these namespaces; all when empty.
    pub(super) namespaces: Vec<String>,
    /// Keep the webhooks' own failure policies.
    pub(super) fail: bool,
}

impl Reach {
    /// The entries that are put into the cluster, and the names of those that cannot be restricted to namespaces.
    ///
    /// They let requests pass when this machine does not answer, unless set otherwise: one that sleeps must not lock a
    /// cluster that others use. Their names are not those of the installed operator: who reads a refusal, or looks for
    /// that operator's webhooks, can tell them apart.
    pub(super) fn entries(
        &self,
        registered: Vec<Webhook>,
        own_namespace: &str,
    ) -> Result<(Vec<Webhook>, Vec<String>), Deadlock> {
        let (mut entries, mut left_out) = (Vec::new(), Vec::new());
        for mut entry in registered {
            if !self.fail {
                entry.failure_policy = FailurePolicy::Ignore;
            }
            if !self.namespaces.is_empty() {
                // A namespace selector says nothing of objects that are in no namespace.
                entry.rules.retain(|rule| rule.scope != ScopeType::Cluster);
                entry.rules.iter_mut().for_each(|rule| rule.scope = ScopeType::Namespaced);
                let requirement = LabelSelectorRequirement {
                    key: NAMESPACE_NAME.to_owned(),
                    operator: "In".to_owned(),
                    values: Some(self.namespaces.clone()),
                };
                let selector = entry.namespace_selector.get_or_insert_default();
                selector.match_expressions.get_or_insert_default().push(requirement);
            }
            if entry.rules.is_empty() {
                left_out.push(entry.name);
            } else {
                entry.name = format!("dev.{}", entry.name);
                entries.push(entry.prevent_deadlock(own_namespace)?);
            }
        }
        Ok((entries, left_out))
    }
}

/// The Service that the generator is given for the paths' sake; it is not called.
fn no_service() -> ServiceRef {
    ServiceRef { namespace: String::new(), name: String::new(), port: 443 }
}

/// Calls the URL where the generated entry called a Service.
fn by_url(client: &mut WebhookClientConfig, target: &Target) {
    let path = client.service.take().and_then(|service| service.path).unwrap_or_default();
    *client = target.client_config(&path);
}

/// The validating ones among `entries`, if there are any.
pub(super) fn validating(
    name: &str,
    entries: &[Webhook],
    target: &Target,
    mark: &Mark,
) -> Option<ValidatingWebhookConfiguration> {
    entries.iter().any(|entry| entry.kind == WebhookKind::Validating).then(|| {
        let mut configuration = validating_configuration(name, entries, &no_service());
        configuration.webhooks.iter_mut().flatten().for_each(|entry| by_url(&mut entry.client_config, target));
        configuration.metadata.labels = Some(mark.labels());
        configuration.metadata.annotations = Some(mark.annotations());
        configuration
    })
}

/// The mutating ones among `entries`, if there are any.
pub(super) fn mutating(
    name: &str,
    entries: &[Webhook],
    target: &Target,
    mark: &Mark,
) -> Option<MutatingWebhookConfiguration> {
    entries.iter().any(|entry| entry.kind == WebhookKind::Mutating).then(|| {
        let mut configuration = mutating_configuration(name, entries, &no_service());
        configuration.webhooks.iter_mut().flatten().for_each(|entry| by_url(&mut entry.client_config, target));
        configuration.metadata.labels = Some(mark.labels());
        configuration.metadata.annotations = Some(mark.annotations());
        configuration
    })
}

#[cfg(test)]
mod tests {
    use portcullis_manifest::{Operation, Rule};

    use super::*;

    fn registered() -> Vec<Webhook> {
        let entry = |name: &str, kind, group: &str, scope| {
            let rule = Rule {
                groups: vec![group.into()],
                versions: vec!["v1".into()],
                resources: vec!["things".into()],
                scope,
                operations: vec![Operation::Create],
            };
            Webhook::new(format!("{name}.things.demo"), kind, format!("/{name}"), vec![rule])
        };
        vec![
            entry("own", WebhookKind::Validating, "demo.example", ScopeType::Namespaced),
            entry("pods", WebhookKind::Mutating, "", ScopeType::Any),
            entry("nodes", WebhookKind::Validating, "", ScopeType::Cluster),
        ]
    }

    fn requirements(entry: &Webhook) -> Vec<(String, Vec<String>)> {
        let selector = entry.namespace_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
        selector.map(|found| (found.operator.clone(), found.values.clone().unwrap_or_default())).collect()
    }

    // K6
    #[test]
    fn a_sleeping_machine_blocks_no_write_unless_it_fails_closed() {
        let (entries, left_out) = Reach::default().entries(registered(), "op-system").unwrap();
        assert!(left_out.is_empty());
        for entry in &entries {
            assert_eq!((entry.failure_policy, requirements(entry)), (FailurePolicy::Ignore, vec![]), "{}", entry.name);
        }
        let (entries, _) = Reach { fail: true, ..Reach::default() }.entries(registered(), "op-system").unwrap();
        let guard = vec![("NotIn".to_owned(), vec!["op-system".to_owned()])];
        assert!(entries.iter().all(|entry| entry.failure_policy == FailurePolicy::Fail));
        assert_eq!(entries.iter().map(requirements).collect::<Vec<_>>(), [vec![], guard.clone(), guard]);
    }

    #[test]
    fn webhooks_of_some_namespaces_see_no_other_object() {
        let reach = Reach { namespaces: vec!["a".to_owned(), "b".to_owned()], fail: false };
        let (entries, left_out) = reach.entries(registered(), "op-system").unwrap();
        assert_eq!(left_out, ["nodes.things.demo"]);
        for entry in &entries {
            assert_eq!(requirements(entry), [("In".to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
            assert_eq!(entry.rules[0].scope, ScopeType::Namespaced, "{}", entry.name);
        }
        assert_eq!(entries.len(), 2);
    }

    // D10: by these names an installation, its restricted ones and those of others are found.
    #[test]
    fn no_webhook_of_a_session_has_the_name_of_an_installed_one() {
        let (entries, _) = Reach::default().entries(registered(), "op-system").unwrap();
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["dev.own.things.demo", "dev.pods.things.demo", "dev.nodes.things.demo"]);
    }

    #[test]
    fn configurations_call_the_url_with_the_paths_that_are_served() {
        let target = Target { url: "https://here:9443".to_owned(), ca_pem: Some("PEM".to_owned()) };
        let mark = Mark { of: "op".into(), owner: "ann".into(), session: "s".into(), expires: None };
        let (entries, _) = Reach::default().entries(registered(), "op-system").unwrap();
        let validating = validating("op-dev-ann-validating", &entries, &target, &mark).unwrap();
        let hooks = validating.webhooks.unwrap();
        assert_eq!(hooks.len(), 2);
        assert_eq!(hooks[0].client_config, target.client_config("/own"));
        assert_eq!(hooks[0].client_config.url.as_deref(), Some("https://here:9443/own"));
        assert_eq!(Mark::of(&validating.metadata), Some(mark.clone()));
        let mutating = mutating("op-dev-ann-mutating", &entries, &target, &mark).unwrap();
        assert_eq!(mutating.webhooks.unwrap()[0].client_config.service, None);
        assert_eq!(super::mutating("none", &entries[..1], &target, &mark), None);
    }
}
