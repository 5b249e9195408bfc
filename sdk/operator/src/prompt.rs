//! A client with a deadline: each request is given up when no answer begins in time.

use std::time::Duration;

use kube::Client;
use kube::client::Body;
use portcullis_controller::BoxError;
use tokio::time::timeout;
use tower::service_fn;

/// The timeout until an answer begins. A busy API server has time to answer, and Leases have shorter limits of their
/// own.
const ANSWER: Duration = Duration::from_secs(10);

/// Returns a client that sends its requests by `client`, and gives up on one that gets no answer in 10 s.
///
/// A `client` may pause before an answer: kube's own repeats a request that is answered with 429, 503 or 504, with
/// pauses of up to 82 s in total or as long as `Retry-After` says. Leases and certificates cannot wait that long, and
/// their callers retry anyway.
pub(super) fn prompt_client(client: &Client) -> Client {
    let inner = client.clone();
    let send = move |request: http::Request<Body>| {
        let client = inner.clone();
        async move {
            let asked = format!("{} {}", request.method(), request.uri().path());
            let answer = timeout(ANSWER, client.send(request)).await;
            answer.map_err(|_| Unanswered { request: asked })?.map_err(BoxError::from)
        }
    };
    Client::new(service_fn(send), client.default_namespace())
}

/// A request that was given up.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s to {request}", ANSWER.as_secs())]
struct Unanswered {
    /// Method and path.
    request: String,
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::client::retry::RetryPolicy;
    use tower::ServiceBuilder;
    use tower::retry::RetryLayer;

    use super::*;

    /// A client with the retries of kube's own, whose API server asks to come again in an hour.
    fn put_off() -> Client {
        let answer = service_fn(|_: Request<Body>| async {
            let later = Response::builder().status(503).header("retry-after", "3600").body(Body::empty());
            Ok::<_, BoxError>(later.unwrap())
        });
        let retries = RetryLayer::new(RetryPolicy::server_retry());
        Client::new(ServiceBuilder::new().layer(retries).service(answer), "team")
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_an_hour_holds_nothing_up() {
        let client = prompt_client(&put_off());
        assert_eq!(client.default_namespace(), "team");
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let asked = timeout(Duration::from_mins(1), maps.get("one")).await.expect("the request is given up");
        let error = portcullis_client::error_chain(&asked.unwrap_err());
        assert!(error.ends_with("no answer within 10 s to GET /api/v1/namespaces/team/configmaps/one"), "{error}");
    }
}
