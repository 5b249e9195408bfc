//! Limits on how often tools are called (toolhive-runner §2.13).

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use crate::{RunConfig, SessionRedis, SessionRedisTls, duration};

/// `type` of the middleware that refuses calls of tools beyond a limit.
pub const RATE_LIMIT: &str = "ratelimit";

/// The longest period of a limit: the microseconds in which Redis counts stay far from their end.
pub const LONGEST_PERIOD: Duration = Duration::from_hours(24 * 366 * 100);

/// Limits on how often tools are called. Members are declared in the order ToolHive writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RateLimitConfig {
    /// On the calls of all users together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<RateLimit>,
    /// On the calls of each user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_user: Option<RateLimit>,
    /// On the calls of single tools, beside those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolRateLimit>,
}

/// Limits on how often one tool is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ToolRateLimit {
    /// The tool.
    pub name: String,
    /// On the calls of all users together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<RateLimit>,
    /// On the calls of each user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_user: Option<RateLimit>,
}

/// A number of calls at once, and as many again over each period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RateLimit {
    /// The number of calls.
    pub max_tokens: u32,
    /// The period.
    #[serde(serialize_with = "go_duration", deserialize_with = "period")]
    pub refill_period: Duration,
}

/// Parameters of `ratelimit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateLimitParameters {
    /// The namespace of the MCP server, for the keys.
    pub namespace: String,
    /// The name of the MCP server, for the keys.
    pub server_name: String,
    /// The limits. They are required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<RateLimitConfig>,
    /// Host and port of the Redis that counts. It is required.
    pub redis_addr: String,
    /// The number of its database.
    #[serde(skip_serializing_if = "is_zero")]
    pub redis_db: u32,
    /// Connects with TLS; absent means in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_tls: Option<SessionRedisTls>,
}

impl RateLimitParameters {
    /// The parameters for a document that asks for limits: those of its own, counted in the Redis of its sessions.
    pub(super) fn of(document: &RunConfig) -> Option<Self> {
        let config = document.rate_limit_config.clone()?;
        let redis = document.scaling_config.as_ref().and_then(|scaling| scaling.session_redis.clone());
        let SessionRedis { address, db, tls, .. } = redis.unwrap_or_default();
        Some(Self {
            namespace: document.rate_limit_namespace.clone(),
            server_name: document.name.clone(),
            config: Some(config),
            redis_addr: address,
            redis_db: db,
            redis_tls: tls,
        })
    }

    /// The Redis that counts. Its password is in the environment.
    pub fn redis(&self) -> SessionRedis {
        SessionRedis {
            address: self.redis_addr.clone(),
            db: self.redis_db,
            tls: self.redis_tls.clone(),
            ..SessionRedis::default()
        }
    }
}

/// A Go duration, or integer nanoseconds.
fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let nanos = duration::nanoseconds(&Value::deserialize(deserializer)?).map_err(D::Error::custom)?;
    let nanos = u64::try_from(nanos).map_err(|_| D::Error::custom("is negative; write a duration such as \"1m\""))?;
    Ok(Duration::from_nanos(nanos))
}

fn go_duration<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    duration::format(i64::try_from(value.as_nanos()).unwrap_or(i64::MAX)).serialize(serializer)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn is_zero(db: &u32) -> bool {
    *db == 0
}
