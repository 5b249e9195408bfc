//! The operator as one value: kinds, rights, webhooks, controllers and the flags that shape them.

use portcullis::controller::Namespaces;
use portcullis::manifest::{Access, Grant};
use portcullis::operator::{Operator, Parts};

use crate::{admission::Admission, controllers::Controllers, kinds, settings::Settings};

/// Name of the operator, and of what it installs.
pub const NAME: &str = "mcp-operator";

/// What workloads are made of, by group.
const CHILDREN: [(&str, &[&str]); 4] = [
    ("", &["configmaps", "services", "serviceaccounts"]),
    ("apps", &["deployments", "statefulsets"]),
    ("networking.k8s.io", &["networkpolicies"]),
    ("rbac.authorization.k8s.io", &["roles", "rolebindings"]),
];

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
    Operator::named(NAME).version(env!("CARGO_PKG_VERSION")).crds(mcp_api::crds()).rbac(reads()).setup(|args: &Args| {
        // Every flag is used: one that is added and forgotten does not compile.
        let Args { admission, runner_image, proxy_host, default_image_pull_secrets, watch_namespace } = args.clone();
        let settings = Settings {
            runner_image,
            proxy_host,
            default_image_pull_secrets: words(&default_image_pull_secrets),
            runner_middleware: mcp_runconfig::chain::BUILT,
        };
        let controllers = Controllers::new(kinds::all(), settings, Namespaces::parse(&watch_namespace));
        let watching = controllers.clone();
        // Webhooks read the stores, and every replica serves them.
        let parts = Parts::new(controllers.webhooks(admission)).on_every_replica("the stores", move |runtime| {
            let watching = watching.clone();
            async move { watching.watch(runtime).await }
        });
        Ok(parts.controller("mcp", writes(), move |runtime| {
            let controllers = controllers.clone();
            async move { controllers.work(runtime).await }
        }))
    })
}

/// What the stores are filled from, in every replica. Secrets are watched by their metadata.
fn reads() -> Vec<Grant> {
    let watch = |group, resources: &[&'static str]| Grant::new(group, resources, &["list", "watch"]);
    let mut grants = kinds::all().reads();
    grants.extend(CHILDREN.map(|(group, resources)| watch(group, resources)));
    grants.extend([watch("", &["secrets"]), watch("", &["pods"])]);
    grants
}

/// What the controllers do beside that, and nothing else.
fn writes() -> Access {
    let mut grants = kinds::all().writes();
    grants.extend(CHILDREN.map(|(group, resources)| Grant::new(group, resources, &["create", "patch", "delete"])));
    grants.extend([
        // What workloads and configurations refer to is read for its digest, and whether it can be used.
        Grant::new("", &["secrets", "configmaps"], &["get"]),
        // Held only because nobody can grant what they do not hold: the proxy of a stdio server attaches to its pod.
        Grant::new("", &["pods/attach"], &["get", "create"]),
        Grant::new("events.k8s.io", &["events"], &["create"]),
    ]);
    // The key of the digests of Secrets. What is created has no name yet that a role could be narrowed to.
    let key = Grant::new("", &["secrets"], &["get"]).named(["{release}-digest"]);
    Access::from(grants).in_own_namespace([Grant::new("", &["secrets"], &["create"]), key])
}

fn words(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
