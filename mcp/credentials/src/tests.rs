//! Which exchanges start, and what a silent provider comes to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use mcp_http::{Body, BoxService, Unauthorized, empty, full};
use mcp_middleware::{BuildError, Chain, Middleware, Next, ProxySettings, Registry, Secret, SecretSource};
use mcp_runconfig::{MiddlewareConfig, NoParameters};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::Provided;

/// Stands for another middleware.
struct Passes;

impl Middleware for Passes {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.call(request)
    }
}

/// The chain of these types, of which those that ask for a credential have `parameters`. There is a login where `auth` is.
fn build(kinds: &[&str], parameters: &Value, provided: &Provided, files: &TempDir) -> Result<Chain, BuildError> {
    let crypto = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut settings = ProxySettings::new(SocketAddr::from(([10, 0, 0, 1], 8080)), crypto);
    settings.files_root = Some(files.path().to_owned());
    settings.exempt_endpoints = vec!["127.0.0.0/8".parse().unwrap()];
    settings.login = kinds.contains(&"auth");
    let mut registry = Registry::default();
    crate::register(&mut registry, provided);
    for kind in ["auth", "mcp-parser", "authorization", "header-forward"] {
        registry.register(kind, |_: NoParameters, _| async { Ok(Passes) });
    }
    let parameters = |kind| if ["awssts", "tokenexchange"].contains(&kind) { parameters.clone() } else { Value::Null };
    let configs: Vec<_> = kinds.iter().map(|kind| MiddlewareConfig::new(*kind, parameters(*kind))).collect();
    registry.build(&configs, settings).now_or_never().unwrap()
}

fn exchange(change: &Value) -> Value {
    let mut config = json!({"token_url": "https://idp.example/token", "client_id": "c"});
    config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!({"token_exchange_config": config})
}

#[tokio::test]
async fn an_exchange_that_could_not_work_stops_the_start() {
    let files = TempDir::new().unwrap();
    std::fs::write(files.path().join("blank"), " \n").unwrap();
    let given = || Provided { client_secret: SecretSource::Given(Secret::new("s3cr3t")), ..Provided::default() };
    let file = || Provided { client_secret: SecretSource::File("/nowhere/secret".into()), ..Provided::default() };
    let actor = |path: &str| Provided { actor_token_file: path.to_owned(), ..Provided::default() };
    let config = |change: Value| exchange(&change);
    for (parameters, provided, member, problem) in [
        (json!({}), given(), "token_exchange_config", "is missing"),
        (config(json!({"token_url": ""})), given(), ".token_url", "is missing"),
        (config(json!({"token_url": "idp.example"})), given(), ".token_url", "is not a URL"),
        (config(json!({"token_url": "https://me:s3cr3t@idp.example"})), given(), ".token_url", "has a user name"),
        (config(json!({"token_url": "http://169.254.169.254/"})), given(), ".token_url", "metadata"),
        (config(json!({"client_id": ""})), given(), ".client_id", "is empty, and there is a secret"),
        (config(json!({})), file(), ".client_secret", "/nowhere/secret cannot be read"),
        (config(json!({"scopes": ["a", "b c"]})), given(), ".scopes[1]", "is no scope"),
        (config(json!({"subject_token_type": "saml2"})), given(), ".subject_token_type", "no type"),
        (config(json!({"header_strategy": "query"})), given(), ".header_strategy", "is not known"),
        (config(json!({"header_strategy": "custom"})), given(), ".external_token_header_name", "is empty"),
        (
            config(json!({"header_strategy": "custom", "external_token_header_name": "Host"})),
            given(),
            ".external_token_header_name",
            "\"Host\" is a header that requests have",
        ),
        (
            config(json!({"header_strategy": "custom", "external_token_header_name": "Cookie"})),
            given(),
            ".external_token_header_name",
            "\"Cookie\" is a header that requests have",
        ),
        (
            config(json!({"header_strategy": "custom", "external_token_header_name": "a b"})),
            given(),
            ".external_token_header_name",
            "is not the name",
        ),
        (config(json!({})), actor("actor"), "portcullis.actor_token_file", "is not an absolute path"),
        (config(json!({})), actor("/nowhere"), "portcullis.actor_token_file", "cannot be read"),
        (config(json!({})), actor("/blank"), "portcullis.actor_token_file", "is blank"),
    ] {
        let error = build(&["auth", "tokenexchange"], &parameters, &provided, &files).unwrap_err();
        assert!(error.field.ends_with(member) && error.problem.contains(problem), "{parameters}: {error}");
        assert!(!error.fix.is_empty() && !error.to_string().contains("s3cr3t"), "{error}");
    }
}

#[tokio::test]
async fn roles_that_could_not_work_stop_the_start() {
    let role = "arn:aws:iam::123456789012:role/a";
    let of_mapping = |mapping: Value| json!({"role_mappings": [mapping]});
    let (auth, none) = (&["auth", "awssts"][..], &["awssts"][..]);
    for (kinds, change, member, problem) in [
        (auth, json!({"region": ""}), ".region", "is no region"),
        (auth, json!({"region": "evil.example/-1"}), ".region", "is no region"),
        (auth, json!({"service": "a/b"}), ".service", "is no service"),
        (auth, json!({"session_duration": 899}), ".session_duration", "is no time"),
        (auth, json!({"session_duration": 43201}), ".session_duration", "is no time"),
        (auth, json!({"fallback_role_arn": ""}), ".fallback_role_arn", "is missing, as is role_mappings"),
        (auth, json!({"fallback_role_arn": "readers"}), ".fallback_role_arn", "is no role"),
        (auth, of_mapping(json!({"claim": "a"})), ".role_mappings[0].role_arn", "is missing"),
        (auth, of_mapping(json!({"role_arn": role})), ".role_mappings[0]", "neither claim nor matcher"),
        (
            auth,
            of_mapping(json!({"role_arn": role, "claim": "a", "matcher": "true"})),
            ".role_mappings[0]",
            "claim and matcher",
        ),
        (auth, of_mapping(json!({"role_arn": role, "matcher": "claims["})), ".role_mappings[0].matcher", "is not CEL"),
        (none, json!({}), "type", "needs callers who log in"),
        (&["auth", "awssts", "mcp-parser"], json!({}), "type", "mcp-parser changes or refuses"),
        (&["auth", "awssts", "awssts"], json!({}), "type", "stands in the chain twice"),
    ] {
        let mut config = json!({"region": "eu-central-1", "fallback_role_arn": role});
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let parameters = json!({"aws_sts_config": config, "target_url": "https://mcp.example/mcp"});
        let error = build(kinds, &parameters, &Provided::default(), &TempDir::new().unwrap()).unwrap_err();
        assert!(error.field.ends_with(member) && error.problem.contains(problem), "{change}: {error}");
        assert!(!error.fix.is_empty(), "{error}");
    }
    for (parameters, member) in [
        (json!({"target_url": "https://mcp.example"}), ".aws_sts_config"),
        (json!({"aws_sts_config": {"region": "eu-central-1", "fallback_role_arn": role}}), ".target_url"),
    ] {
        let error = build(auth, &parameters, &Provided::default(), &TempDir::new().unwrap()).unwrap_err();
        assert!(error.field.ends_with(member) && error.problem.contains("is missing"), "{error}");
    }
}

#[tokio::test]
async fn an_exchange_stands_behind_all_that_may_refuse_a_call_and_alone() {
    let files = TempDir::new().unwrap();
    let mut parameters = exchange(&json!({}));
    parameters["target_url"] = json!("https://mcp.example/mcp");
    parameters["aws_sts_config"] =
        json!({"region": "eu-central-1", "fallback_role_arn": "arn:aws:iam::123456789012:role/a"});
    for (kinds, problem) in [
        (&["auth", "mcp-parser", "authorization", "tokenexchange", "header-forward"][..], None),
        (&["mcp-parser", "tokenexchange"], Some("needs auth before it")),
        (&["auth", "tokenexchange", "mcp-parser"], Some("mcp-parser changes or refuses")),
        (&["auth", "tokenexchange", "authorization"], Some("authorization changes or refuses")),
        (&["auth", "tokenexchange", "tokenexchange"], Some("stands in the chain twice")),
        (&["auth", "awssts", "tokenexchange"], Some("take the credential of awssts")),
        (&["auth", "tokenexchange", "awssts"], Some("take the credential of tokenexchange")),
    ] {
        let built = build(kinds, &parameters, &Provided::default(), &files);
        let found = built.err().map(|error| error.problem);
        assert_eq!(found.is_some(), problem.is_some(), "{kinds:?}: {found:?}");
        assert!(found.zip(problem).is_none_or(|(found, problem)| found.contains(problem)), "{kinds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_provider_holds_a_call_for_a_bounded_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let parameters = exchange(&json!({"token_url": format!("http://{}/token", silent.local_addr().unwrap())}));
    let chain = build(&["auth", "tokenexchange"], &parameters, &Provided::default(), &TempDir::new().unwrap()).unwrap();
    let server = BoxService::new(tower::service_fn(|_| async { Ok::<_, Infallible>(Response::new(full("done"))) }));
    let request = Request::post("/mcp").header("authorization", "Bearer a").body(empty()).unwrap();
    let context = chain.context(SocketAddr::from(([10, 244, 0, 9], 4711)));
    let answer = chain.serve(&context, request, &server).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    let reason = context.denial().unwrap().reason.to_string();
    assert!(reason.contains("no answer"), "{reason}");
}

#[tokio::test]
async fn exchanges_whose_callers_left_are_bounded_per_client() {
    const SHARE: usize = 1 << 20;
    const LENGTH: usize = 16 << 10;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let parameters = exchange(&json!({"token_url": format!("http://{}/token", silent.local_addr().unwrap())}));
    let chain = build(&["auth", "tokenexchange"], &parameters, &Provided::default(), &TempDir::new().unwrap()).unwrap();
    let server = BoxService::new(tower::service_fn(|_| async { Ok::<_, Infallible>(Response::new(empty())) }));
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let leave = |host: u8, number: usize| {
        let token = format!("{number:0LENGTH$}");
        let request = Request::post("/mcp").header("authorization", format!("Bearer {token}")).body(empty()).unwrap();
        let context = chain.context(SocketAddr::from(([10, 244, 0, host], 4711)));
        assert!(chain.serve(&context, request, &server).now_or_never().is_none(), "it waits for the provider");
    };
    let before = tasks();
    for number in 0..SHARE / LENGTH * 2 {
        leave(9, number);
    }
    let left = tasks() - before;
    assert!((1..=SHARE / LENGTH).contains(&left), "{left} exchanges go on");
    leave(10, 0);
    assert_eq!(tasks() - before, left + 1, "that of another client goes on");
}

/// A provider that gives the tokens 0, 1 and so on, and counts them.
async fn counting_provider() -> (String, Arc<AtomicUsize>) {
    let (listener, given) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::new(AtomicUsize::new(0)));
    let (url, count) = (format!("http://{}/token", listener.local_addr().unwrap()), Arc::clone(&given));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"client_id=c") {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0, "{}", String::from_utf8_lossy(&request));
            }
            let body = json!({
                "access_token": count.fetch_add(1, Relaxed).to_string(), "token_type": "Bearer", "expires_in": 3600,
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            });
            let (body, close) = (body.to_string(), "connection: close");
            let head = format!("HTTP/1.1 200 OK\r\n{close}\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await.unwrap();
        }
    });
    (url, given)
}

#[tokio::test]
async fn a_token_that_the_server_refuses_is_exchanged_anew_after_a_while() {
    let (url, given) = counting_provider().await;
    let parameters = exchange(&json!({"token_url": url}));
    let files = TempDir::new().unwrap();
    let chain = build(&["auth", "tokenexchange"], &parameters, &Provided::default(), &files).unwrap();
    for marked in [false, true] {
        // As the transport answers without and with a login.
        let server = BoxService::new(tower::service_fn(move |_| async move {
            let mut answer = Response::new(empty());
            *answer.status_mut() = if marked { StatusCode::BAD_GATEWAY } else { StatusCode::UNAUTHORIZED };
            if marked {
                answer.extensions_mut().insert(Unauthorized);
            }
            Ok::<_, Infallible>(answer)
        }));
        let before = given.load(Relaxed);
        let call = async || {
            let request = Request::post("/mcp").header("authorization", format!("Bearer {marked}")).body(empty());
            let context = chain.context(SocketAddr::from(([10, 244, 0, 9], 4711)));
            chain.serve(&context, request.unwrap(), &server).await;
            given.load(Relaxed) - before
        };
        assert_eq!((call().await, call().await), (1, 1), "a new token is not exchanged again");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        tokio::time::resume();
        assert_eq!((call().await, call().await), (1, 2), "the call after the refusal gets another one");
    }
}
