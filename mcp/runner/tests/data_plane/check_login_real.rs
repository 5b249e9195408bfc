//! `mcp-runner check-login` against the proxy with real providers.

use std::ffi::OsString;
use std::path::Path;

use portcullis_identity::{Provider, Signer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use crate::check_login::check;
use crate::identity_providers::login;
use crate::support::{Echo, Issuer, Runner, Server, server_tls};

/// The client that npm's `oidc-provider` gives JWTs.
const CLIENT: [&str; 2] = ["caller", "caller-secret"];

/// A front with TLS whose address is known before there is a proxy behind it: the proxy has to know by which URL it is called.
struct Front {
    path: &'static str,
    listener: TcpListener,
    acceptor: tokio_rustls::TlsAcceptor,
    directory: TempDir,
}

impl Front {
    async fn bind(path: &'static str) -> Self {
        let (acceptor, ca) = server_tls("front");
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("ca.crt"), ca).unwrap();
        Self { path, listener: TcpListener::bind("127.0.0.1:0").await.unwrap(), acceptor, directory }
    }

    fn url(&self) -> String {
        format!("https://{}{}", self.listener.local_addr().unwrap(), self.path)
    }

    /// Leads to `runner` from now on. Returns the directory with the authority, and for files.
    fn lead_to(self, runner: &Runner) -> TempDir {
        let Self { listener, acceptor, directory, .. } = self;
        let runner = runner.address;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let Ok(mut behind) = TcpStream::connect(runner).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
                });
            }
        });
        directory
    }
}

fn given(directory: &Path, flag: &str, content: &str) -> Vec<OsString> {
    let file = directory.join(flag);
    std::fs::write(&file, content).unwrap();
    vec![format!("--{flag}").into(), file.into()]
}

/// A real proxy before a real server, for callers whom `provider` knows, which pages of MCP Inspector may call.
async fn proxy(server: &Server, provider: &Provider, front: &Front, members: Value) -> Runner {
    let mut oidc = json!({"ResourceURL": front.url(), "Audience": front.url(), "Scopes": ["openid"]});
    oidc.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let mut document = login(provider, &oidc);
    let origin = json!({"type": "origin", "parameters": {"allowed_origins": ["http://localhost:6274"]}});
    document["middleware_configs"].as_array_mut().unwrap().insert(0, origin);
    let flags = ["--backend".into(), server.url().into(), "--allow-endpoint-cidr".into(), "127.0.0.0/8".into()];
    let transport = if front.path == "/sse" { "sse" } else { "streamable-http" };
    Runner::start(transport, &document, &flags, &[]).await
}

#[tokio::test]
async fn a_real_login_passes_from_the_challenge_to_initialize() {
    let (server, provider, front) =
        (Server::go().await, Provider::oidc_provider().await.unwrap(), Front::bind("/mcp").await);
    let runner = proxy(&server, &provider, &front, json!({})).await;
    let url = front.url();
    let directory = front.lead_to(&runner);
    let common = || {
        vec!["--ca-bundle".into(), directory.path().join("ca.crt").into(), "--output=json".into(), "--browser".into()]
    };

    let [id, secret] = CLIENT;
    let client = [
        vec!["--client-id".into(), id.into(), "--issuer".into(), provider.issuer().into()],
        given(directory.path(), "client-secret-file", secret),
    ]
    .concat();
    let checked = check(&url, &[common(), client].concat()).await;
    assert_eq!(checked.status, Some(0), "{checked:?}");
    assert_eq!(checked.steps("ok").len(), 15, "{checked:?}");

    let token = provider.token(&url).await.unwrap();
    let checked = check(&url, &[common(), given(directory.path(), "token-file", &token)].concat()).await;
    assert_eq!((checked.status, checked.steps("note")), (Some(0), vec!["registration".to_owned()]), "{checked:?}");

    for (case, token, verdict) in [
        ("another server's", provider.token("http://another.example/mcp").await.unwrap(), "token-wrong-audience"),
        ("opaque", provider.opaque_token(&url).await.unwrap(), "token-opaque"),
        ("of another key", token[..token.len() - 8].to_owned() + "AAAAAAAA", "token-refused"),
    ] {
        let checked = check(&url, &[common(), given(directory.path(), "token-file", &token)].concat()).await;
        assert_eq!(
            (checked.status, &checked.step("initialize")["verdict"]),
            (Some(1), &json!(verdict)),
            "{case}: {checked:?}"
        );
    }
}

#[tokio::test]
async fn the_faults_of_a_real_proxy_are_told_apart() {
    let (server, provider) = (Server::go().await, Provider::zitadel().await.unwrap());
    for (case, members, step, verdict, status) in [
        (
            "its Service's address",
            json!({"ResourceURL": "http://mcp-x-proxy.ns.svc.cluster.local:8080"}),
            "resource-metadata",
            "pointer-plain",
            1,
        ),
        ("no resource URL", json!({"ResourceURL": ""}), "resource-metadata", "resource-metadata-missing", 1),
        (
            "keys that it cannot fetch",
            json!({"JWKSURL": "https://127.0.0.1:9/keys"}),
            "initialize",
            "proxy-cannot-check",
            1,
        ),
        ("another audience", json!({"Audience": "everything"}), "initialize", "token-refused", 1),
        ("a login that works", json!({}), "registration", "no-registration", 0),
    ] {
        let front = Front::bind("/mcp").await;
        let url = front.url();
        let runner = proxy(&server, &provider, &front, members).await;
        let directory = front.lead_to(&runner);
        let token = given(directory.path(), "token-file", &provider.token(&url).await.unwrap());
        let flags = [vec!["--ca-bundle".into(), directory.path().join("ca.crt").into(), "--output=json".into()], token]
            .concat();
        let checked = check(&url, &flags).await;
        assert_eq!(
            (checked.status, &checked.step(step)["verdict"]),
            (Some(status), &json!(verdict)),
            "{case}: {checked:?}"
        );
    }
}

#[tokio::test]
async fn a_login_at_a_server_of_http_with_sse_passes() {
    let (server, provider) = (Server::node_sse().await, Provider::zitadel().await.unwrap());
    let front = Front::bind("/sse").await;
    let runner = proxy(&server, &provider, &front, json!({})).await;
    let url = front.url();
    let directory = front.lead_to(&runner);
    let common = || vec!["--ca-bundle".into(), directory.path().join("ca.crt").into(), "--output=json".into()];
    let token = provider.token(&url).await.unwrap();
    for (token, status, told) in [(&*token, 0, "HTTP with SSE"), ("opaque", 1, "401")] {
        let checked = check(&url, &[common(), given(directory.path(), "token-file", token)].concat()).await;
        let seen = checked.step("initialize")["seen"].to_string();
        assert!(checked.status == Some(status) && seen.contains(told), "{checked:?}");
    }
}

#[tokio::test]
async fn a_credential_that_fails_is_told_from_a_bad_login() {
    let signer = Signer::ec("ec");
    let (server, issuer, front) =
        (Echo::start().await, Issuer::start(vec![signer.clone()]).await, Front::bind("/mcp").await);
    let url = front.url();
    let exchange = json!({"token_url": format!("http://{}/token", issuer.address), "client_id": "c"});
    let document = json!({
        "oidc_config": issuer.login(&json!({"ResourceURL": url})), "token_exchange_config": exchange,
        "middleware_configs": [],
    });
    let flags = ["--backend", &server.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    let runner = Runner::start("streamable-http", &document, &flags, &[]).await;
    let directory = front.lead_to(&runner);
    let (refused, unavailable) = ("credential-refused", "credential-unavailable");
    for (status, error, aud, verdict, told) in [
        (401, "invalid_client", json!("mcp"), unavailable, "502"),
        (400, "invalid_grant", json!("mcp"), refused, "401"),
        (400, "invalid_grant", json!(["mcp", url]), refused, "401"),
        (403, "access_denied", json!("mcp"), refused, "403"),
        (500, "server_error", json!("mcp"), unavailable, "503"),
    ] {
        issuer.state().exchange = Some((status, json!({"error": error})));
        let mut claims = issuer.claims("alice");
        claims["aud"] = aud;
        let token = given(directory.path(), "token-file", &signer.sign("ES256", &claims));
        let flags = [vec!["--ca-bundle".into(), directory.path().join("ca.crt").into(), "--output=json".into()], token]
            .concat();
        let checked = check(&url, &flags).await;
        let found = checked.step("initialize");
        let told = [told, "Token exchange", "the token is"];
        assert_eq!(
            (checked.status, &found["verdict"], &found["side"]),
            (Some(1), &json!(verdict), &json!("proxy")),
            "{error}: {checked:?}"
        );
        assert!(told.iter().all(|told| found["seen"].as_str().unwrap().contains(told)), "{error}: {found}");
    }
}
