//! Two replicas of an operator as two processes, behind one Service of a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use portcullis::certificates::{Automatic, Phase};
use portcullis_pki::bundle_fingerprints;
use portcullis_testing::{ControlPlane, wait_until};
use tokio::time::Instant;

use crate::PATIENCE;
use crate::forwarder::Forwarder;
use crate::laggard::Laggard;
use crate::load::{Load, Outcome};
use crate::replica::{Replica, generate};

const RELEASE: &str = "tickets";
/// How long a CA settles and drains here, in milliseconds.
pub(crate) const SETTLE: u64 = 2500;
pub(crate) const DRAIN: u64 = 1000;

/// What is stored and published, as far as a rotation shows in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ca_keys: Vec<String>,
    pub(crate) leaf: Vec<u8>,
    /// Authorities in the Secret that all replicas read, and in what callers are told.
    pub(crate) to_publish: usize,
    /// In the validating and the mutating configuration, and in the CRD.
    pub(crate) published: [usize; 3],
}

pub(crate) struct Installation {
    pub(crate) cluster: ControlPlane,
    namespace: String,
    arguments: Vec<String>,
    pub(crate) forwarder: Forwarder,
    port: u16,
    pub(crate) replicas: [Replica; 2],
    skews: [i64; 2],
    /// Of replicas that are gone.
    errors: Vec<String>,
}

impl Installation {
    /// Applies what is generated, unmodified, and starts two replicas whose clocks are wrong by these many seconds.
    pub(crate) async fn new(skews: [i64; 2]) -> Self {
        let cluster = ControlPlane::start().await.unwrap();
        let namespace = cluster.namespace("rotation").await;
        let (forwarder, port) = Forwarder::start().await;
        let service_port = port.to_string();
        let place = ["--release", RELEASE, "--namespace", &namespace, "--service-port", &service_port];
        for what in ["rbac", "crds", "webhooks"] {
            cluster.apply(&generate(what, &place).await).await;
        }
        cluster.route_service(&namespace, &format!("{RELEASE}-webhook")).await;
        let account = format!("system:serviceaccount:{namespace}:{RELEASE}");
        let kubeconfig = cluster.kubeconfig_as(&account, &[]).display().to_string();
        let times = ["--ca-settle", &SETTLE.to_string(), "--ca-drain", &DRAIN.to_string()].map(str::to_owned);
        let mut arguments: Vec<_> = place.map(str::to_owned).to_vec();
        arguments.extend(times);
        arguments.extend(["--kubeconfig".to_owned(), kubeconfig]);
        let (first, second) = tokio::join!(start(&arguments, skews[0]), start(&arguments, skews[1]));
        forwarder.add(first.webhooks);
        forwarder.add(second.webhooks);
        Self { cluster, namespace, arguments, forwarder, port, replicas: [first, second], skews, errors: Vec::new() }
    }

    /// People at work, when the webhooks are in force.
    pub(crate) async fn load(&self) -> (Load, Laggard) {
        let load = Load::start(self.cluster.admin(), &self.namespace);
        wait_until("tickets", PATIENCE, || async { (load.created() > 0).then_some(()) }).await;
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.admin());
        let published = move || {
            let configurations = configurations.clone();
            async move {
                let configuration = configurations.get(&format!("{RELEASE}-validating")).await.ok()?;
                String::from_utf8(configuration.webhooks?.remove(0).client_config.ca_bundle?.0).ok()
            }
        };
        let name = format!("{RELEASE}-webhook.{}.svc", self.namespace);
        let laggard = Laggard::start(self.port, name, Arc::clone(&load.gate), published);
        (load, laggard)
    }

    /// As the owner of the cluster.
    pub(crate) fn source(&self) -> Automatic {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let names = vec![format!("{RELEASE}-webhook.{}.svc", self.namespace)];
        Automatic::new(self.cluster.admin(), &*self.namespace, format!("{RELEASE}-webhook-tls"), names, provider)
    }

    pub(crate) async fn seen(&self) -> Seen {
        let secrets: Api<Secret> = Api::namespaced(self.cluster.admin(), &self.namespace);
        let data = async |name: &str| secrets.get(name).await.unwrap().data.unwrap_or_default();
        let mut pair: BTreeMap<_, _> = data(&format!("{RELEASE}-webhook-tls")).await;
        let ca = data(&format!("{RELEASE}-webhook-tls-ca")).await;
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.admin());
        let configuration = configurations.get(&format!("{RELEASE}-validating")).await.unwrap();
        let validating = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap().0;
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(self.cluster.admin());
        let configuration = configurations.get(&format!("{RELEASE}-mutating")).await.unwrap();
        let mutating = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap().0;
        let crds: Api<CustomResourceDefinition> = Api::all(self.cluster.admin());
        let conversion = crds.get("tickets.rotation.example").await.unwrap().spec.conversion.unwrap().webhook.unwrap();
        let converting = conversion.client_config.unwrap().ca_bundle.unwrap().0;
        let count = |pem: &[u8]| bundle_fingerprints(pem).unwrap().len();
        Seen {
            ca_keys: ca.into_keys().collect(),
            leaf: pair.remove("tls.crt").unwrap().0,
            to_publish: count(&pair.remove("ca.crt").unwrap().0),
            published: [validating, mutating, converting].map(|bundle| count(&bundle)),
        }
    }

    pub(crate) async fn until(&self, what: &str, reached: impl Fn(&Seen) -> bool) -> Seen {
        let look = || async { Some(self.seen().await).filter(|seen| reached(seen)) };
        let Ok(seen) = tokio::time::timeout(PATIENCE, wait_until(what, PATIENCE * 2, look)).await else {
            let logs: Vec<_> = self.replicas.iter().map(Replica::log).collect();
            panic!("waited in vain for {what}: {:?}\n{}", self.seen().await, logs.join("\n\n"))
        };
        seen
    }

    /// Begins a rotation, as somebody else than the replicas. Returns what is served before it.
    pub(crate) async fn rotate(&self) -> Seen {
        let before = self.until("a state at rest", Seen::at_rest).await;
        assert_eq!(self.source().rotate().await.unwrap(), Phase::Publishing);
        before
    }

    /// Kills a replica in the middle of whatever it does, and starts another one in its place. No call may be under way,
    /// since nobody can answer for a process that is gone; all that a rotation does goes on.
    pub(crate) async fn kill(&mut self, which: usize, load: &Load) {
        let gone = self.replicas[which].webhooks;
        {
            let _no_calls = load.gate.write().await;
            self.replicas[which].kill().await;
            self.forwarder.remove(gone).await;
        }
        self.errors.extend(self.replicas[which].handshake_errors());
        self.replicas[which] = start(&self.arguments, self.skews[which]).await;
        self.forwarder.add(self.replicas[which].webhooks);
    }

    /// What must hold after all of it.
    pub(crate) async fn judge(self, what: &str, load: Load, laggard: &Laggard, begun: Instant) -> Outcome {
        let rotated = begun.elapsed();
        let outcome = load.end().await;
        let mut errors = self.errors;
        errors.extend(self.replicas.iter().flat_map(Replica::handshake_errors));
        errors.extend(std::mem::take(&mut *laggard.refused.lock().unwrap()));
        let late = laggard.handshakes.load(std::sync::atomic::Ordering::Relaxed);
        let handshakes = self.forwarder.accepted.load(std::sync::atomic::Ordering::Relaxed);
        eprintln!(
            "{what}: {rotated:.1?}; {} created ({:.0}/s), slowest {:.0?}, {handshakes} connections, {late} of them by a late caller",
            outcome.created,
            f64::from(u32::try_from(outcome.created).unwrap()) / outcome.took.as_secs_f64(),
            outcome.slowest,
        );
        assert_eq!((&outcome.failed, &errors), (&Vec::new(), &Vec::new()), "{what}");
        let metrics = self.replicas[0].get("/metrics").await.unwrap();
        for wanted in [
            "portcullis_certificate_not_after_seconds{certificate=\"leaf\"}",
            "portcullis_certificate_not_after_seconds{certificate=\"ca\"}",
            "portcullis_certificate_rotation_phase 0",
            "portcullis_certificate_reload_failures_total 0",
        ] {
            assert!(metrics.contains(wanted), "{wanted}: {metrics}");
        }
        assert!(handshakes > 20, "{handshakes} handshakes");
        self.cluster.stop().await;
        outcome
    }
}

impl Seen {
    pub(crate) fn at_rest(&self) -> bool {
        self.ca_keys == ["ca.crt", "ca.key"] && (self.to_publish, self.published) == (1, [1; 3])
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.ca_keys.iter().any(|has| has == key)
    }
}

async fn start(arguments: &[String], skew: i64) -> Replica {
    let skew = format!("--clock-skew={skew}");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain([&*skew]).collect();
    Replica::start(&arguments).await
}
