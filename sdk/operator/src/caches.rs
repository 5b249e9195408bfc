//! The caches that webhooks read, on every replica.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::time::timeout;
use tracing::warn;

use super::Runtime;
use super::health::Health;
use portcullis_controller::cache::Filler;
use portcullis_manifest::Source;
use portcullis_webhook::Webhooks;

/// The time that a replica waits for its caches before it becomes ready without them.
const PATIENCE: Duration = Duration::from_secs(30);

/// The caches that webhooks of this process read, with the tasks that fill them.
#[derive(Clone)]
pub(super) struct Caches {
    all: Vec<(Arc<dyn Source>, Filler)>,
    /// The caches that can be filled before this process is ready.
    awaited: Vec<(Arc<dyn Source>, Filler)>,
}

impl Caches {
    /// The caches that these webhooks read. Objects of a kind that the operator converts can only be listed once the
    /// API server calls the conversion, and it calls only processes that are ready.
    pub(super) fn of(webhooks: &Webhooks) -> Self {
        let with_filler = |source: Arc<dyn Source>| {
            let filler = source.clone().filler()?.downcast::<Filler>().ok()?;
            Some((source, *filler))
        };
        let all: Vec<_> = webhooks.sources().into_iter().filter_map(with_filler).collect();
        let awaited = all.iter().filter(|(source, _)| !webhooks.converts(source.kind())).cloned().collect();
        Self { all, awaited }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Keeps them filled. The part `health` of the process is ready when they are, or when that takes too long.
    pub(super) async fn run(self, health: Health, runtime: Runtime) -> Result<(), Infallible> {
        let stop = runtime.stop.clone();
        let ready = async {
            health.logged_during(self.filled(|waits| health.waiting_for(waits))).await;
            health.ready();
        };
        let ready = stop.run_until_cancelled(ready);
        let watches = join_all(self.all.iter().map(|(_, filler)| filler.clone().watch(runtime.clone())));
        join(watches, ready).await;
        Ok(())
    }

    /// Returns when those that are awaited are filled, or after half a minute.
    pub(super) async fn filled(&self, report: impl Fn(String)) {
        let one_by_one = async {
            for (source, filler) in &self.awaited {
                report(format!("the first list of {}", source.resource()));
                filler.wait_until_filled().await;
            }
        };
        if timeout(PATIENCE, one_by_one).await.is_err() {
            let unfilled = self.awaited.iter().map(|(source, _)| source).filter(|source| !source.is_filled());
            let unfilled = unfilled.map(|source| source.resource()).collect::<Vec<_>>().join(", ");
            warn!(
                unfilled,
                "not listed yet: webhooks that read these answer HTTP 429 until then; the others are served"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use tokio::time::Instant;

    use super::*;
    use portcullis_controller::cache::{Cache, Cached};
    use portcullis_webhook::conversion::Convert;
    use portcullis_webhook::{Context, Validate, Verdict};

    macro_rules! version {
        ($module:ident, $version:tt) => {
            mod $module {
                use super::*;
                #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
                #[kube(group = "demo.example", version = $version, kind = "Person", namespaced)]
                pub(super) struct Spec {}
            }
        };
    }
    version!(v1, "v1");
    version!(v2, "v2");

    fn reading<K: Cached>(cache: &Cache<K>) -> Webhooks {
        let webhook = |name| Validate::<ConfigMap>::new(name).on_create(async |_, _: Context| Verdict::allow());
        Webhooks::new().validate(webhook("one").with_source(cache)).validate(webhook("two").with_source(cache))
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_list_delays_readiness_by_half_a_minute_at_most() {
        let conversion = Convert::<v2::Person>::hub()
            .spoke(|_: v1::Person| v2::Person::new("", v2::Spec {}), |_| v1::Person::new("", v1::Spec {}));
        let people = reading(&Cache::<v2::Person>::new());
        let table = [
            ("not filled", reading(&Cache::<ConfigMap>::new()), 1, 30),
            ("filled", reading(&Cache::from_iter([ConfigMap::default()])), 1, 0),
            ("not converted", people.clone(), 1, 30),
            ("converted here", people.convert(conversion), 1, 0),
            ("none", Webhooks::new(), 0, 0),
        ];
        for (case, webhooks, watches, seconds) in table {
            let (caches, begun) = (Caches::of(&webhooks), Instant::now());
            assert_eq!(caches.all.len(), watches, "{case}");
            caches.filled(drop).await;
            assert_eq!(begun.elapsed().as_secs(), seconds, "{case}");
        }
    }
}
