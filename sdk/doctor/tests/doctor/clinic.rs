//! A healthy installation, and the means to break and repair it.

use std::net::Ipv4Addr;

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, PolicyRule, RoleBinding};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use portcullis_testing::{ControlPlane, Grant, User, free_address};
use serde_json::{Value, json};

use crate::process::{generate, output, run};

/// Random bytes for an address that no other test uses.
fn uuid_bytes() -> [u8; 3] {
    let seed = std::collections::hash_map::RandomState::new();
    let [one, two, three, ..] = std::hash::BuildHasher::hash_one(&seed, std::process::id()).to_le_bytes();
    [one, two, three]
}

/// One installation on an API server of its own: its configurations and CRDs have one name in the whole cluster.
pub(crate) struct Clinic {
    pub(crate) cluster: ControlPlane,
    pub(crate) namespace: String,
    /// A namespace of its users.
    pub(crate) team: String,
    /// Where the operator listens: an address of this machine that is free.
    pub(crate) address: Ipv4Addr,
    /// And a port of it. The usual one, 9443, may be taken on every address.
    pub(crate) port: u16,
    /// The output of `generate operator`.
    pub(crate) manifests: Vec<Value>,
    /// The owner of the cluster.
    admin: Client,
    admin_kubeconfig: String,
    operator: User,
    _running: tokio::process::Child,
}

/// One finding of a report.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) verdict: String,
    pub(crate) message: String,
    pub(crate) fix: String,
}

/// A report, and the exit code.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) code: i32,
    pub(crate) requests: u64,
    pub(crate) findings: Vec<Found>,
}

impl Examined {
    /// Returns the findings of this check that are not OK.
    pub(crate) fn of(&self, id: &str) -> Vec<&Found> {
        self.findings.iter().filter(|found| found.id == id && found.verdict != "OK").collect()
    }

    pub(crate) fn with(&self, verdict: &str) -> Vec<&Found> {
        self.findings.iter().filter(|found| found.verdict == verdict).collect()
    }
}

/// Group, version, kind, plural and whether it lives in the operator's namespace.
pub(crate) type Sort = (&'static str, &'static str, &'static str, &'static str, bool);

pub(crate) const VALIDATING: Sort =
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false);
pub(crate) const MUTATING: Sort =
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false);
pub(crate) const CRD: Sort =
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false);
pub(crate) const SECRET: Sort = ("", "v1", "Secret", "secrets", true);
pub(crate) const POD: Sort = ("", "v1", "Pod", "pods", true);
pub(crate) const SLICE: Sort = ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true);
pub(crate) const SERVICE: Sort = ("", "v1", "Service", "services", true);

/// The kinds that are generated only for an operator that runs inside of the cluster.
const INSIDE: [&str; 4] = ["Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy"];

/// The objects that are broken and repaired, each with the part that is put back.
const PARTS: [(Sort, &str, &[&str]); 6] = [
    (VALIDATING, "shop-validating", &["webhooks", "metadata/annotations"]),
    (MUTATING, "shop-mutating", &["webhooks"]),
    (CRD, "orders.doctor.example", &["spec"]),
    (SECRET, "shop-webhook-tls", &["data"]),
    (SECRET, "shop-webhook-tls-ca", &["data"]),
    (SERVICE, "shop-webhook", &["spec"]),
];

impl Clinic {
    /// Installs the generated manifests, runs the binary behind them, and waits until it is ready. Then the operator
    /// may not write any more: it would repair what the tests break.
    pub(crate) async fn open() -> Self {
        let cluster = ControlPlane::start().await.unwrap();
        let namespace = cluster.namespace("shop").await;
        let team = cluster.namespace("team").await;
        // All of 127.0.0.0/8 is this machine.
        let [one, two, three] = uuid_bytes();
        let address = Ipv4Addr::new(127, one.max(2), two, three.max(2));
        let port = free_address().port();
        let service_port = port.to_string();
        let place = ["--namespace", &namespace, "--service-port", &service_port];
        let manifests = generate(&[&["operator", "--image", "shop:1"], &place[..]].concat()).await;
        let (inside, everywhere): (Vec<_>, Vec<_>) =
            manifests.iter().cloned().partition(|one| INSIDE.contains(&one["kind"].as_str().unwrap()));
        assert_eq!(inside.len(), INSIDE.len(), "{inside:?}");
        cluster.apply(&everywhere).await;
        // The API server calls a machine outside of the cluster: this one.
        let outside = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "shop-webhook", "namespace": namespace },
            "spec": { "type": "ExternalName", "externalName": address.to_string() },
        });
        cluster.apply(&[outside]).await;
        let rules = |kind: &str| -> Vec<PolicyRule> {
            let role = manifests.iter().find(|manifest| manifest["kind"] == kind).unwrap();
            serde_json::from_value(role["rules"].clone()).unwrap()
        };
        let (everywhere, here) = (rules("ClusterRole"), rules("Role"));
        let grants = [Grant::ClusterRules(&everywhere), Grant::Rules { namespace: &namespace, rules: &here }];
        let operator = cluster.user_with("operator", &grants).await;
        let kubeconfig = operator.kubeconfig.to_str().unwrap().to_owned();
        let bind = format!("{address}:{port}");
        let running = run(&[&place[..], &["--bind", &bind, "--kubeconfig", &kubeconfig]].concat()).await;
        let admin_kubeconfig = cluster.kubeconfig_path().to_str().unwrap().to_owned();
        let admin = cluster.admin();
        let clinic = Self {
            cluster,
            namespace,
            team,
            address,
            port,
            manifests,
            admin,
            admin_kubeconfig,
            operator,
            _running: running,
        };
        clinic.freeze().await;
        clinic
    }

    /// Moves into the cluster: the generated Service, Deployment, budget and policy, and what the controllers and
    /// kubelets of a cluster would make of them.
    pub(crate) async fn move_in(&self) {
        self.delete(SERVICE, "shop-webhook").await;
        let inside = |one: &&Value| INSIDE.contains(&one["kind"].as_str().unwrap());
        self.cluster.apply(&self.manifests.iter().filter(inside).cloned().collect::<Vec<_>>()).await;
        let deployment = self.manifests.iter().find(|one| one["kind"] == "Deployment").unwrap();
        for name in ["shop-0", "shop-1"] {
            let mut pod = deployment["spec"]["template"].clone();
            pod["metadata"]["name"] = json!(name);
            let ports = pod["spec"]["containers"][0]["ports"].as_array_mut().unwrap();
            ports.iter_mut().find(|port| port["name"] == "webhooks").unwrap()["containerPort"] = json!(self.port);
            self.create(POD, pod).await;
            self.ready(name, "True").await;
        }
        let endpoint = json!({ "addresses": ["10.1.2.3"], "conditions": { "ready": true } });
        let metadata = json!({ "name": "shop-webhook", "labels": { "kubernetes.io/service-name": "shop-webhook" } });
        let ports = json!([{ "name": "webhooks", "port": self.port }]);
        let slice = json!({ "metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint], "ports": ports });
        self.create(SLICE, slice).await;
    }

    /// Sets the condition `Ready` of a pod, as a kubelet does.
    pub(crate) async fn ready(&self, pod: &str, ready: &str) {
        let condition = json!({ "type": "Ready", "status": ready, "reason": "ContainersNotReady" });
        let ip = self.address.to_string();
        let status = json!({ "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }], "conditions": [condition] });
        self.status(POD, pod, status).await;
    }

    async fn freeze(&self) {
        let (admin, now) = (self.admin.clone(), DeleteParams::default());
        let name = &self.operator.name;
        Api::<ClusterRoleBinding>::all(admin.clone()).delete(&format!("{name}-0"), &now).await.unwrap();
        Api::<RoleBinding>::namespaced(admin, &self.namespace).delete(&format!("{name}-1"), &now).await.unwrap();
    }

    /// The flags of this installation.
    pub(crate) fn place(&self) -> Vec<String> {
        ["--namespace", &self.namespace, "--service-port", &self.port.to_string()].map(str::to_owned).to_vec()
    }

    /// The findings of `doctor` for the owner of the cluster.
    pub(crate) async fn examine(&self, arguments: &[&str]) -> Examined {
        self.examine_as(&self.admin_kubeconfig, arguments).await
    }

    /// The findings of `doctor` for this user.
    pub(crate) async fn examine_as(&self, kubeconfig: &str, arguments: &[&str]) -> Examined {
        let place = self.place();
        let place: Vec<_> = place.iter().map(String::as_str).collect();
        let fixed = ["doctor", "--output", "json", "--kubeconfig", kubeconfig];
        let (code, stdout, stderr) = output(&[&fixed, &place[..], arguments].concat(), &[]).await;
        let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
        // A report may say that a key is missing, but never holds one: these dashes begin and end it.
        assert!(!stdout.contains("PRIVATE KEY-----") && !stderr.contains("PRIVATE KEY-----"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let findings = report["findings"].as_array().unwrap().iter().map(|finding| Found {
            id: text(&finding["id"]),
            verdict: text(&finding["verdict"]),
            message: text(&finding["message"]),
            fix: text(&finding["fix"]),
        });
        Examined { code, requests: report["requests"].as_u64().unwrap(), findings: findings.collect() }
    }

    /// Returns the report as text, with the exit code.
    pub(crate) async fn text(&self, arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
        let place = self.place();
        let place: Vec<_> = place.iter().map(String::as_str).collect();
        let fixed = ["doctor", "--kubeconfig", &self.admin_kubeconfig];
        let (code, stdout, _) = output(&[&fixed, &place[..], arguments].concat(), environment).await;
        (code, stdout)
    }

    pub(crate) fn api(&self, (group, version, kind, plural, own): Sort) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        if own {
            Api::namespaced_with(self.admin.clone(), &self.namespace, &resource)
        } else {
            Api::all_with(self.admin.clone(), &resource)
        }
    }

    pub(crate) async fn read(&self, sort: Sort, name: &str) -> Value {
        serde_json::to_value(self.api(sort).get(name).await.unwrap()).unwrap()
    }

    /// Changes an object by a JSON patch.
    pub(crate) async fn patch(&self, sort: Sort, name: &str, operations: Value) {
        let patch: Patch<Value> = Patch::Json(serde_json::from_value(operations).unwrap());
        self.api(sort).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Writes what a controller would write.
    pub(crate) async fn status(&self, sort: Sort, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(sort).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, sort: Sort, name: &str) {
        self.api(sort).delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Makes an object, and returns its name.
    pub(crate) async fn create(&self, sort: Sort, mut object: Value) -> String {
        object["apiVersion"] =
            json!(if sort.0.is_empty() { sort.1.to_owned() } else { format!("{}/{}", sort.0, sort.1) });
        object["kind"] = json!(sort.2);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(sort).create(&PostParams::default(), &object).await.unwrap().metadata.name.unwrap()
    }

    /// All that can be broken, as it is now.
    pub(crate) async fn chart(&self) -> Vec<(Sort, &'static str, Value)> {
        let mut chart = Vec::new();
        for (sort, name, _) in PARTS {
            chart.push((sort, name, self.read(sort, name).await));
        }
        chart
    }

    /// Puts everything back to how it was.
    pub(crate) async fn repair(&self, chart: &[(Sort, &'static str, Value)]) {
        for ((sort, name, was), (_, _, parts)) in chart.iter().zip(PARTS) {
            let Ok(is) = self.api(*sort).get(name).await else {
                let mut again = was.clone();
                let metadata = again["metadata"].as_object_mut().unwrap();
                metadata.retain(|member, _| matches!(member.as_str(), "name" | "namespace" | "labels" | "annotations"));
                self.create(*sort, again).await;
                continue;
            };
            let is = serde_json::to_value(is).unwrap();
            let mut operations = Vec::new();
            for path in parts.iter().map(|part| format!("/{part}")) {
                match (is.pointer(&path), was.pointer(&path)) {
                    (is, was) if is == was => {}
                    (_, Some(was)) => operations.push(json!({ "op": "add", "path": path, "value": was })),
                    (_, None) => operations.push(json!({ "op": "remove", "path": path })),
                }
            }
            if !operations.is_empty() {
                self.patch(*sort, name, Value::Array(operations)).await;
            }
        }
    }
}
