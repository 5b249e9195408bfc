//! An operator that the API server calls, with provided certificates.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use portcullis::certificates::{Bundle, Configurations, ProvidedBy, ProvidedCertificates, probe};
use portcullis::metrics::Metrics;
use portcullis::server::{Limits, Server};
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use portcullis_testing::{ControlPlane, Grant, User, wait_until};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::load::admit;
use crate::PATIENCE;

pub(crate) const DAY: SignedDuration = SignedDuration::from_hours(24);
const RULES: [&str; 2] = ["one", "two"];

/// An operator's namespace, with a user who may read and nothing else.
pub(crate) struct Place {
    pub(crate) cluster: &'static ControlPlane,
    /// The owner of the cluster.
    pub(crate) admin: Client,
    /// Namespace, and name of the configuration.
    pub(crate) name: String,
    pub(crate) user: User,
    pub(crate) provided_by: ProvidedBy,
    /// CRDs whose objects the operator converts.
    pub(crate) crds: Vec<String>,
}

impl Place {
    pub(crate) async fn new(provided_by: ProvidedBy) -> Self {
        let cluster = ControlPlane::shared().await;
        let name = cluster.namespace("supplied").await;
        let rule = |group: &str, resource: &str, verbs: &[&str]| PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        let looks = ["get", "list", "watch"];
        let watch = [
            rule("admissionregistration.k8s.io", "validatingwebhookconfigurations", &looks),
            rule("apiextensions.k8s.io", "customresourcedefinitions", &looks),
        ];
        let read = [rule("", "secrets", &looks)];
        let grants = [Grant::ClusterRules(&watch), Grant::Rules { namespace: &name, rules: &read }];
        let user = cluster.user_with(&name, &grants).await;
        Self { cluster, admin: cluster.admin(), name, user, provided_by, crds: Vec::new() }
    }

    pub(crate) fn server_name(&self) -> String {
        format!("webhook.{}.svc", self.name)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), &self.name)
    }

    /// Puts these values into the Secret of the pair.
    pub(crate) async fn put(&self, data: &[(&str, &str)]) {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, text)| (*key, ByteString(text.as_bytes().to_vec()))).collect();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "pair" }, "data": data,
        });
        self.secrets().patch("pair", &PatchParams::apply("owner").force(), &Patch::Apply(secret)).await.unwrap();
    }

    pub(crate) async fn put_pair(&self, pair: &Pair, ca: &str) {
        self.put(&[("tls.crt", &pair.cert_pem), ("tls.key", &pair.key_pem), ("ca.crt", ca)]).await;
    }

    pub(crate) async fn delete(&self) {
        self.secrets().delete("pair", &DeleteParams::default()).await.unwrap();
    }

    /// A pair that this operator can serve.
    pub(crate) fn pair(&self, ca: &Ca) -> Pair {
        leaf(ca, &self.server_name(), -DAY, DAY * 90)
    }

    pub(crate) fn source(&self) -> ProvidedCertificates {
        let name = self.server_name();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut source =
            ProvidedCertificates::new(self.user.client.clone(), &*self.name, "pair", name, self.provided_by, provider);
        source.settle = Duration::from_millis(700);
        source.publish_to(self.configurations())
    }

    pub(crate) fn configurations(&self) -> Configurations {
        let names = RULES.map(full).to_vec();
        Configurations { validating: Some((self.name.clone(), names)), mutating: None, crds: self.crds.clone() }
    }

    /// The configuration, with a bundle for each rule, which are named in this order.
    pub(crate) fn manifest(&self, rules: &[(&str, Option<&str>)], annotations: Value) -> Value {
        let entry = |(rule, bundle): &(&str, Option<&str>)| {
            let mut client = json!({ "service": { "name": "webhook", "namespace": self.name, "path": format!("/validate/{rule}"), "port": 443 } });
            if let Some(bundle) = bundle {
                client["caBundle"] = json!(base64::engine::general_purpose::STANDARD.encode(bundle));
            }
            json!({
                "name": full(rule), "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": client,
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": self.name } },
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
            })
        };
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": self.name, "annotations": annotations },
            "webhooks": rules.iter().map(entry).collect::<Vec<_>>(),
        })
    }

    /// Publishes a bundle for both rules, as its owner.
    pub(crate) async fn publish(&self, port: u16, bundle: &str) {
        self.publish_each(port, &[("one", Some(bundle)), ("two", Some(bundle))]).await;
    }

    pub(crate) async fn publish_each(&self, port: u16, rules: &[(&str, Option<&str>)]) {
        self.cluster.install_webhooks(&[self.manifest(rules, json!({}))], port).await;
    }

    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.admin.clone(), &self.name)
    }

    /// Serves what is in the Secret now.
    pub(crate) async fn serve(&self) -> Serving {
        let rule = |name| {
            Validate::<ConfigMap>::new(name).on_create(|new: Arc<ConfigMap>, _: Context| async move {
                match new.data.iter().flatten().next() {
                    Some((key, _)) if key == "bad" => Verdict::deny("bad is not good"),
                    _ => Verdict::allow(),
                }
            })
        };
        let routes = Webhooks::new().validate(rule("one")).validate(rule("two")).routes().unwrap();
        let metrics = routes.metrics().clone();
        let source = self.source().with_metrics(&metrics);
        let material = source.ensure().await.unwrap();
        let tls = Arc::new(ArcSwap::from_pointee(
            portcullis::server::tls_config(
                Arc::clone(&source.provider),
                material.cert_pem.as_bytes(),
                material.key_pem.as_bytes(),
            )
            .unwrap(),
        ));
        let bundle = source.bundle(&material);
        let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Limits::default()).await.unwrap();
        let address = server.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (observed, stopped) = (bundle.clone(), stop.clone());
        let (client, configurations) = (self.user.client.clone(), self.configurations());
        tokio::spawn(async move {
            tokio::join!(
                server.serve_tls(Arc::clone(&tls), Arc::new(routes), stopped.clone()),
                observed.maintain(&client, &configurations, &stopped),
                source.maintain(material, &tls, &observed, &stopped),
            )
        });
        Serving { address, bundle, metrics, _stop: stop.drop_guard() }
    }

    /// Returns when the API server asks the webhook and believes it.
    pub(crate) async fn in_force(&self) {
        let maps = self.maps();
        wait_until("the webhooks to be in force", PATIENCE, || async { admit(&maps, false).await.ok() }).await;
    }

    /// Whether a caller that trusts this bundle alone accepts what is served now.
    pub(crate) async fn accepts(&self, serving: &Serving, bundle: &str) -> bool {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        probe(provider, serving.address, &self.server_name(), bundle).await.is_ok()
    }
}

/// A listener, until it is dropped.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    pub(crate) bundle: Bundle,
    pub(crate) metrics: Metrics,
    _stop: tokio_util::sync::DropGuard,
}

impl Serving {
    pub(crate) fn metric(&self, name: &str) -> String {
        let text = self.metrics.encode();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    }

    pub(crate) fn reload_failures(&self) -> usize {
        self.metric("portcullis_certificate_reload_failures_total").parse().unwrap()
    }
}

pub(crate) fn authority(name: &str, from: SignedDuration, to: SignedDuration) -> Ca {
    Ca::generate(name, Timestamp::now() + from, Timestamp::now() + to).unwrap()
}

pub(crate) fn ca(name: &str) -> Ca {
    authority(name, -DAY, DAY * 900)
}

pub(crate) fn leaf(ca: &Ca, dns_name: &str, from: SignedDuration, to: SignedDuration) -> Pair {
    ca.issue(&CertificateParams {
        common_name: "webhook",
        organizations: &[],
        dns_names: &[dns_name.to_owned()],
        ip_addresses: &[],
        not_before: Timestamp::now() + from,
        not_after: Timestamp::now() + to,
        usage: Usage::Server,
    })
    .unwrap()
}

fn full(rule: &str) -> String {
    format!("{rule}.configmaps.core")
}
