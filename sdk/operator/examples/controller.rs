//! An operator with flags of its own and a controller, beside a rule and a default for its one kind. With
//! `--webhooks off` the controller asks the same rule and says the answer in the status.
//!
//! ```text
//! cargo run -p portcullis-operator --example controller -- generate crds
//! cargo run -p portcullis-operator --example controller -- generate rbac
//! cargo run -p portcullis-operator --example controller -- run --kubeconfig ~/.kube/config --namespace entity-operator-system
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, CustomResource, CustomResourceExt as _};
use portcullis::controller::{Action, Controller, ControllerError, Reconcile};
use portcullis::operator::{Components, Operator, Runtime};
use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

/// A person with a name.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "demo.example",
    version = "v1",
    kind = "Entity",
    plural = "entities",
    namespaced,
    status = "EntityStatus"
)]
struct EntitySpec {
    /// The name.
    username: String,
    /// A shorter name, for a name that is too long.
    nickname: Option<String>,
}

/// The observed state.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct EntityStatus {
    /// The greeting that is in its ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    greeting: Option<String>,
    /// `Valid` is said here while webhooks are off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Option<Vec<Condition>>,
}

#[derive(clap::Args, Clone, Debug)]
struct Args {
    /// A forbidden name
    #[arg(long, default_value = "forbidden")]
    forbid: String,
    /// Think this long about each name, in milliseconds
    #[arg(long, default_value_t = 0)]
    think: u64,
}

async fn judge(entity: Arc<Entity>, args: Args) -> Verdict {
    info!(username = entity.spec.username, "thinking");
    tokio::time::sleep(Duration::from_millis(args.think)).await;
    if entity.spec.username == args.forbid {
        return Verdict::deny(format!("name may not be '{}'", args.forbid))
            .code(422)
            .cause("spec.username", "is forbidden");
    }
    Verdict::allow()
}

async fn defaults(mut entity: Entity, _: Context) -> Mutation<Entity> {
    if entity.spec.nickname.is_some() {
        return Mutation::unchanged();
    }
    entity.spec.nickname = entity.spec.username.chars().next().map(String::from);
    Mutation::modified(entity)
}

/// The plan: what should be, from what is.
fn greeting(entity: &Entity) -> String {
    format!("Hello {}!", entity.spec.nickname.as_ref().unwrap_or(&entity.spec.username))
}

async fn reconcile(cx: Reconcile<Entity>) -> Result<Action, ControllerError> {
    let greeting = greeting(&cx.object);
    let mut map = ConfigMap::default();
    map.metadata.name = Some(cx.key.name.clone());
    map.data = Some(BTreeMap::from([("greeting".to_owned(), greeting.clone())]));
    cx.apply(&map).await?;
    cx.apply_status(&EntityStatus { greeting: Some(greeting), conditions: None }).await?;
    Ok(Action::await_change())
}

/// Greets every entity in a ConfigMap of its name.
async fn greet(runtime: Runtime) -> anyhow::Result<()> {
    // The watches wait for a CRD that comes later, and `Components::controller` would do. To fail instead, ask
    // first, and ends when asked to.
    let (client, one) = (runtime.client.clone(), ListParams::default().limit(1));
    let entities: Api<Entity> = match runtime.scope.restricted_to() {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let Some(found) = runtime.stop.run_until_cancelled(entities.list(&one)).await else { return Ok(()) };
    found.context("cannot list entities; is the CRD installed?")?;
    greeter().run(runtime, reconcile).await;
    Ok(())
}

/// The controller, and through its kinds its rights.
fn greeter() -> Controller<Entity> {
    Controller::new("greeter").owns::<ConfigMap>()
}

fn main() -> ExitCode {
    Operator::new("entity-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crds(vec![Entity::crd()])
        .setup(|args: &Args| {
            let args = args.clone();
            let username =
                Validate::<Entity>::new("username").on_create_or_update(move |new, _| judge(new, args.clone()));
            let webhooks =
                Webhooks::new().validate(username).mutate(Mutate::<Entity>::new("defaults").on_create(defaults));
            Ok(Components::new(webhooks).leader_task("greeter", greeter().access(), greet))
        })
        .main()
}
