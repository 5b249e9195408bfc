//! An operator with flags of its own and a controller, beside a rule and a default for its one kind.
//!
//! ```text
//! cargo run -p portcullis --example controller -- generate crds
//! cargo run -p portcullis --example controller -- run --kubeconfig ~/.kube/config
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::api::ListParams;
use kube::{Api, CustomResource, CustomResourceExt as _};
use portcullis::manifest::Grant;
use portcullis::operator::{Operator, Parts, Runtime};
use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

/// Somebody with a name.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "demo.example", version = "v1", kind = "Entity", plural = "entities", namespaced)]
struct EntitySpec {
    /// The name.
    username: String,
    /// What to call it when the name is too long.
    nickname: Option<String>,
}

#[derive(clap::Args, Clone, Debug)]
struct Args {
    /// A name that nobody may have
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

/// Counts the entities once, and waits for the end.
async fn census(runtime: Runtime) -> anyhow::Result<()> {
    let entities: Api<Entity> = Api::all(runtime.client);
    // Whatever a controller waits for, it ends when the process is asked to.
    let Some(found) = runtime.stop.run_until_cancelled(entities.list(&ListParams::default())).await else {
        return Ok(());
    };
    let found = found.context("cannot list entities; is the CRD installed?")?;
    info!(entities = found.items.len(), "counted");
    runtime.stop.cancelled().await;
    Ok(())
}

fn main() -> ExitCode {
    Operator::named("entity-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crds(vec![Entity::crd()])
        .rbac(vec![Grant::new("demo.example", &["entities"], &["list"])])
        .setup(|args: &Args| {
            let (creating, updating) = (args.clone(), args.clone());
            let username = Validate::<Entity>::named("username")
                .on_create(move |new, _| judge(new, creating.clone()))
                .on_update(move |_, new, _| judge(new, updating.clone()));
            let webhooks =
                Webhooks::new().validate(username).mutate(Mutate::<Entity>::named("defaults").on_create(defaults));
            Ok(Parts::new(webhooks).controller("census", census))
        })
        .main()
}
