//! A snapshot in which everything is as it should be, and what becomes of it when something is not.

use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use portcullis_manifest::{
    Operation, Overrides, Rule, Scope, ServiceRef, Webhook, WebhookKind, mutating_configuration,
    validating_configuration,
};
use portcullis_pki::{Ca, Certificate, CertificateParams, Usage};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::configuration::Configuration;
use super::report::Verdict;
use super::snapshot::{Answer, Calls, Identity, Listed, Listener, Log, Look, Reached, Served, Snapshot, Stored};
use super::subject::{Kind, Subject};
use super::{CATALOGUE, Report, examine};
use portcullis_listener::UNTRUSTED_CERTIFICATE;
use portcullis_manifest::CertificateMode;
use portcullis_manifest::words::{FAILED, POST_ONLY, VALIDATE, WEBHOOKS_OFF};
use portcullis_manifest::{Access, Installation, Switch};

mod fixes;
mod promises;

fn examined(snapshot: &Snapshot) -> Report {
    examine(&subject(), snapshot, &Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

/// An operator of one kind, with a validating webhook and a mutating one.
pub(super) fn subject() -> Subject {
    let rule = Rule {
        groups: vec!["shop.example".to_owned()],
        versions: vec!["v1".to_owned()],
        resources: vec!["orders".to_owned()],
        scope: Scope::Namespaced,
        operations: vec![Operation::Create, Operation::Update],
    };
    let webhook = |name: &str, kind, path: &str| {
        Webhook::new(format!("{name}.orders.shop.example"), kind, path, vec![rule.clone()])
    };
    Subject {
        installation: Installation {
            operator: "shop",
            release: "shop".to_owned(),
            namespace: "shop-system".to_owned(),
            leader_election_namespace: "shop-system".to_owned(),
            restricted_to: None,
            scope_lease: "shop-namespace-scope".to_owned(),
            service: ServiceRef { namespace: "shop-system".to_owned(), name: "shop-webhook".to_owned(), port: 443 },
            cluster_domain: "cluster.local".to_owned(),
            certificates: CertificateMode::Automatic,
            secret: "shop-webhook-tls".to_owned(),
            webhooks: Switch::On,
            overrides: Overrides::default(),
        },
        flags: String::new(),
        webhooks: vec![
            webhook("sober", WebhookKind::Validating, "/validate/sober"),
            webhook("glass", WebhookKind::Mutating, "/mutate/glass"),
        ],
        conversions: Vec::new(),
        kinds: vec![Kind {
            crd: "orders.shop.example".to_owned(),
            group: "shop.example".to_owned(),
            version: "v1".to_owned(),
            kind: "Order".to_owned(),
            plural: "orders".to_owned(),
            namespaced: true,
            subresources: vec!["status"],
            schemas: Vec::new(),
        }],
        rights: Access::default(),
    }
}

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// An authority, and the chain and key that it issued for the Service.
fn pair() -> &'static [String; 4] {
    static PAIR: OnceLock<[String; 4]> = OnceLock::new();
    PAIR.get_or_init(|| {
        let (from, to) = (now() - SignedDuration::from_hours(24), now() + SignedDuration::from_hours(9_000));
        let ca = Ca::generate("shop ca", from, to).unwrap();
        let names = subject().installation.server_names();
        let params = CertificateParams {
            common_name: "shop",
            organizations: &[],
            dns_names: &names,
            ip_addresses: &[],
            not_before: from,
            not_after: to,
            usage: Usage::Server,
        };
        let pair = ca.issue(&params).unwrap();
        [ca.cert_pem().to_owned(), pair.cert_pem, pair.key_pem, ca.key_pem().to_owned()]
    })
}

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn list<T: DeserializeOwned>(values: &[Value]) -> Look<Listed<T>> {
    Look::Seen(values.iter().cloned().map(of).collect::<Vec<T>>().into())
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": "shop" }, "annotations": {} },
        "spec": { "containers": [{ "name": "operator", "ports": [{ "name": "webhooks", "containerPort": 9443 }] }] },
        "status": {
            "phase": "Running", "startTime": "2026-01-01T11:00:00Z", "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

fn listener(chain_pem: &str) -> Listener {
    let leaf = Certificate::from_pem(chain_pem.as_bytes()).unwrap();
    let answer = |path: &str| Answer { path: path.to_owned(), status: Ok(405), body: POST_ONLY.to_owned() };
    let der = CertificateDer::from_pem_slice(chain_pem.as_bytes()).unwrap();
    let answers = vec![answer("/validate/sober"), answer("/mutate/glass")];
    let served = Served { leaf, chain: vec![der.to_vec()], answers };
    Listener { target: "pod shop-0".to_owned(), address: None, reached: Reached::Answered(Box::new(served)) }
}

fn said(pod: &str, of_operator: bool, line: &str) -> (String, Look<Log>) {
    (pod.to_owned(), Look::Seen(Log { of_operator, lines: vec!["first".to_owned(), line.to_owned()] }))
}

/// Everything is as it should be.
fn well() -> Snapshot {
    let subject = subject();
    let [ca, cert, key, ca_key] = pair();
    let service = &subject.installation.service;
    let mut validating = validating_configuration("shop-validating", &subject.webhooks, service);
    let mut mutating = mutating_configuration("shop-mutating", &subject.webhooks, service);
    let bundle = || Some(ByteString(ca.clone().into_bytes()));
    for webhook in validating.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = bundle();
    }
    for webhook in mutating.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = bundle();
    }
    let stored = |data: Value| {
        Look::Seen(Some(Stored(of(json!({ "metadata": { "name": "x" }, "stringData": {}, "data": data })))))
    };
    let base64 = |text: &str| serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
    let container = json!({
        "name": "operator", "args": ["run"],
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "health" } },
    });
    let template = json!({ "metadata": { "labels": { "app": "shop" } }, "spec": { "containers": [container] } });
    let spec = json!({ "replicas": 2, "selector": { "matchLabels": { "app": "shop" } }, "template": template });
    Snapshot {
        now: now(),
        stuck_after_seconds: 120,
        configurations: Look::Seen(vec![Configuration::from(validating), mutating.into()].into()),
        crds: [(
            "orders.shop.example".to_owned(),
            Look::Seen(Some(of(json!({
                "metadata": { "name": "orders.shop.example" },
                "spec": {
                    "group": "shop.example", "scope": "Namespaced", "versions": [],
                    "names": { "kind": "Order", "plural": "orders" },
                },
            })))),
        )]
        .into(),
        services: [(
            subject.place(),
            Look::Seen(Some(of(json!({
                "spec": { "selector": { "app": "shop" }, "ports": [{ "port": 443, "targetPort": "webhooks" }] },
            })))),
        )]
        .into(),
        endpoints: [(
            subject.place(),
            list(&[json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }] })]),
        )]
        .into(),
        deployments: list(&[json!({ "metadata": { "name": "shop" }, "spec": spec })]),
        pods: list(&[pod("shop-0")]),
        budgets: list(&[json!({ "spec": { "selector": { "matchLabels": { "app": "shop" } } } })]),
        accounts: list(&[json!({ "metadata": { "name": "shop" } })]),
        secret: stored(json!({ "tls.crt": base64(cert), "tls.key": base64(key), "ca.crt": base64(ca) })),
        ca_secret: stored(json!({ "ca.crt": base64(ca), "ca.key": base64(ca_key) })),
        listeners: vec![listener(cert)],
        ..Snapshot::default()
    }
}

#[test]
fn a_snapshot_in_which_all_is_well_has_nothing_to_mend_and_an_answer_for_every_check() {
    let report = examined(&well());
    let bad: Vec<_> = report.findings.iter().filter(|finding| finding.verdict >= Verdict::Warn).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for (id, _) in CATALOGUE {
        assert!(report.findings.iter().any(|finding| finding.id == *id), "{id}");
    }
}

#[test]
fn a_snapshot_does_not_show_what_is_in_a_secret() {
    let shown = format!("{:?}", well());
    assert!(shown.contains("tls.key") && !shown.contains("PRIVATE KEY") && !shown.contains("not shown"));
}

fn change<T>(look: &mut Look<Listed<T>>, change: impl FnOnce(&mut Vec<T>)) {
    let Look::Seen(list) = look else { panic!("it was not seen") };
    change(&mut list.items);
}

/// What the API server counted of one webhook.
fn counted(buckets: &[(f64, u64)]) -> Look<Calls> {
    let durations = [("sober.orders.shop.example".to_owned(), buckets.to_vec())].into();
    Look::Seen(Calls { durations, ..Calls::default() })
}

type Change = fn(&mut Snapshot);

/// What was observed is changed, and one check says so: its verdict, words of its message, words of its fix.
fn cases() -> &'static [(&'static str, Verdict, &'static str, &'static str, Change)] {
    &[
        ("C1", Verdict::Fail, "Pending, ImagePullBackOff", "describe pod shop-0", |s| {
            change(&mut s.pods, |pods| {
                pods[0].status = Some(of(json!({
                    "phase": "Pending",
                    "containerStatuses": [{
                        "name": "operator", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                        "state": { "waiting": { "reason": "ImagePullBackOff" } },
                    }],
                })));
            });
        }),
        ("C4", Verdict::Fail, "connection refused by pod shop-0", "logs deployment/shop", |s| {
            s.listeners[0].reached = Reached::Refused;
        }),
        ("C4", Verdict::Fail, "does not speak TLS", "port-forward service/shop-webhook 9443:443", |s| {
            s.listeners[0].reached = Reached::NoTls("a strange answer".to_owned());
        }),
        ("C4", Verdict::Warn, "cannot be reached from here", "port-forward", |s| {
            s.listeners[0].reached = Reached::Unreachable("no route".to_owned());
        }),
        ("C4", Verdict::Info, "was not called", "curl -vk", |s| s.listeners.clear()),
        ("C5", Verdict::Warn, "something else listens there", "endpointslices", |s| {
            let Reached::Answered(served) = &mut s.listeners[0].reached else { return };
            served.answers[0].status = Ok(200);
        }),
        ("W5", Verdict::Fail, "is registered and not served", "get pods", |s| {
            let Reached::Answered(served) = &mut s.listeners[0].reached else { return };
            served.answers[0].status = Ok(404);
        }),
        ("C7", Verdict::Warn, "sidecar istio-proxy on operator pod shop-0", "excludeInboundPorts: \"9443\"", |s| {
            change(&mut s.pods, |pods| {
                let spec = pods[0].spec.as_mut().unwrap();
                spec.containers.push(of(json!({ "name": "istio-proxy" })));
            });
        }),
        ("C8", Verdict::Fail, "error: no cluster found", "logs shop-0", |s| {
            s.logs.push(said("shop-0", true, &format!("{FAILED}no cluster found")));
        }),
        ("C8", Verdict::Warn, "cannot be read", "get nodes", |s| {
            s.logs.push(("shop-0".to_owned(), Look::Failed("no such host".to_owned())));
        }),
        ("C8", Verdict::Warn, "could not look: needs get pods/log", "", |s| {
            s.logs.push(("shop-0".to_owned(), Look::Refused("get pods/log".to_owned())));
        }),
        ("C10", Verdict::Warn, "99 take up to 5 s of the 10 s", "more CPU", |s| {
            s.calls = Some(counted(&[(0.5, 10), (5.0, 10), (f64::INFINITY, 10)]));
            s.calls_later = Some(counted(&[(0.5, 20), (5.0, 110), (f64::INFINITY, 110)]));
        }),
        ("C10", Verdict::Info, "(100 calls since the API server's start)", "shop doctor --watch 1m", |s| {
            s.calls = Some(counted(&[(0.5, 10), (5.0, 100), (f64::INFINITY, 100)]));
        }),
        ("W8", Verdict::Warn, "7 calls failed and were let pass while they were watched", "C and X", |s| {
            let failed_open = [("sober.orders.shop.example".to_owned(), 7)].into();
            s.calls = Some(Look::Seen(Calls::default()));
            s.calls_later = Some(Look::Seen(Calls { failed_open, ..Calls::default() }));
        }),
        ("C12", Verdict::Warn, "the API server may not reach the pod network", "firewall", |s| {
            s.events = list(&[json!({
                "metadata": {}, "involvedObject": {},
                "message": "failed calling webhook \"sober.orders.shop.example\": context deadline exceeded",
            })]);
        }),
        ("W9", Verdict::Fail, "runs with webhooks disabled", "take --webhooks off out", |s| {
            s.logs.push(said("shop-0", true, WEBHOOKS_OFF));
        }),
        ("X6", Verdict::Warn, "pod shop-0 still serves certificate", "logs shop-0", |s| {
            let Reached::Answered(served) = &mut s.listeners[0].reached else { return };
            served.leaf.fingerprint = "0123456789abcdef".to_owned();
        }),
        ("X6", Verdict::Fail, "since 30 min", "logs shop-0", |s| {
            let Reached::Answered(served) = &mut s.listeners[0].reached else { return };
            served.leaf.fingerprint = "0123456789abcdef".to_owned();
            let Look::Seen(Some(stored)) = &mut s.secret else { return };
            stored.0.metadata.managed_fields = Some(vec![of(json!({ "time": "2026-01-01T11:30:00Z" }))]);
        }),
        ("X15", Verdict::Info, "normal until the CA has been published", "", |s| {
            s.logs.push(said("shop-0", true, &format!("2026-01-01T11:01:00Z  WARN {UNTRUSTED_CERTIFICATE}")));
        }),
        ("X15", Verdict::Warn, "shop-0 says: a caller does not trust", "W3", |s| {
            s.logs.push(said("shop-0", true, &format!("2026-01-01T11:50:00Z  WARN {UNTRUSTED_CERTIFICATE}")));
        }),
        ("X15", Verdict::Info, "last 50 min ago, and not since", "", |s| {
            let line =
                format!(r#"{{"timestamp":"2026-01-01T11:10:00Z","level":"WARN","message":"{UNTRUSTED_CERTIFICATE}"}}"#);
            s.logs.push(said("shop-0", true, &line));
        }),
        ("H1", Verdict::Fail, "job shop-certs-1 failed 4×: BackoffLimitExceeded", "describe job shop-certs-1", |s| {
            s.jobs = list(&[job(&json!({
                "failed": 4, "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }],
            }))]);
        }),
        ("H1", Verdict::Warn, "has not ended for 2 h", "logs job/shop-certs-1", |s| s.jobs = list(&[job(&json!({}))])),
        (
            "H2",
            Verdict::Fail,
            "pod shop-certs-1-x of a Job does not run: Pending, ErrImagePull (image a:1)",
            "describe pod",
            |s| {
                s.jobs = list(&[job(&json!({}))]);
                let mut waiting = pod("shop-certs-1-x");
                waiting["metadata"]["labels"] = json!({ "batch.kubernetes.io/job-name": "shop-certs-1" });
                waiting["spec"]["containers"][0]["image"] = json!("a:1");
                waiting["status"] = json!({ "phase": "Pending", "reason": "ErrImagePull" });
                change(&mut s.pods, |pods| pods.push(of(waiting)));
            },
        ),
        ("H2", Verdict::Fail, "pods of job shop-certs-1 are refused: violates PodSecurity", "describe job", |s| {
            s.jobs = list(&[job(&json!({}))]);
            s.events = list(&[json!({
                "metadata": {}, "involvedObject": { "name": "shop-certs-1" }, "reason": "FailedCreate",
                "message": "violates PodSecurity",
            })]);
        }),
        ("H5", Verdict::Fail, "not found after 5 minutes", "certs ensure", |s| {
            s.logs.push(said("shop-certs-1-x", false, "ERROR: Secret a not found after 5 minutes"));
        }),
        ("H6", Verdict::Fail, "openssl: not found", "the image has no openssl", |s| {
            s.logs.push(said("shop-certs-1-x", false, "sh: openssl: not found"));
        }),
        ("X10", Verdict::Fail, "CA injection job shop-certs-1 failed 1× so far", "certs publish", |s| {
            s.jobs = list(&[job(&json!({ "failed": 1 }))]);
        }),
        ("X10", Verdict::Info, "ended before the Secret was written last", "certs publish", |s| {
            s.jobs = list(&[job(&json!({ "succeeded": 1, "completionTime": "2026-01-01T10:01:00Z" }))]);
            let Look::Seen(Some(stored)) = &mut s.secret else { return };
            stored.0.metadata.managed_fields = Some(vec![of(json!({ "time": "2026-01-01T11:30:00Z" }))]);
        }),
        ("V2", Verdict::Info, "shop-0: validate create name=mine", "", |s| {
            s.object = Some("mine".to_owned());
            s.logs.push(said("shop-0", true, &format!("{VALIDATE}create name=mine")));
        }),
        ("V4", Verdict::Info, "you act as system:serviceaccount:shop-system:shop (a), the operator itself", "", |s| {
            let user = "system:serviceaccount:shop-system:shop".to_owned();
            s.identity = Some(Look::Seen(Identity { user, groups: vec!["a".to_owned()] }));
        }),
        (
            "T3",
            Verdict::Warn,
            "Order a/b is invalid (condition Valid) and being deleted for 60 min",
            "kubectl edit -n a",
            |s| {
                s.objects = deleted(&["x/y"], "2026-01-01T11:00:00Z");
            },
        ),
        ("T1", Verdict::Fail, "Order a/b: x/y not removed for 60 min", "\"finalizers\":null", |s| {
            s.objects = deleted(&["x/y"], "2026-01-01T11:00:00Z");
        }),
        ("T1", Verdict::Ok, "deletions end", "", |s| s.objects = deleted(&["x/y"], "2026-01-01T11:59:00Z")),
        ("T2", Verdict::Ok, "no webhook keeps finalizers", "", |s| {
            s.objects = deleted(&["x/y"], "2026-01-01T11:00:00Z");
            s.services = [(subject().place(), Look::Seen(None))].into();
        }),
        // Generated before configurations exempted the removal of finalizers.
        ("T2", Verdict::Fail, "blocks finalizer removal of Order a/b", "generate webhooks", |s| {
            s.objects = deleted(&["x/y"], "2026-01-01T11:00:00Z");
            s.services = [(subject().place(), Look::Seen(None))].into();
            change(&mut s.configurations, |all| {
                all.iter_mut().flat_map(|one| &mut one.entries).for_each(|entry| entry.exempts_finalizers = false);
            });
        }),
        ("T5", Verdict::Warn, "waits for its dependents for 60 min", "ownerReferences with uid", |s| {
            s.objects = deleted(&["foregroundDeletion"], "2026-01-01T11:00:00Z");
        }),
        ("L4", Verdict::Warn, "changed hands 500 times", "give it to one", |s| {
            s.leases = list(&[lease("shop-namespace-scope", "pod-a", 500, "2026-01-01T11:59:50.000000Z")]);
        }),
        (
            "L4",
            Verdict::Warn,
            "two holders renew lease a/shop-namespace-scope: pod-a and pod-b",
            "give it to one",
            |s| {
                s.leases = list(&[lease("shop-namespace-scope", "pod-a", 1, "2026-01-01T11:59:50.000000Z")]);
                s.leases_later =
                    Some(list(&[lease("shop-namespace-scope", "pod-b", 1, "2026-01-01T11:59:55.000000Z")]));
            },
        ),
        ("L6", Verdict::Ok, "one installation leads", "", |s| s.leaders = list(&[leader("shop-system/shop", "a")])),
        // Nobody renews the second.
        ("L6", Verdict::Ok, "one installation leads", "", |s| {
            let dead = lease("shop-leader", "pod", 1, "2026-01-01T11:00:00.000000Z");
            s.leaders = list(&[leader("shop-system/shop", "a"), dead]);
        }),
        (
            "L6",
            Verdict::Fail,
            "2 installations lead at once, and nothing excludes them: a/blue by Lease a/shop-leader and b/green by Lease",
            "--leader-election-namespace",
            |s| s.leaders = list(&[leader("a/blue", "a"), leader("b/green", "b")]),
        ),
        (
            "L6",
            Verdict::Warn,
            "another installation leads: a/blue by Lease a/shop-leader; shop-system/shop only",
            "",
            |s| {
                s.leaders = list(&[leader("a/blue", "a")]);
            },
        ),
        ("L5", Verdict::Info, "clocks of this machine and of the API server differ by 60 s", "", |s| {
            s.server_time = Some(now() - SignedDuration::from_secs(60));
        }),
        ("X14", Verdict::Fail, "rewritten while it was looked at (3 writes), by argocd", "leave caBundle out", |s| {
            let fields = json!({ "f:webhooks": { "k:{\"name\":\"sober.orders.shop.example\"}": {
                "f:clientConfig": { "f:caBundle": {} },
            } } });
            let fields = vec![of(json!({ "manager": "argocd", "fieldsV1": fields }))];
            change(&mut s.configurations, |all| {
                all[0].metadata.managed_fields = Some(fields);
                all[0].metadata.generation = Some(1);
            });
            s.later = Some(s.configurations.clone());
            let Some(later) = &mut s.later else { return };
            change(later, |all| all[0].metadata.generation = Some(4));
        }),
        ("H4", Verdict::Fail, "ServiceAccount shop cannot list, patch x", "generate rbac", |s| {
            let right =
                |verb: &str, on: &str| super::Right { verb: verb.to_owned(), on: on.to_owned(), allowed: false };
            let may = super::Right { allowed: true, ..right("get", "y") };
            s.rights = Look::Seen(vec![right("list", "x"), right("patch", "x"), may].into());
        }),
        ("C1", Verdict::Fail, "namespace shop-system does not exist", "kubectl create namespace shop-system", |s| {
            s.namespaces = [("shop-system".to_owned(), Look::Seen(None))].into();
        }),
        ("C5", Verdict::Info, "not looked: no listener was called", "", |s| s.listeners.clear()),
        ("X6", Verdict::Info, "not looked: no listener was called", "", |s| s.listeners.clear()),
        ("C8", Verdict::Info, "not looked: there is no log of a pod", "", |_| {}),
        ("X15", Verdict::Info, "not looked: there is no log of a pod", "", |_| {}),
        ("C8", Verdict::Ok, "the operator's log is without errors", "", |s| s.logs.push(said("shop-0", true, "ready"))),
        ("H5", Verdict::Info, "not looked: there is no log of a Job", "", |_| {}),
        ("H6", Verdict::Info, "not looked: there is no log of a Job", "", |_| {}),
        ("L7", Verdict::Info, "not looked: this installation is not restricted", "", |_| {}),
        ("V3", Verdict::Info, "the message names no webhook", "", |s| s.denial = Some("spec: Required".to_owned())),
        ("X1", Verdict::Fail, "ca.crt and ca.key: the certificate is not readable", "shop certs ensure", |s| {
            let Look::Seen(Some(Stored(ca))) = &mut s.ca_secret else { panic!("it is there") };
            ca.data.as_mut().unwrap().insert("ca.crt".to_owned(), ByteString(b"garbage".to_vec()));
        }),
        ("X1", Verdict::Fail, "key next.key is missing", "shop certs ensure", |s| {
            let Look::Seen(Some(Stored(ca))) = &mut s.ca_secret else { panic!("it is there") };
            ca.data.as_mut().unwrap().insert("next.crt".to_owned(), ByteString(b"garbage".to_vec()));
        }),
        ("X1", Verdict::Warn, "could not look: needs get secrets", "", |s| {
            s.secret = Look::Refused("get secrets".to_owned());
        }),
    ]
}

#[test]
fn what_only_a_node_can_show_is_judged_from_what_was_observed() {
    for (id, verdict, message, fix, change) in cases() {
        let mut snapshot = well();
        change(&mut snapshot);
        if *id == "V4" {
            snapshot.denial = Some("no".to_owned());
        }
        let report = examined(&snapshot);
        let of: Vec<_> = report.findings.iter().filter(|finding| finding.id == *id).collect();
        let said = of.iter().any(|finding| {
            let has = finding.fix.as_deref().unwrap_or_default();
            finding.verdict == *verdict && finding.message.contains(message) && has.contains(fix)
        });
        assert!(said, "{id} {verdict} '{message}' '{fix}': {of:#?}");
    }
}

/// A self-signed issuer of cert-manager makes such, and the operator serves it.
#[test]
fn a_leaf_that_callers_trust_as_itself_is_in_order() {
    let (mut snapshot, [_, cert, ..]) = (well(), pair());
    let Look::Seen(Some(stored)) = &mut snapshot.secret else { panic!("it was not seen") };
    let bundle = ByteString(cert.clone().into_bytes());
    stored.0.data.get_or_insert_default().insert("ca.crt".to_owned(), bundle.clone());
    change(&mut snapshot.configurations, |all| {
        all.iter_mut().flat_map(|one| &mut one.entries).for_each(|e| e.client.ca_bundle = Some(bundle.clone()));
    });
    let findings = examined(&snapshot).findings;
    let bad: Vec<_> = findings.iter().filter(|f| ["X5", "X9"].contains(&f.id) && f.verdict != Verdict::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn without_a_deployment_the_account_is_the_one_that_is_generated_for_a_restricted_release_too() {
    let (mut subject, snapshot) = (subject(), Snapshot { deployments: list(&[]), ..well() });
    subject.installation.restricted_to = Some("a".to_owned());
    assert_eq!(snapshot.account(&subject), "shop");
}

fn job(status: &Value) -> Value {
    let container = json!({ "name": "certs", "args": ["certs", "publish"] });
    json!({
        "metadata": { "name": "shop-certs-1", "creationTimestamp": "2026-01-01T10:00:00Z" },
        "spec": { "template": { "spec": { "containers": [container] } } }, "status": status,
    })
}

fn lease(name: &str, holder: &str, transitions: u32, renewed: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "a", "uid": "1", "creationTimestamp": "2026-01-01T11:00:00Z" },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 25, "leaseTransitions": transitions, "renewTime": renewed,
        },
    })
}

/// The Lease of leader election in this namespace, which this installation renews.
fn leader(installation: &str, namespace: &str) -> Value {
    let mut lease = lease("shop-leader", "pod-a", 1, "2026-01-01T11:59:50.000000Z");
    lease["metadata"]["namespace"] = json!(namespace);
    lease["metadata"]["annotations"] = json!({ "portcullis.dev/installation": installation });
    lease
}

fn deleted(
    finalizers: &[&str],
    at: &str,
) -> std::collections::BTreeMap<String, Look<Listed<kube::api::DynamicObject>>> {
    let object = json!({
        "apiVersion": "shop.example/v1", "kind": "Order",
        "metadata": { "name": "b", "namespace": "a", "uid": "2", "finalizers": finalizers, "deletionTimestamp": at },
        "status": { "conditions": [{ "type": "Valid", "status": "False" }] },
    });
    [("orders.shop.example".to_owned(), list(&[object]))].into()
}
