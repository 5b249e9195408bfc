//! The rules of an authorization server in a proxy that its schema cannot say (toolhive-auth §3.5, §5.11, toolhive-0.63 §2.4). This version
//! makes none; its object is judged all the same.

use std::collections::BTreeSet;

use mcp_api::v1beta1::auth_server::{DynamicRegistration, EmbeddedAuthServer, UpstreamProvider};
use serde_json::{Map, Value};

use crate::{problem::Problem, reference::Source};

/// The protocols of providers: the types, each with a block of its name.
const PROTOCOLS: [&str; 2] = ["oidc", "oauth2"];
/// Parameters of an authorization request that are the server's own.
const OF_AUTHORIZATION: [&str; 8] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
    "nonce",
];
/// Parameters of a token request that are the server's own.
const OF_TOKENS: [&str; 8] =
    ["grant_type", "code", "redirect_uri", "client_id", "client_secret", "code_verifier", "refresh_token", "scope"];
/// The longest URL of a registration.
const LONGEST_URL: usize = 2048;
/// The longest statement about the software.
const LONGEST_STATEMENT: usize = 16384;

/// Every rule that it breaks.
pub(super) fn problems(server: &EmbeddedAuthServer) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    for (at, provider) in server.upstream_providers.iter().flatten().enumerate() {
        let field = format!("spec.embeddedAuthServer.upstreamProviders[{at}]");
        if !names.insert(&*provider.name) {
            let message = format!("{:?} is the name of another provider as well; choose another", provider.name);
            problems.push(Problem::new(format!("{field}.name"), message));
        }
        problems.extend(of_provider(&field, provider));
    }
    problems
}

/// The Secrets and ConfigMaps that it names, each after its field.
pub(super) fn sources(server: &EmbeddedAuthServer) -> Vec<(String, Source)> {
    let mut found = Vec::new();
    find_sources(&serde_json::to_value(server).unwrap_or_default(), "spec.embeddedAuthServer", &mut found);
    found
}

/// Looks for the members that name one, by the names that they have.
fn find_sources(value: &Value, field: &str, found: &mut Vec<(String, Source)>) {
    let last = field.rsplit('.').next().and_then(|last| last.split('[').next()).unwrap_or_default();
    let name = || value["name"].as_str().unwrap_or_default().to_owned();
    match (last, value) {
        ("configMapName", Value::String(name)) => found.push((field.to_owned(), Source::ConfigMap(name.clone()))),
        ("configMapRef", Value::Object(_)) => found.push((field.to_owned(), Source::ConfigMap(name()))),
        (_, Value::Object(_)) if is_secret(last) => found.push((field.to_owned(), Source::Secret(name()))),
        (_, Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                find_sources(item, &format!("{field}[{at}]"), found);
            }
        }
        (_, Value::Object(members)) => {
            for (name, member) in members {
                find_sources(member, &format!("{field}.{name}"), found);
            }
        }
        _ => {}
    }
}

/// Whether a member of this name refers to a key of a Secret.
fn is_secret(name: &str) -> bool {
    name.ends_with("SecretRef") || name.ends_with("SecretRefs") || name == "initialAccessTokenRef"
}

fn of_provider(field: &str, provider: &UpstreamProvider) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (kind, members) = (provider.kind.as_str(), serde_json::to_value(provider).unwrap_or_default());
    let blocks = PROTOCOLS.map(|protocol| (protocol, format!("{protocol}Config")));
    if blocks.iter().any(|(protocol, block)| members[block].is_object() != (*protocol == kind)) {
        let message = format!("type is {kind:?}; set {kind}Config, and the block of no other type");
        problems.push(Problem::new(field, message));
    }
    for (_, block) in &blocks {
        for (list, own) in [("additionalAuthorizationParams", OF_AUTHORIZATION), ("additionalTokenParams", OF_TOKENS)] {
            let names = members[block][list].as_object().into_iter().flat_map(Map::keys);
            for name in names.filter(|name| own.contains(&name.as_str())) {
                let message = format!("{name:?} is set by the authorization server itself; remove it");
                problems.push(Problem::new(format!("{field}.{block}.{list}[{name}]"), message));
            }
        }
    }
    let Some(oauth2) = &provider.oauth2_config else { return problems };
    let field = format!("{field}.oauth2Config");
    let has_id = oauth2.client_id.as_deref().is_some_and(|id| !id.is_empty());
    if has_id == oauth2.dcr_config.is_some() {
        let message = "oauth2Config: exactly one of clientId or dcrConfig must be set; add or remove one";
        problems.push(Problem::new(&*field, message));
    }
    problems.extend(oauth2.dcr_config.iter().flat_map(|registration| of_registration(&field, registration)));
    if oauth2.identity_from_token.as_ref().is_some_and(|it| it.subject_path.is_empty()) {
        let message = "must not be empty when identityFromToken is set; write the path of the user's identifier";
        problems.push(Problem::new(format!("{field}.identityFromToken.subjectPath"), message));
    }
    problems
}

fn of_registration(field: &str, registration: &DynamicRegistration) -> Vec<Problem> {
    let field = format!("{field}.dcrConfig");
    let mut problems = Vec::new();
    let addresses = [
        ("discoveryUrl", registration.discovery_url.as_deref()),
        ("registrationEndpoint", registration.registration_endpoint.as_deref()),
    ];
    let addresses = addresses.map(|(name, url)| (name, url.filter(|url| !url.is_empty())));
    if addresses.iter().filter(|(_, url)| url.is_some()).count() != 1 {
        let message = "exactly one of discoveryUrl or registrationEndpoint must be set; add or remove one";
        problems.push(Problem::new(&*field, message));
    }
    let statement = ("softwareStatement", registration.software_statement.as_deref(), LONGEST_STATEMENT);
    let texts = addresses.into_iter().map(|(name, url)| (name, url, LONGEST_URL)).chain([statement]);
    for (name, text, longest) in texts {
        if let Some(length) = text.map(str::len).filter(|length| *length > longest) {
            let message = format!("has {length} bytes; write at most {longest}");
            problems.push(Problem::new(format!("{field}.{name}"), message));
        }
    }
    problems
}
