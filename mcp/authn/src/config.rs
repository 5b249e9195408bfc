//! The settings of the document, checked at the start: an error names the member and the fix.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use http::Uri;
use mcp_http::TokenFile;
use mcp_http::file::rooted;
use mcp_middleware::{BuildContext, BuildError, Secret, SecretSource};
use mcp_runconfig::OidcConfig;
use mcp_runconfig::endpoint::EndpointPolicy;

use crate::claims::Expected;
use crate::discovery;
use crate::fetch::Fetcher;
use crate::introspection::{Introspection, basic};
use crate::login::Login;
use crate::provider::Provider;
use crate::refusal::Challenge;

/// The login that `oidc` asks for.
///
/// # Errors
/// The member at fault.
pub(crate) fn login(oidc: &OidcConfig, context: &BuildContext) -> Result<Login, BuildError> {
    let error = |member: &str, problem: &str, fix: &str| {
        context.error(&format!("parameters.oidc_config.{member}"), problem, fix)
    };
    let issuer = &oidc.issuer;
    if issuer.is_empty() && oidc.jwks_url.is_empty() {
        return Err(error("Issuer", "and JWKSURL are empty", "name the provider whose tokens are taken"));
    }
    // ToolHive takes tokens for anybody then.
    if oidc.audience.trim().is_empty() {
        let fix = "name the audience that tokens for this server have; tokens for others must not open it";
        return Err(error("Audience", "is empty", fix));
    }
    let root = context.settings.files_root.as_deref();
    let relative = |member: &str| error(member, "is not an absolute path", "write one that begins with /");
    let fetcher = Arc::new(Fetcher {
        ca: written(&oidc.ca_cert_path)
            .map(|path| rooted(path, root).ok_or_else(|| relative("CACertPath")))
            .transpose()?,
        token_file: written(&oidc.auth_token_file)
            .map(|path| TokenFile::new(path, root).ok_or_else(|| relative("AuthTokenFile")))
            .transpose()?,
        allow_http: oidc.insecure_allow_http,
        policy: EndpointPolicy {
            egress: context.settings.egress.clone(),
            ..EndpointPolicy::new(oidc.allow_private_ip, context.settings.exempt_endpoints.clone())
        },
        provider: Arc::clone(&context.settings.provider),
        clients: Mutex::new(HashMap::new()),
    });
    if let Err(problem) = fetcher.token() {
        let fix = "mount the token there, or leave the member empty";
        return Err(error("AuthTokenFile", &problem.to_string(), fix));
    }
    let url = |member: &str, text: &str| -> Result<Uri, BuildError> {
        let fix = "write an https URL; with InsecureAllowHTTP, for development alone, http is taken too";
        let url = fetcher.url(text).map_err(|problem| error(member, &problem, fix))?;
        let fix = "mount the PEM certificates there, or leave the member empty for the system's";
        fetcher.client(&url).map_err(|problem| error("CACertPath", &problem.to_string(), fix))?;
        Ok(url)
    };
    if oidc.jwks_url.is_empty() {
        url("Issuer", &discovery::metadata_url(issuer))?;
    } else {
        url("JWKSURL", &oidc.jwks_url)?;
    }
    let secret = match oidc.client_secret.as_str() {
        "" => context.settings.oidc_client_secret.clone(),
        own => SecretSource::Given(Secret::new(own)),
    };
    let fix = "write it there, or into TOOLHIVE_OIDC_CLIENT_SECRET; leave both unset where there is none";
    let secret = secret.read().map_err(|problem| error("ClientSecret", &problem, fix))?;
    let secret = secret.filter(|_| !oidc.client_id.is_empty());
    let authorization = secret.and_then(|secret| basic(&oidc.client_id, secret.reveal()));
    let introspection = if oidc.introspection_url.is_empty() {
        None
    } else {
        let url = url("IntrospectionURL", &oidc.introspection_url)?;
        Some(Arc::new(Introspection::new(Arc::clone(&fetcher), url, authorization)))
    };
    let provider = Arc::new(Provider::new(fetcher, issuer, &oidc.jwks_url));
    let expected = Expected { issuer: issuer.clone(), audience: oidc.audience.clone() };
    Ok(Login::new(expected, provider, introspection, Challenge::of(oidc)))
}

/// A path; an empty one is the same as none.
fn written(path: &str) -> Option<&str> {
    if path.is_empty() { None } else { Some(path) }
}
