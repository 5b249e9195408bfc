//! The operator's Deployment with its Service, PodDisruptionBudget and NetworkPolicy.

use serde_json::{Value, json};

use crate::{Labels, ServiceRef};

/// Name of the container, and of the component in its labels.
const OPERATOR: &str = "operator";
/// Names of the ports, by which probes and Services find them.
const WEBHOOKS: &str = "webhooks";
const HEALTH: &str = "health";
/// The user id of the process, because an image need not set one. 65532 is `nonroot` in distroless images.
const USER: u32 = 65532;

/// Environment variables that keep the memory of a process near what it uses, where its allocator is that of glibc. The
/// container of every [`Workload`] has them; set them yourself where a process with a memory limit is started
/// otherwise.
///
/// Without them, glibc creates an arena for a new thread until there are eight for each core, and what is freed in one
/// arena does not serve another. Also, every large block that is freed raises the size (to 32 MiB at most) from which
/// blocks have a mapping of their own, which is given back when they are freed: after a few large reviews, the blocks
/// of all others stay on the heap. A process under its limit is then killed for memory that it no longer uses. Two
/// arenas suffice for what an operator allocates, and a threshold that is set is not raised. See `mallopt(3)`.
///
/// musl and other allocators ignore both.
pub const ALLOCATOR_ENV: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "1048576")];

/// An operator's Deployment and the objects around it. Needs of production are no options: replicas are replaced one at
/// a time, and Pods keep to the `restricted` Pod security standard.
///
/// No priority class is named: most namespaces may not use those that every cluster has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Name of the Deployment and of the objects that belong to it.
    pub name: String,
    /// Namespace that it runs in.
    pub namespace: String,
    /// Labels of the installation.
    pub labels: Labels,
    /// Name of its ServiceAccount.
    pub service_account: String,
    /// Image with the operator's binary as its entry point.
    pub image: String,
    /// Arguments of the binary.
    pub args: Vec<String>,
    /// Number of replicas: each serves webhooks, the leading one runs the controllers.
    pub replicas: u32,
    /// Port of `/healthz`, `/readyz` and `/metrics`.
    pub health_port: u16,
    /// The Pod's port and the Service of the webhooks, if there are any.
    pub webhooks: Option<(u16, ServiceRef)>,
    /// Seconds that the process may take to end after SIGTERM.
    pub grace_seconds: u64,
}

impl Workload {
    /// Deployment, PodDisruptionBudget, NetworkPolicy, and the Service if there are webhooks.
    pub fn manifests(&self) -> Vec<Value> {
        let mut manifests = vec![self.deployment(), self.disruption_budget(), self.network_policy()];
        if let Some((_, service)) = &self.webhooks {
            manifests.insert(0, self.service(service));
        }
        for manifest in &mut manifests {
            self.labels.add_to(manifest, OPERATOR);
        }
        manifests
    }

    fn deployment(&self) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": self.metadata(),
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": self.labels.selector() },
                // While a webhook is down, every write of its kind fails, so a replica ends after its successor is
                // ready.
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
                "template": {
                    "metadata": {
                        "labels": self.labels.all(OPERATOR),
                        "annotations": { "kubectl.kubernetes.io/default-container": OPERATOR },
                    },
                    "spec": {
                        "serviceAccountName": self.service_account,
                        "enableServiceLinks": false,
                        "terminationGracePeriodSeconds": self.grace_seconds,
                        "securityContext": pod_security(),
                        // The image is for Linux; other nodes would take the Pod and fail to start it.
                        "nodeSelector": { "kubernetes.io/os": "linux" },
                        "affinity": self.affinity(),
                        "containers": [self.container()],
                    },
                },
            },
        })
    }

    fn container(&self) -> Value {
        let mut ports = vec![json!({ "name": HEALTH, "containerPort": self.health_port, "protocol": "TCP" })];
        if let Some((port, _)) = &self.webhooks {
            ports.insert(0, json!({ "name": WEBHOOKS, "containerPort": port, "protocol": "TCP" }));
        }
        let probe = |path: &str, period: u8| json!({ "httpGet": { "path": path, "port": HEALTH }, "periodSeconds": period, "timeoutSeconds": 5 });
        let field =
            |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
        // The process learns its namespace, and its name in Leases.
        let mut env = vec![field("POD_NAMESPACE", "metadata.namespace"), field("POD_NAME", "metadata.name")];
        env.extend(ALLOCATOR_ENV.map(|(name, value)| json!({ "name": name, "value": value })));
        json!({
            "name": OPERATOR,
            "image": self.image,
            "args": self.args,
            "env": env,
            "ports": ports,
            "livenessProbe": probe("/healthz", 10),
            "readinessProbe": probe("/readyz", 5),
            "resources": resources(),
            "securityContext": security(),
        })
    }

    /// Replicas keep apart where they can. Were they forced to, the one more that a rollout starts would have no node
    /// in a small cluster.
    fn affinity(&self) -> Value {
        let apart = |weight: u8, topology: &str| {
            let selector = json!({ "matchLabels": self.labels.selector() });
            json!({ "weight": weight, "podAffinityTerm": { "labelSelector": selector, "topologyKey": topology } })
        };
        let terms = [apart(100, "kubernetes.io/hostname"), apart(50, "topology.kubernetes.io/zone")];
        json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": terms } })
    }

    fn service(&self, service: &ServiceRef) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": service.name, "namespace": service.namespace },
            "spec": {
                "selector": self.labels.selector(),
                "ports": [{ "name": WEBHOOKS, "port": service.port, "targetPort": WEBHOOKS, "protocol": "TCP" }],
            },
        })
    }

    /// One may be evicted at a time, and one that is not ready may always be: it serves no requests.
    fn disruption_budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self.metadata(),
            "spec": {
                "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": { "matchLabels": self.labels.selector() },
            },
        })
    }

    /// Only webhook calls, probes and scrapes come in. The sources cannot be named: API servers and kubelets are no
    /// Pods, and their addresses differ by cluster.
    ///
    /// There are no rules for egress, so all of it is allowed. A rule would have to name the API server, whose
    /// addresses and port (behind `kubernetes.default`, a policy sees those of the endpoints) are known to the cluster
    /// only; the DNS service, which is elsewhere in each distribution; and whatever the controllers call. A wrong guess
    /// would cut the operator off, and its webhooks would fail closed. An administrator who knows the cluster adds
    /// another policy: rules of several policies add up, and only one of them has to contain `Egress`.
    fn network_policy(&self) -> Value {
        let ports = self.webhooks.iter().map(|_| WEBHOOKS).chain([HEALTH]);
        let ports: Vec<Value> = ports.map(|port| json!({ "port": port, "protocol": "TCP" })).collect();
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": self.metadata(),
            "spec": {
                "podSelector": { "matchLabels": self.labels.selector() },
                "policyTypes": ["Ingress"],
                "ingress": [{ "ports": ports }],
            },
        })
    }

    fn metadata(&self) -> Value {
        json!({ "name": self.name, "namespace": self.namespace })
    }
}

/// There is no CPU limit: a user would wait while a review is throttled.
fn resources() -> Value {
    json!({ "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "512Mi" } })
}

fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "seccompProfile": { "type": "RuntimeDefault" },
    })
}

fn security() -> Value {
    json!({ "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] } })
}
