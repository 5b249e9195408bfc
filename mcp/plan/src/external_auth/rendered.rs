//! The part of the document that a proxy's credential is in, and what its process needs for it (toolhive-auth §3.2).

use std::borrow::Cow;

use mcp_api::v1beta1::{
    SecretKeyRef,
    external_auth::{AwsSts, ExternalAuthSpec, ExternalAuthType, TokenExchange},
};
use mcp_runconfig::{
    AwsStsConfig, MiddlewareConfig, RemoteAuthConfig, RoleMapping, RunConfig, TOKEN_INJECTION, TokenExchangeConfig,
    chain,
    environment::{SECRET_PREFIX, SECRETS_PROVIDER, TOKEN_EXCHANGE_CLIENT_SECRET, TOKEN_EXCHANGE_CLIENT_SECRET_FILE},
    is_header_of_credential, token_type,
};
use serde_json::Value;

use super::blocks::secrets;
use crate::{
    config::{Behind, Needs},
    reference::{Content, MountedFile, SecretVariable, Source},
    workload::proxy::variable,
};

/// The directory with the secret of the client that exchanges tokens.
const CLIENT: &str = "/etc/toolhive/token-exchange";

/// The needs of a proxy in front of this for the credential. Of a group, they are the Secrets that its server reads.
pub fn needs(spec: &ExternalAuthSpec, behind: Behind) -> Needs {
    if behind == Behind::Group {
        let all = secrets(spec).into_iter().map(|(field, it, content)| named(field, it, content));
        return Needs { secrets: all.collect(), ..Needs::default() };
    }
    match spec.kind {
        ExternalAuthType::TokenExchange => {
            let secret = spec.token_exchange.as_ref().and_then(|it| it.client_secret_ref.as_ref());
            secret.map(client).unwrap_or_default()
        }
        ExternalAuthType::BearerToken => {
            let secret = spec.bearer_token.as_ref().map(|it| &it.token_secret_ref);
            let secret = secret.map(|it| named(format!("{SECRET_PREFIX}{}", it.name), it, Content::Token));
            Needs {
                secrets: secret.into_iter().collect(),
                variables: vec![variable(SECRETS_PROVIDER, "environment")],
                ..Needs::default()
            }
        }
        _ => Needs::default(),
    }
}

fn named(name: impl Into<Cow<'static, str>>, it: &SecretKeyRef, content: Content) -> SecretVariable {
    SecretVariable { name: name.into(), secret: it.name.clone(), key: it.key.clone(), content }
}

/// The secret of the client that exchanges tokens, twice: as ToolHive's proxies read it, at their start, and as a file, which ours read for each
/// exchange. Another value needs no new pods, so the variable is not among the [`secrets`](Needs::secrets).
fn client(it: &SecretKeyRef) -> Needs {
    let file = MountedFile {
        source: Source::Secret(it.name.clone()),
        key: it.key.clone(),
        content: Content::Bytes,
        volume: "token-exchange-client".to_owned(),
        directory: CLIENT.to_owned(),
        file: "client-secret".into(),
        optional: false,
    };
    let given = named(TOKEN_EXCHANGE_CLIENT_SECRET, it, Content::Bytes).variable();
    let current = variable(TOKEN_EXCHANGE_CLIENT_SECRET_FILE, &file.path());
    Needs { files: vec![file], variables: vec![given, current], ..Needs::default() }
}

/// Puts the credential into the document of a proxy.
pub fn render(spec: &ExternalAuthSpec, document: &mut RunConfig) {
    match spec.kind {
        ExternalAuthType::TokenExchange => document.token_exchange_config = spec.token_exchange.as_ref().map(exchange),
        ExternalAuthType::BearerToken => {
            let token = spec.bearer_token.as_ref().map(|it| &it.token_secret_ref.name);
            document.remote_auth_config = token.map(|name| RemoteAuthConfig::bearer(name));
        }
        ExternalAuthType::AwsSts => document.aws_sts_config = spec.aws_sts.as_ref().map(aws),
        _ => {}
    }
}

/// The first of these headers that the credential goes into as well.
pub fn credential_in<'a>(spec: &ExternalAuthSpec, headers: &'a [String]) -> Option<&'a str> {
    let mut document = RunConfig::default();
    render(spec, &mut document);
    // The one that no chain lists.
    let token = document.remote_auth_config.as_ref().map(|_| MiddlewareConfig::new(TOKEN_INJECTION, Value::Null));
    let entries: Vec<_> = chain::of(&document).into_iter().chain(token).collect();
    let is_own = |name: &&String| entries.iter().any(|entry| is_header_of_credential(entry, name));
    headers.iter().find(is_own).map(String::as_str)
}

fn exchange(exchange: &TokenExchange) -> TokenExchangeConfig {
    let header = exchange.external_token_header_name.clone().unwrap_or_default();
    let kind = exchange.subject_token_type.as_deref().filter(|kind| !kind.is_empty());
    TokenExchangeConfig {
        token_url: exchange.token_url.clone(),
        client_id: exchange.client_id.clone().unwrap_or_default(),
        // The environment has it.
        client_secret: String::new(),
        audience: exchange.audience.clone(),
        scopes: exchange.scopes.clone().unwrap_or_default(),
        subject_token_type: kind.and_then(token_type).unwrap_or_default(),
        header_strategy: if header.is_empty() { "replace" } else { "custom" }.to_owned(),
        external_token_header_name: header,
    }
}

fn aws(aws: &AwsSts) -> AwsStsConfig {
    let mappings = aws.role_mappings.iter().flatten().map(|mapping| RoleMapping {
        claim: mapping.claim.clone().unwrap_or_default(),
        matcher: mapping.matcher.clone().unwrap_or_default(),
        role_arn: mapping.role_arn.clone(),
        priority: mapping.priority.map(i64::from),
    });
    AwsStsConfig {
        region: aws.region.clone(),
        service: aws.service.clone(),
        fallback_role_arn: aws.fallback_role_arn.clone().unwrap_or_default(),
        role_mappings: mappings.collect(),
        role_claim: aws.role_claim.clone(),
        session_duration: u32::try_from(aws.session_duration).unwrap_or_default(),
        session_name_claim: aws.session_name_claim.clone(),
        subject_provider_name: aws.subject_provider_name.clone().unwrap_or_default(),
    }
}
