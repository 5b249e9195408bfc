//! The objects of an installation, from the registration.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use portcullis_manifest::{
    Configurations, Deadlock, Labels, ScopePolicy, Trust, Webhook, WebhookKind, Workload, admission_policies,
    mutating_configuration, validating_configuration, with_conversion, without_conversion,
};
use serde_json::Value;

use super::arguments::installation_arguments;
use super::certificates::{explained, issued, trust};
use super::{GenerateError, GenerateFlags, What};
use crate::Components;
use crate::convertible::convertible;
use crate::error::ComponentsError;
use crate::installation::{configurations, entries};
use crate::{Installation, Operator};
use portcullis_manifest::CertificateMode;
use portcullis_webhook::conversion::Conversion;

/// The termination grace period of Pods: the longest shutdown, and some time for the signal to arrive.
const GRACE: Duration = Duration::from_secs(30);

/// The input of the generator.
pub(super) struct Objects<'a> {
    flags: &'a GenerateFlags,
    installation: Installation,
    labels: Labels,
    trust: Trust,
    crds: &'a [CustomResourceDefinition],
    conversions: Vec<Conversion>,
    webhooks: Vec<Webhook>,
    /// Names of webhooks that lose their selector, and of those that are left out, by being restricted.
    overruled: Vec<String>,
    left_out: Vec<String>,
    configurations: Configurations,
    rbac: Vec<Value>,
    scope_policy: Option<ScopePolicy>,
    own: Vec<String>,
}

impl<'a> Objects<'a> {
    /// Checks the registration. One that is inconsistent, or that could lock the cluster, is refused whatever is to be
    /// generated.
    pub(super) fn new<A: clap::Args>(
        operator: &'a Operator<A>,
        components: &Components,
        flags: &'a GenerateFlags,
        own: Vec<String>,
    ) -> Result<Self, GenerateError> {
        let webhooks = &components.webhooks;
        let installation = operator.resolve(&flags.installation, flags.namespace.as_deref())?;
        let registered = webhooks.manifests().map_err(ComponentsError::from)?;
        let entries = entries(&installation, webhooks)?;
        let guarded = entries.iter().cloned().map(|webhook| webhook.prevent_deadlock(&installation.namespace));
        let guarded = guarded.collect::<Result<Vec<_>, Deadlock>>()?;
        let conversions = convertible(webhooks, &operator.crds)?;
        let rights = operator.rights(&installation, components)?;
        let of_cluster = |group: &str, plural: &str| cluster_scoped(&operator.crds, group, plural);
        let rbac = rights.manifests(&installation.account(), of_cluster);
        let restricted = installation.restricted_to.is_some();
        let names = |those: &dyn Fn(&&Webhook) -> bool| -> Vec<String> {
            registered.iter().filter(those).filter(|_| restricted).map(|webhook| webhook.name.clone()).collect()
        };
        let kept =
            |webhook: &Webhook| entries.iter().any(|entry| (entry.kind, &entry.name) == (webhook.kind, &webhook.name));
        Ok(Self {
            flags,
            labels: Labels {
                operator: installation.operator.to_owned(),
                release: installation.release.clone(),
                version: operator.version.map(str::to_owned),
            },
            trust: trust(&installation, flags)?,
            crds: &operator.crds,
            conversions: conversions.into_iter().map(|(conversion, _)| conversion).collect(),
            overruled: names(&|webhook| webhook.namespace_selector.is_some() && kept(webhook)),
            left_out: names(&|webhook| !kept(webhook)),
            webhooks: guarded,
            configurations: configurations(&installation, webhooks)?,
            scope_policy: scope_policy(&installation),
            rbac,
            own,
            installation,
        })
    }

    /// The operator's namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.installation.namespace
    }

    /// Warnings about objects that are, or are not, generated.
    pub(super) fn warnings(&self, what: What) -> Vec<String> {
        let mut warnings = Vec::new();
        let bundled =
            matches!(what, What::Webhooks | What::Operator | What::Crds) && self.installation.webhooks.is_on();
        if bundled
            && self.installation.certificates == CertificateMode::External
            && matches!(self.trust, Trust::Published)
        {
            warnings.push(
                "no --ca-bundle FILE: the API server trusts none of these webhooks until you put your authority into \
                 every caBundle"
                    .to_owned(),
            );
        }
        let Some(namespace) = &self.installation.restricted_to else {
            if matches!(what, What::Crds | What::Operator) && !self.installation.webhooks.is_on() {
                warnings.extend(self.conversions.iter().map(|conversion| {
                    format!(
                        "{name} is served in its stored version only; where it was converted by webhooks, first run: \
                         kubectl patch crd {name} --type=json -p \
                         '[{{\"op\":\"replace\",\"path\":\"/spec/conversion\",\"value\":{{\"strategy\":\"None\"}}}}]'",
                        name = conversion.crd
                    )
                }));
            }
            return warnings;
        };
        if matches!(what, What::Webhooks | What::Operator) {
            for name in &self.overruled {
                warnings.push(format!(
                    "the namespaceSelector of webhook {name} is ignored: restricted to namespace {namespace}"
                ));
            }
            for name in &self.left_out {
                warnings.push(format!(
                    "webhook {name} is left out: its kinds live in no namespace, so they are the cluster-wide operator's"
                ));
            }
        }
        if matches!(what, What::Crds | What::Operator) && !self.crds.is_empty() {
            warnings.push("no CRDs: they serve all namespaces, so they are the cluster-wide operator's".to_owned());
        }
        warnings
    }

    /// The CRDs, by name. A CRD serves the whole cluster, so a restricted operator does not install it.
    pub(super) fn crds(&self) -> Result<Vec<(String, Value)>, GenerateError> {
        if self.installation.restricted_to.is_some() {
            return Ok(Vec::new());
        }
        let mut crds = Vec::new();
        for crd in self.crds {
            let name = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
            let conversion = self.conversions.iter().find(|conversion| conversion.crd == name);
            let crd = match conversion {
                Some(conversion) if self.installation.webhooks.is_on() => {
                    with_conversion(crd.clone(), &conversion.path, &self.installation.service)
                }
                Some(_) => without_conversion(crd.clone()),
                None => crd.clone(),
            };
            crds.push((name, self.finished(serde_json::to_value(crd)?, "crd")));
        }
        // The order does not depend on that of registration.
        crds.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(crds)
    }

    /// The roles and bindings; for a restricted installation, also the policy on its namespace.
    pub(super) fn rbac(&self) -> Vec<Value> {
        let policy = self.scope_policy.iter().flat_map(ScopePolicy::manifests);
        self.rbac.iter().cloned().chain(policy).map(|object| self.finished(object, "rbac")).collect()
    }

    pub(super) fn webhooks(&self) -> Result<Vec<Value>, GenerateError> {
        let mut objects = Vec::new();
        if !self.installation.webhooks.is_on() {
            return Ok(objects);
        }
        let (entries, service) = (&self.webhooks, &self.installation.service);
        let of = |kind| entries.iter().any(|webhook| webhook.kind == kind);
        if of(WebhookKind::Validating) {
            let configuration = validating_configuration(&self.installation.validating(), entries, service);
            objects.push(self.finished(serde_json::to_value(configuration)?, "webhook"));
        }
        if of(WebhookKind::Mutating) {
            let configuration = mutating_configuration(&self.installation.mutating(), entries, service);
            objects.push(self.finished(serde_json::to_value(configuration)?, "webhook"));
        }
        Ok(objects)
    }

    /// The policies with the CEL rules of the webhooks, each with its binding. They are there without webhooks as well:
    /// the API server calls no webhook.
    pub(super) fn policies(&self) -> Result<Vec<Value>, GenerateError> {
        let mut objects = Vec::new();
        for (policy, binding) in admission_policies(&self.installation.validating(), &self.webhooks) {
            objects.push(self.finished(serde_json::to_value(policy)?, "policy"));
            objects.push(self.finished(serde_json::to_value(binding)?, "policy"));
        }
        Ok(objects)
    }

    /// The objects that certificates need beside the operator. An external Secret is created by the user.
    pub(super) fn certificates(&self) -> Vec<Value> {
        if !self.serves() || self.installation.certificates != CertificateMode::CertManager {
            return Vec::new();
        }
        let manifests = issued(&self.installation, self.flags).manifests();
        manifests.into_iter().map(|object| self.finished(object, "certificate")).collect()
    }

    /// The output of `generate certificates`.
    pub(super) fn certificates_explained(&self) -> (String, Vec<Value>) {
        if !self.serves() {
            return ("# Nothing to apply: there are no webhooks.\n".to_owned(), Vec::new());
        }
        let (note, manifests) = explained(&self.installation, self.flags);
        (note, manifests.into_iter().map(|object| self.finished(object, "certificate")).collect())
    }

    /// Deployment, Service and what guards them. They include no Namespace: it is older than the operator and
    /// outlives it, with the Secrets in it, and a deletion of these manifests should not delete its other objects.
    pub(super) fn operator(&self) -> Vec<Value> {
        self.workload().manifests()
    }

    fn workload(&self) -> Workload {
        let installation = &self.installation;
        let args = ["run".to_owned()].into_iter().chain(installation_arguments(installation));
        let args = args.chain(self.flags.listen.arguments()).chain(self.own.clone());
        Workload {
            name: installation.release.clone(),
            namespace: installation.namespace.clone(),
            labels: self.labels.clone(),
            service_account: installation.release.clone(),
            image: self.flags.image.clone().unwrap_or_default(),
            args: args.collect(),
            replicas: self.flags.replicas,
            health_port: self.flags.listen.health_bind.port(),
            webhooks: self.serves().then(|| (self.flags.listen.bind.port(), installation.service.clone())),
            grace_seconds: GRACE.as_secs(),
        }
    }

    /// Whether the API server calls any webhook.
    fn serves(&self) -> bool {
        self.configurations != Configurations::default()
    }

    fn finished(&self, mut object: Value, component: &str) -> Value {
        self.trust.add_to(&mut object);
        self.labels.add_to(&mut object, component);
        object
    }
}

/// Whether this is one of the operator's own kinds and lives in no namespace.
fn cluster_scoped(crds: &[CustomResourceDefinition], group: &str, plural: &str) -> bool {
    crds.iter().any(|crd| crd.spec.group == group && crd.spec.names.plural == plural && crd.spec.scope == "Cluster")
}

/// The policy that hands the namespace of a restricted installation over to it.
fn scope_policy(installation: &Installation) -> Option<ScopePolicy> {
    let (namespace, name) = (installation.restricted_to.clone()?, installation.scope_policy()?);
    Some(ScopePolicy { name, namespace, lease: installation.scope_lease.clone() })
}
