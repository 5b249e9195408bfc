//! The authorities that callers trust already, and must keep trusting while the stored ones change.

use jiff::Timestamp;
use portcullis_pki::Certificate;
use portcullis_pki::rotation::Anchor;
use tracing::{info, warn};

use super::Automatic;
use crate::{ServingCertificate, read_published};
use portcullis_client::error_message;

impl Automatic {
    /// Returns the authorities that callers must keep trusting when the stored CA is damaged: those that have our name
    /// or that issued the stored or the served leaf, out of the known and the published ones.
    pub(super) async fn still_trusted(
        &self,
        mut known: Vec<Anchor>,
        stored: &ServingCertificate,
        served: Option<&ServingCertificate>,
    ) -> Vec<Anchor> {
        let (now, name) = (self.time_of_day.now(), self.authority_name());
        known.extend(self.published(now).await);
        let (behind, others): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|anchor| anchor.verifies(stored.cert_pem.as_bytes(), now));
        let ours = others.into_iter().filter(|anchor| anchor.certificate().common_name == name);
        let mut once: Vec<Anchor> = Vec::new();
        // A bundle has a limit, so the most important authorities come first.
        for anchor in trusted_through(served, now).into_iter().chain(behind).chain(ours) {
            if !once.contains(&anchor) {
                once.push(anchor);
            }
        }
        once
    }

    /// Reads the bundles that callers of our Service trust now. A bundle that cannot be read is logged and left out.
    async fn published(&self, now: Timestamp) -> Vec<Anchor> {
        let mut found = Vec::new();
        for published in read_published(&self.client, &self.configurations).await {
            match published.entries {
                Ok(entries) => {
                    let entries = entries.into_iter().flatten();
                    let ours =
                        entries.filter(|entry| entry.service.as_ref().is_none_or(|one| self.dns_names.contains(one)));
                    found.extend(ours.flat_map(|entry| Anchor::read(&entry.bundle, now)));
                }
                // A command that makes certificates need not have that right.
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    info!(
                        object = published.object,
                        "not allowed to read the published CA bundle; leaving its authorities out of the new bundle"
                    );
                }
                Err(error) => {
                    let error = error_message(&error);
                    warn!(
                        error,
                        object = published.object,
                        "cannot read the published CA bundle; leaving its authorities out of the new bundle"
                    );
                }
            }
        }
        found
    }
}

/// Returns the authorities by which callers trust the pair that is served, while it is valid.
pub(super) fn trusted_through(served: Option<&ServingCertificate>, now: Timestamp) -> Vec<Anchor> {
    let Some(ServingCertificate { cert_pem, ca_pem, .. }) = served else { return Vec::new() };
    let valid = Certificate::from_pem(cert_pem.as_bytes()).is_ok_and(|leaf| now <= leaf.not_after);
    let anchors = Anchor::read(ca_pem.as_bytes(), now);
    anchors.into_iter().filter(|anchor| valid && anchor.verifies(cert_pem.as_bytes(), now)).collect()
}
