//! Reading and writing the two Secrets.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use portcullis_pki::rotation::{Anchor, Authorities, CaData, PairData, bundle};
use serde_json::json;

use super::Automatic;
use crate::{CertificateError, ServingCertificate, read};

/// Values of a Secret; those that are `None` are removed.
type Values<'a> = [(&'a str, Option<String>)];

/// The values of the Secret of the CA.
pub fn ca_data(secret: Option<&Secret>) -> CaData<'_> {
    let get = |key| value(secret, key);
    CaData {
        ca_crt: get("ca.crt"),
        ca_key: get("ca.key"),
        next_crt: get("next.crt"),
        next_key: get("next.key"),
        previous_crt: get("previous.crt"),
    }
}

/// The values of the Secret with the pair.
pub(super) fn pair_data(secret: Option<&Secret>) -> PairData<'_> {
    let get = |key| value(secret, key);
    PairData { tls_crt: get("tls.crt"), tls_key: get("tls.key"), ca_crt: get("ca.crt") }
}

fn value<'a>(secret: Option<&'a Secret>, key: &str) -> Option<&'a [u8]> {
    Some(secret?.data.as_ref()?.get(key)?.0.as_slice())
}

impl Automatic {
    /// Stores the authorities, if the Secret has not changed since it was read. Returns whether this writer won.
    pub(super) async fn write_authorities(
        &self,
        read: Option<&Secret>,
        authorities: &Authorities,
    ) -> Result<bool, CertificateError> {
        let Authorities { current, next, previous, .. } = authorities;
        let values = [
            ("ca.crt", Some(Anchor::from(current).pem())),
            ("ca.key", Some(current.key_pem().to_owned())),
            ("next.crt", next.as_ref().map(|next| Anchor::from(next).pem())),
            ("next.key", next.as_ref().map(|next| next.key_pem().to_owned())),
            ("previous.crt", (!previous.is_empty()).then(|| bundle(previous))),
        ];
        self.write(&self.ca_secret(), "Opaque", read, &values).await
    }

    /// Stores the pair and the bundle, if the Secret has not changed since it was read. Returns whether this writer
    /// won.
    pub(super) async fn write_pair(
        &self,
        read: Option<&Secret>,
        certificate: &ServingCertificate,
    ) -> Result<bool, CertificateError> {
        let ServingCertificate { cert_pem, key_pem, ca_pem } = certificate.clone();
        let values = [("tls.crt", Some(cert_pem)), ("tls.key", Some(key_pem)), ("ca.crt", Some(ca_pem))];
        self.write(&self.secret, "kubernetes.io/tls", read, &values).await
    }

    pub(super) async fn read(&self, name: &str) -> Result<Option<Secret>, CertificateError> {
        read(&self.client, &self.namespace, name).await
    }

    /// Creates the Secret, or updates it if it has not changed since it was read. Returns whether this writer won.
    async fn write(
        &self,
        name: &str,
        kind: &str,
        read: Option<&Secret>,
        values: &Values<'_>,
    ) -> Result<bool, CertificateError> {
        let bytes = |pem: &String| ByteString(pem.as_bytes().to_vec());
        let manager = Some(self.secret.clone());
        let (action, result) = if let Some(read) = read {
            // A merge patch with the resourceVersion that was read fails if it is not the latest.
            let data: BTreeMap<_, _> = values.iter().map(|(key, pem)| (*key, pem.as_ref().map(bytes))).collect();
            let patch = json!({ "metadata": { "resourceVersion": read.resource_version() }, "data": data });
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            ("update", self.secrets().patch(name, &params, &Patch::Merge(patch)).await)
        } else {
            let present = values.iter().filter_map(|(key, pem)| Some(((*key).to_owned(), pem.as_ref().map(bytes)?)));
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let data = Some(present.collect());
            let secret = Secret { metadata, type_: Some(kind.to_owned()), data, ..Secret::default() };
            let params = PostParams { field_manager: manager, ..PostParams::default() };
            ("create", self.secrets().create(&params, &secret).await)
        };
        match result {
            Ok(_) => Ok(true),
            // 409: someone created or changed it first. 404: someone deleted it since.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 && action == "update" => {
                Ok(false)
            }
            Err(error) => Err(self.failed(action, name, error)),
        }
    }

    fn failed(&self, action: &'static str, name: &str, error: kube::Error) -> CertificateError {
        CertificateError::Api {
            action,
            namespace: self.namespace.clone(),
            name: name.to_owned(),
            source: Box::new(error),
        }
    }
}
