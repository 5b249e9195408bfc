//! Objects and advice for each source of certificates.

use std::path::Path;

use portcullis_manifest::{IssuedCertificate, Trust};
use portcullis_pki::Certificate;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::{GenerateError, GenerateFlags};
use crate::Installation;
use crate::cli::input::read;
use portcullis_manifest::CertificateMode;

/// The largest size of an API object, and so of a bundle in one.
const LARGEST_BUNDLE: u64 = 1024 * 1024;
/// The advice on a file that is no bundle.
const PLAIN: &str = "give the certificates as PEM, as they are in ca.crt, not encoded once more";

/// The Certificate for cert-manager, with the name of the Secret that it is written to.
pub(super) fn issued(installation: &Installation, flags: &GenerateFlags) -> IssuedCertificate {
    IssuedCertificate {
        name: installation.secret.clone(),
        namespace: installation.namespace.clone(),
        dns_names: installation.server_names(),
        issuer: flags.issuer.clone(),
    }
}

/// Sets the source of the `caBundle` fields.
pub(super) fn trust(installation: &Installation, flags: &GenerateFlags) -> Result<Trust, GenerateError> {
    let mode = installation.certificates;
    if flags.issuer.is_some() && mode != CertificateMode::CertManager {
        return Err(GenerateError::OtherMode { flag: "--issuer", mode: "cert-manager" });
    }
    if flags.ca_bundle.is_some() && mode != CertificateMode::External {
        return Err(GenerateError::OtherMode { flag: "--ca-bundle", mode: "external" });
    }
    Ok(match (mode, &flags.ca_bundle) {
        (CertificateMode::CertManager, _) => Trust::Injected(issued(installation, flags).inject_ca_from()),
        (_, Some(path)) => Trust::Given(bundle(path)?),
        (CertificateMode::Automatic | CertificateMode::External | CertificateMode::Hooks, None) => Trust::Published,
    })
}

/// The certificates of the file, each of which must be an authority's: a leaf in a bundle makes no caller trust what
/// comes after it.
fn bundle(path: &Path) -> Result<String, GenerateError> {
    let refused = |problem: String| GenerateError::Bundle { path: path.to_owned(), problem };
    let bytes = read(path, LARGEST_BUNDLE).map_err(|source| GenerateError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let text = String::from_utf8(bytes).map_err(|_| refused("is no PEM file: it is not text".to_owned()))?;
    if text.contains("PRIVATE KEY") {
        return Err(refused("holds a private key: give the certificates of the authorities alone".to_owned()));
    }
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes())
        .map(|der| Certificate::from_der(&der.map_err(|error| error.to_string())?).map_err(|error| error.to_string()))
        .collect::<Result<Vec<_>, String>>()
        .map_err(|error| refused(format!("cannot be read: {error}; {PLAIN}")))?;
    if certificates.is_empty() {
        return Err(refused(format!("holds no certificate; {PLAIN}")));
    }
    if let Some(Certificate { common_name, .. }) = certificates.iter().find(|certificate| !certificate.is_ca) {
        let problem = format!("'{common_name}' is a server's certificate: give that of the authority which issued it");
        return Err(refused(problem));
    }
    Ok(text)
}

/// Explains what users or other programs have to create, with the objects as examples.
pub(super) fn explained(installation: &Installation, flags: &GenerateFlags) -> (String, Vec<Value>) {
    let Installation { secret, namespace, .. } = installation;
    match installation.certificates {
        CertificateMode::Automatic => {
            let ca = installation.ca_secret();
            let note = format!(
                "# Nothing to apply: the operator makes the Secrets {secret} and {ca} in namespace {namespace} itself, \
                 and\n# publishes its CA in the webhook configurations and CRDs.\n"
            );
            (note, Vec::new())
        }
        CertificateMode::Hooks => {
            let note = format!(
                "# Nothing to apply: before the operator is installed or upgraded, 'certs ensure' makes the Secret {secret} in\n\
                 # namespace {namespace}; after it, 'certs publish' publishes the CA. The hooks of a chart do both.\n"
            );
            (note, Vec::new())
        }
        CertificateMode::CertManager => (String::new(), issued(installation, flags).manifests()),
        CertificateMode::External => {
            let names = installation.server_names().join(", ");
            let note = format!(
                "# An example of what you bring: apply it with your own PEM blocks in place of the words.\n# The \
                 certificate must name {}. It is called by\n# {names}.\n",
                installation.server_name()
            );
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": { "name": secret, "namespace": namespace },
                "stringData": {
                    "tls.crt": "the certificate, then those between it and its authority",
                    "tls.key": "its private key",
                    "ca.crt": "the authorities under which it is valid; while one replaces another, both",
                },
            });
            (note, vec![secret])
        }
    }
}
