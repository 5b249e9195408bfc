//! Adds another CA to the bundles that callers trust already, once: for `certs ensure` before an upgrade (hooks).

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PatchParams};
use kube::{Api, Client};
use portcullis_pki::bundle_fingerprints;
use tokio::time::sleep;

use super::publisher::{FIRST_PAUSE, LONGEST_PAUSE};
use super::target::{BundleTarget, CONVERSION, object};
use crate::Configurations;
use crate::pauses::pauses;

/// The CA to be trusted as well, and its writer.
pub(crate) struct Addition<'a> {
    pub(crate) client: &'a Client,
    /// The field manager that writes it.
    pub(crate) manager: String,
    /// The names of the Services through which the operator is called; entries that call others stay as they are.
    pub(crate) services: &'a [String],
    pub(crate) ca_pem: &'a str,
}

impl Addition<'_> {
    /// Adds it to the bundle of each entry that has one, and returns the objects that were written. Those that do not
    /// exist are none of them: they get the bundle when they are installed.
    pub(crate) async fn publish(&self, configurations: &Configurations) -> kube::Result<Vec<String>> {
        let Configurations { validating, mutating, crds } = configurations;
        let mut written = Vec::new();
        if let Some((name, ours)) = validating {
            written.extend(self.add::<ValidatingWebhookConfiguration>(name, ours).await?);
        }
        if let Some((name, ours)) = mutating {
            written.extend(self.add::<MutatingWebhookConfiguration>(name, ours).await?);
        }
        for name in crds {
            written.extend(self.add::<CustomResourceDefinition>(name, &[CONVERSION.to_owned()]).await?);
        }
        Ok(written)
    }

    async fn add<C: BundleTarget>(&self, name: &str, ours: &[String]) -> kube::Result<Option<String>> {
        let api = Api::<C>::all(self.client.clone());
        // A `get` would need a right that a publisher does not have.
        let one = ListParams::default().fields(&format!("metadata.name={name}"));
        let params = PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let mut pauses = pauses(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let Some(live) = api.list(&one).await?.items.pop() else { return Ok(None) };
            let Some((entries, bundle)) = self.wanted(&live, ours) else { return Ok(None) };
            match api.patch(name, &params, &live.patch(&entries, &ByteString(bundle))).await {
                Ok(_) => return Ok(Some(object::<C>(name))),
                // It was changed, or deleted, since it was read.
                Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {
                    sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The entries to write, and their bundle; empty where they have it already.
    fn wanted<'o, C: BundleTarget>(&self, live: &'o C, ours: &[String]) -> Option<(Vec<&'o str>, Vec<u8>)> {
        let mine = live.entries().into_iter().filter(|entry| {
            ours.iter().any(|name| name == entry.name)
                && entry.service.as_ref().is_none_or(|service| self.services.contains(service))
        });
        let (entries, carried): (Vec<_>, Vec<_>) =
            mine.filter_map(|entry| Some((entry.name, entry.bundle.filter(|bundle| !bundle.is_empty())?))).unzip();
        if entries.is_empty() {
            return None;
        }
        let all_trust = carried.iter().all(|bundle| holds(bundle, self.ca_pem));
        // A manager that has applied the bundle removes it with its next manifest that lacks it, so write it as well.
        if all_trust && !live.is_applied_by_others(&self.manager) {
            return None;
        }
        Some((entries, joined(&carried, self.ca_pem)))
    }
}

/// Whether callers with this bundle trust all of these authorities.
fn holds(bundle: &[u8], ca_pem: &str) -> bool {
    let (Ok(held), Ok(wanted)) = (bundle_fingerprints(bundle), bundle_fingerprints(ca_pem.as_bytes())) else {
        return false;
    };
    wanted.iter().all(|fingerprint| held.contains(fingerprint))
}

/// All of these, and the CA, as bytes that none of these are: writing the value that is there already makes no field
/// manager the owner of a field.
fn joined(carried: &[&[u8]], ca_pem: &str) -> Vec<u8> {
    let mut all: Vec<u8> = Vec::new();
    for bundle in carried.iter().copied().chain([ca_pem.as_bytes()]) {
        if str::from_utf8(bundle).is_ok_and(|bundle| holds(&all, bundle)) {
            continue;
        }
        all.extend_from_slice(bundle.trim_ascii());
        all.push(b'\n');
    }
    while carried.contains(&all.as_slice()) {
        all.push(b'\n');
    }
    all
}

#[cfg(test)]
mod tests {
    use portcullis_pki::Ca;

    use super::*;

    fn authority(name: &str) -> String {
        let now = jiff::Timestamp::now();
        let hour = jiff::SignedDuration::from_hours(1);
        Ca::generate(name, now - hour, now + hour).unwrap().cert_pem().to_owned()
    }

    #[test]
    fn each_authority_is_written_once_and_as_bytes_of_our_own() {
        let [one, two] = ["one", "two"].map(authority);
        let both = format!("{one}{two}");
        for (carried, ca, authorities) in [
            (vec![&one], &two, 2),
            (vec![&one], &one, 1),
            (vec![&one, &two], &one, 2),
            (vec![&both], &two, 2),
            (vec![&both, &one], &both, 2),
        ] {
            let carried: Vec<_> = carried.into_iter().map(String::as_bytes).collect();
            let all = joined(&carried, ca);
            assert_eq!(bundle_fingerprints(&all).unwrap().len(), authorities);
            assert!(!carried.contains(&all.as_slice()));
        }
    }
}
