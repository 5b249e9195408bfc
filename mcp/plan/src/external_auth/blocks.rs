//! The blocks of a spec, one for each type, and the Secrets that they name.

use mcp_api::v1beta1::{
    SecretKeyRef,
    external_auth::{ExternalAuthSpec, ExternalAuthType},
};

use super::auth_server;
use crate::reference::{Content, Reference};

/// The effect of a Secret that does not exist: the end of a sentence.
const MISSING: &str = "until then the workloads that need it stay as they are";

/// The types that have a block, which is called as the type is, and whether the block is there.
pub(super) fn blocks(spec: &ExternalAuthSpec) -> [(ExternalAuthType, bool); 8] {
    [
        (ExternalAuthType::TokenExchange, spec.token_exchange.is_some()),
        (ExternalAuthType::HeaderInjection, spec.header_injection.is_some()),
        (ExternalAuthType::BearerToken, spec.bearer_token.is_some()),
        (ExternalAuthType::EmbeddedAuthServer, spec.embedded_auth_server.is_some()),
        (ExternalAuthType::AwsSts, spec.aws_sts.is_some()),
        (ExternalAuthType::UpstreamInject, spec.upstream_inject.is_some()),
        (ExternalAuthType::Obo, spec.obo.is_some()),
        (ExternalAuthType::Xaa, spec.xaa.is_some()),
    ]
}

/// The Secrets that it names, each after its field, with the use of the value, but for those of an authorization server: this version makes none, and
/// needs none of them.
pub(super) fn secrets(spec: &ExternalAuthSpec) -> Vec<(&'static str, &SecretKeyRef, Content)> {
    let exchange = spec.token_exchange.as_ref().and_then(|it| it.client_secret_ref.as_ref());
    let injected = spec.header_injection.as_ref().map(|it| &it.value_secret_ref);
    let token = spec.bearer_token.as_ref().map(|it| &it.token_secret_ref);
    let on_behalf = spec.obo.as_ref().and_then(|it| it.client_secret_ref.as_ref());
    let [at_idp, at_target] = [
        spec.xaa.as_ref().and_then(|it| it.idp_client_secret_ref.as_ref()),
        spec.xaa.as_ref().and_then(|it| it.target_client_secret_ref.as_ref()),
    ];
    let all = [
        ("spec.tokenExchange.clientSecretRef", exchange, Content::Bytes),
        ("spec.headerInjection.valueSecretRef", injected, Content::Header),
        ("spec.bearerToken.tokenSecretRef", token, Content::Token),
        ("spec.obo.clientSecretRef", on_behalf, Content::Bytes),
        ("spec.xaa.idpClientSecretRef", at_idp, Content::Bytes),
        ("spec.xaa.targetClientSecretRef", at_target, Content::Bytes),
    ];
    all.into_iter().filter_map(|(field, secret, content)| Some((field, secret?, content))).collect()
}

/// Everything that it refers to.
pub fn references(spec: &ExternalAuthSpec) -> Vec<Reference> {
    let secrets = secrets(spec).into_iter().map(|(field, it, _)| Reference::to_key(field, it));
    let of_server = spec.embedded_auth_server.iter().flat_map(auth_server::sources);
    let of_server = of_server.map(|(field, source)| Reference::to_source(field, &source));
    secrets.chain(of_server).map(|it| Reference { while_missing: MISSING, ..it }).collect()
}
