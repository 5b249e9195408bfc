//! The exchange of the caller's token for one of the MCP server's (RFC 8693).

mod answer;
mod config;
mod question;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{HeaderName, Request};
use mcp_http::client::Client as HttpClient;
use mcp_http::{Body, TokenFile};
use mcp_middleware::{RequestContext, SecretSource};
use mcp_store::Bound;

pub(crate) use self::answer::left;
use self::question::Question;
use crate::asking::{Asking, Names};
use crate::failure::Failure;
use crate::held::{Fingerprint, Given};
use crate::provider;
use crate::strategy::{Applied, Strategy, bearer, read_token, replace};

const NAMES: Names = Names {
    provider: "the token endpoint",
    failed: "a token was not exchanged",
    counter: ("token_exchanges", "Exchanges of callers' tokens at the provider, by their result"),
    given: "exchanged",
    questions: "token_exchanges",
    held: "exchanged_tokens",
};

/// Exchanges callers' tokens. Clones are one.
#[derive(Clone)]
pub(crate) struct TokenExchange(Arc<Inner>);

struct Inner {
    question: Question,
    /// The header for the new token.
    header: HeaderName,
    client_id: String,
    client_secret: SecretSource,
    actor: Option<TokenFile>,
    client: HttpClient,
    asking: Arc<Asking>,
}

impl Inner {
    async fn ask(&self, subject: &str) -> Result<Given, Failure> {
        let secret = self.client_secret.read().map_err(Failure::Unusable)?;
        let actor = self.actor.as_ref().map(read_token).transpose().map_err(Failure::Unusable)?;
        let mut headers = HeaderMap::new();
        let public = match secret {
            Some(secret) if !self.client_id.is_empty() => {
                headers.insert(AUTHORIZATION, question::basic(&self.client_id, secret.reveal())?);
                None
            }
            _ => Some(&*self.client_id).filter(|id| !id.is_empty()),
        };
        let form = self.question.form(subject, actor.as_deref(), public);
        let answer = provider::post(&self.client, headers, form, "application/json").await?;
        answer::read(&answer, subject, &self.question.audience)
    }
}

impl Strategy for TokenExchange {
    type Used = (Fingerprint, HeaderValue);

    fn apply<'a>(&'a self, mut request: Request<Body>, context: &'a RequestContext) -> Applied<'a, Self::Used> {
        async move {
            let subject = bearer(request.headers()).ok_or(Failure::NoToken)?;
            let key = Fingerprint::of(subject);
            let ask = || {
                let (this, subject) = (Arc::clone(&self.0), subject.to_owned());
                async move { this.ask(&subject).await }
            };
            let token = self.0.asking.get(key, context.client(), ask).await?;
            replace(request.headers_mut(), &self.0.header, token.clone());
            Ok((request, (key, token)))
        }
        .boxed()
    }

    /// The provider may have new keys, or have revoked it: the next call gets another one.
    fn refused(&self, (key, token): Self::Used) -> BoxFuture<'_, ()> {
        self.0.asking.forget(key, token).boxed()
    }

    fn announce(&self) {
        let Inner { client, header, .. } = &*self.0;
        let host = client.server().host().unwrap_or_default();
        tracing::info!(host, %header, "callers' tokens are exchanged for those of the server");
        if client.is_insecure() {
            tracing::warn!(host, "tokens are exchanged without TLS: anybody on the path can read and change them");
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        self.0.asking.bounds()
    }
}
