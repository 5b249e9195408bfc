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
/// The beginning of the name of a variable that holds a secret. The identifier of the secret follows.
pub const SECRET_PREFIX: &str = "TOOLHIVE_SECRET_";
/// The client secret that goes with the client id of the RunConfig's `oidc_config`.
pub const OIDC_CLIENT_SECRET: &str = "TOOLHIVE_OIDC_CLIENT_SECRET";
/// The client secret that goes with the client id of the RunConfig's `token_exchange_config`.
pub const TOKEN_EXCHANGE_CLIENT_SECRET: &str = "TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET";
/// The file that has that secret, which is read again when it changes.
pub const TOKEN_EXCHANGE_CLIENT_SECRET_FILE: &str = "PORTCULLIS_TOKEN_EXCHANGE_CLIENT_SECRET_FILE";
/// The password of the RunConfig's `session_redis`.
pub const SESSION_REDIS_PASSWORD: &str = "THV_SESSION_REDIS_PASSWORD";
/// The file that has that password, which is read again for each connection.
pub const SESSION_REDIS_PASSWORD_FILE: &str = "PORTCULLIS_SESSION_REDIS_PASSWORD_FILE";
/// The prefix of variables with headers for the collector of traces and metrics. The name of the header follows in upper
/// case, with `_` for `-`.
pub const OTEL_HEADER_PREFIX: &str = "TOOLHIVE_OTEL_HEADER_";
/// Attributes of the resource in traces and metrics: `KEY=VALUE` with commas, values percent-encoded.
pub const OTEL_RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// Tells ToolHive's proxies that they run in a cluster.
pub const RUNTIME: &str = "TOOLHIVE_RUNTIME";
/// Has a proxy check its remote server: see [`is_on`].
pub const REMOTE_HEALTH_CHECKS: &str = "TOOLHIVE_REMOTE_HEALTHCHECKS";
/// The value of `HOME` in a proxy's pod.
pub const POD_HOME: &str = "/tmp";

/// Whether a variable with this value turns something on.
pub fn is_on(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}

/// Whether a proxy in a pod does not read the variable: with it, its author would decide what the libraries of the process load, whom they
/// trust and call, how they find names, where the Kubernetes API is, and as whom requests are made. The variables that kubelet sets are others.
pub fn is_unread_in_pods(name: &str) -> bool {
    const PROXY: &str = "_PROXY";
    let end = name.len().checked_sub(PROXY.len()).and_then(|start| name.get(start..));
    matches!(name, "USER" | "HOME" | "LOCALDOMAIN" | "RES_OPTIONS" | "HOSTALIASES" | "GCONV_PATH" | "LOCPATH")
        || name.starts_with("GLIBC_")
        || ["LD_", "SSL_CERT_"].iter().any(|prefix| name.starts_with(prefix))
        || (name.starts_with("KUBE") && !name.starts_with("KUBERNETES_"))
        || end.is_some_and(|end| end.eq_ignore_ascii_case(PROXY))
}

/// Whether the operator alone sets the variable on proxies.
pub fn is_operators(name: &str) -> bool {
    let secrets = [
        SECRETS_PROVIDER,
        OIDC_CLIENT_SECRET,
        TOKEN_EXCHANGE_CLIENT_SECRET,
        TOKEN_EXCHANGE_CLIENT_SECRET_FILE,
        SESSION_REDIS_PASSWORD,
        SESSION_REDIS_PASSWORD_FILE,
    ];
    [RUNTIME, RUN_CONFIG_CHECKSUM].contains(&name) || secrets.contains(&name) || name.starts_with(SECRET_PREFIX)
}
