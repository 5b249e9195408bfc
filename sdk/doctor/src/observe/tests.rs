//! How long is waited, what is counted, and what time it is, with an API server of our own.

use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response};
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

use super::*;
use crate::tests::subject;

fn nothing_is_there(clock: &str) -> Response<Body> {
    let status = json!({ "kind": "Status", "status": "Failure", "message": "none", "reason": "NotFound", "code": 404 });
    let answer = Response::builder().status(404).header("date", clock);
    answer.body(Body::from(status.to_string().into_bytes())).unwrap()
}

/// What the API server was asked, and when.
type Asked = Arc<Mutex<Vec<(String, Timestamp)>>>;

fn empty_cluster(asked: &Asked) -> Client {
    let asked = Arc::clone(asked);
    let answer = move |request: Request<Body>| {
        let now = Timestamp::now();
        asked.lock().unwrap().push((request.uri().path().to_owned(), now));
        std::future::ready(Ok::<_, Infallible>(nothing_is_there(
            &now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
        )))
    };
    Client::new(service_fn(answer), "default")
}

#[tokio::test(start_paused = true)]
async fn a_second_look_does_not_set_the_clocks_apart_and_every_request_is_counted() {
    let asked = Asked::default();
    let options = Options {
        watch: Some(Duration::from_mins(10)),
        probes: vec![json!({ "apiVersion": "shop.example/v1", "kind": "Order", "metadata": { "name": "a" } })],
        ..Options::default()
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let snapshot = Box::pin(observe(empty_cluster(&asked), provider, &subject(), &options)).await;
    let asked = asked.lock().unwrap();
    let (_, at) = asked.iter().rfind(|(path, _)| path.ends_with("/leases")).unwrap();
    assert!(snapshot.now <= *at, "{at}, {}", snapshot.now);
    let apart = snapshot.now.duration_since(snapshot.server_time.unwrap());
    assert!(apart.abs() < SignedDuration::from_secs(5), "{apart:#}");
    assert_eq!(snapshot.requests, asked.len(), "{asked:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_about_a_kind_is_not_waited_for() {
    let silent = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let reader = Reader::new(Client::new(silent, "default"));
    let object = json!({ "apiVersion": "shop.example/v1", "kind": "Order", "metadata": { "name": "a" } });
    let probes = tokio::time::timeout(Duration::from_mins(1), parts::probes(&reader, &[object])).await.unwrap();
    let said = "cannot discover Order in shop.example/v1: no answer within 10 s";
    assert_eq!(probes[0].refusal, Some((0, said.to_owned())));
    assert_eq!(reader.requests(), 1);
}
