//! The drivers on a real API server, several in one process, each with its own clock.

mod clock;
mod dead;
mod election;
mod rights;
mod scopes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::Api;
use kube::api::DeleteParams;
use portcullis_testing::ControlPlane;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::handovers::policy_name;
use crate::{LeaseElection, LeaseError, LeaseHandle, ScopeTiming, Timing};
use clock::TestClock;

const DEADLINE: Duration = Duration::from_mins(2);
const LEASE: &str = "scope";

fn timing() -> Timing {
    let (duration, deadline) = (Duration::from_secs(3), Duration::from_secs(2));
    Timing::new(duration, deadline, Duration::from_millis(400)).unwrap()
}

/// Renewals as often, and a duration that no machine stalls through: who takes over sooner was given the Lease.
fn patient() -> Timing {
    Timing::new(Duration::from_mins(4), Duration::from_mins(3), timing().renew()).unwrap()
}

fn scope_timing() -> ScopeTiming {
    ScopeTiming::new(Duration::from_secs(3), Duration::from_secs(1), Duration::from_secs(3)).unwrap()
}

/// Where nothing is lost when it is late: it knows for a shorter time, and looks more often.
fn quick_scope_timing() -> ScopeTiming {
    ScopeTiming::new(Duration::from_secs(3), Duration::from_secs(1), Duration::from_secs(1)).unwrap()
}

const OPERATOR: &str = "lease-tests";

/// Creates the policy and binding by which an administrator hands a namespace over. The rights to write its Lease are
/// not tested here.
async fn hand_over(cluster: &ControlPlane, namespace: &str) {
    let (api, name) = ("admissionregistration.k8s.io/v1", policy_name(LEASE, namespace));
    let metadata = json!({ "name": name, "labels": { "app.kubernetes.io/name": OPERATOR } });
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["bindings"] });
    let spec = json!({
        "failurePolicy": "Fail", "matchConstraints": { "resourceRules": [rule] }, "validations": [{ "expression": "true" }],
    });
    let bound = json!({ "policyName": name, "validationActions": ["Deny"] });
    cluster
        .apply(&[
            json!({ "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec }),
            json!({ "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": bound }),
        ])
        .await;
}

/// Takes the binding away.
async fn take_back(cluster: &ControlPlane, namespace: &str) {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.admin());
    bindings.delete(&policy_name(LEASE, namespace), &DeleteParams::default()).await.unwrap();
}

/// An election in a task of its own.
struct Candidate {
    handle: LeaseHandle,
    clock: TestClock,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), LeaseError>>,
}

impl Candidate {
    fn start(client: kube::Client, election: LeaseElection, skew: i64) -> Self {
        let clock = TestClock::skewed(skew);
        let (handle, driver) = election.clock(Arc::new(clock.clone())).build(client);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(driver.run(async move {
            stopped.await.ok();
        }));
        Self { handle, clock, stop: Some(stop), task }
    }

    async fn end(mut self) -> Result<(), LeaseError> {
        self.stop.take().unwrap().send(()).unwrap();
        self.task.await.unwrap()
    }

    async fn crash(self) {
        self.task.abort();
        self.task.await.unwrap_err();
    }

    async fn holds(&self) -> u32 {
        let held = tokio::time::timeout(DEADLINE, self.handle.acquired()).await;
        held.unwrap_or_else(|_| panic!("it holds nothing: {:?}", self.handle.health())).unwrap()
    }
}

/// Looks all the time, from a thread of its own, how many act, and remembers the most.
struct Observer {
    most: Arc<AtomicUsize>,
    done: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Observer {
    /// `acting` says of each who takes part in which epoch it acts. Who answers the same twice acted when the other
    /// answered in between.
    fn watch(acting: impl Fn() -> Vec<Option<u32>> + Send + 'static) -> Self {
        let (most, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, end) = (Arc::clone(&most), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                let (once, twice) = (acting(), acting());
                let count = once.iter().zip(&twice).filter(|(once, twice)| once.is_some() && once == twice).count();
                seen.fetch_max(count, Ordering::AcqRel);
                std::thread::park_timeout(Duration::from_millis(2));
            }
        });
        Self { most, done, thread }
    }

    /// The highest number of holders seen to act at once so far.
    fn seen(&self) -> usize {
        self.most.load(Ordering::Acquire)
    }

    fn most(self) -> usize {
        self.done.store(true, Ordering::Release);
        self.thread.join().unwrap();
        self.most.load(Ordering::Acquire)
    }
}
