//! The Redis that proxies share goes away, comes back, or is something else.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::Method;
use portcullis_services::{Fault, RedisOptions, RedisServer, Tls, Toxic};
use serde_json::json;
use tempfile::TempDir;

use crate::login::no_session;
use crate::recovery::opened;
use crate::shared_sessions::{call, in_redis, redis, replicas};
use crate::support::{Answer, INITIALIZE, Recorder, Runner, Server, eventually, go};

/// A call of the stateless era.
async fn modern(replica: &Runner) -> Answer {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}}}"#;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "greet")];
    replica.post(&headers, call).await
}

/// Opens a session for who initializes, and answers every call.
async fn serve(mut backend: Recorder) {
    loop {
        let request = backend.next().await;
        let session = if request.body == INITIALIZE.as_bytes() { "mcp-session-id: first\r\n" } else { "" };
        request.json("200 OK", session, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    }
}

fn unavailable(case: &str, answer: &Answer) {
    let told = (answer.status, answer.header("retry-after"), &*answer.body);
    assert_eq!(told, (503, Some("1"), "Session store unavailable"), "{case}");
}

async fn goes_on(replica: &Runner, session: &str) {
    eventually("calls to go on", || async { (call(replica, session).await.status == 200).then_some(()) }).await;
}

#[tokio::test]
async fn without_redis_sessions_are_unavailable_and_stateless_calls_go_on() {
    let (backend, redis) = (Recorder::start().await, redis().await);
    let toxic = Toxic::before(&redis.address()).await.unwrap();
    let replica = Runner::http(&backend.url(), &in_redis(&toxic.address())).await;
    let serving = tokio::spawn(serve(backend));
    replica.ready().await;
    let session = replica.post(&[], INITIALIZE).await.header("mcp-session-id").unwrap().to_owned();
    for fault in [Fault::Closed, Fault::Silent, Fault::Slow(Duration::from_mins(2)), Fault::Garbage] {
        toxic.set(fault);
        let named = [("mcp-session-id", session.as_str())];
        for (method, headers, body) in [
            (Method::POST, &named[..], crate::shared_sessions::CALL),
            (Method::POST, &[], INITIALIZE),
            (Method::GET, &named, ""),
            (Method::DELETE, &named, ""),
        ] {
            let answer = match method {
                Method::POST => replica.post(headers, body).await,
                _ => replica.request(method.clone(), "/mcp", headers, body).await,
            };
            unavailable(&format!("{method} {body} {fault:?}"), &answer);
        }
        let answer = modern(&replica).await;
        assert_eq!(answer.status, 200, "{fault:?}: {answer:?}");
        assert_eq!(replica.get("/readyz").await.status, 200, "{fault:?}: no other pod would have it");
        assert_eq!(replica.get("/health").await.status, 200, "{fault:?}");
        toxic.set(Fault::None);
        goes_on(&replica, &session).await;
    }
    let metrics = replica.get("/metrics").await.body;
    for kind in ["unreachable", "timeout"] {
        let series = format!("mcp_runner_session_errors_total{{error=\"{kind}\"}} ");
        let counted = metrics.lines().find_map(|line| line.strip_prefix(&series));
        assert!(counted.is_some_and(|count| count != "0"), "{series}: {metrics}");
    }
    serving.abort();
}

/// Calls both replicas until `change` is done, and returns the statuses of their answers.
async fn calls_during(
    replicas: &[Runner; 2],
    session: &str,
    change: impl AsyncFnOnce(&Mutex<BTreeSet<u16>>),
) -> BTreeSet<u16> {
    let (statuses, done) = (Mutex::<BTreeSet<u16>>::default(), AtomicBool::new(false));
    let calling = async {
        while !done.load(Relaxed) {
            for replica in replicas {
                let status = call(replica, session).await.status;
                statuses.lock().unwrap().insert(status);
            }
        }
    };
    let changing = async {
        change(&statuses).await;
        done.store(true, Relaxed);
    };
    tokio::join!(calling, changing);
    statuses.into_inner().unwrap()
}

#[tokio::test]
async fn a_redis_that_comes_back_with_its_data_has_cost_calls_and_no_session() {
    let server = Server::go().await;
    let persistent = RedisOptions { persistent: true, ..RedisOptions::default() };
    let mut redis = RedisServer::start(persistent).await.unwrap();
    let toxic = Toxic::before(&redis.address()).await.unwrap();
    let replicas = replicas(&server.url(), &toxic.address()).await;
    let session = replicas[0].session().await;
    for replaced in [false, true] {
        let statuses = calls_during(&replicas, &session, async |statuses| {
            redis.kill().await.unwrap();
            eventually("a call to fail", || async { statuses.lock().unwrap().contains(&503).then_some(()) }).await;
            if replaced {
                redis = redis.successor().await.unwrap();
                toxic.lead_to(&redis.address());
            } else {
                redis.start_again().await.unwrap();
            }
        })
        .await;
        assert!(statuses.is_subset(&[200, 503].into()), "{statuses:?}");
        for replica in &replicas {
            goes_on(replica, &session).await;
        }
    }
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_has_clients_initialize_again() {
    let (server, mut redis) = (Server::go().await, redis().await);
    let replicas = replicas(&server.url(), &redis.address()).await;
    let session = replicas[0].session().await;
    redis.kill().await.unwrap();
    redis.start_again().await.unwrap();
    for replica in &replicas {
        no_session("Redis has lost it", &call(replica, &session).await, Some(1));
    }
    goes_on(&replicas[0], &replicas[1].session().await).await;
}

#[tokio::test]
async fn a_session_that_cannot_be_kept_is_ended_at_its_server() {
    let (mut backend, redis) = (Recorder::start().await, redis().await);
    let toxic = Toxic::before(&redis.address()).await.unwrap();
    let replica = Runner::http(&backend.url(), &in_redis(&toxic.address())).await;
    replica.ready().await;
    toxic.set(Fault::Closed);
    let (answer, ()) = tokio::join!(replica.post(&[], INITIALIZE), async {
        let request = backend.next().await;
        request.json("200 OK", "mcp-session-id: first\r\n", r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
        let request = backend.next().await;
        assert!(request.head.starts_with("DELETE /mcp "), "{}", request.head);
        assert_eq!(request.header("mcp-session-id"), Some("first"));
        request.answer("HTTP/1.1 204 No Content\r\n\r\n").await;
    });
    unavailable("it is not kept", &answer);
}

#[tokio::test]
async fn an_end_that_redis_does_not_learn_of_is_not_said_to_be_one() {
    let (mut backend, redis) = (Recorder::start().await, redis().await);
    let toxic = Toxic::before(&redis.address()).await.unwrap();
    let replica = Runner::http(&backend.url(), &in_redis(&toxic.address())).await;
    replica.ready().await;
    opened(&mut backend, &replica).await;
    let end = || replica.request(Method::DELETE, "/mcp", &[("mcp-session-id", "first")], "");
    let (answer, ()) = tokio::join!(end(), async {
        let request = backend.next().await;
        toxic.set(Fault::Closed);
        request.answer("HTTP/1.1 204 No Content\r\n\r\n").await;
    });
    unavailable("Redis still has it", &answer);
    toxic.set(Fault::None);
    // The client asks again, as it was told.
    let ends = async {
        loop {
            let answer = end().await;
            if answer.status != 503 {
                return answer;
            }
        }
    };
    let (answer, ()) = tokio::join!(ends, async {
        backend.next().await.json("404 Not Found", "", "{}").await;
    });
    assert_eq!(answer.status, 404);
    no_session("it is over", &call(&replica, "first").await, Some(1));
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn a_proxy_is_ready_once_redis_has_let_it_in() {
    let (folder, password) = (TempDir::new().unwrap(), Some("hunter2".to_owned()));
    let tls = Tls::written_to(folder.path()).unwrap();
    let (ca, file) = (tls.ca.clone(), folder.path().join("password"));
    std::fs::write(&file, "wr0ng\n").unwrap();
    let options = RedisOptions { password, tls: Some(tls), persistent: false };
    let (server, mut redis) = (Server::go().await, RedisServer::start(options).await.unwrap());
    let mut members = in_redis(&redis.address());
    members["scaling_config"]["session_redis"]["tls"] = json!({"caCertFile": ca});
    let environment = [("PORTCULLIS_SESSION_REDIS_PASSWORD_FILE", file.to_str().unwrap())];
    let replica = Runner::http_with(&server.url(), &members, &environment).await;
    replica.logged("WRONGPASS").await;
    eventually("the server to answer", || async {
        (replica.get("/readyz").await.body == "Redis has not answered yet\n").then_some(())
    })
    .await;
    assert_eq!(replica.get("/readyz").await.status, 503);
    assert_eq!(replica.get("/health").await.status, 200, "no restart would help");
    std::fs::write(&file, "hunter2\n").unwrap();
    replica.ready().await;
    replica.session().await;
    redis.kill().await.unwrap();
    unavailable("it is gone", &replica.post(&[], INITIALIZE).await);
    assert_eq!(replica.get("/readyz").await.status, 200);
    let log = replica.log();
    assert!(!log.contains("wr0ng") && !log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn a_password_comes_by_the_environment_as_from_toolhives_operator() {
    let password = Some("hunter2".to_owned());
    let redis = RedisServer::start(RedisOptions { password, ..RedisOptions::default() }).await.unwrap();
    let server = Server::go().await;
    let environment = [("THV_SESSION_REDIS_PASSWORD", "hunter2\n")];
    let replica = Runner::http_with(&server.url(), &in_redis(&redis.address()), &environment).await;
    replica.session().await;
    assert_eq!(redis.cli(&["DBSIZE"]).await.unwrap(), "1");
    let replica =
        Runner::http_with(&server.url(), &in_redis(&redis.address()), &[("THV_SESSION_REDIS_PASSWORD", "")]).await;
    replica.logged("the password of Redis is set and empty").await;
}

#[tokio::test]
async fn a_server_behind_a_pipe_keeps_its_sessions_in_the_proxy() {
    let replica = Runner::stdio(&[go().into()], &in_redis("127.0.0.1:9")).await;
    replica.logged("scaling_config.session_redis has no effect").await;
    replica.ready().await;
    let session = replica.session().await;
    assert_eq!(call(&replica, &session).await.status, 200);
}
