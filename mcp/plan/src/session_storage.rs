//! `spec.sessionStorage`: the Redis in which the replicas of a proxy keep their sessions, or the operator's default one.
//!
//! It is a setting: one that cannot be used is said in a condition, and leaves what runs as it is. Limits of calls are counted in the
//! Redis that the spec names alone.

use std::sync::Arc;

use mcp_api::v1beta1::{SecretKeyRef, SessionStorage, SessionStorageProvider};
use mcp_runconfig::{
    RunConfig, SessionRedis, SessionRedisTls, environment::SESSION_REDIS_PASSWORD, host_and_port, key_prefix_problem,
};

use crate::{
    config::{Config, ConfigUse, Needs, Requested, Role, SETTING_MISSING, Sessions, Target, Terms, Words},
    digest::short_digest,
    problem::Problem,
    reference::{Content, MountedFile, Reference, SECRET, SecretVariable, Source, incomplete_key},
    settings::{DefaultRedis, Settings},
};

/// Condition: the Redis for sessions can be used, where there is one.
pub const SESSION_STORAGE_READY: &str = "SessionStorageReady";

const FIELD: &str = "spec.sessionStorage";
/// The default in messages about a workload.
const DEFAULT: &str = "the operator's default Redis";

/// The words of conditions about them.
const WORDS: Words = Words {
    condition: SESSION_STORAGE_READY,
    valid: "SessionStorageValid",
    not_found: "SessionStorageInvalid",
    not_valid: "SessionStorageInvalid",
    data_not_found: "SessionStorageSecretNotFound",
    data_not_valid: "SessionStorageSecretInvalid",
    bundle: None,
};

/// Sessions in a Redis.
#[derive(Debug)]
struct Shared {
    redis: SessionRedis,
    password: Option<SecretKeyRef>,
    authorities: Option<SecretKeyRef>,
    problems: Vec<Problem>,
    /// The fields that name the two Secrets.
    fields: [&'static str; 2],
}

/// Every rule that a store of sessions breaks by a change of `old`: those that were stored before keep being admitted.
pub fn change_problems(old: Option<&SessionStorage>, new: Option<&SessionStorage>) -> Vec<Problem> {
    let changed = new.filter(|_| old != new).and_then(Shared::of_spec);
    changed.map(|shared| shared.problems).unwrap_or_default()
}

/// The operator's default Redis, where the workload leaves it to the operator where its sessions are, and there is a default.
pub fn inherited(asked: &Requested, settings: &Settings) -> Option<ConfigUse> {
    let default = settings.default_redis.as_ref().filter(|_| asked.sessions == Sessions::Open)?;
    Some(Shared::of_default(default).used(DEFAULT))
}

/// Whether the replicas of the workload's proxy share sessions.
pub fn is_shared(asked: &Requested, settings: &Settings) -> bool {
    match asked.sessions {
        Sessions::Own => false,
        Sessions::Named => true,
        Sessions::Open => settings.default_redis.is_some(),
    }
}

impl Requested {
    /// Adds the store of sessions that a spec names. A proxy that `is_alone` keeps its sessions itself, whatever the spec says.
    #[must_use]
    pub fn with_sessions(mut self, storage: Option<&SessionStorage>, is_alone: bool) -> Self {
        let shared = storage.and_then(Shared::of_spec);
        self.sessions = match storage {
            _ if is_alone => Sessions::Own,
            None => Sessions::Open,
            Some(_) if shared.is_some() => Sessions::Named,
            Some(_) => Sessions::Own,
        };
        self.uses.extend(shared.map(|shared| shared.used(FIELD)));
        self
    }
}

// === impl Shared ===

impl Shared {
    /// The Redis that a spec names; none where it names none.
    fn of_spec(spec: &SessionStorage) -> Option<Self> {
        if spec.provider != SessionStorageProvider::Redis {
            return None;
        }
        let tls = spec.tls.as_ref();
        let authorities = tls.and_then(|tls| tls.ca_cert_secret_ref.clone());
        let redis = SessionRedis {
            address: spec.address.clone().unwrap_or_default(),
            db: u32::try_from(spec.db).unwrap_or_default(),
            key_prefix: spec.key_prefix.clone().unwrap_or_default(),
            tls: tls.map(|tls| {
                let insecure_skip_verify = tls.insecure_skip_verify.unwrap_or_default();
                SessionRedisTls { insecure_skip_verify, ..SessionRedisTls::default() }
            }),
        };
        let fields = ["spec.sessionStorage.passwordRef", "spec.sessionStorage.tls.caCertSecretRef"];
        let mut problems = Vec::new();
        problems.extend(address_problem("spec.sessionStorage.address", &redis.address));
        let prefix = Some(&redis.key_prefix).filter(|prefix| !prefix.is_empty());
        let prefix = prefix.and_then(|prefix| key_prefix_problem(prefix));
        problems.extend(prefix.map(|problem| Problem::new("spec.sessionStorage.keyPrefix", problem.to_string())));
        Some(Self::new(redis, spec.password_ref.clone(), authorities, problems, fields))
    }

    /// The Redis that the operator was started with.
    fn of_default(DefaultRedis { address, password, tls, authorities }: &DefaultRedis) -> Self {
        let redis = SessionRedis {
            address: address.clone(),
            tls: tls.then(SessionRedisTls::default),
            ..SessionRedis::default()
        };
        let mut problems = Vec::new();
        problems.extend(address_problem("--default-redis-address", address));
        if authorities.is_some() && !tls {
            let message = "has no effect without TLS; set --default-redis-tls as well";
            problems.push(Problem::new("--default-redis-ca-secret", message));
        }
        let fields = ["--default-redis-secret", "--default-redis-ca-secret"];
        Self::new(redis, password.clone(), authorities.clone(), problems, fields)
    }

    fn new(
        mut redis: SessionRedis,
        password: Option<SecretKeyRef>,
        authorities: Option<SecretKeyRef>,
        mut problems: Vec<Problem>,
        fields: [&'static str; 2],
    ) -> Self {
        for (field, reference) in fields.into_iter().zip([&password, &authorities]) {
            let incomplete = reference.as_ref().and_then(|it| incomplete_key(&it.name, &it.key));
            problems.extend(incomplete.map(|message| Problem::new(field, message)));
        }
        if let Some((tls, reference)) = redis.tls.as_mut().zip(authorities.as_ref()) {
            tls.ca_cert_file = file(reference).path();
        }
        Self { redis, password, authorities, problems, fields }
    }

    fn used(self, field: &'static str) -> ConfigUse {
        ConfigUse { words: Some(WORDS), ..ConfigUse::inline(Role::Setting, field, Arc::new(self), &[]) }
    }

    fn secrets(&self) -> impl Iterator<Item = (&'static str, &SecretKeyRef)> {
        let all = self.fields.into_iter().zip([&self.password, &self.authorities]);
        all.filter_map(|(field, reference)| Some((field, reference.as_ref()?)))
    }
}

impl Config for Shared {
    fn problems(&self, _: &Settings) -> Vec<Problem> {
        self.problems.clone()
    }

    fn references(&self) -> Vec<Reference> {
        let secret = |(field, it): (&'static str, &SecretKeyRef)| Reference {
            while_missing: SETTING_MISSING,
            ..Reference::of_proxy(field, SECRET, &it.name).with_key(&it.key)
        };
        self.secrets().map(secret).collect()
    }

    fn hash(&self) -> String {
        short_digest(&(&self.redis, &self.password, &self.authorities))
    }

    fn needs(&self, _: &Target, _: &Terms) -> Needs {
        let password = self.password.iter().map(|it| SecretVariable {
            name: SESSION_REDIS_PASSWORD.into(),
            secret: it.name.clone(),
            key: it.key.clone(),
            content: Content::Bytes,
        });
        Needs { files: self.authorities.iter().map(file).collect(), secrets: password.collect(), ..Needs::default() }
    }

    fn render(&self, _: &Target, _: &Terms, document: &mut RunConfig) {
        document.scaling_config.get_or_insert_default().session_redis = Some(self.redis.clone());
    }
}

/// The authorities as a file of the proxy.
fn file(SecretKeyRef { name, key }: &SecretKeyRef) -> MountedFile {
    MountedFile {
        source: Source::Secret(name.clone()),
        key: key.clone(),
        content: Content::Authorities,
        volume: "session-redis-tls-ca".to_owned(),
        directory: "/etc/toolhive/session-redis-tls".to_owned(),
        file: "ca.crt".into(),
        optional: false,
    }
}

fn address_problem(field: &str, address: &str) -> Option<Problem> {
    host_and_port(address).err().map(|problem| Problem::new(field, problem.to_string()))
}
