//! The flags for the Redis of workloads that name no store of sessions. A fault in them is said in the status of each of these; the operator starts.

use clap::builder::FalseyValueParser;
use mcp_api::v1beta1::SecretKeyRef;
use mcp_plan::settings::DefaultRedis;

/// The flags of the default Redis.
#[derive(clap::Args, Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "clap names the flags after them")]
pub(crate) struct DefaultRedisArgs {
    /// Host and port of the Redis in which proxies keep their sessions, so that replicas share them, where a workload has no `sessionStorage`.
    /// Rate limits are counted in the Redis of a workload's own alone
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "TOOLHIVE_DEFAULT_REDIS_ADDR",
        default_value = "",
        hide_default_value = true
    )]
    default_redis_address: String,
    /// Secret with its password, in each namespace with such a workload
    #[arg(
        long,
        value_name = "SECRET",
        env = "TOOLHIVE_DEFAULT_REDIS_SECRET_NAME",
        default_value = "",
        hide_default_value = true
    )]
    default_redis_secret: String,
    /// Key of the password in that Secret
    #[arg(long, value_name = "KEY", env = "TOOLHIVE_DEFAULT_REDIS_SECRET_KEY", default_value = "redis-password")]
    default_redis_secret_key: String,
    /// Connect to it with TLS
    #[arg(long, env = "TOOLHIVE_DEFAULT_REDIS_TLS_ENABLED", value_parser = FalseyValueParser::new())]
    default_redis_tls: bool,
    /// Secret with the authorities that its certificate may come from, in each namespace with such a workload. Without it, those that proxies
    /// trust otherwise
    #[arg(
        long,
        value_name = "SECRET",
        env = "TOOLHIVE_DEFAULT_REDIS_TLS_CA_SECRET_NAME",
        default_value = "",
        hide_default_value = true
    )]
    default_redis_ca_secret: String,
    /// Key of the authorities in that Secret
    #[arg(long, value_name = "KEY", env = "TOOLHIVE_DEFAULT_REDIS_TLS_CA_SECRET_KEY", default_value = "ca.crt")]
    default_redis_ca_key: String,
}

impl DefaultRedisArgs {
    /// The default; none where no flag asks for one.
    pub(crate) fn settings(self) -> Option<DefaultRedis> {
        let Self {
            default_redis_address: address,
            default_redis_secret,
            default_redis_secret_key,
            default_redis_tls: tls,
            default_redis_ca_secret,
            default_redis_ca_key,
        } = self;
        let secret = |name: String, key: String| (!name.is_empty()).then_some(SecretKeyRef { key, name });
        let password = secret(default_redis_secret, default_redis_secret_key);
        let authorities = secret(default_redis_ca_secret, default_redis_ca_key);
        let asked = !address.is_empty() || password.is_some() || tls || authorities.is_some();
        asked.then_some(DefaultRedis { address, password, tls, authorities })
    }
}
