//! What is published now, read once.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};

use super::Configurations;
use super::carrier::{CONVERSION, Carrier};

/// One entry in which callers find what they trust.
#[derive(Clone, Debug)]
pub(crate) struct PublishedEntry {
    /// Kind and name of the object.
    pub(crate) object: String,
    /// Name of the entry.
    pub(crate) entry: String,
    /// Its bundle; or why there is none.
    pub(crate) bundle: Result<Vec<u8>, String>,
}

/// Every entry of these objects that is ours, and those that should be there and are not.
pub(crate) async fn published(client: &Client, configurations: &Configurations) -> kube::Result<Vec<PublishedEntry>> {
    let mut found = Vec::new();
    if let Some((name, ours)) = &configurations.validating {
        read::<ValidatingWebhookConfiguration>(client, name, ours, &mut found).await?;
    }
    if let Some((name, ours)) = &configurations.mutating {
        read::<MutatingWebhookConfiguration>(client, name, ours, &mut found).await?;
    }
    for name in &configurations.crds {
        read::<CustomResourceDefinition>(client, name, &[CONVERSION.to_owned()], &mut found).await?;
    }
    Ok(found)
}

async fn read<C: Carrier>(
    client: &Client,
    name: &str,
    ours: &[String],
    found: &mut Vec<PublishedEntry>,
) -> kube::Result<()> {
    let object = Api::<C>::all(client.clone()).get_opt(name).await?;
    let entries = object.as_ref().map(Carrier::entries).unwrap_or_default();
    for ours in ours {
        let entry = entries.iter().find(|entry| entry.name == ours);
        let bundle = match (&object, entry) {
            (None, _) => Err(format!("it is not installed; see '{}'", C::COMMAND)),
            (Some(_), None) => Err(format!("it is not registered; see '{}'", C::COMMAND)),
            (Some(_), Some(entry)) => Ok(entry.bundle.unwrap_or_default().to_vec()),
        };
        found.push(PublishedEntry { object: format!("{} {name}", C::kind(&())), entry: ours.clone(), bundle });
    }
    Ok(())
}
