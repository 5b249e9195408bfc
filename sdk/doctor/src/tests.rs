//! A snapshot in which everything is as it should be, and what becomes of it when something is not.

use std::sync::OnceLock;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Service;
use portcullis_manifest::{
    Operation, Overrides, Rule, ScopeType, ServiceRef, Webhook, WebhookKind, mutating_configuration,
    validating_configuration,
};
use portcullis_pki::{Ca, Certificate, CertificateParams, Usage};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::checks::judge;
use super::configuration::Configuration;
use super::parts::{Part, Snapshot};
use super::report::Verdict;
use super::snapshot::{Answer, Issuance, Listed, Listener, Log, Look, Place, Reached, Right, Served, Stored};
use super::subject::{Kind, Subject};
use super::{CATALOGUE, Finding, Report};
use portcullis_manifest::CertificateMode;
use portcullis_manifest::messages::{FAILED, POST_ONLY, VALIDATE};
use portcullis_manifest::{Access, Installation, Switch};

mod fixes;
mod promises;

fn examined(snapshot: &Snapshot) -> Report {
    judge(&subject(), snapshot)
}

/// An operator of one kind, with a validating webhook and a mutating one.
pub(super) fn subject() -> Subject {
    let rule = Rule {
        groups: vec!["shop.example".to_owned()],
        versions: vec!["v1".to_owned()],
        resources: vec!["orders".to_owned()],
        scope: ScopeType::Namespaced,
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
        program: "till".to_owned(),
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
    let answers = vec![answer("/validate/sober"), answer("/mutate/glass")];
    let served = Served { leaf, answers };
    Listener { target: "pod shop-0".to_owned(), address: None, reached: Reached::Answered(Box::new(served)) }
}

/// The log of a pod of the operator.
fn log(line: &str) -> Look<Listed<Log>> {
    Look::Seen(vec![Log { pod: "shop-0".to_owned(), lines: vec!["first".to_owned(), line.to_owned()] }].into())
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
    let container = json!({ "name": "operator", "args": ["run"] });
    let template = json!({ "metadata": { "labels": { "app": "shop" } }, "spec": { "containers": [container] } });
    let spec = json!({ "replicas": 2, "selector": { "matchLabels": { "app": "shop" } }, "template": template });
    Snapshot {
        now: now(),
        configurations: Look::Seen(vec![Configuration::from(validating), mutating.into()].into()),
        crds: list(&[json!({
            "metadata": { "name": "orders.shop.example" },
            "spec": {
                "group": "shop.example", "scope": "Namespaced", "versions": [],
                "names": { "kind": "Order", "plural": "orders" },
            },
        })]),
        services: behind(Some(json!({
            "spec": { "selector": { "app": "shop" }, "ports": [{ "port": 443, "targetPort": "webhooks" }] },
        }))),
        endpoints: Look::Seen(vec![(subject.place(), 1)].into()),
        deployments: list(&[json!({ "metadata": { "name": "shop" }, "spec": spec })]),
        pods: list(&[pod("shop-0")]),
        accounts: list(&[json!({ "metadata": { "name": "shop" } })]),
        secret: stored(json!({ "tls.crt": base64(cert), "tls.key": base64(key), "ca.crt": base64(ca) })),
        ca_secret: stored(json!({ "ca.crt": base64(ca), "ca.key": base64(ca_key) })),
        listeners: Look::Seen(vec![listener(cert)].into()),
        ..Snapshot::default()
    }
}

/// The Service of the installation, or that there is none.
fn behind(service: Option<Value>) -> Look<Listed<(Place, Option<Service>)>> {
    Look::Seen(vec![(subject().place(), service.map(of))].into())
}

#[test]
fn a_healthy_snapshot_passes_every_check() {
    let report = examined(&well());
    let bad: Vec<_> = report.findings.iter().filter(|finding| finding.verdict >= Verdict::Warn).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let ids: Vec<_> = CATALOGUE.iter().flat_map(|(_, checks)| *checks).map(|(id, _)| *id).collect();
    let mut found: Vec<_> = report.findings.iter().map(|finding| finding.id).collect();
    found.dedup();
    assert_eq!(found, ids);
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

type Change = fn(&mut Snapshot);

/// One check says so when an observation is changed: its verdict and words of its fix.
fn cases() -> &'static [(&'static str, Verdict, &'static str, Change)] {
    &[
        ("C1", Verdict::Fail, "describe pod shop-0", |s| {
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
        ("C1", Verdict::Fail, "generate operator", |s| s.pods = list(&[])),
        ("C2", Verdict::Fail, "get pods -l 'app=shop'", |s| {
            s.endpoints = Look::Seen(vec![(subject().place(), 0)].into());
        }),
        ("C3", Verdict::Fail, "generate operator", |s| {
            let service =
                json!({ "spec": { "selector": { "app": "shop" }, "ports": [{ "port": 443, "targetPort": 1 }] } });
            s.services = behind(Some(service));
        }),
        ("C4", Verdict::Fail, "logs deployment/shop", |s| reach(s, Reached::Refused)),
        ("C4", Verdict::Fail, "port-forward service/shop-webhook 9443:443", |s| {
            reach(s, Reached::NoTls("a strange answer".to_owned()));
        }),
        ("C4", Verdict::Warn, "port-forward", |s| reach(s, Reached::Unreachable("no route".to_owned()))),
        ("C4", Verdict::Info, "curl -vk", |s| s.listeners = Look::default()),
        ("C5", Verdict::Warn, "endpointslices", |s| serve(s, |served| served.answers[0].status = Ok(200))),
        ("C5", Verdict::Warn, "endpointslices", |s| serve(s, |served| served.answers[0].status = Ok(404))),
        ("C5", Verdict::Info, "", |s| s.listeners = Look::default()),
        ("C8", Verdict::Fail, "logs shop-0", |s| s.logs = log(&format!("{FAILED}no cluster found"))),
        ("C8", Verdict::Info, "", |_| {}),
        ("C8", Verdict::Ok, "", |s| s.logs = log("ready")),
        ("W9", Verdict::Fail, "take --webhooks off out", |s| {
            change(&mut s.deployments, |all| {
                let spec = all[0].spec.as_mut().unwrap().template.spec.as_mut().unwrap();
                spec.containers[0].args = Some(vec!["run".to_owned(), "--webhooks=off".to_owned()]);
            });
        }),
        ("X6", Verdict::Warn, "logs shop-0", |s| serve(s, |served| served.leaf.fingerprint = "0123456789".to_owned())),
        ("X6", Verdict::Fail, "logs shop-0", |s| {
            serve(s, |served| served.leaf.fingerprint = "0123456789abcdef".to_owned());
            let Look::Seen(Some(stored)) = &mut s.secret else { return };
            stored.0.metadata.managed_fields = Some(vec![of(json!({ "time": "2026-01-01T11:30:00Z" }))]);
        }),
        ("X6", Verdict::Info, "", |s| s.listeners = Look::default()),
        ("H1", Verdict::Fail, "describe job shop-certs-1", |s| {
            s.jobs = list(&[job(&json!({
                "failed": 4, "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }],
            }))]);
        }),
        ("H1", Verdict::Warn, "logs job/shop-certs-1", |s| s.jobs = list(&[job(&json!({}))])),
        ("H3", Verdict::Fail, "generate rbac", |s| s.accounts = list(&[])),
        ("H4", Verdict::Fail, "generate rbac", |s| {
            let right = |verb: &str, on: &str, allowed| Right { verb: verb.to_owned(), on: on.to_owned(), allowed };
            s.rights = Look::Seen(vec![right("list", "x", false), right("get", "y", true)].into());
        }),
        ("H7", Verdict::Info, "delete job shop-certs-1", |s| s.jobs = list(&[job(&json!({ "failed": 1 }))])),
        ("X10", Verdict::Fail, "certs publish", |s| s.jobs = list(&[job(&json!({ "failed": 1 }))])),
        ("X10", Verdict::Warn, "certs publish", |s| s.jobs = list(&[job(&json!({}))])),
        ("X10", Verdict::Ok, "", |s| {
            s.jobs = list(&[job(&json!({ "succeeded": 1, "completionTime": "2026-01-01T10:01:00Z" }))]);
        }),
        ("V2", Verdict::Info, "", |s| {
            s.options.object = Some("mine".to_owned());
            s.logs = log(&format!("{VALIDATE}create name=mine"));
        }),
        ("V3", Verdict::Info, "doctor explain", |s| {
            s.options.denial = Some("admission webhook \"sober.orders.shop.example\" denied the request".to_owned());
        }),
        ("V3", Verdict::Info, "", |s| s.options.denial = Some("spec: Required".to_owned())),
        ("T1", Verdict::Fail, "\"finalizers\":null", |s| s.objects = deleted("2026-01-01T11:00:00Z")),
        ("T1", Verdict::Ok, "", |s| s.objects = deleted("2026-01-01T11:59:00Z")),
        ("T1", Verdict::Info, "remove what it names", |s| s.objects = held("DeletionBlocked", "True", "Referenced")),
        ("T1", Verdict::Info, "remove what it names", |s| s.objects = held("Ready", "False", "DeletionBlocked")),
        ("T1", Verdict::Fail, "\"finalizers\":null", |s| s.objects = held("DeletionBlocked", "False", "Free")),
        // The generated configurations exempt the removal of finalizers.
        ("T2", Verdict::Ok, "", |s| {
            s.objects = deleted("2026-01-01T11:00:00Z");
            s.services = behind(None);
        }),
        ("T2", Verdict::Fail, "/webhooks/0/failurePolicy", |s| {
            s.objects = deleted("2026-01-01T11:00:00Z");
            s.services = behind(None);
            change(&mut s.configurations, |all| {
                all.iter_mut().flat_map(|one| &mut one.entries).for_each(|entry| entry.exempts_finalizers = false);
            });
        }),
        ("T2", Verdict::Warn, "C and X", |s| {
            s.objects = deleted("2026-01-01T11:00:00Z");
            s.events = list(&[json!({
                "metadata": {}, "involvedObject": { "name": "b" }, "message": "failed calling webhook \"x.y.z\": EOF",
            })]);
        }),
        ("L6", Verdict::Ok, "", |s| s.leaders = list(&[leader("shop-system/shop", "a")])),
        // No holder renews the second.
        ("L6", Verdict::Ok, "", |s| {
            let dead = lease("shop-leader", "pod", "2026-01-01T11:00:00.000000Z");
            s.leaders = list(&[leader("shop-system/shop", "a"), dead]);
        }),
        ("L6", Verdict::Fail, "--leader-election-namespace", |s| {
            s.leaders = list(&[leader("a/blue", "a"), leader("b/green", "b")]);
        }),
        ("L6", Verdict::Warn, "--leader-election-namespace", |s| s.leaders = list(&[leader("a/blue", "a")])),
        ("X1", Verdict::Fail, "till certs ensure", |s| {
            let Look::Seen(Some(Stored(ca))) = &mut s.ca_secret else { panic!("it is there") };
            ca.data.as_mut().unwrap().insert("next.crt".to_owned(), ByteString(b"garbage".to_vec()));
        }),
    ]
}

fn reach(snapshot: &mut Snapshot, reached: Reached) {
    change(&mut snapshot.listeners, |all| all[0].reached = reached);
}

fn serve(snapshot: &mut Snapshot, spoil: impl FnOnce(&mut Served)) {
    change(&mut snapshot.listeners, |all| {
        let Reached::Answered(served) = &mut all[0].reached else { panic!("it answered") };
        spoil(served);
    });
}

#[test]
fn damage_that_was_observed_gets_its_verdict_and_its_fix() {
    for (index, (id, verdict, fix, change)) in cases().iter().enumerate() {
        let mut snapshot = well();
        change(&mut snapshot);
        let report = examined(&snapshot);
        let of: Vec<_> = report.findings.iter().filter(|finding| finding.id == *id).collect();
        let said = of
            .iter()
            .any(|finding| finding.verdict == *verdict && finding.fix.as_deref().unwrap_or_default().contains(fix));
        assert!(said, "{index}: {id} {verdict} '{fix}': {of:#?}");
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
    let bad: Vec<_> = findings.iter().filter(|f| f.id == "X5" && f.verdict != Verdict::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn the_account_of_a_restricted_release_needs_no_deployment() {
    let (mut subject, snapshot) = (subject(), Snapshot { deployments: list(&[]), ..well() });
    subject.installation.restricted_to = Some("a".to_owned());
    let view = crate::parts::View { subject: &subject, snapshot: &snapshot, parts: Part::ALL };
    assert_eq!(view.account(), "shop");
}

fn job(status: &Value) -> Value {
    let container = json!({ "name": "certs", "args": ["certs", "publish"] });
    json!({
        "metadata": { "name": "shop-certs-1", "creationTimestamp": "2026-01-01T10:00:00Z" },
        "spec": { "template": { "spec": { "containers": [container] } } }, "status": status,
    })
}

fn lease(name: &str, holder: &str, renewed: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "a" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 25, "leaseTransitions": 1, "renewTime": renewed },
    })
}

/// The Lease of leader election in this namespace, which this installation renews.
fn leader(installation: &str, namespace: &str) -> Value {
    let mut lease = lease("shop-leader", "pod-a", "2026-01-01T11:59:50.000000Z");
    lease["metadata"]["namespace"] = json!(namespace);
    lease["metadata"]["annotations"] = json!({ "portcullis.dev/installation": installation });
    lease
}

/// An object that is being deleted since then.
fn deleted(at: &str) -> Look<Listed<(String, kube::api::DynamicObject)>> {
    let object = json!({
        "apiVersion": "shop.example/v1", "kind": "Order",
        "metadata": { "name": "b", "namespace": "a", "finalizers": ["x/y"], "deletionTimestamp": at },
    });
    Look::Seen(vec![("orders.shop.example".to_owned(), of(object))].into())
}

/// The same object, with a condition about its deletion.
fn held(type_: &str, status: &str, reason: &str) -> Look<Listed<(String, kube::api::DynamicObject)>> {
    let condition = json!({ "type": type_, "status": status, "reason": reason, "message": "carts: c" });
    deleted("2026-01-01T11:00:00Z").map(|mut found| {
        found.items[0].1.data["status"] = json!({ "conditions": [condition] });
        found
    })
}
