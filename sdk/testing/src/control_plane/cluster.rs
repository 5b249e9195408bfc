//! Objects that tests create in the cluster: namespaces, CRDs, and webhooks that this process serves.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount, ServiceSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, ObjectMeta};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{ControlPlane, wait_for_object, wait_until};

/// The field manager of what tests apply.
const MANAGER: &str = "portcullis-testing";
const DEADLINE: Duration = Duration::from_mins(2);

/// The name with a suffix that no other call gives.
pub(crate) fn unique(prefix: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{prefix}-{}", &id[..8])
}

impl ControlPlane {
    /// Creates a namespace, named `prefix-` and eight letters and digits. Where the controller manager runs, it also
    /// waits for the default service account, so that pods can be created.
    ///
    /// # Panics
    /// When the API server refuses it (a prefix that is no DNS label).
    pub async fn namespace(&self, prefix: &str) -> String {
        let name = unique(prefix);
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let admin = self.admin();
        if let Err(error) = Api::all(admin.clone()).create(&PostParams::default(), &namespace).await {
            panic!("cannot make the namespace {name}: {error}");
        }
        if self.controllers {
            let accounts: Api<ServiceAccount> = Api::namespaced(admin, &name);
            wait_for_object(&accounts, "default", "the namespace's service account", DEADLINE, |_| true).await;
        }
        name
    }

    /// Applies CRDs and returns when every served version of each can be listed.
    ///
    /// # Panics
    /// When the API server refuses one, or does not serve it within two minutes.
    pub async fn install_crds(&self, crds: &[CustomResourceDefinition]) {
        let admin = self.admin();
        let api: Api<CustomResourceDefinition> = Api::all(admin.clone());
        for crd in crds {
            apply(&api, crd.metadata.name.as_deref().unwrap_or_default(), crd).await;
        }
        wait_for_crds(&admin, crds).await;
    }

    /// [`apply_manifests`] to this control plane.
    ///
    /// # Panics
    /// As [`apply_manifests`] does.
    pub async fn apply(&self, manifests: &[Value]) -> Vec<DynamicObject> {
        apply_manifests(&self.admin(), manifests).await
    }

    /// Routes the API server's calls to a Service to this machine, by a Service of type ExternalName for `localhost`.
    /// The TLS server name stays `NAME.NAMESPACE.svc`.
    ///
    /// # Panics
    /// When the API server refuses it.
    pub async fn route_service(&self, namespace: &str, name: &str) {
        let service = Service {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(ServiceSpec {
                type_: Some("ExternalName".to_owned()),
                external_name: Some("localhost".to_owned()),
                ..ServiceSpec::default()
            }),
            status: None,
        };
        apply(&Api::<Service>::namespaced(self.admin(), namespace), name, &service).await;
    }

    /// Applies webhook configurations (`ValidatingWebhookConfiguration`, `MutatingWebhookConfiguration`), unmodified
    /// but for the port of their Services, and routes those Services to this machine: the API server then calls
    /// `https://localhost:PORT`.
    ///
    /// A configuration comes into force within a second or two: wait for
    /// [`wait_for_webhooks`](Self::wait_for_webhooks).
    ///
    /// # Panics
    /// When a manifest is of another kind or has no name, or the API server refuses it.
    pub async fn install_webhooks(&self, manifests: &[Value], port: u16) {
        let admin = self.admin();
        for manifest in manifests {
            let mut manifest = manifest.clone();
            let webhooks = manifest.get_mut("webhooks").and_then(Value::as_array_mut);
            for service in webhooks.into_iter().flatten().filter_map(|hook| hook.pointer_mut("/clientConfig/service")) {
                service["port"] = json!(port);
                let field = |name| service.get(name).and_then(Value::as_str).unwrap_or_default();
                self.route_service(field("namespace"), field("name")).await;
            }
            let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            match manifest.get("kind").and_then(Value::as_str) {
                Some("ValidatingWebhookConfiguration") => {
                    apply(&Api::<ValidatingWebhookConfiguration>::all(admin.clone()), name, &manifest).await;
                }
                Some("MutatingWebhookConfiguration") => {
                    apply(&Api::<MutatingWebhookConfiguration>::all(admin.clone()), name, &manifest).await;
                }
                kind => panic!("not a webhook configuration: kind {kind:?}"),
            }
        }
    }

    /// Returns when all webhook configurations that were written before are in force.
    ///
    /// The API server takes them up in the order in which they were written. So this creates one more for a moment,
    /// which refuses a ConfigMap of a unique name: when that is refused, those before it are in force.
    ///
    /// # Panics
    /// When the API server does not take them up within two minutes.
    pub async fn wait_for_webhooks(&self) {
        let admin = self.admin();
        wait_for_webhooks::<MutatingWebhookConfiguration>(&admin, "MutatingWebhookConfiguration").await;
        wait_for_webhooks::<ValidatingWebhookConfiguration>(&admin, "ValidatingWebhookConfiguration").await;
    }
}

async fn wait_for_webhooks<K>(admin: &Client, kind: &str)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let (name, configurations) = (unique("barrier"), Api::<K>::all(admin.clone()));
    let (labels, hook) = (json!({ "portcullis-testing/barrier": name }), format!("{name}.portcullis-testing.example"));
    let barrier = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
        "webhooks": [{
            "name": hook, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            // The discard port has no listener.
            "clientConfig": { "url": "https://127.0.0.1:9/" }, "failurePolicy": "Fail", "timeoutSeconds": 1,
            "objectSelector": { "matchLabels": labels },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
            }],
        }],
    });
    apply(&configurations, &name, &barrier).await;
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } }))
        .unwrap_or_else(|error| panic!("not a ConfigMap: {error}"));
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    wait_until("the webhook configurations to be in force", DEADLINE, || async {
        maps.create(&dry_run, &map).await.err().filter(|error| error.to_string().contains(&hook))
    })
    .await;
    if let Err(error) = configurations.delete(&name, &DeleteParams::default()).await {
        panic!("cannot delete {kind} {name}: {error}");
    }
}

/// Applies manifests of any kind as they are, in their order, and returns the objects as the API server answered.
/// Namespaced objects without a namespace go into `default`. CRDs are served when this returns.
///
/// # Panics
/// When a manifest has no apiVersion, kind or name, or the API server does not know its kind or refuses it.
pub async fn apply_manifests(client: &Client, manifests: &[Value]) -> Vec<DynamicObject> {
    let mut applied = Vec::new();
    for manifest in manifests {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let (Some(api_version), Some(kind), Some(name)) = (text("/apiVersion"), text("/kind"), text("/metadata/name"))
        else {
            panic!("not a manifest with apiVersion, kind and metadata.name: {manifest}")
        };
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let known = pinned_kind(client, &GroupVersionKind::gvk(group, version, kind)).await;
        let (resource, capabilities) =
            known.unwrap_or_else(|error| panic!("the API server does not know {api_version} {kind}: {error}"));
        let objects: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                Api::namespaced_with(client.clone(), text("/metadata/namespace").unwrap_or("default"), &resource)
            }
        };
        let parameters = PatchParams::apply(MANAGER).force();
        let object = objects.patch(name, &parameters, &Patch::Apply(manifest)).await;
        applied.push(object.unwrap_or_else(|error| panic!("cannot apply {kind} '{name}': {error}")));
        if kind == "CustomResourceDefinition" {
            let crd = serde_json::from_value(manifest.clone());
            wait_for_crds(client, &[crd.unwrap_or_else(|error| panic!("not a CRD: {error}"))]).await;
        }
    }
    applied
}

/// Returns when every served version of each can be listed.
async fn wait_for_crds(client: &Client, crds: &[CustomResourceDefinition]) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.metadata.name.clone().unwrap_or_default();
        wait_for_object(&api, &name, "the CRD to be established", DEADLINE, |crd| {
            let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|c| c.type_ == "Established" && c.status == "True")
        })
        .await;
        for version in crd.spec.versions.iter().filter(|version| version.served) {
            let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            wait_until(&format!("{name} {} to be served", version.name), DEADLINE, || async {
                objects.list(&ListParams::default().limit(1)).await.ok()
            })
            .await;
        }
    }
}

/// Server-side apply, as the owner of what tests install. The document goes out as it is, members that this crate does
/// not know included.
async fn apply<K>(api: &Api<K>, name: &str, object: &(impl Serialize + Debug))
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams::apply(MANAGER).force();
    if let Err(error) = api.patch(name, &parameters, &Patch::Apply(object)).await {
        panic!("cannot apply {} '{name}': {error}", K::kind(&()));
    }
}
