//! cert-manager's objects (`cert-manager.io/v1`).

use std::str::FromStr;

use serde_json::{Value, json};

/// Annotation that makes cert-manager's cainjector write the CA of a Certificate into a webhook configuration or CRD.
pub const INJECT_CA_FROM: &str = "cert-manager.io/inject-ca-from";

/// The validity of a leaf, and the time before its end at which cert-manager renews it.
const LEAF: (&str, &str) = ("8760h", "720h");
/// The authority is renewed while it still outlives every leaf that it issues: a leaf is not issued again because its
/// authority was (cert-manager#2478).
const ROOT: (&str, &str) = ("87600h", "9480h");

/// Reference to a cert-manager issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerRef {
    /// `Issuer` or `ClusterIssuer`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl FromStr for IssuerRef {
    type Err = &'static str;

    /// Reads `NAME`, `Issuer/NAME` or `ClusterIssuer/NAME`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text.split_once('/').unwrap_or(("Issuer", text));
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if !["Issuer", "ClusterIssuer"].contains(&kind) || name.is_empty() || !name.bytes().all(plain) {
            return Err("use NAME, Issuer/NAME or ClusterIssuer/NAME");
        }
        Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
    }
}

/// The certificate of a webhook server, as cert-manager is to issue it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// Name of the Certificate and of the Secret that it is written to.
    pub name: String,
    /// Namespace of both.
    pub namespace: String,
    /// The DNS names of the server.
    pub dns_names: Vec<String>,
    /// The issuer. Without one, a CA is created in the same namespace for this certificate alone.
    pub issuer: Option<IssuerRef>,
}

impl IssuedCertificate {
    /// The value of [`INJECT_CA_FROM`] for this certificate.
    pub fn inject_ca_from(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The Certificate, preceded by the CA's objects unless there is an issuer.
    pub fn manifests(&self) -> Vec<Value> {
        let Some(issuer) = &self.issuer else {
            let (root, selfsigned) = (format!("{}-root", self.name), format!("{}-selfsigned", self.name));
            return vec![
                self.issuer(&selfsigned, &json!({ "selfSigned": {} })),
                self.root(&root, &selfsigned),
                self.issuer(&root, &json!({ "ca": { "secretName": root } })),
                self.leaf(&IssuerRef { kind: "Issuer".to_owned(), name: root }),
            ];
        };
        vec![self.leaf(issuer)]
    }

    fn issuer(&self, name: &str, spec: &Value) -> Value {
        json!({ "apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": self.metadata(name), "spec": spec })
    }

    /// Its key stays the same: clients that know the previous certificate trust what was issued under it.
    fn root(&self, name: &str, issuer: &str) -> Value {
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": self.metadata(name),
            "spec": {
                "isCA": true, "commonName": "webhook authority", "secretName": name,
                "duration": ROOT.0, "renewBefore": ROOT.1,
                "privateKey": { "algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never" },
                "usages": ["cert sign", "crl sign", "digital signature"],
                "issuerRef": { "group": "cert-manager.io", "kind": "Issuer", "name": issuer },
            },
        })
    }

    /// The Certificate of the leaf. It has no common name, which may be no longer than 64 bytes and which no client
    /// looks at.
    fn leaf(&self, issuer: &IssuerRef) -> Value {
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": self.metadata(&self.name),
            "spec": {
                "secretName": self.name, "dnsNames": self.dns_names,
                "duration": LEAF.0, "renewBefore": LEAF.1, "revisionHistoryLimit": 1,
                "privateKey": { "algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always" },
                "usages": ["server auth", "digital signature"],
                "issuerRef": { "group": "cert-manager.io", "kind": issuer.kind, "name": issuer.name },
            },
        })
    }

    fn metadata(&self, name: &str) -> Value {
        json!({ "name": name, "namespace": self.namespace })
    }
}
