//! An operator that says who it is: several of it stand beside each other in `tests/scopes`.
//!
//! ```text
//! cargo run -p portcullis-operator --example scopes_operator -- run --release platform
//! cargo run -p portcullis-operator --example scopes_operator -- run --release tenant --restrict-to-namespace team-a
//! ```

use std::process::ExitCode;
use std::time::Duration;

use kube::{CustomResource, CustomResourceExt as _};
use portcullis::operator::{Components, Operator, Runtime};
use portcullis::webhooks::{Context, FailurePolicy, Mutate, Mutation, Validate, Verdict, Webhooks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::interval;
use tracing::info;

/// Something with a size.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "scopes.example", version = "v1", kind = "Widget", plural = "widgets", namespaced)]
struct WidgetSpec {
    size: u32,
}

#[derive(clap::Args, Clone, Debug)]
struct Args {
    /// Name of this installation in warnings and annotations
    #[arg(long, default_value = "nobody")]
    tag: String,
    /// Refuse widgets that are larger
    #[arg(long, default_value_t = 100)]
    max_size: u32,
    /// Let objects in when this operator cannot be called
    #[arg(long)]
    ignore_failures: bool,
    /// Namespaces in which the controller acts, separated by commas
    #[arg(long, default_value = "", hide_default_value = true)]
    acts_in: String,
}

fn judge(new: &Widget, args: &Args) -> Verdict {
    if new.spec.size > args.max_size {
        return Verdict::deny(format!("{} allows {} at most", args.tag, args.max_size)).code(422);
    }
    Verdict::allow().warn(format!("checked by {}", args.tag))
}

/// Says all the time where it would write.
async fn act(runtime: Runtime, args: Args) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_millis(20));
    while runtime.stop.run_until_cancelled(ticks.tick()).await.is_some() {
        for namespace in args.acts_in.split(',').filter(|namespace| !namespace.is_empty()) {
            if runtime.scope.owns(namespace).may_write() {
                info!(namespace, "acts");
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    Operator::new("scopes")
        .crds(vec![Widget::crd()])
        .setup(|args: &Args| {
            let policy = if args.ignore_failures { FailurePolicy::Ignore } else { FailurePolicy::Fail };
            let (judging, marking, acting) = (args.clone(), args.clone(), args.clone());
            let size = Validate::<Widget>::new("size")
                .failure_policy(policy)
                .on_create_or_update(move |new, _| std::future::ready(judge(&new, &judging)));
            let mark = move |mut new: Widget, _: Context| {
                let key = format!("scopes.example/{}", marking.tag);
                new.metadata.annotations.get_or_insert_default().insert(key, "was here".to_owned());
                std::future::ready(Mutation::modified(new))
            };
            let mark = Mutate::<Widget>::new("mark").failure_policy(policy).on_create(mark);
            let webhooks = Webhooks::new().validate(size).mutate(mark);
            Ok(Components::new(webhooks).leader_task("acts", [], move |runtime| act(runtime, acting.clone())))
        })
        .main()
}
