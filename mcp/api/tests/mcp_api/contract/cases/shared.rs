//! Blocks that several kinds have.

use serde_json::{Value, json};

use super::{Block, Case, with, wrap};
use crate::contract::document::merge;

/// `authzConfig` and `authzConfigRef` of `parent`.
pub(super) fn authz(parent: &Block) -> Vec<Case> {
    let config = parent.at(".authzConfig");
    let policies = json!({"policies": ["permit(principal, action, resource);"]});
    vec![
        parent.case(
            "",
            "authzConfig and authzConfigRef are mutually exclusive; use authzConfigRef to reference a shared MCPAuthzConfig",
            json!({"authzConfigRef": {"name": "policies"}}),
            json!({"authzConfigRef": {"name": "policies"}, "authzConfig": {"configMap": {"name": "policies"}}}),
        ),
        config.case(
            "",
            "configMap must be set when type is 'configMap', and must not be set otherwise",
            json!({"type": "configMap", "configMap": {"name": "policies"}}),
            json!({"type": "configMap"}),
        ),
        config.case(
            "",
            "inline must be set when type is 'inline', and must not be set otherwise",
            json!({"type": "inline", "inline": policies}),
            json!({"configMap": {"name": "policies"}, "inline": policies}),
        ),
    ]
}

/// `caBundleRef` of `parent`.
pub(super) fn ca_bundle(parent: &Block) -> Vec<Case> {
    let bundle = |name: &str| json!({"configMapRef": {"name": name, "key": "ca.crt"}});
    vec![parent.at(".caBundleRef").case(
        "",
        "configMapRef.name is required and must be non-empty",
        bundle("provider-ca"),
        bundle(""),
    )]
}

/// A `rateLimiting` at `path`; its counts are kept in the Redis of `spec.sessionStorage`.
pub(super) fn rate_limiting(kind: &'static str, path: &str) -> Vec<Case> {
    let bucket = json!({"maxTokens": 10, "refillPeriod": "1m0s"});
    let case = |below: &str, rule, admitted: Value, refused: Value| {
        let [admitted, refused] = [admitted, refused].map(|limits| {
            let mut object = json!({"spec": {"sessionStorage": {"provider": "redis", "address": "redis:6379"}}});
            merge(&mut object, &wrap(path, limits));
            object
        });
        Case { kind, path: format!("{path}{below}"), rule, admitted, refused }
    };
    vec![
        case(
            "",
            "at least one of shared, perUser, or tools must be configured",
            json!({"shared": bucket}),
            json!({"tools": []}),
        ),
        case(
            ".tools[]",
            "at least one of shared or perUser must be configured",
            json!({"tools": [{"name": "fetch", "shared": bucket}]}),
            json!({"tools": [{"name": "fetch"}]}),
        ),
    ]
}

/// `sessionStorage` of `parent`.
pub(super) fn session_storage(parent: &Block) -> Vec<Case> {
    let storage = parent.at(".sessionStorage");
    let redis = json!({"provider": "redis", "address": "redis:6379"});
    let ca = json!({"name": "redis-ca", "key": "ca.crt"});
    vec![
        storage.case("", "address is required", json!({"provider": "memory"}), json!({"provider": "redis"})),
        storage.case(
            "",
            "tls is only supported when provider is redis",
            with(&redis, "tls", json!({})),
            json!({"provider": "memory", "tls": {}}),
        ),
        storage.case(
            "",
            "tls.insecureSkipVerify disables certificate verification, so tls.caCertSecretRef would be ignored; set only one",
            with(&redis, "tls", json!({"caCertSecretRef": ca, "insecureSkipVerify": false})),
            with(&redis, "tls", json!({"caCertSecretRef": ca, "insecureSkipVerify": true})),
        ),
        storage.case(
            "",
            "tls.caCertSecretRef requires a non-empty name and key",
            with(&redis, "tls", json!({"caCertSecretRef": ca})),
            with(&redis, "tls", json!({"caCertSecretRef": {"name": "redis-ca", "key": ""}})),
        ),
    ]
}
