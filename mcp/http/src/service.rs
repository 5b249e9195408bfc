//! The service that answers requests.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use tower::{Service, ServiceExt};

use crate::Body;

/// A service that answers every request: a transport. Clones share it, and a call needs none.
#[derive(Clone)]
pub struct BoxService(Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>);

impl BoxService {
    /// Boxes `service`, such as a [`tower::service_fn`].
    pub fn new<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        Self(Arc::new(move |request| service.clone().oneshot(request).map(|Ok(response)| response).boxed()))
    }

    /// Answers a request.
    pub fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        (self.0)(request)
    }
}

impl fmt::Debug for BoxService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxService").finish_non_exhaustive()
    }
}
