//! The objects that carry a CA bundle.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::Patch;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A kind that carries CA bundles: its entries say which Service the API server calls, and which CA it trusts there.
pub(super) trait BundleTarget:
    Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
    + Send
    + 'static
{
    /// The command that writes the manifest.
    const COMMAND: &'static str;
    /// The reason why we are not called, when it has no entry of ours.
    const NO_ENTRY: &'static str;
    /// Whether it is the same object for all installations: one that calls another installation keeps no webhook from
    /// being called.
    const SHARED: bool;

    fn entries(&self) -> Vec<Entry<'_>>;

    /// Returns the field managers that may have changed a bundle here: the others that own a `caBundle`, or, if there
    /// are none, all others, because a manager that removes ours leaves no trace.
    fn meddlers(&self, own: &str) -> Vec<String> {
        let entries = || self.meta().managed_fields.iter().flatten();
        let others = || entries().filter(|entry| entry.manager.as_deref().is_some_and(|manager| manager != own));
        let name = |entry: &ManagedFieldsEntry| entry.manager.clone().unwrap_or_default();
        let mut names: Vec<_> = others().filter(|entry| holds_bundle(entry)).map(name).collect();
        if names.is_empty() {
            names.extend(others().map(name));
        }
        names.sort();
        names.dedup();
        names
    }

    /// Whether another field manager than `own` has applied a bundle: its next manifest without one takes it out.
    fn is_applied_by_others(&self, own: &str) -> bool {
        let mut entries = self.meta().managed_fields.iter().flatten();
        let applied = |entry: &ManagedFieldsEntry| entry.operation.as_deref() == Some("Apply");
        entries.any(|entry| entry.manager.as_deref() != Some(own) && applied(entry) && holds_bundle(entry))
    }

    /// Puts the bundle into these entries, if the object has not changed since it was read, and touches nothing
    /// else.
    fn patch(&self, entries: &[&str], bundle: &ByteString) -> Patch<Value>;
}

/// Kind and name of an object.
pub(super) fn object<C: BundleTarget>(name: &str) -> String {
    format!("{} {name}", C::kind(&()))
}

/// The name, bundle and Service of one entry.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) bundle: Option<&'a [u8]>,
    /// The name by which the Service is called; none for a URL.
    pub(super) service: Option<String>,
}

impl<'a> Entry<'a> {
    fn of_webhook(name: &'a str, client: &'a WebhookClientConfig) -> Self {
        Self {
            name,
            bundle: client.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()),
            service: client.service.as_ref().map(|service| format!("{}.{}.svc", service.name, service.namespace)),
        }
    }
}

fn holds_bundle(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| holds_key(&fields.0, "f:caBundle"))
}

fn holds_key(fields: &Value, key: &str) -> bool {
    fields.as_object().is_some_and(|fields| fields.contains_key(key) || fields.values().any(|v| holds_key(v, key)))
}

/// Each entry is addressed by its webhook's *name* (the list's merge key): by index, a changed list would get wrong
/// bundles. It is a strategic merge patch and not server-side apply, on purpose: an apply would own the entries too,
/// and applying the manifest could never take a webhook out of it again, because its name and bundle would stay behind
/// and not be valid. This way the field manager owns nothing but `caBundle`.
fn webhooks_patch(read: &impl Resource, entries: &[&str], bundle: &ByteString) -> Patch<Value> {
    let entry = |name: &&str| json!({ "name": name, "clientConfig": { "caBundle": bundle } });
    let webhooks: Vec<_> = entries.iter().map(entry).collect();
    Patch::Strategic(json!({ "metadata": { "resourceVersion": read.meta().resource_version }, "webhooks": webhooks }))
}

macro_rules! configuration {
    ($kind:ty) => {
        impl BundleTarget for $kind {
            const COMMAND: &'static str = "generate webhooks";
            const NO_ENTRY: &'static str = "it registers none of the webhooks that are served";
            const SHARED: bool = false;

            fn entries(&self) -> Vec<Entry<'_>> {
                let webhooks = self.webhooks.iter().flatten();
                webhooks.map(|webhook| Entry::of_webhook(&webhook.name, &webhook.client_config)).collect()
            }

            fn patch(&self, entries: &[&str], bundle: &ByteString) -> Patch<Value> {
                webhooks_patch(self, entries, bundle)
            }
        }
    };
}
configuration!(ValidatingWebhookConfiguration);
configuration!(MutatingWebhookConfiguration);

/// The name of the one entry that a CRD has.
pub(super) const CONVERSION: &str = "conversion";

impl BundleTarget for CustomResourceDefinition {
    const COMMAND: &'static str = "generate crds";
    const NO_ENTRY: &'static str = "its conversion strategy is not Webhook; see 'generate crds'";
    const SHARED: bool = true;

    fn entries(&self) -> Vec<Entry<'_>> {
        let conversion = self.spec.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook");
        let client = conversion.and_then(|conversion| conversion.webhook.as_ref()?.client_config.as_ref());
        let entry = client.map(|client| Entry {
            name: CONVERSION,
            bundle: client.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()),
            service: client.service.as_ref().map(|service| format!("{}.{}.svc", service.name, service.namespace)),
        });
        entry.into_iter().collect()
    }

    // Custom resources have no strategic merge, and no list here needs it.
    fn patch(&self, _: &[&str], bundle: &ByteString) -> Patch<Value> {
        Patch::Merge(json!({
            "metadata": { "resourceVersion": self.resource_version() },
            "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": bundle } } } },
        }))
    }
}
