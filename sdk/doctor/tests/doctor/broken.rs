//! Everything that can be broken, and the findings of `doctor` about it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use portcullis_manifest::ScopePolicy;
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use serde_json::{Value, json};

use crate::clinic::{CRD, Clinic, MUTATING, SECRET, SERVICE, Sort, VALIDATING};

/// One thing that is done to an installation.
pub(crate) enum Act {
    Patch(Sort, &'static str, Value),
    Delete(Sort, &'static str),
    Create(Sort, Value),
    /// Writes the status of an object that was just created, as its controller would.
    Status(Sort, &'static str, Value),
}
use Act::{Create, Delete, Patch, Status};

/// Damage, the flags of a look at it, and the findings: check, verdict and words of the fix.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) acts: Vec<Act>,
    pub(crate) arguments: Vec<String>,
    pub(crate) says: Vec<Said>,
}

type Said = (&'static str, &'static str, &'static str);

pub(crate) fn variant(name: &'static str, acts: Vec<Act>, says: &[Said]) -> Variant {
    Variant { name, acts, arguments: Vec::new(), says: says.to_vec() }
}

impl Variant {
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|word| (*word).to_owned()));
        self
    }
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);
const LEASE: Sort = ("coordination.k8s.io", "v1", "Lease", "leases", true);
const POLICY: Sort =
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false);
const BINDING: Sort = (
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    false,
);
const JOB: Sort = ("batch", "v1", "Job", "jobs", true);
const CERTIFICATE: Sort = ("cert-manager.io", "v1", "Certificate", "certificates", true);

/// As Secrets and configurations have it.
fn encoded(pem: &str) -> Value {
    json!(BASE64_STANDARD.encode(pem))
}

/// Certificates of an unknown CA.
struct Forge;

impl Forge {
    fn ca(from: Timestamp, to: Timestamp) -> Ca {
        Ca::generate("somebody else", from, to).unwrap()
    }

    fn leaf(ca: &Ca, names: &[String], from: Timestamp, to: Timestamp) -> Pair {
        let params = CertificateParams {
            common_name: "leaf",
            organizations: &[],
            dns_names: names,
            ip_addresses: &[],
            not_before: from,
            not_after: to,
            usage: Usage::Server,
        };
        ca.issue(&params).unwrap()
    }

    /// The Secret with a pair of these dates, under a CA of its own.
    fn secret(names: &[String], from: Timestamp, to: Timestamp) -> Vec<Act> {
        let ca = Self::ca(from - DAY, to + DAY);
        let pair = Self::leaf(&ca, names, from, to);
        let data = json!({
            "tls.crt": encoded(&pair.cert_pem), "tls.key": encoded(&pair.key_pem), "ca.crt": encoded(ca.cert_pem()),
        });
        vec![Patch(SECRET, "shop-webhook-tls", json!([{ "op": "replace", "path": "/data", "value": data }]))]
    }
}

/// One operation on the validating configuration's webhook.
fn entry(operation: &str, field: &str, value: Value) -> Act {
    of_entry(VALIDATING, "shop-validating", operation, field, value)
}

fn of_entry(sort: Sort, name: &'static str, operation: &str, field: &str, value: Value) -> Act {
    let path = format!("/webhooks/0/{field}");
    Patch(sort, name, json!([{ "op": operation, "path": path, "value": value }]))
}

fn service(value: Value) -> Act {
    Patch(SERVICE, "shop-webhook", json!([{ "op": "replace", "path": "/spec", "value": value }]))
}

/// A configuration of another installation with the same webhook.
fn another(clinic: &Clinic, name: &str, service: &str, selector: Value) -> Act {
    let webhook = json!({
        "name": "sober.orders.doctor.example", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": { "service": { "namespace": clinic.namespace, "name": service, "path": "/validate/sober" } },
        "rules": [{
            "apiGroups": ["doctor.example"], "apiVersions": ["v2"], "resources": ["orders"], "operations": ["CREATE"],
        }],
        "failurePolicy": "Fail", "namespaceSelector": selector,
    });
    Create(VALIDATING, json!({ "metadata": { "name": name }, "webhooks": [webhook] }))
}

fn only(namespace: &str) -> Value {
    json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } })
}

/// A Lease that is held for long enough to be asked about on a busy machine.
fn lease(clinic: &Clinic, holder: &str, renewed: Timestamp) -> Act {
    let spec = json!({
        "holderIdentity": holder, "leaseDurationSeconds": 600, "leaseTransitions": 1,
        "acquireTime": format!("{renewed:.6}"), "renewTime": format!("{renewed:.6}"),
    });
    Create(
        LEASE,
        json!({ "metadata": { "name": "shop-namespace-scope", "namespace": clinic.namespace }, "spec": spec }),
    )
}

/// The policy that hands the namespace over, or its binding.
fn handed_over(clinic: &Clinic, sort: Sort) -> Act {
    let lease = "shop-namespace-scope".to_owned();
    let name = format!("{lease}.{}", clinic.namespace);
    let policy = ScopePolicy { name, namespace: clinic.namespace.clone(), lease };
    let mut manifest = policy.manifests().into_iter().find(|manifest| manifest["kind"] == sort.2).unwrap();
    manifest["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "shop" });
    Create(sort, manifest)
}

/// A Lease of leader election, which is held.
fn leader(clinic: &Clinic, release: &str) -> Act {
    let Create(sort, mut lease) = lease(clinic, "pod-a", Timestamp::now()) else { unreachable!() };
    let labels = json!({ "portcullis.dev/operator": "shop" });
    let (name, namespace) = (format!("{release}-leader"), &clinic.namespace);
    lease["metadata"] = json!({ "name": name, "namespace": namespace, "labels": labels });
    Create(sort, lease)
}

fn job(name: &str, command: &[&str]) -> Act {
    let container = json!({ "name": "job", "image": "example/tool:1", "command": command });
    let spec = json!({ "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } });
    Create(JOB, json!({ "metadata": { "name": name, "annotations": { "helm.sh/hook": "pre-install" } }, "spec": spec }))
}

fn certificate() -> Act {
    let spec = json!({ "secretName": "shop-webhook-tls", "issuerRef": { "kind": "Issuer", "name": "nobody" } });
    Create(CERTIFICATE, json!({ "metadata": { "name": "shop-webhook" }, "spec": spec }))
}

fn certificates(clinic: &Clinic) -> Vec<Variant> {
    let (now, server) = (Timestamp::now(), format!("shop-webhook.{}.svc", clinic.namespace));
    let names = &[server];
    let (day, year) = (now - DAY, now + DAY * 365);
    let foreign = Forge::ca(day, year);
    let key = Forge::leaf(&foreign, names, day, year).key_pem;
    let expired = Forge::ca(now - DAY * 9, now - HOUR);
    let bundle = |pem: &str| entry("replace", "clientConfig/caBundle", encoded(pem));
    let secret = |key: &str, operation: &str, value: Value| {
        vec![Patch(
            SECRET,
            "shop-webhook-tls",
            json!([{ "op": operation, "path": format!("/data/{key}"), "value": value }]),
        )]
    };
    vec![
        variant(
            "caBundle empty",
            vec![entry("remove", "clientConfig/caBundle", Value::Null)],
            &[("W3", "FAIL", "shop_operator certs publish")],
        ),
        variant(
            "caBundle of the CRD empty",
            vec![Patch(
                CRD,
                "orders.doctor.example",
                json!([{ "op": "remove", "path": "/spec/conversion/webhook/clientConfig/caBundle" }]),
            )],
            &[("W3", "FAIL", "shop_operator certs publish")],
        ),
        variant("caBundle garbage", vec![bundle("garbage")], &[("W3", "FAIL", "shop_operator certs publish")]),
        variant(
            "caBundle foreign",
            vec![bundle(foreign.cert_pem())],
            &[("X5", "FAIL", "certs publish"), ("X8", "WARN", "certs show")],
        ),
        variant("caBundle expired", vec![bundle(expired.cert_pem())], &[("W3", "FAIL", "certs publish")]),
        variant(
            "Secret gone",
            vec![Delete(SECRET, "shop-webhook-tls")],
            &[("X1", "FAIL", "shop_operator certs ensure")],
        ),
        variant(
            "CA Secret gone",
            vec![Delete(SECRET, "shop-webhook-tls-ca")],
            &[("X1", "FAIL", "shop_operator certs ensure")],
        ),
        variant("Secret with an empty key", secret("tls.key", "replace", json!("")), &[("X1", "FAIL", "certs ensure")]),
        variant("Secret without a bundle", secret("ca.crt", "remove", Value::Null), &[("X1", "FAIL", "certs ensure")]),
        variant(
            "certificate cut off",
            secret("tls.crt", "replace", encoded("-----BEGIN CERTIFICATE-----\nMIIB")),
            &[("X1", "FAIL", "certs ensure")],
        ),
        variant("key swapped", secret("tls.key", "replace", encoded(&key)), &[("X4", "FAIL", "certs ensure")]),
        variant("key garbage", secret("tls.key", "replace", encoded("garbage")), &[("X4", "FAIL", "certs ensure")]),
        variant("leaf expired", Forge::secret(names, now - DAY * 9, now - HOUR), &[("X2", "FAIL", "certs ensure")]),
        variant("leaf not yet valid", Forge::secret(names, now + DAY, year), &[("X2", "FAIL", "certs ensure")]),
        variant(
            "leaf ends soon",
            Forge::secret(names, now - DAY * 300, now + DAY * 9),
            &[("X2", "WARN", "certs ensure")],
        ),
        variant(
            "leaf for another name",
            Forge::secret(&["elsewhere.svc".to_owned()], day, year),
            &[("X3", "FAIL", "certs ensure")],
        ),
        variant("pair of another CA", Forge::secret(names, day, year), &[("X5", "FAIL", "certs publish")]),
        variant(
            "bundle that is no CA",
            secret("ca.crt", "replace", encoded(&Forge::leaf(&foreign, names, day, year).cert_pem)),
            &[("X5", "FAIL", "certs ensure")],
        ),
    ]
}

fn calls(clinic: &Clinic) -> Vec<Variant> {
    let namespace = &clinic.namespace;
    let cluster_ip =
        |port: u16| json!({ "type": "ClusterIP", "selector": { "app": "shop" }, "ports": [{ "port": port }] });
    vec![
        variant(
            "configuration gone",
            vec![Delete(VALIDATING, "shop-validating")],
            &[("W1", "FAIL", "shop_operator generate webhooks --namespace")],
        ),
        variant(
            "Service gone",
            vec![Delete(SERVICE, "shop-webhook")],
            &[("W4", "FAIL", "shop_operator generate operator")],
        ),
        variant(
            "Service without the port",
            vec![service(cluster_ip(1))],
            &[("W4", "FAIL", "shop_operator generate operator")],
        ),
        variant(
            "Service without endpoints",
            vec![service(cluster_ip(clinic.port))],
            &[("C2", "FAIL", "get pods -l 'app=shop'"), ("C1", "FAIL", "generate operator")],
        ),
        variant(
            "another port is called",
            vec![entry("replace", "clientConfig/service/port", json!(1))],
            &[("W4", "WARN", "generate webhooks")],
        ),
        variant(
            "path that is not served",
            vec![entry("replace", "clientConfig/service/path", json!("/validate/drunk"))],
            &[("W5", "FAIL", "generate webhooks")],
        ),
        variant(
            "path of another webhook",
            vec![entry("replace", "clientConfig/service/path", json!("/mutate/one-glass"))],
            &[("W5", "FAIL", "generate webhooks")],
        ),
        variant(
            "URL instead of the Service",
            vec![entry("replace", "clientConfig", json!({ "url": "https://example.test/x" }))],
            &[("W4", "WARN", "generate webhooks")],
        ),
        variant(
            "selector leaves the namespace out",
            vec![entry("replace", "namespaceSelector", json!({ "matchLabels": { "beer": "yes" } }))],
            &[("W6", "WARN", "--show-labels")],
        )
        .with(&["--in-namespace", &clinic.team]),
        variant(
            "rule without an operation",
            vec![entry("replace", "rules/0/operations", json!(["CREATE"]))],
            &[("W2", "FAIL", "generate webhooks")],
        ),
        variant(
            "webhook under another name",
            vec![of_entry(MUTATING, "shop-mutating", "replace", "name", json!("two.glasses.example"))],
            &[("W2", "FAIL", "generate webhooks")],
        ),
        variant(
            "matchPolicy Exact",
            vec![entry("replace", "matchPolicy", json!("Exact"))],
            &[("W2", "WARN", "generate webhooks")],
        ),
        variant(
            "no conversion",
            vec![Patch(CRD, "orders.doctor.example", json!([{ "op": "replace", "path": "/spec/conversion", "value": { "strategy": "None" } }]))],
            &[("W2", "FAIL", "generate crds")],
        ),
        variant(
            "failurePolicy Ignore",
            vec![entry("replace", "failurePolicy", json!("Ignore"))],
            &[("W8", "WARN", "generate webhooks")],
        ),
        variant(
            "webhooks off, configuration left",
            Vec::new(),
            &[("W9", "FAIL", "kubectl delete validatingwebhookconfiguration shop-validating; kubectl delete mutatingwebhookconfiguration shop-mutating")],
        )
        .with(&["--webhooks", "off"]),
        variant(
            "two installations that lead",
            vec![leader(clinic, "blue"), leader(clinic, "green")],
            &[("L6", "FAIL", "--restrict-to-namespace")],
        ),
        variant(
            "restricted configuration without a Lease",
            vec![another(clinic, "shop-validating-team", "shop-webhook", only(namespace))],
            &[("L1", "FAIL", "kubectl delete validatingwebhookconfiguration shop-validating-team")],
        ),
        variant(
            "restricted operator that is gone",
            vec![
                another(clinic, "shop-validating-team", "shop-webhook", only(namespace)),
                lease(clinic, "pod-a", Timestamp::now() - HOUR),
            ],
            &[("L1", "FAIL", "kubectl delete")],
        ),
        variant(
            "Lease in a namespace that is handed over",
            vec![handed_over(clinic, POLICY), handed_over(clinic, BINDING), lease(clinic, "pod-a", Timestamp::now())],
            &[("W7", "INFO", "")],
        ),
        variant(
            "hook Job failed",
            vec![
                job("shop-webhook-cert-gen-1", &["sh", "-c", "openssl req"]),
                Status(JOB, "shop-webhook-cert-gen-1", json!({ "failed": 4 })),
            ],
            &[
                ("H1", "FAIL", "logs job/shop-webhook-cert-gen-1"),
                ("H7", "INFO", "delete job shop-webhook-cert-gen-1"),
            ],
        ),
        variant(
            "injection Job has not ended",
            vec![job("shop-webhook-ca-inject-1", &["kubectl", "patch"])],
            &[("X10", "WARN", "certs publish")],
        ),
        variant(
            "cert-manager without Certificate and annotation",
            vec![],
            &[
                ("X11", "FAIL", "generate certificates"),
                ("X11", "FAIL", "generate webhooks"),
            ],
        )
        .with(&["--certificates", "cert-manager"]),
        variant(
            "Certificate that is not ready",
            vec![
                certificate(),
                Status(CERTIFICATE, "shop-webhook", json!({ "conditions": [{ "type": "Ready", "status": "False", "message": "issuer is away" }] })),
                Patch(VALIDATING, "shop-validating", json!([{
                    "op": "add", "path": "/metadata/annotations", "value": { "cert-manager.io/inject-ca-from": format!("{namespace}/nothing") },
                }])),
            ],
            &[
                ("X11", "FAIL", "describe certificate shop-webhook"),
                ("X11", "FAIL", "describe issuer nobody"),
                ("X11", "FAIL", "generate webhooks"),
            ],
        )
        .with(&["--certificates", "cert-manager"]),
    ]
}

/// cert-manager's kinds, as far as they are looked at.
fn cert_manager() -> Vec<Value> {
    let crd = |kind: &str, plural: &str| {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let version = json!({ "name": "v1", "served": true, "storage": true, "schema": schema, "subresources": { "status": {} } });
        let names = json!({ "kind": kind, "plural": plural, "singular": kind.to_lowercase() });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.cert-manager.io") },
            "spec": { "group": "cert-manager.io", "scope": "Namespaced", "names": names, "versions": [version] },
        })
    };
    vec![crd("Certificate", "certificates"), crd("Issuer", "issuers")]
}

/// Breaks, checks and repairs; `repaired` says whether all can be repaired.
pub(crate) async fn examine(clinic: &Clinic, variants: Vec<Variant>, repaired: bool) {
    let chart = clinic.chart().await;
    let mut wrong = Vec::new();
    for Variant { name, acts, arguments, says } in variants {
        let mut created = Vec::new();
        for act in acts {
            match act {
                Patch(sort, object, operations) => clinic.patch(sort, object, operations).await,
                Delete(sort, object) => clinic.delete(sort, object).await,
                Create(sort, object) => created.push((sort, clinic.create(sort, object).await)),
                Status(sort, object, status) => clinic.status(sort, object, status).await,
            }
        }
        let words: Vec<_> = arguments.iter().map(String::as_str).collect();
        let examined = clinic.examine(&words).await;
        for (id, verdict, fix) in &says {
            let of: Vec<_> = examined.of(id);
            let said = of.iter().any(|found| found.verdict == *verdict && found.fix.contains(fix));
            if !said {
                wrong.push(format!("{name}: {id} {verdict} with fix '{fix}' was not said, but {of:#?}"));
            }
        }
        if says.iter().any(|(_, verdict, _)| *verdict == "FAIL") && examined.code != 1 {
            wrong.push(format!("{name}: exit code {}", examined.code));
        }
        for (sort, object) in created {
            clinic.delete(sort, &object).await;
        }
        clinic.repair(&chart).await;
    }
    let left = clinic.examine(&[]).await;
    if repaired && left.code != 0 {
        wrong.push(format!("something was not repaired: {:#?}", left.with("FAIL")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// D10
#[tokio::test]
async fn each_fault_is_reported_with_its_fix() {
    let clinic = Clinic::open().await;
    clinic.cluster.apply(&cert_manager()).await;
    let (certificates, calls) = (certificates(&clinic), calls(&clinic));
    examine(&clinic, certificates, true).await;
    examine(&clinic, calls, true).await;
}
