//! The rights of the operator's ServiceAccount.

use portcullis_manifest::{Access, CertificateMode, Configurations, ScopePolicy, named_policy_rule, policy_rule};

use super::error::ComponentsError;
use super::installation::configurations;
use super::{Components, Installation, Operator};

impl<A> Operator<A> {
    /// The rights of the ServiceAccount of this installation when it runs `components`: those granted to the operator
    /// and to its controllers, and those for certificates, leader election and scopes. Rights for `migrate-storage` are
    /// not included: it runs with the rights of its caller.
    ///
    /// # Errors
    /// When the registration of webhooks or controllers is invalid.
    pub fn rights(&self, installation: &Installation, components: &Components) -> Result<Access, ComponentsError> {
        components.checked()?;
        let controllers = components.controllers.values().map(|controller| controller.access.clone());
        let granted = controllers.fold(self.access.clone(), Access::merge);
        let mut access = named_after(granted, &installation.release);
        Self::grant_serving(installation, components, &mut access)?;
        Ok(Access::default().merge(access))
    }

    /// Adds what webhooks, their certificates and leases take.
    fn grant_serving(
        installation: &Installation,
        components: &Components,
        access: &mut Access,
    ) -> Result<(), ComponentsError> {
        let webhooks = &components.webhooks;
        let Configurations { validating, mutating, crds } = configurations(installation, webhooks)?;
        // The operator only observes what another program publishes.
        let automatic = installation.certificates == CertificateMode::Automatic;
        let publish: &[&str] = if automatic { &["list", "watch", "patch"] } else { &["list", "watch"] };
        for (resource, configuration) in
            [("validatingwebhookconfigurations", validating), ("mutatingwebhookconfigurations", mutating)]
        {
            let Some((name, _)) = configuration else { continue };
            access.cluster.push(named_policy_rule("admissionregistration.k8s.io", &[resource], publish, [name]));
        }
        if !crds.is_empty() {
            let kind = &["customresourcedefinitions"];
            access.cluster.push(named_policy_rule("apiextensions.k8s.io", kind, publish, crds));
        }
        if !webhooks.is_empty() && installation.webhooks.is_on() {
            let pair = installation.secret.clone();
            if automatic {
                // A role cannot restrict `create` to a name.
                access.own_namespace.push(policy_rule("", &["secrets"], &["create"]));
                let both = [pair, installation.ca_secret()];
                access.own_namespace.push(named_policy_rule(
                    "",
                    &["secrets"],
                    &["get", "list", "watch", "patch"],
                    both,
                ));
            } else {
                access.own_namespace.push(named_policy_rule("", &["secrets"], &["get", "list", "watch"], [pair]));
            }
        }
        for source in webhooks.sources() {
            *access = std::mem::take(access).merge(source.access());
        }
        leases(access, installation, !components.controllers.is_empty());
        Ok(())
    }
}

/// Replaces `{release}` in the names of rights in the own namespace by that of the installation.
fn named_after(mut access: Access, release: &str) -> Access {
    for name in access.own_namespace.iter_mut().flat_map(|rule| &mut rule.resource_names).flatten() {
        *name = name.replace("{release}", release);
    }
    access
}

/// Adds what leader election and scopes take. What is created has no name yet that a role could be narrowed to.
fn leases(access: &mut Access, installation: &Installation, has_controllers: bool) {
    let (group, leases) = ("coordination.k8s.io", ["leases"]);
    let keep = |name: String| {
        [policy_rule(group, &leases, &["create"]), named_policy_rule(group, &leases, &["get", "patch"], [name])]
    };
    let scope = installation.scope_lease.clone();
    let policies = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
    if let Some(policy) = installation.scope_policy() {
        access.watched.extend(keep(scope));
        let (group, resource, verb) = (ScopePolicy::GROUP, ScopePolicy::RESOURCE, ScopePolicy::VERB);
        access.cluster.push(named_policy_rule(group, &[resource], &[verb], [policy.clone()]));
        access.cluster.push(named_policy_rule("admissionregistration.k8s.io", &policies, &["get"], [policy]));
        return;
    }
    if has_controllers {
        access.leader_election.extend(keep(installation.leader_lease()));
    }
    access.cluster.push(named_policy_rule(group, &leases, &["list", "watch"], [scope]));
    // Their names are not known before they are there.
    access.cluster.push(policy_rule("admissionregistration.k8s.io", &policies, &["list", "watch"]));
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::PolicyRule;

    use super::*;

    fn resources(rule: &PolicyRule) -> &[String] {
        rule.resources.as_deref().unwrap_or_default()
    }

    #[test]
    fn rights_in_the_own_namespace_are_granted_only_there() {
        let secrets =
            Access::default().with_own_namespace([named_policy_rule("", &["secrets"], &["get"], ["{release}-key"])]);
        let (idle, cases) = (|_| async {}, [(secrets.clone(), Access::default()), (Access::default(), secrets)]);
        for (operators, controllers) in cases {
            let operator = Operator::new("op").rbac(operators);
            let components = Components::default().leader_task("one", controllers, idle);
            let installation = operator.installation("here").unwrap();
            let access = operator.rights(&installation, &components).unwrap();
            let reads = |rules: &[PolicyRule]| rules.iter().any(|rule| resources(rule) == ["secrets"]);
            let places = [&access.own_namespace, &access.watched, &access.cluster];
            assert_eq!(places.map(|it| reads(it)), [true, false, false]);
            assert_eq!(access.own_namespace[0].resource_names, Some(vec!["op-key".to_owned()]));
        }
    }

    #[test]
    fn rights_for_caches_follow_from_the_webhooks_that_read_them() {
        use k8s_openapi::api::core::v1::{ConfigMap, Node};

        use portcullis_controller::cache::Cache;
        use portcullis_webhook::{Context, Validate, Verdict, Webhooks};

        let reads = |name| {
            let (maps, nodes) = (Cache::<ConfigMap>::new(), Cache::<Node>::new());
            let webhook = Validate::<ConfigMap>::new(name).with_source(&maps).with_source(&nodes);
            webhook.on_create(async |_, _: Context| Verdict::allow())
        };
        let components = Components::new(Webhooks::new().validate(reads("one")).validate(reads("two")));
        let operator = Operator::new("op");
        let list = |resource| policy_rule("", &[resource], &["list", "watch"]);
        for restricted_to in [None, Some("team".to_owned())] {
            let mut installation = operator.installation("here").unwrap();
            installation.restricted_to = restricted_to;
            let access = operator.rights(&installation, &components).unwrap();
            let in_namespaces = access.watched.iter().filter(|rule| **rule == list("configmaps")).count();
            let on_the_cluster = access.cluster.iter().filter(|rule| **rule == list("nodes")).count();
            assert_eq!((in_namespaces, on_the_cluster), (1, 1), "{access:?}");
        }
    }

    #[test]
    fn the_account_has_the_rights_of_running_controllers_only() {
        let maps = |verbs: &[&str]| policy_rule("", &["configmaps"], verbs);
        let operator = Operator::new("op").rbac([maps(&["list"])]).rbac([maps(&["watch"])]);
        let one = || Components::default().leader_task("one", [maps(&["watch", "patch"])], |_| async {});
        let pods = policy_rule("", &["pods"], &["list"]);
        let two = one().leader_task("two", [maps(&["patch"]), pods.clone()], |_| async {});
        let cases = [
            (Components::default(), vec![maps(&["list", "watch"])]),
            (one(), vec![maps(&["list", "watch", "patch"])]),
            (two, vec![maps(&["list", "watch", "patch"]), pods]),
        ];
        for (components, expected) in cases {
            let installation = operator.installation("here").unwrap();
            let rights = operator.rights(&installation, &components).unwrap();
            assert_eq!(rights.watched, expected, "{components:?}");
        }
    }

    /// The namespace, verbs and names of the rules on leases.
    fn leases(access: &Access) -> Vec<(&'static str, String)> {
        let each = [("watched", &access.watched), ("cluster", &access.cluster), ("leader", &access.leader_election)];
        let rules = each.into_iter().flat_map(|(place, rules)| rules.iter().map(move |rule| (place, rule)));
        let names = |rule: &PolicyRule| rule.resource_names.clone().unwrap_or_default().join(",");
        rules
            .filter(|(_, rule)| resources(rule) == ["leases"])
            .map(|(place, rule)| (place, format!("{} {}", rule.verbs.join(","), names(rule))))
            .collect()
    }

    #[test]
    fn rights_on_leases_are_those_that_are_used() {
        let operator = Operator::new("op");
        let controllers = || Components::default().leader_task("one", [], |_| async {});
        let cases = [
            (None, Components::default(), vec![("cluster", "list,watch op-namespace-scope")]),
            (
                None,
                controllers(),
                vec![
                    ("cluster", "list,watch op-namespace-scope"),
                    ("leader", "create "),
                    ("leader", "get,patch op-leader"),
                ],
            ),
            (
                Some("team"),
                Components::default(),
                vec![("watched", "create "), ("watched", "get,patch op-namespace-scope")],
            ),
        ];
        for (restricted_to, components, expected) in cases {
            let mut installation = operator.installation("here").unwrap();
            installation.restricted_to = restricted_to.map(str::to_owned);
            let access = operator.rights(&installation, &components).unwrap();
            let expected: Vec<_> = expected.into_iter().map(|(place, what)| (place, what.to_owned())).collect();
            assert_eq!(leases(&access), expected, "{installation:?}");
        }
    }
}
