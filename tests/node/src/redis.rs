//! A Redis in a pod: the machine's own `redis-server`, with the libraries of its distribution.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::Namespace;
use crate::node::{POD_IMAGE, container};

/// The name of its Deployment and of its Service.
const NAME: &str = "redis";
/// The program, and what it needs of the machine.
const PROGRAM: &str = "/usr/bin/redis-server";
const LIBRARIES: [&str; 3] = ["/usr", "/lib", "/lib64"];
const PORT: u16 = 6379;

/// A Redis in a namespace. It writes each change to the node's disk before it answers, and any of its pods has what those before had.
#[derive(Debug)]
pub struct Redis<'a>(&'a Namespace);

impl Namespace {
    /// Runs a Redis, and returns when it answers.
    ///
    /// # Panics
    /// When it does not.
    pub async fn redis(&self) -> Redis<'_> {
        assert!(Path::new(PROGRAM).exists(), "no {PROGRAM}: on Debian 'apt-get install redis-server'");
        let directory =
            |name: &str, path: &str, kind: &str| json!({ "name": name, "hostPath": { "path": path, "type": kind } });
        let libraries = LIBRARIES.iter().filter_map(|path| Some((*path, std::fs::canonicalize(path).ok()?)));
        let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
        for (path, there) in libraries {
            let name = path.trim_start_matches('/');
            volumes.push(directory(name, &there.display().to_string(), "Directory"));
            mounts.push(json!({ "name": name, "mountPath": path, "readOnly": true }));
        }
        volumes.push(directory("data", &format!("/var/lib/redis-of-tests/{}", self.name), "DirectoryOrCreate"));
        mounts.push(json!({ "name": "data", "mountPath": "/data" }));
        let durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", "/data"];
        let arguments = [&durable[..], &["--bind", "0.0.0.0", "--protected-mode", "no"]].concat();
        let mut redis = container(NAME, POD_IMAGE, &arguments);
        redis["command"] = json!([PROGRAM]);
        redis["ports"] = json!([{ "containerPort": PORT }]);
        redis["readinessProbe"] = json!({ "tcpSocket": { "port": PORT }, "periodSeconds": 1 });
        redis["volumeMounts"] = json!(mounts);
        // The kubelet makes the directory for root.
        redis["securityContext"]["runAsNonRoot"] = json!(false);
        redis["securityContext"]["runAsUser"] = json!(0);
        let labels = json!({ "app": NAME });
        let object = |version: &str, kind: &str, spec: Value| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": NAME }, "spec": spec });
        let template =
            json!({ "metadata": { "labels": labels }, "spec": { "containers": [redis], "volumes": volumes } });
        // Two of them would write to one file.
        let deployment = json!({
            "selector": { "matchLabels": labels }, "strategy": { "type": "Recreate" }, "template": template,
        });
        let service = json!({ "selector": labels, "ports": [{ "port": PORT }] });
        self.apply([object("apps/v1", "Deployment", deployment), object("v1", "Service", service)]).await;
        self.available(NAME).await;
        Redis(self)
    }
}

impl Redis<'_> {
    /// The host and port of its Service.
    pub fn address(&self) -> String {
        format!("{NAME}.{}.svc.cluster.local:{PORT}", self.0.name)
    }

    /// Its pod.
    ///
    /// # Panics
    /// When there is none.
    pub async fn pod(&self) -> Pod {
        let pods = self.0.pods(NAME).await;
        let Some(pod) = pods.first() else { panic!("no pod of {NAME}") };
        self.0.pod(pod).await
    }

    /// Takes it away, and returns when its pod is gone.
    ///
    /// # Panics
    /// When it is not.
    pub async fn stop(&self) {
        let pods = self.0.pods(NAME).await;
        self.scale(0).await;
        self.0.gone(&pods).await;
    }

    /// Runs another pod with the data of those before, and returns when it answers.
    ///
    /// # Panics
    /// When it does not.
    pub async fn start(&self) {
        self.scale(1).await;
        self.0.available(NAME).await;
    }

    async fn scale(&self, replicas: u32) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let scaled = self.0.api::<Deployment>().patch(NAME, &PatchParams::default(), &patch).await;
        scaled.unwrap_or_else(|error| panic!("{NAME} cannot be scaled to {replicas}: {error}"));
    }
}
