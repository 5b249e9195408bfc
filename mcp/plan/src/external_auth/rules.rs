//! The rules of a credential that its schema cannot say, in ToolHive's words where it has them (toolhive-auth §3.5).

use mcp_api::v1beta1::external_auth::{
    AwsSts, ExternalAuthSpec, ExternalAuthType, HeaderInjection, RoleMapping, TokenExchange, Xaa,
};

use mcp_matcher::Matcher;
use mcp_runconfig::{credential_header_problem, endpoint::EndpointPolicy, is_aws_service, token_type};

use super::{auth_server, blocks};
use crate::{
    oauth::{header_problem, scope_problems, url_problem},
    problem::Problem,
    reference::incomplete_key,
    settings::Settings,
};

/// Compiling a matcher costs time at admission, and each call tries all mappings. ToolHive has no such limit.
const MOST_MAPPINGS: usize = 64;

/// Every rule that the spec breaks; empty when workloads may refer to it.
pub fn problems(spec: &ExternalAuthSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (kind, is_there) in blocks::blocks(spec) {
        let fix = if is_there { "remove it" } else { "add it" };
        if is_there != (spec.kind == kind) {
            let message = format!(
                "{kind} configuration must be set if and only if type is '{kind}', which is '{}'; {fix}, or change spec.type",
                spec.kind
            );
            problems.push(Problem::new(format!("spec.{kind}"), message));
        }
    }
    for (field, secret, _) in blocks::secrets(spec) {
        problems.extend(incomplete_key(&secret.name, &secret.key).map(|message| Problem::new(field, message)));
    }
    problems.extend(spec.token_exchange.iter().flat_map(exchange));
    problems.extend(spec.header_injection.iter().filter_map(injection));
    problems.extend(spec.aws_sts.iter().flat_map(aws));
    problems.extend(spec.xaa.iter().flat_map(xaa));
    problems.extend(spec.embedded_auth_server.iter().flat_map(auth_server::problems));
    if spec.upstream_inject.as_ref().is_some_and(|it| it.provider_name.is_empty()) {
        let message = "upstreamInject requires a non-empty providerName; name a provider of the authorization server";
        problems.push(Problem::new("spec.upstreamInject.providerName", message));
    }
    if spec.kind == ExternalAuthType::Obo {
        problems
            .push(Problem::new("spec.type", "obo is not part of this operator; use tokenExchange, or another type"));
    }
    problems
}

/// The address that it makes a proxy call and that no proxy calls.
pub fn endpoint_problem(spec: &ExternalAuthSpec, settings: &Settings) -> Option<Problem> {
    let url = &spec.token_exchange.as_ref()?.token_url;
    let policy = EndpointPolicy::all_but_metadata(settings.exempt_endpoints.clone());
    let error = policy.check_url(url).err().filter(|_| url_problem(url, true).is_none())?;
    Some(Problem::new("spec.tokenExchange.tokenUrl", error.to_string()))
}

/// The parts that are valid and do less than their author may think: sentences.
pub fn warnings(spec: &ExternalAuthSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(exchange) = &spec.token_exchange {
        if exchange.token_url.to_ascii_lowercase().starts_with("http://") {
            warnings.push(
                "spec.tokenExchange.tokenUrl: tokens and the client's secret are sent in clear text; use https"
                    .to_owned(),
            );
        }
        if exchange.audience.is_empty() {
            let message = "is empty: the provider decides what the token opens; name the server";
            warnings.push(format!("spec.tokenExchange.audience: {message}"));
        }
        if exchange.subject_provider_name.is_some() {
            let message = "has no effect in this version: the caller's own token is exchanged";
            warnings.push(format!("spec.tokenExchange.subjectProviderName: {message}"));
        }
    }
    if spec.aws_sts.as_ref().is_some_and(|aws| aws.subject_provider_name.is_some()) {
        let message = "has no effect in this version: STS gets the caller's own token";
        warnings.push(format!("spec.awsSts.subjectProviderName: {message}"));
    }
    if spec.xaa.as_ref().is_some_and(|xaa| xaa.insecure_target_token_url == Some(true)) {
        warnings.push(
            "spec.xaa.insecureTargetTokenUrl: whoever is on the way reads the assertion and the token".to_owned(),
        );
    }
    warnings
}

fn exchange(exchange: &TokenExchange) -> Vec<Problem> {
    let field = |name: &str| format!("spec.tokenExchange.{name}");
    let mut problems = Vec::new();
    problems.extend(url_problem(&exchange.token_url, true).map(|it| Problem::new(field("tokenUrl"), it)));
    if exchange.client_secret_ref.is_some() && exchange.client_id.as_deref().is_none_or(str::is_empty) {
        let message = "ClientSecret cannot be provided without ClientID; set clientId as well, or remove this";
        problems.push(Problem::new(field("clientSecretRef"), message));
    }
    let header = exchange.external_token_header_name.as_deref().filter(|name| !name.is_empty());
    let reserved = |name: &str| Some(format!("{}; name another one", credential_header_problem(name)?));
    let header = header.and_then(|name| header_problem(name).or_else(|| reserved(name)));
    problems.extend(header.map(|message| Problem::new(field("externalTokenHeaderName"), message)));
    let kind = exchange.subject_token_type.as_deref().filter(|kind| !kind.is_empty() && token_type(kind).is_none());
    let invalid = |kind| format!("invalid subject token type: {kind:?}; write access_token, id_token or jwt");
    problems.extend(kind.map(|kind| Problem::new(field("subjectTokenType"), invalid(kind))));
    problems.extend(scope_problems(&field("scopes"), exchange.scopes.as_deref()));
    problems
}

fn injection(injection: &HeaderInjection) -> Option<Problem> {
    header_problem(&injection.header_name).map(|message| Problem::new("spec.headerInjection.headerName", message))
}

fn aws(aws: &AwsSts) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut broken = |field: &str, message: &str| problems.push(Problem::new(format!("spec.awsSts{field}"), message));
    if aws.region.is_empty() {
        broken(".region", "awsSts.region is required; write one such as eu-central-1");
    }
    if !is_aws_service(&aws.service) {
        broken(".service", "is no service of AWS; write the name by which signatures know it, as in aws-mcp");
    }
    let mappings = aws.role_mappings.as_deref().unwrap_or_default();
    if aws.fallback_role_arn.as_deref().is_none_or(str::is_empty) && mappings.is_empty() {
        broken("", "awsSts: at least one of fallbackRoleArn or roleMappings must be configured; add one");
    }
    if !(900..=43200).contains(&aws.session_duration) {
        broken(
            ".sessionDuration",
            "awsSts.sessionDuration must be between 900 and 43200 seconds; write a number of them",
        );
    }
    if mappings.len() > MOST_MAPPINGS {
        let message = format!("has {} mappings; keep {MOST_MAPPINGS} at most", mappings.len());
        broken(".roleMappings", &message);
    }
    for (at, RoleMapping { claim, matcher, .. }) in mappings.iter().enumerate().take(MOST_MAPPINGS) {
        let [claim, matcher] = [claim, matcher].map(|text| text.as_deref().filter(|text| !text.is_empty()));
        let field = format!(".roleMappings[{at}]");
        match (claim, matcher) {
            (None, None) => broken(&field, "exactly one of claim or matcher must be set; add one"),
            (Some(_), Some(_)) => broken(&field, "claim and matcher are mutually exclusive; remove one"),
            (Some(_), None) => {}
            (None, Some(text)) => {
                if let Err(problem) = Matcher::new(text) {
                    broken(&format!("{field}.matcher"), &problem);
                }
            }
        }
    }
    problems
}

fn xaa(xaa: &Xaa) -> Vec<Problem> {
    let field = |name: &str| format!("spec.xaa.{name}");
    let mut problems = Vec::new();
    problems.extend(url_problem(&xaa.idp_token_url, false).map(|it| Problem::new(field("idpTokenUrl"), it)));
    let insecure = xaa.insecure_target_token_url == Some(true);
    let target = url_problem(&xaa.target_token_url, insecure).map(|message| {
        let fix = if insecure { "" } else { ", or set insecureTargetTokenUrl: true for development only" };
        Problem::new(field("targetTokenUrl"), format!("{message}{fix}"))
    });
    problems.extend(target);
    if xaa.target_audience.is_empty() {
        problems.push(Problem::new(field("targetAudience"), "is empty; write the issuer of the target's provider"));
    }
    let clients = [
        ("idpClientId", &xaa.idp_client_id, "idpClientSecretRef", xaa.idp_client_secret_ref.is_some()),
        ("targetClientId", &xaa.target_client_id, "targetClientSecretRef", xaa.target_client_secret_ref.is_some()),
    ];
    for (id, client, secret, has_secret) in clients {
        let has_id = client.as_deref().is_some_and(|id| !id.is_empty());
        if has_id != has_secret {
            let message = format!("{id} and {secret} go together; set both, or neither");
            problems.push(Problem::new(field(if has_id { id } else { secret }), message));
        }
    }
    problems.extend(scope_problems(&field("scopes"), xaa.scopes.as_deref()));
    problems
}
