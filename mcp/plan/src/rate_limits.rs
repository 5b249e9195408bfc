//! `spec.rateLimiting`: limits on how often the tools of a workload are called.

use std::{sync::Arc, time::Duration};

use mcp_api::{
    names::{condition, reason},
    v1beta1::{RateLimitBucket, RateLimiting, SessionStorage, SessionStorageProvider, ToolRateLimit},
};
use mcp_runconfig::{
    LONGEST_PERIOD, RATE_LIMIT, RateLimit, RateLimitConfig, RunConfig, ToolRateLimit as ToolLimit, duration,
};

use crate::{
    config::{Config, ConfigUse, Role, Target, Terms, Words},
    digest::short_digest,
    problem::Problem,
    settings::Settings,
};

/// The words of conditions about them.
const WORDS: Words = Words {
    condition: condition::RATE_LIMIT_CONFIG_VALID,
    valid: "RateLimitConfigValid",
    not_found: reason::RATE_LIMIT_CONFIG_INVALID,
    not_valid: reason::RATE_LIMIT_CONFIG_INVALID,
    data_not_found: reason::RATE_LIMIT_CONFIG_INVALID,
    data_not_valid: reason::RATE_LIMIT_CONFIG_INVALID,
    bundle: None,
};

/// The limits of a spec, as far as they can be read, and the rules that they break.
#[derive(Debug)]
struct Limits {
    config: RateLimitConfig,
    problems: Vec<Problem>,
}

/// The use that a spec makes of its limits; none where it has none. Calls are counted in the Redis of its `storage`, and those of single users where
/// callers have a `login`.
pub fn rate_limits(
    spec: Option<&RateLimiting>,
    storage: Option<&SessionStorage>,
    has_login: bool,
) -> Option<ConfigUse> {
    let spec = spec?;
    let mut limits = Limits::read(spec);
    // The CRD's rules say the same; an object may have been stored before them.
    if storage.is_none_or(|storage| storage.provider != SessionStorageProvider::Redis) {
        let message = "needs spec.sessionStorage with the provider redis, where calls are counted";
        limits.problems.push(Problem::new(FIELD, message));
    }
    let nobody = spec.per_user_fields().next().filter(|_| !has_login);
    if let Some(field) = &nobody {
        let message = "needs callers who log in: without a login all of them are one user";
        limits.problems.push(Problem::new(field, message));
    }
    let not_valid = if nobody.is_some() { reason::PER_USER_REQUIRES_AUTH } else { WORDS.not_valid };
    let used = ConfigUse::inline(Role::Guard, FIELD, Arc::new(limits), &[RATE_LIMIT]);
    Some(ConfigUse { words: Some(Words { not_valid, ..WORDS }), ..used })
}

/// Every rule that the limits of a spec break by a change of `old`: those that were stored before keep being admitted.
pub fn change_problems(old: Option<&RateLimiting>, new: Option<&RateLimiting>) -> Vec<Problem> {
    new.filter(|_| old != new).map(|spec| Limits::read(spec).problems).unwrap_or_default()
}

const FIELD: &str = "spec.rateLimiting";

/// The fields that count the calls of single users.
trait PerUserFields {
    fn per_user_fields(&self) -> impl Iterator<Item = String>;
}

impl PerUserFields for RateLimiting {
    fn per_user_fields(&self) -> impl Iterator<Item = String> {
        let of_tools = self.tools.iter().flatten().enumerate().filter(|(_, tool)| tool.per_user.is_some());
        let of_tools = of_tools.map(|(at, _)| format!("{FIELD}.tools[{at}].perUser"));
        self.per_user.iter().map(|_| format!("{FIELD}.perUser")).chain(of_tools)
    }
}

impl Limits {
    fn read(spec: &RateLimiting) -> Self {
        let mut problems = Vec::new();
        let mut both = |path: &str, shared: Option<&RateLimitBucket>, per_user: Option<&RateLimitBucket>| {
            let mut limit = |member: &str, bucket: Option<&RateLimitBucket>| {
                let found = bucket.map(|bucket| read(&format!("{path}.{member}"), bucket)).transpose();
                found.unwrap_or_else(|problem| {
                    problems.push(problem);
                    None
                })
            };
            (limit("shared", shared), limit("perUser", per_user))
        };
        let (shared, per_user) = both(FIELD, spec.shared.as_ref(), spec.per_user.as_ref());
        let tools = spec.tools.iter().flatten().enumerate().map(|(at, ToolRateLimit { name, shared, per_user })| {
            let (shared, per_user) = both(&format!("{FIELD}.tools[{at}]"), shared.as_ref(), per_user.as_ref());
            ToolLimit { name: name.clone(), shared, per_user }
        });
        let tools = tools.collect();
        Self { config: RateLimitConfig { shared, per_user, tools }, problems }
    }
}

impl Config for Limits {
    fn problems(&self, _: &Settings) -> Vec<Problem> {
        self.problems.clone()
    }

    fn hash(&self) -> String {
        short_digest(&self.config)
    }

    fn render(&self, target: &Target, _: &Terms, document: &mut RunConfig) {
        document.rate_limit_config = Some(self.config.clone());
        document.rate_limit_namespace.clone_from(&target.namespace);
    }
}

/// The limit of a bucket.
fn read(path: &str, bucket: &RateLimitBucket) -> Result<RateLimit, Problem> {
    let problem = |member: &str, message: String| Problem::new(format!("{path}.{member}"), message);
    let max_tokens = u32::try_from(bucket.max_tokens).ok().filter(|tokens| *tokens > 0);
    let max_tokens = max_tokens.ok_or_else(|| problem("maxTokens", "is less than 1; write 1 or more".to_owned()))?;
    let text = &bucket.refill_period;
    let period = duration::parse(text).map_err(|error| problem("refillPeriod", error.to_string()))?;
    let period = u64::try_from(period).map(Duration::from_nanos).unwrap_or_default();
    if period.is_zero() || period > LONGEST_PERIOD {
        let message = format!("{text:?} is no period of at most a century; write one such as \"1m0s\"");
        return Err(problem("refillPeriod", message));
    }
    Ok(RateLimit { max_tokens, refill_period: period })
}
