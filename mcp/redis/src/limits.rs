//! Token buckets that the replicas of a proxy share, as ToolHive's runner keeps them (toolhive-runner §2.13).

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use mcp_runconfig::LONGEST_PERIOD;

use crate::connection::{Redis, Repeat, Script};
use crate::error::{ConfigError, RedisError};

static CONSUME: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/consume.lua")));

/// A number of calls in a period: so many at once, and as many again over each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    tokens: u32,
    period: Duration,
}

impl Limit {
    /// `tokens` calls in each `period`.
    ///
    /// # Errors
    /// The member that is zero, or too long.
    pub fn new(tokens: u32, period: Duration) -> Result<Self, ConfigError> {
        if tokens == 0 {
            return Err(ConfigError::new("maxTokens", "is 0", "write 1 or more"));
        }
        if period.is_zero() || period > LONGEST_PERIOD {
            let problem = format!("{period:?} is no period of at most a century");
            return Err(ConfigError::new("refillPeriod", problem, "write one such as \"1m0s\""));
        }
        Ok(Self { tokens, period })
    }

    /// The tokens that come in a second. All digits count: with six of them, as ToolHive prints rates, a bucket of one token a month would stay empty
    /// for ever.
    fn rate(self) -> f64 {
        f64::from(self.tokens) / self.period.as_secs_f64()
    }

    /// The seconds until Redis may forget a bucket that nobody uses: it is full long before.
    fn expiry(self) -> u64 {
        ceiling(self.period * 2)
    }

    /// The seconds after which a caller who was refused may try again: those in which one token comes, at least one.
    pub fn retry_after(self) -> u64 {
        ceiling(self.period.div_f64(f64::from(self.tokens))).max(1)
    }
}

/// The whole seconds that `duration` fits in.
fn ceiling(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The limits on a server, or on one tool of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// On the calls of all users together.
    pub shared: Option<Limit>,
    /// On the calls of each user.
    pub per_user: Option<Limit>,
}

/// The callers that a bucket counts calls of, as metrics call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All users.
    Shared,
    /// One user.
    PerUser,
}

/// The rate limits of one MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// The beginning of its keys. What is in braces chooses the node of a cluster: all buckets of a call are on one.
    prefix: String,
    /// On all calls of tools.
    pub all: Limits,
    /// On the calls of one tool, by its name.
    pub tools: BTreeMap<String, Limits>,
}

/// One bucket that a call takes a token from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    key: String,
    /// The limit that it keeps.
    pub limit: Limit,
    /// The callers that it counts calls of.
    pub scope: Scope,
    /// Whether it counts the calls of one tool alone.
    pub of_tool: bool,
}

/// The answer to a call that wants a token of each of its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// It has taken them.
    Allowed,
    /// It has taken none, as this bucket is the first one without a token.
    Refused(&'a Bucket),
}

impl RateLimits {
    /// No limits yet, for the server of this name in its namespace.
    pub fn new(namespace: &str, server: &str) -> Self {
        let prefix = format!("thv:rl:{{{namespace}:{server}}}:");
        Self { prefix, all: Limits::default(), tools: BTreeMap::new() }
    }

    /// The buckets of a call of `tool` by `user`, the subject of its token. Names are in the keys as they are, as in ToolHive's. So where limits of single
    /// users are on tools `a` and `a:b`, the user `b:c` of one and `c` of the other have one bucket.
    pub fn buckets(&self, tool: &str, user: &str) -> Vec<Bucket> {
        let own = self.tools.get(tool).copied().unwrap_or_default();
        let bucket = |limit: Option<Limit>, scope, of_tool, name: String| {
            limit.map(|limit| Bucket { key: format!("{}{name}", self.prefix), limit, scope, of_tool })
        };
        [
            bucket(self.all.shared, Scope::Shared, false, "shared".to_owned()),
            bucket(own.shared, Scope::Shared, true, format!("shared:tool:{tool}")),
            bucket(self.all.per_user, Scope::PerUser, false, format!("user:{user}")),
            bucket(own.per_user, Scope::PerUser, true, format!("user-tool:{tool}:{user}")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Redis {
    /// Takes a token from each of the buckets, or from none of them. It is one step for all replicas, by the clock of Redis.
    ///
    /// # Errors
    /// Redis does not say. The tokens may be taken then: the command is not sent again, so that a call takes no more than one of each.
    pub async fn consume<'a>(&self, buckets: &'a [Bucket]) -> Result<Decision<'a>, RedisError> {
        if buckets.is_empty() {
            return Ok(Decision::Allowed);
        }
        let keys: Vec<&str> = buckets.iter().map(|bucket| &*bucket.key).collect();
        let short: usize = self.script(&CONSUME, &keys, &arguments(buckets), Repeat::No).await?;
        let Some(position) = short.checked_sub(1) else { return Ok(Decision::Allowed) };
        buckets.get(position).map(Decision::Refused).ok_or_else(|| RedisError::Unexpected {
            address: self.address().into(),
            problem: format!("there is no bucket {short}"),
        })
    }
}

/// The number of buckets, then their capacities, rates and times to live.
fn arguments(buckets: &[Bucket]) -> Vec<String> {
    let limits = || buckets.iter().map(|bucket| bucket.limit);
    let capacities = limits().map(|limit| limit.tokens.to_string());
    let rates = limits().map(|limit| limit.rate().to_string());
    let expiries = limits().map(|limit| limit.expiry().to_string());
    std::iter::once(buckets.len().to_string()).chain(capacities).chain(rates).chain(expiries).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(tokens: u32, millis: u64) -> Limit {
        Limit::new(tokens, Duration::from_millis(millis)).unwrap()
    }

    fn limits(shared: Option<Limit>, per_user: Limit) -> Limits {
        Limits { shared, per_user: Some(per_user) }
    }

    /// The limits that ToolHive's runner was recorded with.
    fn recorded() -> RateLimits {
        let mut recorded = RateLimits::new("golden", "limited");
        recorded.all = limits(Some(limit(100, 3_600_000)), limit(20, 1_800_000));
        let (echo, rm) = (limits(Some(limit(10, 3_600_000)), limit(2, 3_600_000)), limits(None, limit(1, 1500)));
        recorded.tools = [("echo".to_owned(), echo), ("rm".to_owned(), rm)].into();
        recorded
    }

    #[test]
    fn keys_and_arguments_are_those_of_toolhive_with_all_digits_of_the_rates() {
        let recorded = recorded();
        for (tool, user, keys, expected) in [
            (
                "echo",
                "bob|x:y",
                &["shared", "shared:tool:echo", "user:bob|x:y", "user-tool:echo:bob|x:y"][..],
                "4 100 10 20 2 0.027778 0.002778 0.011111 0.000556 7200 7200 3600 7200",
            ),
            ("fail", "alice", &["shared", "user:alice"], "2 100 20 0.027778 0.011111 7200 3600"),
            (
                "rm",
                "alice",
                &["shared", "user:alice", "user-tool:rm:alice"],
                "3 100 20 1 0.027778 0.011111 0.666667 7200 3600 3",
            ),
        ] {
            let buckets = recorded.buckets(tool, user);
            let expected_keys = keys.iter().map(|key| format!("thv:rl:{{golden:limited}}:{key}"));
            assert!(buckets.iter().map(|bucket| bucket.key.clone()).eq(expected_keys), "{buckets:?}");
            let rounded = arguments(&buckets).into_iter().map(|argument| match argument.parse::<f64>() {
                Ok(rate) if argument.contains('.') => format!("{rate:.6}"),
                _ => argument,
            });
            assert_eq!(rounded.collect::<Vec<_>>().join(" "), expected);
        }
        let scopes = recorded.buckets("echo", "alice").into_iter().map(|bucket| (bucket.scope, bucket.of_tool));
        let (shared, per_user) = (Scope::Shared, Scope::PerUser);
        assert!(scopes.eq([(shared, false), (shared, true), (per_user, false), (per_user, true)]));
    }

    #[test]
    fn a_refused_caller_waits_for_one_token() {
        for (tokens, millis, seconds) in
            [(2, 3_600_000, 1800), (1, 1500, 2), (7, 60_000, 9), (100, 1000, 1), (3, 3000, 1)]
        {
            assert_eq!(limit(tokens, millis).retry_after(), seconds, "{tokens} in {millis} ms");
        }
    }

    #[test]
    fn a_limit_without_tokens_or_without_a_period_is_refused() {
        for (tokens, period, field) in [
            (0, Duration::from_secs(1), "maxTokens"),
            (1, Duration::ZERO, "refillPeriod"),
            (1, Duration::MAX, "refillPeriod"),
        ] {
            let error = Limit::new(tokens, period).unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }
}
