//! Several operators on one API server, as real processes: a cluster-wide one, and others that are each restricted to a
//! namespace. Who validates, also when one of them is killed.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dynamo_webhooks::kinds::{DynamoModel, DynamoModelSpec};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use portcullis_testing::{ControlPlane, OperatorBinary, RunningOperator, Stopwatch, wait_until};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::Instant;

use crate::clusters::{binary_on_time, cluster_wide};

/// Nothing in these tests takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// The prefix of the reason to leave an object to another operator.
const SKIPPED: &str = "skipping validation";
/// The refusal of a model without a name.
const REFUSED: &str = "admission webhook \"vdynamomodel.kb.io\" denied the request: spec.modelName is required";

/// Each object that is tried has a name of its own, by which it is found in the logs.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// A namespace with an operator of its own, which lives in another one.
struct Team {
    cluster: &'static ControlPlane,
    wide: &'static RunningOperator,
    namespace: String,
    binary: OperatorBinary,
    own: RunningOperator,
}

impl Team {
    async fn new(release: &str, more: &[&str]) -> Self {
        let (cluster, wide) = cluster_wide().await;
        let namespace = cluster.namespace("team").await;
        let place = ["--release", release, "--restrict-to-namespace", &namespace];
        let binary = binary_on_time().flags(place).flags(more.iter().copied());
        let own = binary.install(cluster).await;
        Self { cluster, wide, namespace, binary, own }
    }

    /// Waits until objects of this namespace are validated by its own operator alone.
    async fn is_its_own(&self) {
        let operators = [("cluster-wide", self.wide), ("its own", &self.own)];
        validated_by(self.cluster, &self.namespace, &operators, "its own").await;
    }

    /// Ends its operator as `kill -9` does; what is installed stays. Returns the namespace that it lives in.
    fn kill(self) -> String {
        let Self { own, .. } = self;
        let home = own.namespace.clone();
        // The end of a process is waited for with a blocking call.
        tokio::task::block_in_place(|| drop(own));
        home
    }

    async fn lease(&self, name: &str) -> Lease {
        Api::<Lease>::namespaced(self.cluster.admin(), &self.namespace).get(name).await.unwrap()
    }
}

/// Creates a model that is not kept.
async fn tried(cluster: &ControlPlane, namespace: &str, name: &str, model_name: &str) -> kube::Result<DynamoModel> {
    let spec = DynamoModelSpec {
        model_name: model_name.to_owned(),
        base_model_name: "a".to_owned(),
        model_type: "base".to_owned(),
        ..DynamoModelSpec::default()
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    Api::namespaced(cluster.admin(), namespace).create(&params, &DynamoModel::new(name, spec)).await
}

/// The API server's error for a model without a name; `None` if it is admitted.
async fn refusal(cluster: &ControlPlane, namespace: &str) -> Option<String> {
    tried(cluster, namespace, "nameless", "").await.err().map(|error| error.to_string())
}

/// Waits until ten objects in a row are each validated by this operator and by no other. Each of them is validated, all
/// the while.
async fn validated_by(cluster: &ControlPlane, namespace: &str, operators: &[(&str, &RunningOperator)], who: &str) {
    let right = || async {
        for _ in 0..10 {
            let name = format!("tried-{}", TRIED.fetch_add(1, Ordering::Relaxed));
            tried(cluster, namespace, &name, "a").await.unwrap();
            let judges = operators.iter().filter(|(_, operator)| validated(operator, &name));
            let judges: Vec<_> = judges.map(|(who, _)| *who).collect();
            assert!(!judges.is_empty(), "no operator validated {name} in {namespace}");
            if judges != [who] {
                return None;
            }
        }
        Some(())
    };
    wait_until(&format!("{namespace} to be validated by the operator that is {who}"), PATIENCE, right).await;
}

/// Whether this operator judged the object that is created under this name, and did not leave it to another.
fn validated(operator: &RunningOperator, name: &str) -> bool {
    decided(operator, name).is_some_and(|reason| !reason.starts_with(SKIPPED))
}

/// The reason in this operator's log for its decision on the creation of this object.
fn decided(operator: &RunningOperator, name: &str) -> Option<String> {
    let log = operator.log();
    let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.find(|line| {
        let fields = &line["fields"];
        fields["message"] == "validate create" && fields["name"] == name
    })?;
    Some(line["fields"]["reason"].as_str().unwrap().to_owned())
}

/// The report of `doctor` on the cluster-wide installation.
async fn examined(cluster: &ControlPlane, wide: &RunningOperator) -> String {
    let kubeconfig = cluster.kubeconfig_path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dynamo-webhooks"));
    command.arg("doctor").arg("--kubeconfig").arg(kubeconfig).args(["--namespace", &wide.namespace]);
    command.env_clear().stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_object_is_validated_by_exactly_one_operator() {
    let (one, two) = tokio::join!(Team::new("one", &[]), Team::new("two", &[]));
    let (cluster, wide) = cluster_wide().await;
    let elsewhere = cluster.namespace("elsewhere").await;
    let operators = [("cluster-wide", wide), ("one", &one.own), ("two", &two.own)];
    for (namespace, who) in [(&one.namespace, "one"), (&two.namespace, "two"), (&elsewhere, "cluster-wide")] {
        validated_by(cluster, namespace, &operators, who).await;
        assert!(refusal(cluster, namespace).await.unwrap().contains(REFUSED), "{namespace}");
    }
}

/// The guide's troubleshooting reads this Lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_restricted_operator_holds_the_lease_of_the_guide() {
    let team = Team::new("named", &[]).await;
    team.is_its_own().await;
    let name = "dynamo-operator-ns-lock";
    let before = team.lease(name).await.spec.unwrap();
    let renewed = || async { (team.lease(name).await.spec?.renew_time > before.renew_time).then_some(()) };
    wait_until("the Lease to be renewed", PATIENCE, renewed).await;
    assert_eq!(before.lease_duration_seconds, Some(8));
    assert!(!before.holder_identity.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_wide_operator_stands_in_for_a_killed_one() {
    let team = Team::new("open", &["--failure-policy", "Ignore"]).await;
    team.is_its_own().await;
    let Team { cluster, wide, namespace, binary, .. } = &team;
    let (cluster, wide, namespace, binary) = (*cluster, *wide, namespace.clone(), binary.clone());
    let held = team.lease("dynamo-operator-ns-lock").await.spec.unwrap();
    let home = team.kill();
    let killed = Instant::now();
    // The API server passes over the dead one, so it is the cluster-wide one that refuses: after 10 s, and what a busy
    // machine adds.
    let refused = wait_until("a bad object to be refused", PATIENCE, || refusal(cluster, &namespace)).await;
    eprintln!("refused {:?} after the kill: {refused}", killed.elapsed());
    assert!(refused.contains(REFUSED), "{refused}");
    validated_by(cluster, &namespace, &[("cluster-wide", wide)], "cluster-wide").await;

    let binary = binary.namespace(home);
    let given_back = async {
        let leases = Api::<Lease>::namespaced(cluster.admin(), &namespace);
        let taken = || async {
            let lease = leases.get("dynamo-operator-ns-lock").await.unwrap().spec?;
            (lease.holder_identity != held.holder_identity).then_some(())
        };
        wait_until("the Lease to be taken again", PATIENCE, taken).await;
        let taken = Stopwatch::start();
        let left = || async {
            let name = format!("back-{}", TRIED.fetch_add(1, Ordering::Relaxed));
            tried(cluster, &namespace, &name, "a").await.unwrap();
            decided(wide, &name)?.starts_with(SKIPPED).then_some(())
        };
        wait_until("the cluster-wide operator to leave the namespace", PATIENCE, left).await;
        // sdk/lease/tests/lease/simulated shows it for the first event, without a clock.
        eprintln!("given back {:?} after the Lease was seen taken; it is renewed each second", taken.elapsed());
    };
    let (own, ()) = tokio::join!(binary.install(cluster), given_back);
    let team = Team { cluster, wide, namespace, binary, own };
    team.is_its_own().await;
    assert!(refusal(cluster, &team.namespace).await.unwrap().contains(REFUSED));
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_a_dead_operator_that_fails_closed() {
    let team = Team::new("closed", &[]).await;
    team.is_its_own().await;
    let Team { cluster, wide, namespace, .. } = &team;
    let (cluster, wide, namespace) = (*cluster, *wide, namespace.clone());
    team.kill();
    let configuration = format!("closed-validating-{namespace}");
    let lost = format!("restricted operator of {namespace} lost its lease");
    let said = || async {
        let said = examined(cluster, wide).await;
        let line = said.lines().find(|line| line.contains(&lost)).map(str::to_owned);
        line.map(|line| (line, said))
    };
    let (line, report) = wait_until("doctor to notice", PATIENCE, said).await;
    for part in ["L1", "cluster-wide has resumed", &configuration, "rejects with Fail when it does not answer"] {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
    assert!(report.contains(&format!("kubectl delete validatingwebhookconfiguration {configuration}")), "{report}");

    // The cluster-wide one is at work there, and a good object is refused all the same.
    let refused = tried(cluster, &namespace, "sound", "a").await.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook \"vdynamomodel.kb.io\""), "{refused}");
}
