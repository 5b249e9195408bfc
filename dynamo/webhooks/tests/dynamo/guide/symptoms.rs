//! Symptoms from the guide's section Troubleshooting: the user's error, and the findings of `doctor`.

use k8s_openapi::ByteString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use portcullis_pki::{Ca, CertificateParams, Usage};
use serde_json::{Value, json};

use crate::guide::home::{CONFIGURATION, Home, MODELS, SECRET, SECRET_NAME, SERVICE, SERVICE_NAME, Sort, VALIDATING};

/// One thing that is done to an installation.
pub(crate) enum Act {
    Patch(Sort, &'static str, Value),
    Delete(Sort, &'static str),
    Create(Sort, Value),
    /// Writes the status, as its controller would.
    Status(Sort, &'static str, Value),
    /// The Service goes, and with it every connection.
    Disconnect,
}
use Act::{Create, Delete, Disconnect, Patch, Status};

/// Check, verdict, words of the message, words of the fix.
type Said = (&'static str, &'static str, &'static str, &'static str);

pub(crate) struct Symptom {
    /// As `guide.yaml` refers to it.
    pub(crate) name: &'static str,
    pub(crate) acts: Vec<Act>,
    /// The error of a user who creates an invalid object; `None` where it depends on the network.
    pub(crate) told: Option<&'static str>,
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) says: Vec<Said>,
}

const JOB: Sort = ("batch/v1", "Job", true);
/// A user's object was judged all the same.
const REFUSED: &str = "spec.modelName is required";
const DAY: SignedDuration = SignedDuration::from_hours(24);

fn encoded(pem: &str) -> Value {
    json!(ByteString(pem.as_bytes().to_vec()))
}

/// A change of the webhook for models.
fn entry(operation: &str, field: &str, value: Value) -> Act {
    let path = format!("/webhooks/{MODELS}/{field}");
    Patch(VALIDATING, CONFIGURATION, json!([{"op": operation, "path": path, "value": value}]))
}

/// A CA that is not the installation's, and a certificate that it issued for this name.
fn foreign(name: &str, from: SignedDuration, to: SignedDuration) -> (String, Value) {
    let now = Timestamp::now();
    let ca = Ca::generate("somebody else", now + from - DAY, now + to + DAY).unwrap();
    let params = CertificateParams {
        common_name: "leaf",
        organizations: &[],
        dns_names: &[name.to_owned()],
        ip_addresses: &[],
        not_before: now + from,
        not_after: now + to,
        usage: Usage::Server,
    };
    let pair = ca.issue(&params).unwrap();
    let data = json!({
        "tls.crt": encoded(&pair.cert_pem), "tls.key": encoded(&pair.key_pem), "ca.crt": encoded(ca.cert_pem()),
    });
    (ca.cert_pem().to_owned(), data)
}

fn job(name: &str) -> Act {
    let container = json!({"name": "job", "image": "bitnami/kubectl", "command": ["kubectl", "patch"]});
    let spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
    Create(JOB, json!({"metadata": {"name": name, "annotations": {"helm.sh/hook": "post-install"}}, "spec": spec}))
}

pub(crate) fn all(namespace: &str) -> Vec<Symptom> {
    let server = format!("{SERVICE_NAME}.{namespace}.svc");
    let (other_ca, _) = foreign(&server, -DAY, DAY * 9);
    let pair = |name: &str, from, to| {
        let operation = json!([{"op": "replace", "path": "/data", "value": foreign(name, from, to).1}]);
        Patch(SECRET, SECRET_NAME, operation)
    };
    let restricted = json!({
        "metadata": {"name": "team-a-operator-validating-team-a"},
        "webhooks": [{
            "name": "vdynamomodel.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            "clientConfig": {"service": {"namespace": namespace, "name": SERVICE_NAME, "path": "/validate-nvidia-com-v1alpha1-dynamomodel"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}},
            "rules": [{"apiGroups": ["nvidia.com"], "apiVersions": ["v1alpha1"], "resources": ["dynamomodels"], "operations": ["CREATE", "UPDATE"]}],
        }],
    });
    let elsewhere =
        json!({"metadata": {"name": "elsewhere"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let no_endpoints =
        json!({"type": "ClusterIP", "selector": {"app": "none"}, "ports": [{"port": 443, "targetPort": 9443}]});
    let symptom =
        |name, acts, told, says: &[Said]| Symptom { name, acts, told, arguments: Vec::new(), says: says.to_vec() };
    vec![
        symptom(
            "no configuration",
            vec![Delete(VALIDATING, CONFIGURATION)],
            Some("accepted"),
            &[(
                "W1",
                "FAIL",
                "no ValidatingWebhookConfiguration dynamo-operator-validating",
                "dynamo-webhooks generate webhooks",
            )],
        ),
        symptom(
            "caBundle is empty",
            vec![entry("remove", "clientConfig/caBundle", Value::Null)],
            Some("x509: certificate signed by unknown authority"),
            &[("W3", "FAIL", "dynamo-operator-validating/vdynamomodel.kb.io: caBundle is empty", "certs publish")],
        ),
        Symptom {
            arguments: vec!["--in-namespace", "default"],
            ..symptom(
                "namespace is not selected",
                vec![entry("replace", "namespaceSelector", json!({"matchLabels": {"dynamo-validation": "enabled"}}))],
                Some("accepted"),
                &[(
                    "W6",
                    "WARN",
                    "namespace default is not matched by dynamo-operator-validating/vdynamomodel.kb.io (selector dynamo-validation=enabled)",
                    "--show-labels",
                )],
            )
        },
        symptom(
            "configuration names another service",
            vec![entry("replace", "clientConfig/service/name", json!("nobody"))],
            Some("service \"nobody\" not found"),
            &[("W4", "FAIL", "/nobody not found", "generate operator")],
        ),
        symptom(
            "service is missing",
            vec![Disconnect],
            Some("service \"dynamo-operator-webhook\" not found"),
            &[("W4", "FAIL", "/dynamo-operator-webhook not found", "generate operator")],
        ),
        symptom(
            "failurePolicy Ignore, and no operator answers",
            vec![entry("replace", "failurePolicy", json!("Ignore")), Disconnect],
            Some("accepted"),
            &[("W8", "WARN", "dynamo-operator-validating/vdynamomodel.kb.io fails open", "generate webhooks")],
        ),
        Symptom {
            arguments: vec!["--webhooks", "off"],
            ..symptom(
                "webhooks are disabled, and their configuration is left",
                Vec::new(),
                None,
                &[(
                    "W9",
                    "FAIL",
                    "webhooks are switched off, and are still called",
                    "kubectl delete validatingwebhookconfiguration dynamo-operator-validating",
                )],
            )
        },
        symptom(
            "operator pod is not running",
            vec![Patch(SERVICE, SERVICE_NAME, json!([{"op": "replace", "path": "/spec", "value": no_endpoints}]))],
            None,
            &[("C1", "FAIL", "no ready operator pod", ""), ("C2", "FAIL", "has no ready endpoints", "get pods")],
        ),
        symptom(
            "caBundle is another authority's",
            vec![entry("replace", "clientConfig/caBundle", encoded(&other_ca))],
            Some("x509: certificate signed by unknown authority"),
            &[
                ("X5", "FAIL", "vdynamomodel.kb.io: caBundle does not sign the serving certificate", "certs publish"),
                ("X8", "WARN", "vdynamomodel.kb.io has another caBundle", "certs show"),
            ],
        ),
        symptom(
            "certificate names another service",
            vec![
                Create(SERVICE, elsewhere),
                entry("replace", "clientConfig/service/name", json!("elsewhere")),
                pair("elsewhere.svc", -DAY, DAY * 90),
            ],
            Some("x509: certificate is valid for dynamo-operator-webhook"),
            &[("X3", "FAIL", "is valid for elsewhere.svc, not dynamo-operator-webhook.", "certs ensure")],
        ),
        symptom(
            "certificate is expired",
            vec![pair(&server, -DAY * 9, -DAY)],
            // A bad pair is not taken up: the one before it is served.
            Some(REFUSED),
            &[("X2", "FAIL", "the serving certificate expired", "certs ensure")],
        ),
        symptom(
            "certificate secret is missing",
            vec![Delete(SECRET, SECRET_NAME)],
            Some(REFUSED),
            &[("X1", "FAIL", "dynamo-operator-webhook-tls not found", "certs ensure")],
        ),
        symptom(
            "hook job failed",
            vec![
                job("dynamo-operator-webhook-cert-gen-1"),
                job("dynamo-operator-webhook-ca-inject-1"),
                Status(JOB, "dynamo-operator-webhook-cert-gen-1", json!({"failed": 4})),
            ],
            Some(REFUSED),
            &[
                (
                    "H1",
                    "FAIL",
                    "job dynamo-operator-webhook-cert-gen-1 failed 4×",
                    "logs job/dynamo-operator-webhook-cert-gen-1",
                ),
                ("H7", "INFO", "1 failed Job(s) can be deleted", "delete job dynamo-operator-webhook-cert-gen-1"),
                ("X10", "WARN", "CA injection job dynamo-operator-webhook-ca-inject-1 has not ended", "certs publish"),
            ],
        ),
        symptom(
            "restricted operator is gone",
            vec![Create(VALIDATING, restricted)],
            Some(REFUSED),
            &[(
                "L1",
                "FAIL",
                "restricted operator of team-a holds no lease",
                "kubectl delete validatingwebhookconfiguration team-a-operator-validating-team-a",
            )],
        ),
        Symptom {
            arguments: vec![
                "--denial",
                "admission webhook \"vdynamomodel.kb.io\" denied the request: spec.modelName is required",
            ],
            ..symptom(
                "denial is not clear",
                Vec::new(),
                Some(REFUSED),
                &[("V3", "INFO", "a rule of this operator", "")],
            )
        },
    ]
}

/// Breaks, checks and repairs one symptom after the other; returns the differences.
pub(crate) async fn compare(home: &Home, symptoms: Vec<Symptom>) -> Vec<String> {
    let mut wrong = Vec::new();
    for Symptom { name, acts, told, arguments, says } in symptoms {
        let mut created = Vec::new();
        for act in acts {
            match act {
                Patch(sort, object, operations) => home.patch(sort, object, operations).await,
                Delete(sort, object) => home.delete(sort, object).await,
                Create(sort, object) => {
                    created.push((sort, object["metadata"]["name"].as_str().unwrap().to_owned()));
                    home.create(sort, object).await;
                }
                Status(sort, object, status) => home.tell(sort, object, status).await,
                Disconnect => {
                    home.delete(SERVICE, SERVICE_NAME).await;
                    home.leave_no_connection().await;
                }
            }
        }
        if let Some(told) = told {
            home.until_told(told).await;
        }
        let report = home.doctor(&arguments).await;
        for (id, verdict, message, fix) in &says {
            let said = report.of(id, verdict);
            if !said.iter().any(|(said, mends)| said.contains(message) && mends.contains(fix)) {
                wrong.push(format!("{name}: {id} {verdict} {message:?} (fix {fix:?}) was not said, but {report:#?}"));
            }
        }
        if says.iter().any(|(_, verdict, ..)| *verdict == "FAIL") && report.code != 1 {
            wrong.push(format!("{name}: exit code {}", report.code));
        }
        for (sort, object) in created {
            home.delete(sort, &object).await;
        }
        home.repair().await;
    }
    wrong
}
