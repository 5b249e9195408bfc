//! Whether the proxy is ready: whether a call is likely to be answered.

use portcullis_testing::free_address;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Runner, Server, eventually, go};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const OFTEN: (&str, &str) = ("TOOLHIVE_HEALTH_CHECK_INTERVAL", "50ms");

async fn is_unready(runner: &Runner) {
    let answer = eventually("readiness to end", || async {
        let answer = runner.get("/readyz").await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert_eq!(answer.body, "the MCP server does not answer\n");
    assert_eq!(runner.get("/health").await.status, 200, "no restart would help");
}

#[tokio::test]
async fn a_proxy_is_not_ready_before_its_server_has_answered() {
    let address = free_address();
    let runner = Runner::http(&format!("http://{address}"), &json!({})).await;
    is_unready(&runner).await;
    runner.logged("the MCP server fails its check").await;
    is_unready(&runner).await;
    let _server = Server::go_at(address).await;
    runner.ready().await;
}

#[tokio::test]
async fn a_server_that_goes_away_briefly_costs_errors_and_not_readiness() {
    let mut server = Server::go().await;
    let runner = Runner::http_with(&server.url(), &json!({}), &[OFTEN]).await;
    runner.ready().await;
    server.kill().await;
    runner.logged("the MCP server fails its check").await;
    assert_eq!(runner.get("/readyz").await.status, 200);
    let answer = runner.post(&[], PING).await;
    assert_eq!((answer.status, &answer.message()["error"]["code"]), (502, &json!(-32603)));
    server.start().await;
    runner.logged("the MCP server answers its check again").await;
    assert_eq!(runner.post(&[], PING).await.status, 200);
}

#[tokio::test]
async fn a_server_that_stays_away_ends_readiness_until_it_answers_again() {
    let mut server = Server::go().await;
    let environment = [OFTEN, ("PORTCULLIS_UNREADY_AFTER", "100ms")];
    let runner = Runner::http_with(&server.url(), &json!({}), &environment).await;
    runner.ready().await;
    server.kill().await;
    is_unready(&runner).await;
    server.start().await;
    runner.ready().await;
}

#[tokio::test]
async fn a_process_that_is_not_there_ends_readiness() {
    let environment = [OFTEN, ("PORTCULLIS_UNREADY_AFTER", "1ms")];
    let runner = Runner::stdio_with(&[go().into()], &json!({}), &environment).await;
    runner.ready().await;
    // It is started again and again, with pauses.
    let ends = ["sh".into(), "-c".into(), "exit 3".into()];
    let runner = Runner::stdio_with(&ends, &json!({}), &environment).await;
    is_unready(&runner).await;
}

#[tokio::test]
async fn a_server_whose_root_is_a_silent_stream_is_there_when_it_answers_messages() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; 5];
                stream.read_exact(&mut request).await.unwrap();
                if request.starts_with(b"GET ") {
                    // Until the other side leaves.
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                } else {
                    let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    let runner = Runner::http_with(&url, &json!({}), &[("TOOLHIVE_HEALTH_CHECK_PING_TIMEOUT", "300ms")]).await;
    runner.ready().await;
    assert_eq!(runner.get("/health").await.message()["status"], "healthy");
}
