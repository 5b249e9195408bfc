//! The environment variables by which an operator tells a proxy what a RunConfig does not have in it (toolhive-runner §1.4),
//! and those by which Kubernetes tells it where its API is.

/// Address of the Kubernetes API, which Kubernetes sets in every pod.
pub const KUBERNETES_SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";
/// Port of the Kubernetes API, which Kubernetes sets in every pod.
pub const KUBERNETES_SERVICE_PORT: &str = "KUBERNETES_SERVICE_PORT";
/// The checksum of the RunConfig that the proxy's pod was made for: it refuses to start on another.
pub const RUN_CONFIG_CHECKSUM: &str = "TOOLHIVE_RUNCONFIG_CHECKSUM";
/// Where secrets are looked up by their identifiers: `environment`.
pub const SECRETS_PROVIDER: &str = "TOOLHIVE_SECRETS_PROVIDER";
/// What precedes the identifier of a secret in the name of the variable that holds it.
pub const SECRET_PREFIX: &str = "TOOLHIVE_SECRET_";
/// The client secret that goes with the client id of the RunConfig's `oidc_config`.
pub const OIDC_CLIENT_SECRET: &str = "TOOLHIVE_OIDC_CLIENT_SECRET";
