//! Remote servers of the HTTP+SSE transport, behind TLS.

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::support::{Issuer, Recorder, Runner, SdkClient, Server, Signer, TlsFront, within};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

async fn runner(front: &TlsFront, path: &str, members: &Value) -> Runner {
    let mut members = members.clone();
    members["transport"] = "sse".into();
    Runner::remote(front, path, "127.0.0.0/8", &members, &[]).await
}

#[tokio::test]
async fn a_real_server_behind_tls_serves_clients_of_the_sdk_at_the_path_of_its_url() {
    let mut server = Server::node_sse().await;
    let front = TlsFront::before(server.address).await;
    let runner = runner(&front, "/sse", &json!({})).await;
    let url = format!("http://{}/weather/sse", runner.address);
    let (mut one, mut other) = (SdkClient::connect(&url).await, SdkClient::connect(&url).await);
    let answers =
        tokio::join!(one.call("echo", json!({"message": "one"})), other.call("echo", json!({"message": "other"})));
    assert_eq!(answers, ("Echo: one".to_owned(), "Echo: other".to_owned()));
    server.kill().await;
    server.start().await;
    let mut next = SdkClient::connect(&url).await;
    assert_eq!(next.call("echo", json!({"message": "next"})).await, "Echo: next");
}

#[tokio::test]
async fn messages_go_where_the_server_said_and_nowhere_else() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let runner = runner(&front, "/v1/sse?key=v", &json!({"endpoint_prefix": "/weather"})).await;
    for (named, shown, place) in [
        ("messages?key=v&sessionId=a", "/weather/v1/messages?sessionId=a", "/v1/messages?key=v&sessionId=a"),
        ("https://elsewhere.example/m?sessionId=b", "/weather/m?sessionId=b", "/m?key=v&sessionId=b"),
        ("?sessionId=c", "/weather/v1/sse?sessionId=c", "/v1/sse?key=v&sessionId=c"),
    ] {
        let get = runner.build(Method::GET, "/admin?key=w", &[("accept", "text/event-stream")], "");
        let (mut client, stream) = tokio::join!(runner.send(get), async {
            let mut request = backend.next().await;
            assert!(request.head.starts_with("GET /v1/sse?key=v HTTP/1.1\r\n"), "{}", request.head);
            request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
            request.part(&format!("event: endpoint\ndata: {named}\n\n")).await;
            request
        });
        let frame = within("the endpoint", client.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(String::from_utf8_lossy(&frame), format!("event: endpoint\ndata: {shown}\n\n"));
        let (path, session) = shown.split_once('?').unwrap();
        let asked = format!("{}?{session}", path.strip_prefix("/weather").unwrap());
        for target in [asked, format!("/admin?{session}&key=w&x=1")] {
            let post = runner.request(Method::POST, &target, &JSON, PING);
            let (answer, ()) = tokio::join!(post, async {
                let request = backend.next().await;
                assert!(request.head.starts_with(&format!("POST {place} HTTP/1.1\r\n")), "{target}: {}", request.head);
                assert_eq!(request.header("host"), Some(&*front.address.to_string()));
                assert_eq!((request.header("x-forwarded-host"), &*request.body), (None, PING.as_bytes()));
                request.answer("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
            });
            assert_eq!(answer.status, 202, "{target}: {answer:?}");
        }
        drop(client);
        stream.left().await;
    }
    for target in ["/v1/messages", "/v1/messages?sessionId=d", "/v1/sse"] {
        let answer = runner.request(Method::POST, target, &JSON, PING).await;
        assert_eq!(answer.status, 404, "{target}: {answer:?}");
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn behind_a_login_a_remote_server_has_no_say_in_where_callers_log_in() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let runner = runner(&front, "/sse", &json!({"oidc_config": issuer.login(&json!({}))})).await;
    let token = format!("Bearer {}", signer.sign("ES256", &issuer.claims("alice")));
    let headers = [("authorization", &*token)];
    let get = runner.request(Method::GET, "/sse", &headers, "");
    let (answer, ()) = tokio::join!(get, async {
        let challenge = "www-authenticate: Bearer resource_metadata=\"https://evil.example/\"\r\n";
        backend.next().await.json("401 Unauthorized", challenge, "{}").await;
    });
    assert_eq!((answer.status, answer.header("www-authenticate")), (502, None), "{answer:?}");
    let unknown = runner.request(Method::GET, "/sse", &[], "").await;
    assert_eq!(unknown.status, 401, "{unknown:?}");
    assert!(backend.is_quiet());
}
