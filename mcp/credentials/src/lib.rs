//! Credentials that a proxy shows its MCP server in place of the caller's token: the middleware `tokenexchange`, `awssts` and `oauth-token-injection`
//! (toolhive-auth §6.1, §6.3, §6.6).
//!
//! A strategy puts a credential into a request, or says why there is none. One middleware runs each of them, innermost, behind the last guard: a call
//! that a guard refuses asks nobody for a credential. Without a credential the request does not go on, and never with the caller's own in its place.
//!
//! An exchange (RFC 8693) is kept until a little before the new token expires, by the token of the caller alone: who has no valid token gets
//! nothing that was exchanged for another one. Calls that need the same exchange wait for one question to the provider. A token that the proxy
//! gets for itself, by its own client's credentials, is kept in the same way, for all callers; and so is a session of a role of AWS, with which the
//! transport signs what it sends.
//!
//! ```
//! use mcp_credentials::Provided;
//! use mcp_middleware::Registry;
//!
//! let mut registry = Registry::default();
//! mcp_credentials::register(&mut registry, &Provided::default());
//! assert!(registry.kinds().eq(["awssts", "oauth-token-injection", "tokenexchange"]));
//! ```

mod asking;
mod aws;
mod bearer;
mod client_credentials;
mod exchange;
mod failure;
mod held;
mod provider;
mod strategy;
#[cfg(test)]
mod tests;
mod token_endpoint;

use std::future::ready;

use mcp_middleware::{Registry, SecretSource};
use mcp_runconfig::{AWS_STS, RemoteAuthConfig, TOKEN_EXCHANGE, TOKEN_INJECTION};

use self::aws::AwsRoles;
use self::bearer::Bearer;
use self::exchange::TokenExchange;
pub use self::failure::NoCredential;
use self::strategy::Credentials;

/// The things that a proxy was given beside its document.
#[derive(Clone, Debug, Default)]
pub struct Provided {
    /// The secret of the client that exchanges tokens, for documents without a `client_secret`. That of a file is used when it has changed.
    pub client_secret: SecretSource,
    /// The path of a file with the token of the actor, who exchanges tokens on behalf of their subjects. It is read for each exchange. Empty: no
    /// actor is named.
    pub actor_token_file: String,
}

/// Adds the middleware to `registry`.
pub fn register(registry: &mut Registry, provided: &Provided) {
    let provided = provided.clone();
    registry.register(TOKEN_EXCHANGE, move |parameters, context| {
        let strategy = TokenExchange::new(parameters, &provided, &context);
        ready(strategy.and_then(|strategy| Credentials::new(TOKEN_EXCHANGE, strategy, &context)))
    });
    registry.register(AWS_STS, |parameters, context| {
        let strategy = AwsRoles::new(parameters, &context);
        ready(strategy.and_then(|strategy| Credentials::new(AWS_STS, strategy, &context)))
    });
    registry.register(TOKEN_INJECTION, |config: RemoteAuthConfig, context| {
        let strategy = Bearer::new(&config, &context);
        ready(strategy.and_then(|strategy| Credentials::new(TOKEN_INJECTION, strategy, &context)))
    });
}
