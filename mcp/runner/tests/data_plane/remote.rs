//! Remote servers behind TLS: what they see, where their redirects may lead, and where they may be.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Issuer, Recorder, Runner, SdkClient, Server, Signer, TlsFront};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const PONG: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
const LOOPBACK: &str = "127.0.0.0/8";

async fn behind_tls(members: &Value) -> (Recorder, TlsFront, Runner) {
    let backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let runner = Runner::remote(&front, "/mcp", LOOPBACK, members, &[]).await;
    (backend, front, runner)
}

#[tokio::test]
async fn a_real_server_behind_tls_serves_the_typescript_client_and_may_restart() {
    let mut server = Server::go().await;
    let front = TlsFront::before(server.address).await;
    let runner = Runner::remote(&front, "/", LOOPBACK, &json!({}), &[]).await;
    let mut client = SdkClient::connect(&runner.url()).await;
    assert_eq!(client.call("greet", json!({"name": "Ada"})).await, "Hi Ada");
    server.kill().await;
    server.start().await;
    // The session is opened anew, at whatever address the name has.
    assert_eq!(client.call("greet", json!({"name": "Ada"})).await, "Hi Ada");
    client.ask(json!({"do": "leave"})).await;
}

#[tokio::test]
async fn a_remote_server_sees_its_own_host_and_path_and_the_headers_of_the_document() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let members = json!({"header_forward": {
        "add_plaintext_headers": {"X-Tenant": "acme"}, "add_headers_from_secret": {"X-Api-Key": "KEY"},
    }});
    let environment = [("TOOLHIVE_SECRETS_PROVIDER", "environment"), ("TOOLHIVE_SECRET_KEY", "hush-7f3a\n")];
    let runner = Runner::remote(&front, "/api/v1?key=v", LOOPBACK, &members, &environment).await;
    let headers = [
        ("content-type", "application/json"),
        ("authorization", "Bearer t"),
        ("x-tenant", "other"),
        ("x-forwarded-host", "claimed"),
        ("forwarded", "for=claimed"),
    ];
    let body = "{\"jsonrpc\": \"2.0\", \"id\":1,\n \"method\":\"ping\"}";
    let post = runner.request(Method::POST, "/mcp?x=1", &headers, body);
    let (answer, ()) = tokio::join!(post, async {
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /api/v1?key=v&x=1 HTTP/1.1\r\n"), "{}", request.head);
        assert_eq!(String::from_utf8_lossy(&request.body), body);
        for (name, value) in [
            ("host", Some(&*front.address.to_string())),
            ("authorization", Some("Bearer t")),
            ("x-tenant", Some("acme")),
            ("x-api-key", Some("hush-7f3a")),
            ("x-forwarded-proto", Some("https")),
            ("x-forwarded-for", Some("127.0.0.1")),
            ("x-forwarded-host", None),
            ("forwarded", None),
        ] {
            assert_eq!(request.header(name), value, "{name}");
        }
        request.json("200 OK", "", PONG).await;
    });
    assert_eq!((answer.status, &*answer.body), (200, PONG));
    assert!(!runner.log().contains("hush-7f3a"), "{}", runner.log());
}

#[tokio::test]
async fn a_query_that_is_too_long_behind_the_servers_own_is_refused_and_not_sent() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let path = format!("/api/v1?key={}", "v".repeat(1000));
    let runner = Runner::remote(&front, &path, LOOPBACK, &json!({}), &[]).await;
    let target = format!("/admin?{}", "x".repeat(65_000));
    // The first head of a connection may not be as long.
    assert_eq!(runner.get("/readyz").await.status, 200);
    let answer = runner.request(Method::POST, &target, &[("content-type", "application/json")], PING).await;
    assert_eq!((answer.status, &answer.message()["id"]), (414, &json!(1)), "{answer:?}");
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn redirects_are_followed_with_method_and_body_where_scheme_host_and_port_stay() {
    let (mut backend, front, runner) = behind_tls(&json!({})).await;
    let authority = front.address.to_string();
    for (status, location, to) in [
        ("301 Moved Permanently", "/mcp/".to_owned(), Some("/mcp/")),
        ("302 Found", format!("https://{authority}/v2?k=v"), Some("/v2?k=v")),
        ("307 Temporary Redirect", "/mcp/".to_owned(), Some("/mcp/")),
        ("308 Permanent Redirect", format!("https://{authority}"), Some("/")),
        ("307 Temporary Redirect", format!("http://{authority}/mcp/"), None),
        ("307 Temporary Redirect", "https://127.0.0.1:1/mcp".to_owned(), None),
        ("307 Temporary Redirect", format!("https://localhost:{}/mcp", front.address.port()), None),
        ("308 Permanent Redirect", "https://169.254.169.254/latest?code=hush-7f3a".to_owned(), None),
    ] {
        let (answer, ()) = tokio::join!(runner.post(&[("authorization", "Bearer t")], PING), async {
            backend.next().await.json(status, &format!("location: {location}\r\n"), "").await;
            let Some(path) = to else { return };
            let request = backend.next().await;
            assert!(request.head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{location}: {}", request.head);
            assert_eq!((&*request.body, request.header("authorization")), (PING.as_bytes(), Some("Bearer t")));
            request.json("200 OK", "", PONG).await;
        });
        assert_eq!(answer.status, if to.is_some() { 200 } else { 502 }, "{status} {location}: {answer:?}");
        assert!(!answer.body.contains("169.254"), "{answer:?}");
    }
    let (answer, ()) = tokio::join!(runner.post(&[], PING), async {
        for _ in 0..=10 {
            backend.next().await.json("307 Temporary Redirect", "location: /mcp/\r\n", "").await;
        }
    });
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(backend.is_quiet(), "ten redirects are followed and no more");
    runner.logged("redirects to \"https://169.254.169.254/latest\"").await;
    assert!(!runner.log().contains("hush-7f3a"), "{}", runner.log());
}

#[tokio::test]
async fn behind_a_login_the_remote_server_has_no_say_in_where_callers_log_in() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let oidc = json!({"oidc_config": issuer.login(&json!({}))});
    let token = format!("Bearer {}", signer.sign("ES256", &issuer.claims("alice")));
    let headers = [("authorization", &*token)];
    let theirs = r#"Bearer resource_metadata="https://evil.example/""#;
    let error = json!("the MCP server does not let the proxy in");
    for (members, from, to, challenge, message) in [
        (&oidc, "401 Unauthorized", 502, None, error),
        (&oidc, "403 Forbidden", 403, None, Value::Null),
        (&json!({}), "401 Unauthorized", 401, Some(theirs), Value::Null),
    ] {
        let runner = Runner::remote(&front, "/mcp", LOOPBACK, members, &[]).await;
        let (answer, ()) = tokio::join!(runner.post(&headers, PING), async {
            let challenge = format!("www-authenticate: {theirs}\r\n");
            backend.next().await.json(from, &challenge, PONG).await;
        });
        assert_eq!((answer.status, answer.header("www-authenticate")), (to, challenge), "{answer:?}");
        assert_eq!(answer.message()["error"]["message"], message, "{answer:?}");
    }
}

#[tokio::test]
async fn behind_a_login_no_server_in_the_cluster_challenges() {
    let mut backend = Recorder::start().await;
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let runner = Runner::login(&backend.url(), &issuer.login(&json!({}))).await;
    let token = format!("Bearer {}", signer.sign("ES256", &issuer.claims("alice")));
    let headers = [("authorization", &*token)];
    for (from, to) in [("401 Unauthorized", 502), ("403 Forbidden", 403), ("200 OK", 200)] {
        let (answer, ()) = tokio::join!(runner.post(&headers, PING), async {
            let challenge = "www-authenticate: Bearer resource_metadata=\"https://evil.example/\"\r\n";
            backend.next().await.json(from, challenge, PONG).await;
        });
        assert_eq!((answer.status, answer.header("www-authenticate")), (to, None), "{answer:?}");
    }
}

#[tokio::test]
async fn the_token_of_a_caller_goes_to_the_remote_server_unless_the_document_sets_its_own() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let token = format!("Bearer {}", signer.sign("ES256", &issuer.claims("alice")));
    for (headers, seen) in [(json!({}), &*token), (json!({"AUTHORIZATION": "Bearer own"}), "Bearer own")] {
        let members =
            json!({"oidc_config": issuer.login(&json!({})), "header_forward": {"add_plaintext_headers": headers}});
        let runner = Runner::remote(&front, "/mcp", LOOPBACK, &members, &[]).await;
        let headers = [("authorization", &*token)];
        let (answer, ()) = tokio::join!(runner.post(&headers, PING), async {
            let request = backend.next().await;
            assert_eq!(request.header("authorization"), Some(seen));
            assert_eq!(request.head.to_lowercase().matches("authorization").count(), 1, "{}", request.head);
            request.json("200 OK", "", PONG).await;
        });
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[tokio::test]
async fn a_request_goes_out_again_only_where_that_is_all_the_same() {
    let (mut backend, _front, runner) = behind_tls(&json!({})).await;
    let answered = |request: crate::support::Recorded| request.json("200 OK", "", PONG);
    tokio::join!(runner.post(&[], PING), async { answered(backend.next().await).await });
    // The server closes the kept connection as the request arrives.
    let get = runner.request(Method::GET, "/mcp", &[("accept", "text/event-stream")], "");
    let (answer, ()) = tokio::join!(get, async {
        drop(backend.next().await);
        answered(backend.next().await).await;
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    let (answer, ()) = tokio::join!(runner.post(&[], PING), async { drop(backend.next().await) });
    assert_eq!(answer.status, 502, "a call may have been acted on: {answer:?}");
    // What were sent again would come before it.
    let next = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    tokio::join!(runner.post(&[], next), async {
        let request = backend.next().await;
        assert_eq!(String::from_utf8_lossy(&request.body), next);
        answered(request).await;
    });
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn the_servers_certificate_has_to_bear_the_name_in_the_url_and_be_trusted() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let named = format!("https://localhost:{}/mcp", front.address.port());
    let runner = Runner::remote_at(&named, &front.ca(), "127.0.0.0/8,::1/128", &json!({}), &[]).await;
    let (answer, ()) =
        tokio::join!(runner.post(&[], PING), async { backend.next().await.json("200 OK", "", PONG).await });
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(front.names(), [Some("localhost".to_owned())]);
    // Another authority, and an address that the certificate does not bear.
    let other = TlsFront::before(backend.address).await;
    for (url, ca) in [
        (format!("https://127.0.0.1:{}/mcp", front.address.port()), other.ca()),
        (format!("https://[::ffff:127.0.0.1]:{}/mcp", front.address.port()), front.ca()),
    ] {
        let runner = Runner::remote_at(&url, &ca, LOOPBACK, &json!({}), &[]).await;
        let answer = runner.post(&[], PING).await;
        assert_eq!((answer.status, answer.header("retry-after")), (502, Some("1")), "{url}: {answer:?}");
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn an_address_that_a_name_leads_to_is_judged_when_it_is_called() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    // The name may be called where it leads to ::1; the server is at 127.0.0.1.
    let url = format!("https://localhost:{}/mcp", front.address.port());
    let runner =
        Runner::remote_at(&url, &front.ca(), "::1/128", &json!({"portcullis": {"allow_private_endpoint": true}}), &[])
            .await;
    let answer = runner.post(&[], PING).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(front.names().is_empty() && backend.is_quiet(), "{}", runner.log());
}

#[tokio::test]
async fn a_remote_server_is_checked_only_where_the_environment_asks_for_it() {
    let backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    for (environment, checked) in [(&[][..], false), (&[("TOOLHIVE_REMOTE_HEALTHCHECKS", "true")], true)] {
        let runner = Runner::remote(&front, "/mcp", LOOPBACK, &json!({}), environment).await;
        if checked {
            crate::support::eventually("a check", || async {
                runner.get("/health").await.message()["mcp"]["available"].as_bool().filter(|available| *available)
            })
            .await;
        }
        let health = runner.get("/health").await.message();
        assert_eq!((&health["status"], health.get("mcp").is_some()), (&json!("healthy"), checked), "{health}");
    }
}
