//! The exchange of the caller's token for one of the MCP server's (RFC 8693).

mod config;
mod question;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request};
use mcp_http::{Body, TokenFile};
use mcp_middleware::{Fingerprint, RequestContext, bearer_token};
use mcp_store::Bound;

use self::question::Question;
use crate::asking::Asking;
use crate::failure::Failure;
use crate::held::Given;
use crate::strategy::{Applied, Strategy, replace};
use crate::token_endpoint::{TokenEndpoint, exchanged};

/// Exchanges callers' tokens. Clones are one.
#[derive(Clone)]
pub(crate) struct TokenExchange(Arc<Inner>);

struct Inner {
    question: Question,
    /// The header for the new token.
    header: HeaderName,
    endpoint: TokenEndpoint,
    actor: Option<TokenFile>,
    asking: Arc<Asking>,
}

impl Inner {
    async fn ask(&self, subject: &str) -> Result<Given, Failure> {
        let actor = self.actor.as_ref().map(TokenFile::read_token).transpose().map_err(Failure::Unusable)?;
        let answer = self.endpoint.post(self.question.form(subject, actor.as_deref())).await?;
        exchanged(&answer, subject, &self.question.audience)
    }
}

impl Strategy for TokenExchange {
    type Used = (Fingerprint, HeaderValue);

    fn apply<'a>(&'a self, mut request: Request<Body>, context: &'a RequestContext) -> Applied<'a, Self::Used> {
        async move {
            let subject = bearer_token(request.headers()).map_err(|_| Failure::NoToken)?;
            let key = context.token().unwrap_or_else(|| Fingerprint::of(subject));
            let ask = || {
                let (this, subject) = (Arc::clone(&self.0), subject.to_owned());
                async move { this.ask(&subject).await }
            };
            let token = self.0.asking.get(key, || context.client(), subject.len(), ask).await?;
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
        let Inner { endpoint, header, .. } = &*self.0;
        let (host, client_secret) = (endpoint.host(), endpoint.has_secret());
        tracing::info!(host, client_secret, %header, "callers' tokens are exchanged for those of the server");
        if endpoint.is_insecure() {
            tracing::warn!(host, "tokens are exchanged without TLS: anybody on the path can read and change them");
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        self.0.asking.bounds()
    }
}
