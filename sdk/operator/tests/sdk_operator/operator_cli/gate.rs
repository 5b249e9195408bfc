//! A way to the API server on which a test answers some requests itself.

use std::convert::Infallible;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use portcullis_testing::ControlPlane;
use serde_json::json;
use tokio::net::TcpListener;

/// The gate's answer in the place of the API server's.
pub(crate) enum Instead {
    Answer(Response<Body>),
    Silence,
}

/// Opens a gate until the test ends, and returns the kubeconfig of it. Requests reach the API server as this client's,
/// and as `instead` leaves them, unless it answers them.
pub(crate) async fn open(
    cluster: &ControlPlane,
    client: Client,
    instead: impl Fn(&mut Parts) -> Option<Instead> + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let instead = Arc::new(instead);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, instead) = (client.clone(), Arc::clone(&instead));
            let answer = service_fn(move |request: Request<Incoming>| {
                let (client, instead) = (client.clone(), Arc::clone(&instead));
                async move {
                    let (mut head, body) = request.into_parts();
                    match instead(&mut head) {
                        Some(Instead::Answer(answer)) => Ok::<_, Infallible>(answer),
                        Some(Instead::Silence) => std::future::pending().await,
                        None => Ok(pass(client, head, body).await),
                    }
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "gate",
        "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "none"}}],
        "clusters": [{"name": "gate", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "none", "user": {}}],
    });
    let file = cluster.directory().join(format!("gate-{}.kubeconfig", address.port()));
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file.display().to_string()
}

async fn pass(client: Client, head: Parts, body: Incoming) -> Response<Body> {
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    match client.send(Request::from_parts(head, Body::from(body))).await {
        Ok(answer) => answer,
        Err(error) => Response::builder().status(502).body(Body::from(error.to_string().into_bytes())).unwrap(),
    }
}
