//! Warnings on changes that the schema of a CRD refuses: CEL rules that compare a field with what it was.

mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use portcullis_manifest::{FailurePolicy, MatchPolicy, Reinvocation, Scope};
use portcullis_review::Field;
use serde_json::Value;

use super::target::{Subject, Target};
use super::{Context, Mutate, Mutation, RegistrationError};
use rules::Node;

/// The member that a subresource of its own may hold.
const STATUS: &str = "status";

/// Builds a webhook that warns about changes of fields that a CRD makes immutable with a CEL rule (`self == oldSelf` on
/// the field, or `self.a == oldSelf.a` above it), anywhere in the schema.
///
/// The API server refuses such changes by itself, with the message of the rule, one rule after the other. The warnings
/// name all fields at once, and reach the user also when the request is refused. The webhook mutates nothing; when it
/// does not answer within two seconds, the request goes on without it.
///
/// ```
/// use kube::{CustomResource, CustomResourceExt, KubeSchema};
/// use portcullis_webhook::{Webhooks, immutable_fields};
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
/// #[kube(group = "demo.example", version = "v1", kind = "Volume", namespaced)]
/// struct VolumeSpec {
///     #[x_kube(validation = "self == oldSelf")]
///     size: String,
/// }
///
/// let webhooks = Webhooks::new().mutate(immutable_fields("immutable", &Volume::crd())?);
/// assert_eq!(webhooks.manifests()?[0].name, "immutable.volumes.demo.example");
/// # Ok::<(), portcullis_webhook::RegistrationError>(())
/// ```
///
/// # Errors
/// When the CRD has no such rule.
pub fn immutable_fields(
    name: impl Into<String>,
    crd: &CustomResourceDefinition,
) -> Result<Mutate<Value>, RegistrationError> {
    let name = name.into();
    let (mut schemas, mut resources) = (BTreeMap::new(), Vec::new());
    let plural = &crd.spec.names.plural;
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let Some(schema) = Schema::of(version) else { continue };
        for (holds, resource) in
            [(schema.main.is_some(), plural.clone()), (schema.status.is_some(), format!("{plural}/{STATUS}"))]
        {
            if holds && !resources.contains(&resource) {
                resources.push(resource);
            }
        }
        schemas.insert(version.name.clone(), schema);
    }
    if schemas.is_empty() {
        return Err(RegistrationError::NothingImmutable { name, plural: plural.clone() });
    }
    let target = Target {
        groups: vec![crd.spec.group.clone()],
        versions: schemas.keys().cloned().collect(),
        resources,
        scope: if crd.spec.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
    };
    let schemas = Arc::new(schemas);
    let webhook = Mutate::new(name, Subject::dynamic(target)).on_update(move |old, new: Value, context: Context| {
        let schemas = Arc::clone(&schemas);
        async move {
            let schema = schemas.get(&context.kind.version);
            let changed = schema.map(|schema| schema.changed(&old, &new, context.sub_resource.as_deref()));
            changed.into_iter().flatten().fold(Mutation::unchanged(), |unchanged, field| {
                unchanged.warn(format!("{field} is immutable: the API server refuses this change"))
            })
        }
    });
    // Every version is validated by its own schema, so none is converted for this.
    Ok(webhook
        .match_policy(MatchPolicy::Exact)
        .reinvocation(Reinvocation::Never)
        .failure_policy(FailurePolicy::Ignore)
        .timeout(Duration::from_secs(2)))
}

/// What is immutable in one version, by the request that can change it.
struct Schema {
    main: Option<Node>,
    status: Option<Node>,
}

impl Schema {
    fn of(version: &CustomResourceDefinitionVersion) -> Option<Self> {
        let mut main = Node::of(version.schema.as_ref()?.open_api_v3_schema.as_ref()?)?;
        let own = version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some());
        // Where status has a subresource, a request to the object itself leaves it as it is.
        let status = if own { main.take(STATUS) } else { None };
        let main = main.has_rules().then_some(main);
        (main.is_some() || status.is_some()).then_some(Self { main, status })
    }

    fn changed(&self, old: &Value, new: &Value, sub_resource: Option<&str>) -> Vec<Field> {
        let mut changed = Vec::new();
        match (sub_resource, &self.main, &self.status) {
            (None, Some(node), _) => node.changed(old, new, &Field::at(""), &mut changed),
            (Some(STATUS), _, Some(node)) => node.changed(&old[STATUS], &new[STATUS], &Field::at(STATUS), &mut changed),
            _ => {}
        }
        changed
    }
}
