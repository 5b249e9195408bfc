//! The operator as one value: kinds, rights, webhooks, controllers and the flags that shape them.

use http::Uri;
use mcp_plan::{
    image::is_prefix,
    settings::{CaBundle, Home, Settings},
};
use mcp_runconfig::{
    endpoint::{DIRECT, Egress, IpNet},
    environment::KUBERNETES_SERVICE_HOST,
    origin_problem,
};
use portcullis::controller::Namespaces;
use portcullis::manifest::Access;
use portcullis::operator::{Components, Operator, SetupContext};

use crate::{admission::Admission, controllers::Controllers, default_redis::DefaultRedisArgs, kinds, rights};

/// Name of the operator, and of what it installs.
pub const NAME: &str = "mcp-operator";

/// Flags of this operator, beside those of every operator.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// What happens to an object that can never work: refused, or admitted with warnings and `Valid=False`
    #[arg(long, value_enum, default_value_t)]
    admission: Admission,
    /// Image of the proxies
    #[arg(long, env = "TOOLHIVE_RUNNER_IMAGE", default_value = concat!("localhost/portcullis/mcp-runner:", env!("CARGO_PKG_VERSION")))]
    runner_image: String,
    /// Registries, or paths in them, with commas, that mirror the proxies' image: a policy that rewrites the registry of pods leads there.
    /// Pods with the image from anywhere else count as guarded by its digest alone
    #[arg(long, value_name = "REGISTRIES", value_delimiter = ',', value_parser = mirror)]
    image_mirrors: Vec<String>,
    /// Address that proxies listen on; 0.0.0.0 is every one, of IPv4 and of IPv6
    #[arg(long, env = "TOOLHIVE_PROXY_HOST", default_value = "0.0.0.0")]
    proxy_host: String,
    /// Image pull secrets of every pod it makes, separated by commas
    #[arg(long, env = "TOOLHIVE_DEFAULT_IMAGE_PULL_SECRETS", default_value = "", hide_default_value = true)]
    default_image_pull_secrets: String,
    /// Networks that proxies may call as if they were public: for tests, and for servers on a machine of one's own. Proxies get
    /// the flag as well
    #[arg(long = "allow-endpoint-cidr", value_name = "CIDR", value_delimiter = ',')]
    exempt_endpoints: Vec<IpNet>,
    /// Abilities of the proxies' image, with commas, where that is not the runner of this version: the types of middleware that it has,
    /// `mcp-endpoints` and `webhook-match`. A workload that asks for a guard it does not have gets no proxy
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    runner_middleware: Option<Vec<String>>,
    /// Origins of the web pages that may call every proxy, with commas; the annotation portcullis.dev/allowed-origins adds those of one
    /// workload. Proxies with a login and no list let pages of every origin call
    #[arg(long, value_name = "ORIGINS", value_delimiter = ',', value_parser = origin)]
    allowed_origins: Vec<String>,
    /// Networks of ingresses and load balancers, with commas, whose X-Forwarded-For tells proxies the address of the client. Without
    /// them all that come through an ingress count as one client
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = mcp_runconfig::trusted_proxies)]
    trusted_proxies: Vec<IpNet>,
    /// HTTP proxy through which proxies call https servers: remote MCP servers, identity providers and webhooks
    #[arg(long, value_name = "URL", value_parser = Egress::proxy)]
    egress_proxy: Option<Uri>,
    /// Hosts that proxies call directly all the same, by the rules of NO_PROXY: names with their subdomains, addresses, networks, with commas
    #[arg(long, value_name = "HOSTS", default_value = DIRECT)]
    no_proxy: String,
    /// ConfigMap and key, in each namespace with proxies, of the root certificates that proxies trust in place of their image's. Where the
    /// ConfigMap is missing, proxies wait for it
    #[arg(long, value_name = "CONFIGMAP/KEY")]
    proxy_ca_bundle: Option<CaBundle>,
    #[command(flatten)]
    default_redis: DefaultRedisArgs,
    /// Refuse workloads with hostPath volumes, host namespaces, host ports, privileged containers, or a ServiceAccount that the operator
    /// did not make. Those that are there already lose their pods
    #[arg(long)]
    restrict_workloads: bool,
    // Kubernetes sets it in every pod.
    /// Address or name of the Kubernetes API, where no remote server may be
    #[arg(long, env = KUBERNETES_SERVICE_HOST, hide = true)]
    kubernetes_api: Option<String>,
    // The tests use a cluster-wide operator: `--restrict-to-namespace` would claim the namespace by a Lease first, and
    // have other configurations and roles. No installation sets this variable, so no role depends on it.
    /// For tests that share an API server: the namespaces to watch. An installation is restricted by
    /// `--restrict-to-namespace` or `WATCH_NAMESPACE`
    #[arg(long, default_value = "", hide = true)]
    watch_namespace: String,
}

/// The operator.
pub fn operator() -> Operator<Args> {
    Operator::new(NAME).version(env!("CARGO_PKG_VERSION")).crds(mcp_api::crds()).rbac(reads()).setup_with_context(
        |args: &Args, installation| {
            // Every flag is used: one that is added and forgotten does not compile.
            let Args {
                admission,
                runner_image,
                image_mirrors,
                proxy_host,
                default_image_pull_secrets,
                exempt_endpoints,
                runner_middleware,
                allowed_origins,
                trusted_proxies,
                egress_proxy,
                no_proxy,
                proxy_ca_bundle,
                default_redis,
                restrict_workloads,
                kubernetes_api,
                watch_namespace,
            } = args.clone();
            let settings = Settings {
                runner_image,
                image_mirrors,
                proxy_host,
                default_image_pull_secrets: words(&default_image_pull_secrets),
                runner_middleware: runner_middleware.unwrap_or_else(mcp_runconfig::chain::abilities),
                allowed_origins,
                trusted_proxies,
                exempt_endpoints,
                egress: egress_proxy.map(|proxy| Egress { proxy, direct: no_proxy }),
                ca_bundle: proxy_ca_bundle,
                default_redis: default_redis.settings(),
                kubernetes_api: kubernetes_api.filter(|host| !host.is_empty()),
                restrict_workloads,
                home: home(installation),
            };
            let controllers = Controllers::new(kinds::all(), settings, Namespaces::parse(&watch_namespace));
            let watching = controllers.clone();
            // Webhooks read the stores, and every replica serves them.
            let parts = Components::new(controllers.webhooks(admission)).replica_task("the stores", move |runtime| {
                let watching = watching.clone();
                async move { watching.watch(runtime).await }
            });
            // Each kind has a controller of its own.
            Ok(controllers.kinds().fold(parts, |parts, (kind, access)| {
                let controllers = controllers.clone();
                parts.leader_task(&kind.to_lowercase(), access, move |runtime| {
                    let (controllers, kind) = (controllers.clone(), kind.clone());
                    async move { controllers.work(&kind, runtime).await }
                })
            }))
        },
    )
}

/// Rights to fill the stores, in every replica, and to keep the key of digests.
fn reads() -> Access {
    Access::from([kinds::all().reads(), rights::watches()].concat()).with_own_namespace(rights::digest_key())
}

/// The ServiceAccount of an installation, and the Secrets that it and its certificates use.
fn home(installation: &SetupContext) -> Option<Home> {
    let SetupContext { namespace, release, secret, .. } = installation;
    Some(Home {
        namespace: namespace.clone()?,
        account: release.clone(),
        secrets: vec![secret.clone(), format!("{secret}-ca"), format!("{secret}-root"), rights::digest_secret(release)],
    })
}

fn origin(text: &str) -> Result<String, String> {
    origin_problem(text).map_or_else(|| Ok(text.to_owned()), Err)
}

fn mirror(text: &str) -> Result<String, String> {
    let problem = || "is no registry, or path in one, such as mirror.example:5000 or registry.example/proxy".to_owned();
    is_prefix(text).then(|| text.to_owned()).ok_or_else(problem)
}

fn words(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
