//! The two Secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use portcullis_pki::{Ca, Certificate, CertificateParams, Usage, bundle_fingerprints, check_server_pair};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::{Automatic, CA_VALIDITY, CertificateError, LEAF_VALIDITY, MIN_LEFT, Material};
use crate::pauses::Pauses;

/// Clocks of API servers differ a little from ours.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);
/// Pause after a write that another writer overtook. The round has a deadline of its own.
const OVERTAKEN: Duration = Duration::from_millis(50);
const LONGEST_OVERTAKEN: Duration = Duration::from_secs(5);

pub(super) async fn ensure(source: &Automatic) -> Result<Material, CertificateError> {
    let mut pauses = Pauses::new(OVERTAKEN, LONGEST_OVERTAKEN);
    loop {
        if let Some(ca) = authority(source).await?
            && let Some(material) = leaf(source, &ca).await?
        {
            return Ok(material);
        }
        sleep(pauses.next(Instant::now())).await;
    }
}

/// The stored authority, or a new one. `None` when another writer was faster: read again.
async fn authority(source: &Automatic) -> Result<Option<Ca>, CertificateError> {
    let now = Timestamp::now();
    let name = source.ca_secret();
    let stored = read(source, &name).await?;
    if let Some(secret) = &stored {
        match stored_authority(secret, now) {
            Ok(ca) => return Ok(Some(ca)),
            Err(problem) => warn!(secret = name, %problem, "the stored CA is replaced"),
        }
    }
    let ca = Ca::generate(&format!("{} ca", source.secret), now - BACKDATED, now + CA_VALIDITY)?;
    let data = [("ca.crt", ca.cert_pem()), ("ca.key", ca.key_pem())];
    let written = write(source, &name, "Opaque", stored.as_ref(), &data).await?;
    Ok(written.then_some(ca))
}

fn stored_authority(secret: &Secret, now: Timestamp) -> Result<Ca, String> {
    let (cert, key) = (text(secret, "ca.crt")?, text(secret, "ca.key")?);
    let ca = Ca::from_pem(&cert, &key).map_err(|error| error.to_string())?;
    let Certificate { not_before, not_after, .. } = ca.certificate();
    if now < *not_before {
        return Err(format!("it is not valid before {not_before}"));
    }
    if not_after.duration_since(now) < MIN_LEFT {
        return Err(format!("it ends at {not_after}"));
    }
    // The text is published as it is: nobody else's certificate may ride along.
    match bundle_fingerprints(cert.as_bytes()) {
        Ok(found) if found.len() == 1 => Ok(ca),
        _ => Err("ca.crt holds more than one certificate".to_owned()),
    }
}

/// The stored leaf when it can go on, or a new one. `None` when another writer was faster.
async fn leaf(source: &Automatic, ca: &Ca) -> Result<Option<Material>, CertificateError> {
    let now = Timestamp::now();
    let stored = read(source, &source.secret).await?;
    if let Some(secret) = &stored {
        match stored_material(secret).and_then(|material| check(source, material, ca, now)) {
            Ok(material) => return Ok(Some(material)),
            Err(problem) => warn!(secret = source.secret, %problem, "a new certificate is issued under the stored CA"),
        }
    }
    let pair = ca.issue(&CertificateParams {
        common_name: source.dns_names.first().map_or("webhook", String::as_str),
        organizations: &[],
        dns_names: &source.dns_names,
        ip_addresses: &[],
        not_before: now - BACKDATED,
        not_after: (now + LEAF_VALIDITY).min(ca.certificate().not_after),
        usage: Usage::Server,
    })?;
    let material = Material { cert_pem: pair.cert_pem, key_pem: pair.key_pem, ca_pem: ca.cert_pem().to_owned() };
    // What would not pass when it is read back would be issued again for ever.
    let material = check(source, material, ca, now).map_err(|problem| CertificateError::Unusable {
        namespace: source.namespace.clone(),
        ca: source.ca_secret(),
        problem,
    })?;
    let Material { cert_pem, key_pem, ca_pem } = &material;
    let data = [("tls.crt", cert_pem.as_str()), ("tls.key", key_pem), ("ca.crt", ca_pem)];
    if !write(source, &source.secret, "kubernetes.io/tls", stored.as_ref(), &data).await? {
        return Ok(None);
    }
    info!(secret = source.secret, names = ?source.dns_names, "issued a certificate");
    Ok(Some(material))
}

fn stored_material(secret: &Secret) -> Result<Material, String> {
    Ok(Material {
        cert_pem: text(secret, "tls.crt")?,
        key_pem: text(secret, "tls.key")?,
        ca_pem: text(secret, "ca.crt")?,
    })
}

/// Whether the material can be served and published for a good while.
fn check(source: &Automatic, material: Material, ca: &Ca, now: Timestamp) -> Result<Material, String> {
    let fingerprints = |pem: &str| bundle_fingerprints(pem.as_bytes()).map_err(|error| format!("ca.crt: {error}"));
    if fingerprints(&material.ca_pem)? != fingerprints(ca.cert_pem())? {
        return Err("ca.crt is not the stored CA".to_owned());
    }
    let (cert, key) = (material.cert_pem.as_bytes(), material.key_pem.as_bytes());
    check_server_pair(cert, key, ca.cert_pem().as_bytes(), &source.dns_names, now, MIN_LEFT)
        .map_err(|problem| problem.to_string())?;
    source.tls_config(&material).map_err(|error| error.to_string())?;
    Ok(material)
}

fn text(secret: &Secret, key: &str) -> Result<String, String> {
    let bytes = secret.data.as_ref().and_then(|data| data.get(key)).ok_or_else(|| format!("key {key} is missing"))?;
    String::from_utf8(bytes.0.clone()).map_err(|_| format!("key {key} is not PEM"))
}

fn api(source: &Automatic) -> Api<Secret> {
    Api::namespaced(source.client.clone(), &source.namespace)
}

fn failed(source: &Automatic, action: &'static str, name: &str, error: kube::Error) -> CertificateError {
    CertificateError::Api {
        action,
        namespace: source.namespace.clone(),
        name: name.to_owned(),
        source: Box::new(error),
    }
}

async fn read(source: &Automatic, name: &str) -> Result<Option<Secret>, CertificateError> {
    api(source).get_opt(name).await.map_err(|error| failed(source, "read", name, error))
}

/// Creates the Secret, or changes the one that was read if nobody has changed it since. Says whether this writer won.
async fn write(
    source: &Automatic,
    name: &str,
    kind: &str,
    read: Option<&Secret>,
    data: &[(&str, &str)],
) -> Result<bool, CertificateError> {
    let data: BTreeMap<String, ByteString> =
        data.iter().map(|(key, pem)| ((*key).to_owned(), ByteString(pem.as_bytes().to_vec()))).collect();
    let (action, result) = if let Some(read) = read {
        // With the resourceVersion that was read, a merge patch fails when it is not the latest.
        let patch = json!({ "metadata": { "resourceVersion": read.resource_version() }, "data": data });
        let params = PatchParams { field_manager: Some(source.secret.clone()), ..PatchParams::default() };
        ("update", api(source).patch(name, &params, &Patch::Merge(patch)).await)
    } else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let secret = Secret { metadata, type_: Some(kind.to_owned()), data: Some(data), ..Secret::default() };
        let params = PostParams { field_manager: Some(source.secret.clone()), ..PostParams::default() };
        ("create", api(source).create(&params, &secret).await)
    };
    match result {
        Ok(_) => Ok(true),
        // 409: someone created or changed it first. 404: someone deleted it since.
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 && action == "update" => Ok(false),
        Err(error) => Err(failed(source, action, name, error)),
    }
}
