//! A token that the proxy gets for itself, as a client of the remote server's provider (RFC 6749 §4.4, RFC 8707).

use std::sync::Arc;

use form_urlencoded::Serializer;
use http::HeaderValue;
use mcp_http::TokenFile;
use mcp_middleware::{BuildContext, BuildError, Fingerprint, Secret, SecretSource};
use mcp_runconfig::{RemoteAuthConfig, secret_identifier};
use mcp_store::{Bound, Client};

use crate::asking::Asking;
use crate::failure::Failure;
use crate::held::Given;
use crate::token_endpoint::{TokenEndpoint, granted, no_scope};

/// Parameters of a question that other members have, or the grant itself.
const OWN: [&str; 9] = [
    "grant_type",
    "client_id",
    "client_secret",
    "resource",
    "code",
    "code_verifier",
    "redirect_uri",
    "refresh_token",
    "assertion",
];

/// Gets the token that all callers share.
pub(crate) struct ClientCredentials {
    endpoint: Arc<TokenEndpoint>,
    form: String,
    audience: String,
    /// It keeps one token: whoever asks first pays for it, and all use it.
    asking: Arc<Asking>,
}

impl ClientCredentials {
    /// The client that `config` names.
    ///
    /// # Errors
    /// The member at fault, such as one that only a login of a person has.
    pub(crate) fn new(config: &RemoteAuthConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let error =
            |member: &str, problem: &str, fix: &str| context.error(&format!("parameters.{member}"), problem, fix);
        if *config == RemoteAuthConfig::default() {
            let fix = "write bearer_token, bearer_token_file, or client_id with client_secret_file and token_url";
            return Err(context.error("parameters", "names no token and no client", fix));
        }
        let of_a_person = [
            ("authorize_url", !config.authorize_url.is_empty()),
            ("callback_port", config.callback_port != 0),
            ("skip_browser", config.skip_browser),
            ("timeout", config.timeout.is_some()),
            ("use_pkce", config.use_pkce),
        ];
        if let Some((member, _)) = of_a_person.into_iter().find(|(_, is_there)| *is_there) {
            let problem = "is for a login of a person in a browser (authorization code), whom a proxy does not have";
            return Err(error(member, problem, "remove it, and name a client that may use client credentials"));
        }
        if config.client_id.is_empty() {
            let problem = "is empty, and a proxy does not register itself (RFC 7591)";
            return Err(error("client_id", problem, "register a client that may use client credentials, and name it"));
        }
        if let Some(at) = no_scope(&config.scopes) {
            return Err(error(&format!("scopes[{at}]"), "is no scope", "write printable ASCII without blanks"));
        }
        let scope = if config.scope_param_name.is_empty() { "scope" } else { &config.scope_param_name };
        if OWN.contains(&scope) {
            return Err(error("scope_param_name", "is a parameter of its own", "remove it"));
        }
        let mut parameters = config.oauth_params.keys();
        if let Some(name) = parameters.find(|name| OWN.contains(&&***name) || *name == scope || name.is_empty()) {
            let fix = "remove it; client_id, scopes and resource have members";
            return Err(error(&format!("oauth_params[{name}]"), "is not free to choose", fix));
        }
        let secret = client_secret(config, context)?;
        let endpoint = TokenEndpoint::new(&config.token_url, config.client_id.clone(), secret, context);
        // The metadata of an issuer are not looked up: a document names all that its proxy calls.
        let fix = "write the http or https URL of the provider's token endpoint";
        let endpoint = endpoint.map_err(|problem| error("token_url", &problem, fix))?;
        let audience = config.oauth_params.get("audience").cloned().unwrap_or_default();
        let asking = endpoint.asking(context);
        Ok(Self { endpoint: Arc::new(endpoint), form: form(config, scope), audience, asking })
    }

    /// The token, which counts for `client` where it is asked for now.
    pub(crate) async fn token(&self, client: Client) -> Result<HeaderValue, Failure> {
        let ask = || {
            let (endpoint, form, audience) = (Arc::clone(&self.endpoint), self.form.clone(), self.audience.clone());
            async move { ask(&endpoint, form, &audience).await }
        };
        self.asking.get(key(), || client, self.form.len(), ask).await
    }

    /// Forgets a token that the server does not take.
    pub(crate) async fn forget(&self, token: HeaderValue) {
        self.asking.forget(key(), token).await;
    }

    pub(crate) fn bounds(&self) -> Vec<Bound> {
        self.asking.bounds()
    }

    /// Logs where tokens come from.
    pub(crate) fn announce(&self) {
        let host = self.endpoint.host();
        tracing::info!(host, "the server is shown a token that this proxy gets as a client of the provider");
        if self.endpoint.is_insecure() {
            tracing::warn!(host, "the client's secret is sent without TLS: anybody on the path can read it");
        }
    }
}

async fn ask(endpoint: &TokenEndpoint, form: String, audience: &str) -> Result<Given, Failure> {
    granted(&endpoint.post(form).await?, audience)
}

/// The key of the one token.
fn key() -> Fingerprint {
    Fingerprint::of("")
}

fn form(config: &RemoteAuthConfig, scope: &str) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    let scopes = config.scopes.join(" ");
    let known = [(scope, &*scopes), ("resource", &*config.resource)];
    form.extend_pairs(known.into_iter().filter(|(_, value)| !value.is_empty()));
    form.extend_pairs(&config.oauth_params);
    form.finish()
}

/// The secret of the client: in a file, among the process's secrets, or in the document.
fn client_secret(config: &RemoteAuthConfig, context: &BuildContext) -> Result<SecretSource, BuildError> {
    let RemoteAuthConfig { client_secret: text, client_secret_file: path, .. } = config;
    let error = |member: &str, problem: String, fix: &str| context.error(&format!("parameters.{member}"), problem, fix);
    let (member, source, fix) = match (text.is_empty(), path.is_empty()) {
        (true, true) => {
            let problem = "is missing: a client without a secret gets no token of its own".to_owned();
            let fix = "mount the client's secret, and write the absolute path";
            return Err(error("client_secret_file", problem, fix));
        }
        (false, false) => {
            let problem = "stands beside client_secret".to_owned();
            return Err(error("client_secret_file", problem, "keep one of them"));
        }
        (false, true) => {
            let secret = match secret_identifier(text) {
                Some(identifier) => context.secret("parameters.client_secret", identifier)?,
                None => text,
            };
            let fix = "name a secret that holds it, as in NAME,target=client_secret";
            ("client_secret", SecretSource::Given(Secret::new(secret)), fix)
        }
        (true, false) => {
            let fix = "mount the client's secret there, and write the absolute path";
            let file = TokenFile::new(path, context.settings.files_root.as_deref());
            let file = file.ok_or_else(|| error("client_secret_file", "is not an absolute path".to_owned(), fix))?;
            ("client_secret_file", SecretSource::Named(file), fix)
        }
    };
    source.read().map_err(|problem| error(member, problem, fix))?;
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_the_scopes_the_resource_and_the_audience() {
        let config = RemoteAuthConfig {
            scopes: vec!["a".into(), "b".into()],
            resource: "https://mcp.example/mcp".into(),
            oauth_params: [("audience".into(), "tickets".into())].into(),
            ..RemoteAuthConfig::default()
        };
        let expected =
            "grant_type=client_credentials&scope=a+b&resource=https%3A%2F%2Fmcp.example%2Fmcp&audience=tickets";
        assert_eq!(form(&config, "scope"), expected);
        assert_eq!(form(&RemoteAuthConfig::default(), "scope"), "grant_type=client_credentials");
    }
}
