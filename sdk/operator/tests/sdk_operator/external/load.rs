//! The API server calls the webhook all the time, while callers make new handshakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use portcullis_testing::wait_until;
use tokio::task::JoinHandle;

const CALLERS: usize = 2;

/// Creates ConfigMaps, by dry run: every second one must be refused by the webhook, in its own words.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    pub(crate) fn start(client: &Client, namespace: &str) -> Self {
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let caller = |_| {
            let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            tokio::spawn(async move {
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    failures.extend(admit(&api, calls.fetch_add(1, Ordering::Relaxed) % 2 == 0).await.err());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                failures
            })
        };
        Self { callers: (0..CALLERS).map(caller).collect(), stop, calls }
    }

    /// Returns when so many more calls have been answered.
    pub(crate) async fn go_on(&self, more: usize) {
        let target = self.calls.load(Ordering::Relaxed) + more;
        let reached = || async { (self.calls.load(Ordering::Relaxed) >= target).then_some(()) };
        wait_until("more calls", Duration::from_mins(1), reached).await;
    }

    /// Ends the load, and returns the number of calls. None of them may have failed.
    pub(crate) async fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = Vec::new();
        for caller in self.callers {
            failures.extend(caller.await.unwrap());
        }
        let calls = self.calls.load(Ordering::Relaxed);
        assert!(failures.is_empty(), "{} of {calls} calls failed, the first: {}", failures.len(), failures[0]);
        calls
    }
}

/// Whether the API server asks the webhook, and takes its answer.
pub(crate) async fn admit(api: &Api<ConfigMap>, good: bool) -> Result<(), String> {
    let object = ConfigMap {
        metadata: ObjectMeta { generate_name: Some("load-".to_owned()), ..ObjectMeta::default() },
        data: Some([((if good { "good" } else { "bad" }).to_owned(), String::new())].into()),
        ..ConfigMap::default()
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&dry, &object).await {
        Ok(_) if good => Ok(()),
        Ok(_) => Err("the webhook was not asked".to_owned()),
        Err(error) if !good && error.to_string().contains("bad is not good") => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
