//! An operator whose webhook judges by what other objects say: an order goes to a region that there is, from a depot there.
//!
//! ```text
//! cargo run -p portcullis-operator --example cached_operator -- generate rbac
//! cargo run -p portcullis-operator --example cached_operator -- doctor explain -f order.yaml -f regions.yaml
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kube::{CustomResource, CustomResourceExt as _};
use portcullis::cache::Cache;
use portcullis::operator::{Components, Operator, Runtime};
use portcullis::prometheus_client::metrics::counter::Counter;
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where is delivered to.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "caches.example", version = "v1", kind = "Region")]
struct RegionSpec {}

/// A team's stock in a region.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "caches.example", version = "v1", kind = "Depot", namespaced)]
struct DepotSpec {
    region: String,
    size: u32,
}

/// An order for a region.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "caches.example", version = "v1", kind = "Order", namespaced)]
struct OrderSpec {
    region: String,
}

/// The caches that the rule reads.
#[derive(Clone)]
struct Known {
    regions: Cache<Region>,
    depots: Cache<Depot>,
    refused: Counter,
}

impl Known {
    fn judge(&self, order: &Order, context: &Context) -> Verdict {
        let region = &order.spec.region;
        let here = |depot: &Depot| depot.metadata.namespace == context.namespace && depot.spec.region == *region;
        let problem = if self.regions.get("", region).is_none() {
            format!("there is no region {region}")
        } else if self.depots.find(here).is_none() {
            format!("you have no depot in region {region}")
        } else {
            return Verdict::allow();
        };
        self.refused.inc();
        Verdict::deny(problem.clone()).code(422).cause("spec.region", problem)
    }
}

async fn some_room(new: Arc<Depot>, _: Context) -> Verdict {
    if new.spec.size == 0 { Verdict::deny("a depot has some room").code(422) } else { Verdict::allow() }
}

async fn idle(runtime: Runtime) {
    runtime.stop.cancelled().await;
}

fn main() -> ExitCode {
    Operator::new("cached")
        .crds(vec![Region::crd(), Depot::crd(), Order::crd()])
        .setup(|(): &()| {
            let known = Known { regions: Cache::new(), depots: Cache::new(), refused: Counter::default() };
            let (regions, depots, refused) = (known.regions.clone(), known.depots.clone(), known.refused.clone());
            let place = Validate::<Order>::new("place")
                .with_source(&regions)
                .with_source(&depots)
                .timeout(Duration::from_secs(2))
                .on_create(move |new, context| std::future::ready(known.judge(&new, &context)));
            let room = Validate::<Depot>::new("room").on_create(some_room);
            Ok(Components::new(Webhooks::new().validate(place).validate(room))
                .metric("cached_refused_orders", "Orders that were refused", refused)
                .leader_task("idle", [], idle))
        })
        .main()
}
