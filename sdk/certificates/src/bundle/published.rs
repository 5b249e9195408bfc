//! Reads the bundles that are published now, once.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client};

use super::target::{BundleTarget, CONVERSION, object};
use crate::Configurations;

/// An object that should hold the bundle, as it is now.
#[derive(Debug)]
pub struct PublishedObject {
    /// Kind and name.
    pub object: String,
    /// All of its entries, whatever they call; `None` if there is no such object.
    pub entries: kube::Result<Option<Vec<PublishedEntry>>>,
    /// The names of those that should be ours.
    ours: Vec<String>,
    /// The command that writes its manifest.
    command: &'static str,
}

/// One entry of an object: the Service that it calls, and the bundle that callers trust there.
#[derive(Debug)]
pub struct PublishedEntry {
    name: String,
    /// The CA bundle, in PEM; empty if there is none.
    pub bundle: Vec<u8>,
    /// The DNS name of the Service; `None` for a URL.
    pub service: Option<String>,
}

/// The name of an entry that this installation should have, and its bundle, or why there is none.
pub type OwnEntry = (String, Result<Vec<u8>, String>);

impl PublishedObject {
    /// The Service that the entries of this installation call, if none of them calls one of `own`.
    pub fn other_service(&self, own: &[String]) -> Option<&str> {
        let entries = self.entries.as_ref().ok()?.iter().flatten();
        let ours = entries.filter(|entry| self.ours.contains(&entry.name));
        let mut called = ours.map(|entry| entry.service.as_deref()).peekable();
        let first = called.peek().copied().flatten();
        first.filter(|_| called.all(|service| service.is_some_and(|service| own.iter().all(|own| own != service))))
    }

    /// Every entry that this installation should have.
    pub fn own_entries(self) -> kube::Result<Vec<OwnEntry>> {
        let Self { entries, ours, command, .. } = self;
        let mut entries = entries?;
        let bundle = |name: &String| {
            let Some(entries) = &mut entries else { return Err(format!("it is not installed; see '{command}'")) };
            let entry = entries.iter_mut().find(|entry| entry.name == *name);
            let entry = entry.ok_or_else(|| format!("it is not registered; see '{command}'"))?;
            Ok(std::mem::take(&mut entry.bundle))
        };
        let bundles: Vec<_> = ours.iter().map(bundle).collect();
        Ok(ours.into_iter().zip(bundles).collect())
    }
}

/// Reads each of these objects.
pub async fn read_published(client: &Client, configurations: &Configurations) -> Vec<PublishedObject> {
    let Configurations { validating, mutating, crds } = configurations;
    let mut found = Vec::new();
    if let Some((name, ours)) = validating {
        found.push(read::<ValidatingWebhookConfiguration>(client, name, ours).await);
    }
    if let Some((name, ours)) = mutating {
        found.push(read::<MutatingWebhookConfiguration>(client, name, ours).await);
    }
    for name in crds {
        found.push(read::<CustomResourceDefinition>(client, name, &[CONVERSION.to_owned()]).await);
    }
    found
}

async fn read<C: BundleTarget>(client: &Client, name: &str, ours: &[String]) -> PublishedObject {
    // A `get` would need another right than the watch.
    let one = ListParams::default().fields(&format!("metadata.name={name}"));
    let list = Api::<C>::all(client.clone()).list(&one).await;
    let entries = list.map(|list| {
        let found = list.items.first()?;
        let entries = found.entries().into_iter().map(|entry| PublishedEntry {
            name: entry.name.to_owned(),
            bundle: entry.bundle.unwrap_or_default().to_vec(),
            service: entry.service,
        });
        Some(entries.collect())
    });
    PublishedObject { object: object::<C>(name), entries, ours: ours.to_vec(), command: C::COMMAND }
}
