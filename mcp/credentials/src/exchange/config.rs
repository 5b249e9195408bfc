//! The settings that the document asks for, checked at the start: an error names the member and the fix.

use std::sync::Arc;

use http::{HeaderName, header::AUTHORIZATION};
use mcp_http::TokenFile;
use mcp_middleware::{BuildContext, BuildError, Secret, SecretSource};
use mcp_runconfig::{TokenExchangeConfig, TokenExchangeParameters, credential_header_problem, token_type};

use super::question::Question;
use super::{Inner, TokenExchange};
use crate::Provided;
use crate::token_endpoint::{TokenEndpoint, no_scope};

const CONFIG: &str = "parameters.token_exchange_config";

impl TokenExchange {
    /// The exchange that `parameters` ask for.
    ///
    /// # Errors
    /// The member at fault.
    pub(crate) fn new(
        parameters: TokenExchangeParameters,
        provided: &Provided,
        context: &BuildContext,
    ) -> Result<Self, BuildError> {
        let Some(config) = parameters.token_exchange_config else {
            return Err(context.error(CONFIG, "is missing", "name the provider that exchanges tokens"));
        };
        let error = |member: &str, problem: &str, fix: &str| context.error(&format!("{CONFIG}.{member}"), problem, fix);
        let header = header(&config).map_err(|(member, problem, fix)| error(member, &problem, fix))?;
        let Some(subject_type) = token_type(&config.subject_token_type) else {
            let problem = format!("{:?} is no type of a subject's token", config.subject_token_type);
            return Err(error("subject_token_type", &problem, "write access_token, id_token or jwt"));
        };
        if let Some(at) = no_scope(&config.scopes) {
            return Err(error(&format!("scopes[{at}]"), "is no scope", "write printable ASCII without blanks"));
        }
        let client_secret = client_secret(&config, provided);
        match client_secret.read() {
            Ok(Some(_)) if config.client_id.is_empty() => {
                return Err(error(
                    "client_id",
                    "is empty, and there is a secret",
                    "name the client whose secret it is",
                ));
            }
            Ok(_) => {}
            Err(problem) => {
                return Err(error(
                    "client_secret",
                    &problem,
                    "write the secret into the variable or the file that has it",
                ));
            }
        }
        let actor = actor(provided, context)?;
        let endpoint = TokenEndpoint::new(&config.token_url, config.client_id, client_secret, context);
        let fix = "write the http or https URL of the provider's token endpoint";
        let endpoint = endpoint.map_err(|problem| error("token_url", &problem, fix))?;
        let question = Question { subject_type, audience: config.audience, scopes: config.scopes };
        let asking = endpoint.asking(context);
        Ok(Self(Arc::new(Inner { question, header, endpoint, actor, asking })))
    }
}

/// The header for the new token; or the member at fault, what is wrong with it, and the fix.
fn header(config: &TokenExchangeConfig) -> Result<HeaderName, (&'static str, String, &'static str)> {
    let TokenExchangeConfig { header_strategy, external_token_header_name: name, .. } = config;
    let member = "external_token_header_name";
    match &**header_strategy {
        "" | "replace" => Ok(AUTHORIZATION),
        "custom" if name.is_empty() => {
            Err((member, "is empty, and header_strategy is custom".to_owned(), "name the header"))
        }
        "custom" => match name.parse() {
            Ok(header) => match credential_header_problem(name) {
                Some(problem) => Err((member, problem, "name another one")),
                None => Ok(header),
            },
            Err(_) => Err((member, "is not the name of a header".to_owned(), "use letters, digits and -")),
        },
        other => Err(("header_strategy", format!("{other:?} is not known"), "write replace or custom")),
    }
}

fn client_secret(config: &TokenExchangeConfig, provided: &Provided) -> SecretSource {
    match &*config.client_secret {
        "" => provided.client_secret.clone(),
        own => SecretSource::Given(Secret::new(own)),
    }
}

fn actor(provided: &Provided, context: &BuildContext) -> Result<Option<TokenFile>, BuildError> {
    let path = &*provided.actor_token_file;
    if path.is_empty() {
        return Ok(None);
    }
    let error = |problem: String| {
        let fix = "mount the token of the proxy's ServiceAccount there, or remove it";
        let mut error = context.error("", problem, fix);
        "portcullis.actor_token_file".clone_into(&mut error.field);
        error
    };
    let file = TokenFile::new(path, context.settings.files_root.as_deref());
    let file = file.ok_or_else(|| error("is not an absolute path".to_owned()))?;
    file.read_token().map_err(error)?;
    Ok(Some(file))
}
