//! An operator with one of everything: a rule, a default, and a kind in two versions.
//!
//! ```text
//! cargo run -p portcullis-doctor --example shop_operator -- generate webhooks
//! cargo run -p portcullis-doctor --example shop_operator -- doctor --kubeconfig ~/.kube/config
//! cargo run -p portcullis-doctor --example shop_operator -- doctor explain -f orders.yaml
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use kube::CustomResourceExt as _;
use kube::core::crd::merge_crds;
use portcullis::conversion::Convert;
use portcullis::operator::Operator;
use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};

mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// An order of drinks.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "doctor.example", version = "v1", kind = "Order", namespaced)]
    pub(crate) struct OrderSpec {
        /// Which beer.
        pub(crate) beer: String,
    }
}

mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// An order of drinks.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "doctor.example", version = "v2", kind = "Order", namespaced, status = "OrderStatus")]
    pub(crate) struct OrderSpec {
        /// Which beer.
        pub(crate) beer: String,
        /// The number of glasses; one by default.
        pub(crate) glasses: Option<u32>,
    }

    /// The progress of the order.
    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct OrderStatus {
        /// Whether it has been served.
        #[serde(default)]
        pub(crate) served: bool,
    }
}

async fn sober(new: Arc<v2::Order>, _: Context) -> Verdict {
    match new.spec.glasses {
        Some(glasses) if glasses > 8 => Verdict::deny("that is too much").code(422).cause("spec.glasses", "8 at most"),
        _ => Verdict::allow(),
    }
}

async fn one_glass(mut new: v2::Order, _: Context) -> Mutation<v2::Order> {
    new.spec.glasses.get_or_insert(1);
    Mutation::modified(new)
}

fn to_v2(old: v1::Order) -> v2::Order {
    v2::Order::new("", v2::OrderSpec { beer: old.spec.beer, glasses: None })
}

fn to_v1(new: v2::Order) -> v1::Order {
    v1::Order::new("", v1::OrderSpec { beer: new.spec.beer })
}

fn main() -> anyhow::Result<ExitCode> {
    let crd = merge_crds(vec![v1::Order::crd(), v2::Order::crd()], "v2")?;
    let webhooks = Webhooks::new()
        .validate(Validate::<v2::Order>::new("sober").on_create_or_update(sober))
        .mutate(Mutate::<v2::Order>::new("one-glass").on_create(one_glass))
        .convert(Convert::<v2::Order>::hub().spoke::<v1::Order>(to_v2, to_v1));
    Ok(Operator::new("shop").version(env!("CARGO_PKG_VERSION")).crds(vec![crd]).webhooks(webhooks).main())
}
