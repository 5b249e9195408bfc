//! A client whose requests carry the token of an account.

use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode, request};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

use crate::credentials::Credentials;
use crate::token::Token;

impl Credentials {
    /// Returns a client that acts under the account. It uses the connections of the anonymous client, and that one's
    /// default namespace. A request waits up to ten seconds for a token; without one it is not sent, and fails with a
    /// [`NoToken`](crate::NoToken) inside of [`kube::Error::Service`].
    pub fn client(&self) -> Client {
        let credentials = self.clone();
        let service = tower::service_fn(move |request| {
            let credentials = credentials.clone();
            async move { credentials.send(request).await }
        });
        Client::new(service, self.shared.anonymous.default_namespace())
    }

    /// Sends a request as the account. One that is refused with a 401 was not acted on: it is sent once more, with the
    /// token that was renewed because of that.
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (head, body) = request.into_parts();
        let again = body.try_clone();
        let (token, serial) = self.token().await?;
        let response = self.send_with(&token, head.clone(), body).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        self.refused(serial);
        let Some(body) = again else { return Ok(response) };
        let (token, serial) = self.token().await?;
        let response = self.send_with(&token, head, body).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.refused(serial);
        }
        Ok(response)
    }

    async fn send_with(&self, token: &Token, mut head: request::Parts, body: Body) -> kube::Result<Response<Body>> {
        head.headers.insert(AUTHORIZATION, token.header().clone());
        self.shared.anonymous.send(Request::from_parts(head, body)).await
    }
}
