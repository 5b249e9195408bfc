//! The proxy's own bearer token at a remote server, the same for every caller (toolhive-auth §6.6).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use http::header::{AUTHORIZATION, HeaderValue};
use http::{HeaderName, Request};
use mcp_http::{Body, TokenFile};
use mcp_middleware::{BuildContext, BuildError, RequestContext};
use mcp_runconfig::{RemoteAuthConfig, secret_identifier};
use mcp_store::Bound;

use crate::client_credentials::ClientCredentials;
use crate::failure::{Failure, LOGIN_STEP};
use crate::strategy::{Applied, Strategy, bearer_value, replace};

/// The pause between two readings of the file, at least: kubelet replaces it long before its token expires.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Shows the server one token.
pub(crate) enum Bearer {
    /// It was given at the start.
    Given(HeaderValue),
    /// It is what a file holds now.
    File {
        file: TokenFile,
        /// When that was read, and what it held.
        read: Mutex<(Instant, HeaderValue)>,
    },
    /// A provider gives it.
    Granted(ClientCredentials),
}

impl Bearer {
    /// The token that `config` names.
    ///
    /// # Errors
    /// The member at fault.
    pub(crate) fn new(config: &RemoteAuthConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let RemoteAuthConfig { bearer_token: token, bearer_token_file: path, .. } = config;
        let error =
            |member: &str, problem: String, fix: &str| context.error(&format!("parameters.{member}"), problem, fix);
        match (token.is_empty(), path.is_empty()) {
            (true, true) => return ClientCredentials::new(config, context).map(Self::Granted),
            (false, false) => {
                let problem = "stands beside bearer_token".to_owned();
                return Err(error("bearer_token_file", problem, "keep one of them"));
            }
            (false, true) | (true, false) => {}
        }
        let of_client = [
            ("client_secret", &config.client_secret),
            ("client_secret_file", &config.client_secret_file),
            ("token_url", &config.token_url),
        ];
        if let Some((member, _)) = of_client.into_iter().find(|(_, text)| !text.is_empty()) {
            let problem = "asks for a token of a provider, and there is one already".to_owned();
            return Err(error(member, problem, "keep the token, or the client that gets one"));
        }
        if path.is_empty() {
            let token = match secret_identifier(token) {
                Some(identifier) => context.secret("parameters.bearer_token", identifier)?,
                None => token.trim_end_matches(['\r', '\n']),
            };
            let value = value(token).map_err(|problem| {
                error(
                    "bearer_token",
                    problem,
                    "name a secret that holds a token on one line, as in NAME,target=bearer_token",
                )
            });
            return value.map(Self::Given);
        }
        let fix = "mount the token there, and write the absolute path";
        let file = TokenFile::new(path, context.settings.files_root.as_deref());
        let file = file.ok_or_else(|| error("bearer_token_file", "is not an absolute path".to_owned(), fix))?;
        let held = read(&file).map_err(|problem| error("bearer_token_file", problem, fix))?;
        Ok(Self::File { file, read: Mutex::new((Instant::now(), held)) })
    }

    async fn token(&self, context: &RequestContext) -> Result<HeaderValue, Failure> {
        match self {
            Self::Given(token) => Ok(token.clone()),
            Self::File { file, read } => {
                let mut held = read.lock().unwrap_or_else(PoisonError::into_inner);
                if held.0.elapsed() >= READ_EVERY {
                    *held = (Instant::now(), self::read(file).map_err(Failure::Unusable)?);
                }
                Ok(held.1.clone())
            }
            Self::Granted(client) => client.token(context.client()).await,
        }
    }
}

fn read(file: &TokenFile) -> Result<HeaderValue, String> {
    file.read_token().and_then(|token| value(&token)).map_err(|problem| format!("the token {problem}"))
}

/// The value of the header with a token.
fn value(token: &str) -> Result<HeaderValue, String> {
    bearer_value(token).ok_or_else(|| "is no word of visible ASCII characters".to_owned())
}

impl Strategy for Bearer {
    type Used = HeaderValue;
    const STEP: &'static str = LOGIN_STEP;

    fn apply<'a>(&'a self, mut request: Request<Body>, context: &'a RequestContext) -> Applied<'a, HeaderValue> {
        const HEADER: HeaderName = AUTHORIZATION;
        async move {
            let token = self.token(context).await?;
            replace(request.headers_mut(), &HEADER, token.clone());
            Ok((request, token))
        }
        .boxed()
    }

    /// Only a provider has another one.
    fn refused(&self, token: HeaderValue) -> BoxFuture<'_, ()> {
        match self {
            Self::Given(_) | Self::File { .. } => ready(()).boxed(),
            Self::Granted(client) => client.forget(token).boxed(),
        }
    }

    fn announce(&self) {
        if let Self::Granted(client) = self {
            client.announce();
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        match self {
            Self::Given(_) | Self::File { .. } => Vec::new(),
            Self::Granted(client) => client.bounds(),
        }
    }
}
