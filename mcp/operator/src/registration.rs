//! The operator as one value: kinds, rights, webhooks, controllers and the flags that shape them.

use std::sync::Arc;

use portcullis::controller::Namespaces;
use portcullis::manifest::Grant;
use portcullis::operator::{Operator, Parts};

use crate::{
    controllers::{Controllers, Stores},
    plan::Settings,
    webhooks::{Admission, webhooks},
};

/// Name of the operator, and of what it installs.
pub const NAME: &str = "mcp-operator";

/// Flags of this operator, beside those of every operator.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// What happens to an object that can never work: refused, or admitted with warnings and `Valid=False`
    #[arg(long, value_enum, default_value_t)]
    admission: Admission,
    /// Image of the proxies
    #[arg(long, env = "TOOLHIVE_RUNNER_IMAGE", default_value = "localhost/portcullis/mcp-runner:latest")]
    runner_image: String,
    /// Address that proxies listen on
    #[arg(long, env = "TOOLHIVE_PROXY_HOST", default_value = "0.0.0.0")]
    proxy_host: String,
    /// Image pull secrets of every pod and ServiceAccount it makes, separated by commas
    #[arg(long, env = "TOOLHIVE_DEFAULT_IMAGE_PULL_SECRETS", default_value = "", hide_default_value = true)]
    default_image_pull_secrets: String,
    // Those tests are of a cluster-wide operator: `--restrict-to-namespace` would claim the namespace by a Lease first, and
    // have other configurations and roles. Nobody sets this in an installation, so no role knows of it.
    /// For tests that share an API server: the namespaces to watch. An installation is restricted by
    /// `--restrict-to-namespace` or `WATCH_NAMESPACE`
    #[arg(long, default_value = "", hide = true)]
    watch_namespace: String,
}

/// The operator.
pub fn operator() -> Operator<Args> {
    Operator::named(NAME).version(env!("CARGO_PKG_VERSION")).crds(mcp_api::crds()).rbac(grants()).setup(
        |args: &Args| {
            // Every flag is used: one that is added and forgotten does not compile.
            let Args { admission, runner_image, proxy_host, default_image_pull_secrets, watch_namespace } =
                args.clone();
            let stores = Arc::new(Stores::default());
            let webhooks = webhooks(admission, &stores);
            let settings =
                Settings { runner_image, proxy_host, default_image_pull_secrets: words(&default_image_pull_secrets) };
            let controllers = Controllers::new(stores, settings, Namespaces::parse(&watch_namespace));
            let stores = controllers.clone();
            // Webhooks read the stores, and every replica serves them.
            let parts = Parts::new(webhooks).on_every_replica("the stores", move |runtime| {
                let stores = stores.clone();
                async move { stores.watch(runtime).await }
            });
            Ok(parts.controller("mcp", move |runtime| {
                let controllers = controllers.clone();
                async move { controllers.work(runtime).await }
            }))
        },
    )
}

/// What the controllers do, and nothing else.
fn grants() -> Vec<Grant> {
    let toolhive = mcp_api::names::GROUP;
    let kept = ["list", "watch", "create", "patch", "delete"];
    vec![
        // Finalizers are patched on the object, status on its own. `finalizers: update` lets children name their owner
        // as blocking its deletion, where the API server checks that.
        Grant::new(toolhive, &["mcpservers", "mcpwebhookconfigs"], &["list", "watch", "patch"]),
        Grant::new(toolhive, &["mcpservers/status", "mcpwebhookconfigs/status"], &["patch"]),
        Grant::new(toolhive, &["mcpservers/finalizers"], &["update"]),
        Grant::new("", &["services", "serviceaccounts"], &kept),
        // A permission profile is read from the ConfigMap that a server names.
        Grant::new("", &["configmaps"], &["get", "list", "watch", "create", "patch", "delete"]),
        // Watched by metadata; the content of those that servers refer to is read for its digest, never written.
        Grant::new("", &["secrets"], &["get", "list", "watch"]),
        Grant::new("", &["pods"], &["list", "watch"]),
        // Held only because nobody can grant what they do not hold: the proxy of a stdio server attaches to its pod.
        Grant::new("", &["pods/attach"], &["get", "create"]),
        Grant::new("apps", &["deployments", "statefulsets"], &kept),
        Grant::new("rbac.authorization.k8s.io", &["roles", "rolebindings"], &kept),
        Grant::new("events.k8s.io", &["events"], &["create"]),
    ]
}

fn words(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
