//! Deadlines, the count of requests and the clock, with an API server of our own.

use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response};
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::tests::subject;

fn nothing_is_there(clock: &str) -> Response<Body> {
    let status = json!({ "kind": "Status", "status": "Failure", "message": "none", "reason": "NotFound", "code": 404 });
    let answer = Response::builder().status(404).header("date", clock);
    answer.body(Body::from(status.to_string().into_bytes())).unwrap()
}

/// The paths that the API server was asked for, and when.
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
async fn the_clock_is_the_api_servers_and_every_request_is_counted() {
    let asked = Asked::default();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let snapshot =
        Box::pin(observe(empty_cluster(&asked), &provider, &subject(), &Options::default(), Part::ALL)).await;
    let asked = asked.lock().unwrap();
    let (_, at) = asked.iter().find(|(path, _)| path == "/version").unwrap();
    // The API server's `Date` has no fractions of a second.
    assert!(snapshot.now.duration_since(*at).abs() < SignedDuration::from_secs(2), "{at}, {}", snapshot.now);
    assert_eq!(snapshot.requests, asked.len(), "{asked:#?}");
}

#[tokio::test]
async fn nothing_is_asked_for_that_no_check_reads() {
    let asked = Asked::default();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let parts = [Part::Jobs];
    Box::pin(observe(empty_cluster(&asked), &provider, &subject(), &Options::default(), &parts)).await;
    let asked: Vec<_> = asked.lock().unwrap().iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(asked, ["/apis/batch/v1/namespaces/shop-system/jobs", "/version"]);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_not_waited_for() {
    let silent = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = Client::new(silent, "default");
    let (subject, parts) = (subject(), [Part::Jobs]);
    let options = Options::default();
    let observed = Box::pin(observe(client, &provider, &subject, &options, &parts));
    let snapshot = tokio::time::timeout(Duration::from_mins(1), observed).await.unwrap();
    let said = "could not look: cannot list jobs in namespace shop-system: no answer within 10 s";
    assert_eq!(Part::Jobs.is_cut(&snapshot), Err(said.to_owned()));
    assert_eq!(snapshot.requests, 2);
}
