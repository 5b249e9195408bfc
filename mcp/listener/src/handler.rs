//! The handler of requests.

use bytes::Bytes;
use hyper::body::Body;
use hyper::{Request, Response};
use mcp_store::Client;
use portcullis_listener::BoxError;

use crate::body::RequestBody;

/// Handles requests.
pub trait Handler: Send + Sync + 'static {
    /// The body of responses: complete, or a stream.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static;

    /// Handles one request, which has its connection's [`Place`](crate::Place) as an extension. The future, and then the response body,
    /// is dropped when the client disconnects.
    fn handle(&self, request: Request<RequestBody>) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Returns the client that the request counts for, where its head tells another one than the connection does.
    fn client(&self, _request: &Request<RequestBody>) -> Option<Client> {
        None
    }

    /// Handles the request on a reserved connection, which was accepted while all others were busy, or of a client whose
    /// calls hold more than its share of the places meanwhile. It must answer at once, without real work.
    fn shed(&self, request: Request<RequestBody>) -> impl Future<Output = Response<Self::Body>> + Send;
}
