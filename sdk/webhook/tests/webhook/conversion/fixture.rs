//! A kind at home: its CRD in the cluster, with a conversion that this process serves.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use portcullis::conversion::{Convert, Version};
use portcullis::manifest::{ServiceRef, mutating_configuration, validating_configuration, with_conversion};
use portcullis::server::{Limits, Server, tls_config};
use portcullis::webhooks::{Routes, Webhooks};
use portcullis_listener::Handler;
use portcullis_pki::{Ca, CertificateParams, Usage};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing in these tests takes longer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Home {
    pub(crate) cluster: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) routes: Routes,
    webhooks: Webhooks,
    crd: CustomResourceDefinition,
    path: String,
    ca: Ca,
    server: Option<Serving>,
}

struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<()>,
}

const SERVICE: &str = "versions";

impl Home {
    /// The kind in the cluster, converted.
    pub(crate) async fn new<H: Version>(convert: Convert<H>, crd: CustomResourceDefinition) -> Self {
        let mut home = Self::unconverted(ControlPlane::shared().await, convert, crd).await;
        home.serve().await;
        home.convert().await;
        home
    }

    /// The kind in the cluster, whose objects only ever change their apiVersion.
    pub(crate) async fn unconverted<H: Version>(
        cluster: &'static ControlPlane,
        convert: Convert<H>,
        crd: CustomResourceDefinition,
    ) -> Self {
        Self::of(cluster, Webhooks::new().convert(convert), crd).await
    }

    /// The same with webhooks of all sorts, of which one is a conversion.
    pub(crate) async fn of(cluster: &'static ControlPlane, webhooks: Webhooks, crd: CustomResourceDefinition) -> Self {
        let namespace = cluster.namespace("versions").await;
        let path = webhooks.conversions().unwrap()[0].path.clone();
        let now = Timestamp::now();
        let ca = Ca::generate("test ca", now - SignedDuration::from_mins(1), now + SignedDuration::from_hours(24));
        cluster.install_crds(std::slice::from_ref(&crd)).await;
        let (client, routes) = (cluster.admin(), webhooks.routes().unwrap());
        Self { cluster, client, namespace, routes, webhooks, crd, path, ca: ca.unwrap(), server: None }
    }

    /// Has the other webhooks called, in this namespace, and returns when they are in force.
    pub(crate) async fn admit(&self) {
        let mut manifests = self.webhooks.manifests().unwrap();
        for manifest in &mut manifests {
            let own = json!({ "matchLabels": { "kubernetes.io/metadata.name": self.namespace } });
            manifest.namespace_selector = Some(serde_json::from_value(own).unwrap());
        }
        let port = self.server.as_ref().unwrap().address.port();
        let service = ServiceRef { namespace: self.namespace.clone(), name: SERVICE.into(), port: 443 };
        let mut configurations = [
            serde_json::to_value(mutating_configuration(&self.namespace, &manifests, &service)).unwrap(),
            serde_json::to_value(validating_configuration(&self.namespace, &manifests, &service)).unwrap(),
        ];
        let webhooks = configurations.iter_mut().flat_map(|it| it["webhooks"].as_array_mut().unwrap());
        for webhook in webhooks {
            webhook["clientConfig"]["caBundle"] = json!(ByteString(self.ca.cert_pem().as_bytes().to_vec()));
        }
        self.cluster.install_webhooks(&configurations, port).await;
        self.cluster.wait_for_webhooks().await;
    }

    /// Serves the conversion, at the port where it was served before.
    pub(crate) async fn serve(&mut self) {
        self.serve_by(Arc::new(self.routes.clone())).await;
    }

    /// Serves a conversion that may be another one.
    pub(crate) async fn serve_by<S: Handler>(&mut self, handler: Arc<S>) {
        let now = Timestamp::now();
        let names = [format!("{SERVICE}.{}.svc", self.namespace)];
        let pair = self.ca.issue(&CertificateParams {
            common_name: "test",
            organizations: &[],
            dns_names: &names,
            ip_addresses: &[],
            not_before: now - SignedDuration::from_mins(1),
            not_after: now + SignedDuration::from_hours(23),
            usage: Usage::Server,
        });
        let (pair, provider) = (pair.unwrap(), Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let tls = tls_config(provider, pair.cert_pem.as_bytes(), pair.key_pem.as_bytes()).unwrap();
        let port = self.server.as_ref().map_or(0, |serving| serving.address.port());
        let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Limits::default()).await.unwrap();
        let (address, stop) = (server.local_addr().unwrap(), CancellationToken::new());
        let tls = Arc::new(ArcSwap::from_pointee(tls));
        let ended = tokio::spawn(server.serve_tls(tls, handler, stop.clone()));
        self.server = Some(Serving { address, stop, ended });
    }

    /// Ends the server, and with it all connections.
    pub(crate) async fn shut_down(&mut self) {
        let serving = self.server.as_mut().unwrap();
        serving.stop.cancel();
        tokio::time::timeout(PATIENCE, &mut serving.ended).await.unwrap().unwrap();
    }

    /// Puts the conversion into the CRD.
    pub(crate) async fn convert(&mut self) {
        self.cluster.route_service(&self.namespace, SERVICE).await;
        let port = self.server.as_ref().unwrap().address.port();
        let service = ServiceRef { namespace: self.namespace.clone(), name: SERVICE.into(), port };
        self.crd = with_conversion(self.crd.clone(), &self.path, &service);
        let webhook = self.crd.spec.conversion.as_mut().unwrap().webhook.as_mut().unwrap();
        webhook.client_config.as_mut().unwrap().ca_bundle = Some(ByteString(self.ca.cert_pem().as_bytes().to_vec()));
        self.cluster.install_crds(std::slice::from_ref(&self.crd)).await;
        // The API server's cache may still return unconverted objects.
        self.until_converted().await;
        self.know_storage().await;
    }

    /// Sets in the engine what an operator sets: in which versions the API server stores objects.
    async fn know_storage(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let crd = crds.get(&format!("people.{}", self.group())).await.unwrap();
        let storage = crd.spec.versions.iter().find(|version| version.storage).unwrap();
        let stored = crd.status.unwrap().stored_versions.unwrap();
        self.webhooks.conversions().unwrap()[0].engine.set_storage(&*storage.name, stored);
    }

    /// From now on it is this CRD: the next time that it is installed.
    pub(crate) fn replace(&mut self, crd: CustomResourceDefinition) {
        self.crd = crd;
    }

    /// Waits until an object that is made in one version is read in the others' words.
    async fn until_converted(&self) {
        let probe = json!({ "metadata": { "name": "probe" }, "spec": { "name": "Pro Be" } });
        let (v1, v2) = (self.api("v1"), self.api("v2"));
        let converted = || async {
            let probe = self.object("v1", &probe);
            v1.patch("probe", &PatchParams::apply("probe").force(), &Patch::Apply(probe)).await.ok()?;
            let read = v2.get("probe").await.ok()?;
            (read.data["spec"]["lastName"] == "Be").then_some(())
        };
        wait_until("the conversion to be in force", PATIENCE, converted).await;
        v1.delete("probe", &DeleteParams::default()).await.unwrap();
    }

    pub(crate) fn group(&self) -> &str {
        &self.crd.spec.group
    }

    /// The objects of the test's namespace in this version.
    pub(crate) fn api(&self, version: &str) -> Api<DynamicObject> {
        self.api_in(version, &self.namespace)
    }

    pub(crate) fn api_in(&self, version: &str, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.resource(version))
    }

    pub(crate) fn resource(&self, version: &str) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group(), version, "Person");
        ApiResource::from_gvk_with_plural(&kind, "people")
    }

    /// The document with the apiVersion and kind of a person.
    pub(crate) fn object(&self, version: &str, members: &Value) -> Value {
        let mut object = json!({ "apiVersion": format!("{}/{version}", self.group()), "kind": "Person" });
        object.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        object
    }

    pub(crate) fn person(&self, version: &str, name: &str, spec: Value) -> DynamicObject {
        serde_json::from_value(self.object(version, &json!({ "metadata": { "name": name }, "spec": spec }))).unwrap()
    }

    /// Samples of the metrics whose name and labels hold all of these words.
    pub(crate) fn counted(&self, words: &[&str]) -> u64 {
        let text = self.routes.metrics().encode();
        let samples = text.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        samples.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(serving) = &self.server {
            serving.stop.cancel();
        }
    }
}

/// The user's annotations: all but the engine's.
pub(crate) fn annotations(object: &DynamicObject) -> BTreeMap<String, String> {
    let mut annotations = object.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(portcullis::conversion::STASH);
    annotations
}
