//! Two replicas of an operator as two processes, behind one Service of a real API server.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use portcullis::certificates::{Automatic, Phase};
use portcullis_pki::bundle_fingerprints;
use portcullis_testing::{ControlPlane, wait_until};
use tokio::time::Instant;

use super::PATIENCE;
use super::caller::{Caller, Calls};
use super::forwarder::Forwarder;
use super::load::Load;
use super::proxy::Proxy;
use super::replica::{Replica, generate};

const RELEASE: &str = "tickets";
/// Where the authorities are.
pub(crate) const CA_SECRET: &str = "tickets-webhook-tls-ca";

/// The settle and drain time of a CA.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) settle: Duration,
    pub(crate) drain: Duration,
}

/// The stored and published certificates, as far as a rotation shows in them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ca_keys: Vec<String>,
    pub(crate) leaf: String,
    /// Authorities in the Secret that all replicas read, and in the published bundles.
    pub(crate) to_publish: usize,
    /// In the validating and the mutating configuration, and in the CRD.
    pub(crate) published: [usize; 3],
}

pub(crate) struct Installation {
    pub(crate) cluster: ControlPlane,
    /// As the owner of the cluster.
    admin: Client,
    namespace: String,
    arguments: Vec<String>,
    times: Times,
    pub(crate) forwarder: Forwarder,
    port: u16,
    pub(crate) replicas: [Replica; 2],
    /// The replicas' ways to the API server.
    pub(crate) proxies: [Proxy; 2],
    skews: [i64; 2],
    /// Handshake errors of replicas that are gone.
    errors: Vec<String>,
}

impl Installation {
    /// Applies what is generated, unmodified and with time for answers of a busy machine, and starts two replicas whose
    /// clocks are wrong by these many seconds.
    pub(crate) async fn new(skews: [i64; 2], times: Times) -> Self {
        let cluster = ControlPlane::start().await.unwrap();
        let namespace = cluster.namespace("rotation").await;
        let (forwarder, port) = Forwarder::start().await;
        let service_port = port.to_string();
        let place = ["--release", RELEASE, "--namespace", &namespace, "--service-port", &service_port];
        for (what, more) in [("rbac", &[][..]), ("crds", &[]), ("webhooks", &["--timeout-seconds", "30"])] {
            cluster.apply(&generate(what, &[&place, more].concat()).await).await;
        }
        cluster.route_service(&namespace, &format!("{RELEASE}-webhook")).await;
        let account = format!("system:serviceaccount:{namespace}:{RELEASE}");
        let kubeconfig = cluster.kubeconfig_as(&account, &[]).display().to_string();
        let proxies = [Proxy::start(&cluster, &kubeconfig).await, Proxy::start(&cluster, &kubeconfig).await];
        let mut arguments: Vec<_> = place.map(str::to_owned).to_vec();
        for (flag, time) in [("--ca-settle", times.settle), ("--ca-drain", times.drain)] {
            arguments.extend([flag.to_owned(), time.as_millis().to_string()]);
        }
        let (first, second) = tokio::join!(
            start(&arguments, &proxies[0].kubeconfig, skews[0]),
            start(&arguments, &proxies[1].kubeconfig, skews[1])
        );
        forwarder.add(first.webhooks);
        forwarder.add(second.webhooks);
        let (admin, replicas, errors) = (cluster.admin(), [first, second], Vec::new());
        Self { cluster, admin, namespace, arguments, times, forwarder, port, replicas, proxies, skews, errors }
    }

    /// People at work, when the webhooks are in force; and a caller that takes up what is published later than others.
    pub(crate) async fn load(&self, every: Duration) -> (Load, Caller) {
        let load = Load::start(self.admin.clone(), &self.namespace, every);
        wait_until("tickets", PATIENCE, || async { (load.created() > 0).then_some(()) }).await;
        let service = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let caller = self.caller(service, self.times.settle * 7 / 10, &load);
        (load, caller)
    }

    /// A caller that makes a new connection for each call to this address, and is late by this much.
    pub(crate) fn caller(&self, address: SocketAddr, lag: Duration, load: &Load) -> Caller {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.admin());
        let published = move || {
            let configurations = configurations.clone();
            async move {
                let configuration = configurations.get(&format!("{RELEASE}-validating")).await.ok()?;
                String::from_utf8(configuration.webhooks?.remove(0).client_config.ca_bundle?.0).ok()
            }
        };
        let server_name = format!("{RELEASE}-webhook.{}.svc", self.namespace);
        let (settle, gate) = (self.times.settle, Arc::clone(&load.gate));
        Caller::start(Calls { address, server_name, lag, settle, gate }, published)
    }

    fn source(&self) -> Automatic {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let names = vec![format!("{RELEASE}-webhook.{}.svc", self.namespace)];
        Automatic::new(self.admin.clone(), &*self.namespace, format!("{RELEASE}-webhook-tls"), names, provider)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    pub(crate) async fn seen(&self) -> Seen {
        let secrets = self.secrets();
        let data = async |name: &str| secrets.get(name).await.unwrap().data.unwrap_or_default();
        let mut pair: BTreeMap<_, _> = data(&format!("{RELEASE}-webhook-tls")).await;
        let ca = data(CA_SECRET).await;
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.admin.clone());
        let configuration = configurations.get(&format!("{RELEASE}-validating")).await.unwrap();
        let validating = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap().0;
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(self.admin.clone());
        let configuration = configurations.get(&format!("{RELEASE}-mutating")).await.unwrap();
        let mutating = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap().0;
        let crds: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
        let conversion = crds.get("tickets.rotation.example").await.unwrap().spec.conversion.unwrap().webhook.unwrap();
        let converting = conversion.client_config.unwrap().ca_bundle.unwrap().0;
        let count = |pem: &[u8]| bundle_fingerprints(pem).unwrap().len();
        Seen {
            ca_keys: ca.into_keys().collect(),
            leaf: String::from_utf8(pair.remove("tls.crt").unwrap().0).unwrap(),
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

    /// Begins a rotation, as a client other than the replicas. Returns what is served before it.
    pub(crate) async fn rotate(&self) -> Seen {
        let before = self.until("a state at rest", Seen::at_rest).await;
        assert_eq!(self.source().rotate().await.unwrap(), Phase::Publishing);
        before
    }

    /// Kills a replica in the middle of whatever it does, and starts another one. No call may be under way,
    /// since a dead process answers none; all that a rotation does goes on.
    pub(crate) async fn kill(&mut self, which: usize, load: &Load) {
        {
            let _no_calls = load.gate.write().await;
            self.replicas[which].kill().await;
            self.forwarder.remove(self.replicas[which].webhooks).await;
        }
        self.replace(which).await;
    }

    /// Starts another one in the place of one that is gone.
    pub(crate) async fn replace(&mut self, which: usize) {
        self.errors.extend(self.replicas[which].handshake_errors());
        self.replicas[which] = start(&self.arguments, &self.proxies[which].kubeconfig, self.skews[which]).await;
        self.forwarder.add(self.replicas[which].webhooks);
    }

    /// Handshakes that replicas saw fail, those that are gone included.
    pub(crate) fn handshake_errors(&self) -> Vec<String> {
        let errors = self.replicas.iter().flat_map(Replica::handshake_errors);
        self.errors.iter().cloned().chain(errors).collect()
    }

    /// Asserts that no call and no handshake failed during the rotation.
    pub(crate) async fn judge(self, what: &str, load: Load, callers: &[Caller], begun: Instant) {
        let rotated = begun.elapsed();
        let lap = load.end().await;
        let mut errors = self.handshake_errors();
        errors.extend(callers.iter().flat_map(Caller::refused));
        let handshakes = self.forwarder.accepted.load(Ordering::Relaxed);
        let alone: Vec<_> = callers.iter().map(Caller::handshakes).collect();
        eprintln!(
            "{what}: {rotated:.1?}; {} created ({:.0}/s), p50 {:.0?}, p99 {:.0?}, slowest {:.0?}, {handshakes} \
             connections through the Service, {alone:?} by callers that make one for each call",
            lap.created(),
            lap.per_second(),
            lap.percentile(50),
            lap.percentile(99),
            lap.percentile(100),
        );
        assert_eq!((&lap.failed, &errors), (&Vec::new(), &Vec::new()), "{what}");
        assert!(handshakes > 20 && alone.iter().all(|made| *made > 20), "{handshakes}, {alone:?} handshakes");
        self.cluster.stop().await;
    }

    /// Asserts that the first replica's metrics show no rotation.
    pub(crate) async fn shows_rest(&self) {
        let metrics = self.replicas[0].get("/metrics").await.unwrap();
        for wanted in [
            "portcullis_certificate_not_after_seconds{certificate=\"leaf\"}",
            "portcullis_certificate_not_after_seconds{certificate=\"ca\"}",
            "portcullis_certificate_rotation_phase 0",
            "portcullis_certificate_reload_failures_total 0",
        ] {
            assert!(metrics.contains(wanted), "{wanted}: {metrics}");
        }
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

async fn start(arguments: &[String], kubeconfig: &str, skew: i64) -> Replica {
    let skew = format!("--clock-skew={skew}");
    let more = ["--kubeconfig", kubeconfig, &*skew];
    Replica::start(&arguments.iter().map(String::as_str).chain(more).collect::<Vec<_>>()).await
}
