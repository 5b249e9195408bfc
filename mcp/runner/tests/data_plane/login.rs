//! Tokens over HTTP: who is let in, and what the others are told.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, INITIALIZE, Issuer, Recorder, Runner, Server, Signer, encode, go, unavailable, unsigned};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// The names by which one server or another reads a session's id from the query.
const SESSION_NAMES: [&str; 14] = [
    "sessionId",
    "sessionid",
    "session_id",
    "session-id",
    "SESSION_ID",
    "mcp-session-id",
    "Mcp-Session-Id",
    "mcp_session_id",
    "mcpSessionId",
    "session%5Fid",
    "session.id",
    "%20sessionId",
    "sessionId%20",
    "sessionId[]",
];

/// The answer to a handshake with this in `Authorization`.
async fn with(runner: &Runner, authorization: &str) -> Answer {
    runner.post(&[("authorization", authorization)], INITIALIZE).await
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Compares status, body and headers of what is told of a session that is not the caller's. `id`: that of the request, where it has one.
pub(crate) fn no_session(case: &str, answer: &Answer, id: Option<u32>) {
    let mut body = json!({"jsonrpc": "2.0", "error": {"code": -32001, "message": "Session not found"}});
    if let Some(id) = id {
        body["id"] = json!(id);
    }
    assert_eq!((answer.status, answer.message()), (404, body), "{case}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{case}");
    for name in ["www-authenticate", "retry-after", "mcp-session-id"] {
        assert_eq!(answer.header(name), None, "{case}: {name}");
    }
}

/// Claims with these over them; null takes one away.
fn changed(claims: &Value, change: Value) -> Value {
    let mut claims = claims.as_object().unwrap().clone();
    for (name, value) in change.as_object().unwrap() {
        if value.is_null() {
            claims.remove(name);
        } else {
            claims.insert(name.clone(), value.clone());
        }
    }
    Value::Object(claims)
}

#[tokio::test]
async fn every_kind_of_token_is_taken_or_refused_with_status_header_and_body() {
    let (rsa, ec, ed) = (Signer::rsa("rsa"), Signer::ec("ec"), Signer::ed("ed"));
    let issuer = Issuer::start(vec![rsa.clone(), ec.clone(), ed.clone()]).await;
    let server = Server::go().await;
    let runner = Runner::login(&server.url(), &issuer.login(&json!({}))).await;
    let good = issuer.claims("alice");
    let now = good["iat"].as_u64().unwrap();
    let sign = |change: Value| bearer(&rsa.sign("RS256", &changed(&good, change)));
    let valid = rsa.sign("RS256", &good);
    let stolen = |other: &Signer| bearer(&other.sign("RS256", &good));
    let header = |header: Value| bearer(&rsa.sign_with("RS256", &header, &good));
    // The public key, as everybody can read it, taken for a secret.
    let hmac = {
        let signed = unsigned(&json!({"alg": "HS256", "kid": "rsa"}), &good);
        let key = hmac::Key::new(hmac::HMAC_SHA256, rsa.jwk()["n"].as_str().unwrap().as_bytes());
        let tag = hmac::sign(&key, signed.as_bytes());
        bearer(&format!("{signed}.{}", encode(tag.as_ref())))
    };
    let own_key = {
        let other = Signer::rsa("rsa");
        bearer(&other.sign_with("RS256", &json!({"alg": "RS256", "kid": "rsa", "jwk": other.jwk()}), &good))
    };
    let none = bearer(&(unsigned(&json!({"alg": "none", "kid": "rsa"}), &good) + "."));
    let format = "invalid authorization header format, expected 'Bearer <token>'";
    let (request, token) = ("invalid_request", "invalid_token");
    for (case, authorization, error, description) in [
        ("empty", String::new(), request, "authorization header required"),
        ("wrong scheme", "Basic YWxpY2U6cw==".to_owned(), request, format),
        ("bare token", valid.clone(), request, format),
        ("no token", "Bearer ".to_owned(), request, format),
        ("expired", sign(json!({"exp": now - 60})), token, "Invalid token"),
        ("without expiry", sign(json!({"exp": null})), token, "Invalid token"),
        ("not yet valid", sign(json!({"nbf": now + 120})), token, "Invalid token"),
        ("wrong issuer", sign(json!({"iss": "https://other.example"})), token, "Invalid token"),
        ("wrong audience", sign(json!({"aud": "other"})), token, "Invalid token"),
        ("no audience", sign(json!({"aud": null})), token, "Invalid token"),
        ("wrong key", stolen(&Signer::rsa("rsa")), token, "Invalid token"),
        ("unknown kid", stolen(&Signer::rsa("other")), token, "Invalid token"),
        ("kid of another kind", header(json!({"alg": "RS256", "kid": "ec"})), token, "Invalid token"),
        ("alg none", none, token, "Invalid token"),
        ("HMAC with the public key", hmac, token, "Invalid token"),
        ("a key of its own in the header", own_key, token, "Invalid token"),
        ("five parts", bearer(&format!("{valid}.a.b")), token, "Invalid token"),
        ("padded", bearer(&format!("{valid}=")), token, "Invalid token"),
        ("expiry as text", sign(json!({"exp": (now + 60).to_string()})), token, "Invalid token"),
        ("list of issuers", sign(json!({"iss": [issuer.url()]})), token, "Invalid token"),
        ("list in the list of audiences", sign(json!({"aud": [["mcp"]]})), token, "Invalid token"),
        ("opaque", bearer("opaque"), token, "Invalid token"),
        ("nobody", sign(json!({"sub": null})), token, "Invalid authentication claims"),
        ("nameless", sign(json!({"sub": ""})), token, "Invalid authentication claims"),
    ] {
        issuer.refused(case, &with(&runner, &authorization).await, error, description);
    }
    let answer = runner.post(&[], INITIALIZE).await;
    issuer.refused("no header", &answer, request, "authorization header required");
    let answer = runner.post(&[("authorization", "Bearer a"), ("authorization", "Bearer b")], INITIALIZE).await;
    issuer.refused("two headers", &answer, request, format);
    for (case, authorization) in [
        ("RS256", bearer(&valid)),
        ("scheme in another case", format!("bEARER {valid}")),
        ("no kid where one key fits", header(json!({"alg": "RS256", "typ": "application/jwt"}))),
        ("PS256", bearer(&rsa.sign("PS256", &good))),
        ("ES256", bearer(&ec.sign("ES256", &good))),
        ("EdDSA", bearer(&ed.sign("EdDSA", &good))),
        ("one audience", sign(json!({"aud": "mcp"}))),
        ("within the leeway", sign(json!({"nbf": now + 15}))),
    ] {
        let answer = with(&runner, &authorization).await;
        assert_eq!(answer.status, 200, "{case}: {answer:?}");
        assert_eq!(with(&runner, &authorization).await.status, 200, "{case} again");
    }
    let log = runner.log();
    assert!(log.contains("invalid audience") && !log.contains(&valid), "why is in the log, and no token");
}

/// The public key that everybody can read of `signer`, of RSA with 2,048 bits: the text of its modulus, as DER and as PEM.
fn public_forms(signer: &Signer) -> [Vec<u8>; 3] {
    const BEFORE: &[u8] =
        b"\x30\x82\x01\x22\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00\x03\x82\x01\x0f\x00\
        \x30\x82\x01\x0a\x02\x82\x01\x01\x00";
    let text = signer.jwk()["n"].as_str().unwrap().to_owned();
    let modulus = URL_SAFE_NO_PAD.decode(&text).unwrap();
    assert_eq!(modulus.len(), 256);
    let der = [BEFORE, &modulus, b"\x02\x03\x01\x00\x01"].concat();
    let lines: Vec<_> = STANDARD.encode(&der).into_bytes().chunks(64).map(<[u8]>::to_vec).collect();
    let pem = [&b"-----BEGIN PUBLIC KEY-----"[..], &lines.join(&b'\n'), b"-----END PUBLIC KEY-----\n"].join(&b'\n');
    [text.into_bytes(), der, pem]
}

#[tokio::test]
async fn no_trick_with_a_token_opens_a_server() {
    let (rsa, theirs) = (Signer::rsa("rsa"), Signer::rsa("theirs"));
    let issuer = Issuer::start(vec![rsa.clone(), Signer::ec("ec")]).await;
    let (mut evil, mut backend) = (Recorder::start().await, Recorder::start().await);
    let runner = Runner::login(&backend.url(), &issuer.login(&json!({}))).await;
    let good = issuer.claims("alice");
    let valid = rsa.sign("RS256", &good);
    let signed = valid.rsplit_once('.').unwrap().0;
    let header = |header: Value| rsa.sign_with("RS256", &header, &good);
    let claims = |change: Value| rsa.sign("RS256", &changed(&good, change));
    let elsewhere = |member: &str| {
        let header = json!({"alg": "RS256", "kid": "theirs", member: format!("{}/keys", evil.url())});
        theirs.sign_with("RS256", &header, &good)
    };
    let twice = encode(br#"{"alg":"RS256","alg":"none","kid":"rsa"}"#);
    let mut tokens = vec![
        ("no algorithm", unsigned(&json!({"alg": "None", "kid": "rsa"}), &good) + "."),
        ("no signature", format!("{signed}.")),
        ("two algorithms", format!("{twice}.{}.", encode(good.to_string().as_bytes()))),
        ("keys at a URL", elsewhere("jku")),
        ("a certificate at a URL", elsewhere("x5u")),
        ("a critical extension", header(json!({"alg": "RS256", "kid": "rsa", "crit": ["exp"]}))),
        ("a logout token", header(json!({"alg": "RS256", "kid": "rsa", "typ": "logout+jwt"}))),
        ("a signature for RS256 as PS256", header(json!({"alg": "PS256", "kid": "rsa"}))),
        ("a signature for RS256 as RS512", header(json!({"alg": "RS512", "kid": "rsa"}))),
        ("an audience in an object", claims(json!({"aud": {"mcp": "mcp"}}))),
        ("almost the audience", claims(json!({"aud": "mcp/"}))),
        ("the audience in another case", claims(json!({"aud": "MCP"}))),
        ("an issuer with a slash more", claims(json!({"iss": format!("{}/", issuer.url())}))),
        ("a start that is text", claims(json!({"nbf": "0"}))),
        ("an expiry of zero", claims(json!({"exp": 0}))),
        ("bound to a key", claims(json!({"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}}))),
    ];
    let hashed = unsigned(&json!({"alg": "HS256", "kid": "rsa"}), &good);
    for (name, secret) in ["modulus", "DER", "PEM"].into_iter().zip(public_forms(&rsa)) {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), hashed.as_bytes());
        tokens.push((name, format!("{hashed}.{}", encode(tag.as_ref()))));
    }
    for (case, token) in tokens {
        issuer.invalid(case, &with(&runner, &bearer(&token)).await);
    }
    let nobody = with(&runner, &bearer(&claims(json!({"sub": 7})))).await;
    issuer.refused("a number for a subject", &nobody, "invalid_token", "Invalid authentication claims");
    let (request, format) = ("invalid_request", "invalid authorization header format, expected 'Bearer <token>'");
    for (case, authorization) in [
        ("a tab for the blank", format!("Bearer\t{valid}")),
        ("a tab and another", format!("Bearer {valid}\tother")),
        ("a list", format!("Bearer {valid}, Bearer other")),
    ] {
        issuer.refused(case, &with(&runner, &authorization).await, request, format);
    }
    let instead = runner.post(&[("proxy-authorization", &bearer(&valid))], INITIALIZE).await;
    issuer.refused("a header for proxies", &instead, request, "authorization header required");
    assert!(backend.is_quiet() && evil.is_quiet());
    // As far away as can be told, which is no harm.
    for exp in [json!(1e308), json!(i64::MAX)] {
        let (authorization, done) = (bearer(&claims(json!({"exp": exp}))), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let headers = [("authorization", &*authorization)];
        let (answer, ()) =
            tokio::join!(runner.post(&headers, PING), async { backend.next().await.json("200 OK", "", done).await });
        assert_eq!(answer.status, 200, "{exp}: {answer:?}");
    }
}

#[tokio::test]
async fn a_log_of_everything_has_no_token_and_no_body() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let mut backend = Recorder::start().await;
    let login = issuer.login(&json!({}));
    let runner = Runner::login_with(&backend.url(), &login, &[("RUST_LOG", "trace")]).await;
    let good = signer.sign("ES256", &issuer.claims("alice"));
    let bad = Signer::ec("b").sign("ES256", &issuer.claims("alice"));
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"hush-in"}}"#;
    issuer.invalid("another key", &runner.post(&[("authorization", &bearer(&bad))], body).await);
    let authorization = bearer(&good);
    let headers = [("authorization", &*authorization)];
    let (answer, ()) = tokio::join!(runner.post(&headers, body), async {
        backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{"x":"hush-out"}}"#).await;
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    runner.logged("TRACE").await;
    let log = runner.log();
    for secret in [&good, &bad, "hush-in", "hush-out"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[tokio::test]
async fn a_session_answers_only_the_issuer_and_subject_that_opened_it() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let server = Server::go().await;
    // The key set alone counts, as where one key set is of several issuers.
    let login = issuer.login(&json!({"Issuer": "", "JWKSURL": format!("http://{}/keys", issuer.address)}));
    let behind_a_url = Runner::login(&server.url(), &login).await;
    let behind_a_pipe = Runner::login_stdio(&[go().into()], &login).await;
    let token = |subject: &str, change: Value| bearer(&signer.sign("ES256", &changed(&issuer.claims(subject), change)));
    let (alice, renewed) = (token("alice", json!({"jti": 1})), token("alice", json!({"jti": 2})));
    let (bob, namesake) = (token("bob", json!({})), token("alice", json!({"iss": "https://other.example"})));
    for runner in [&behind_a_url, &behind_a_pipe] {
        let opened = with(runner, &alice).await;
        let session = opened.header("mcp-session-id").unwrap_or_else(|| panic!("{opened:?}"));
        let ping = async |authorization: &str| {
            runner.post(&[("authorization", authorization), ("mcp-session-id", session)], PING).await
        };
        let end = async |authorization: &str| {
            let headers = [("authorization", authorization), ("mcp-session-id", session)];
            runner.request(Method::DELETE, "/mcp", &headers, "").await
        };
        assert_eq!(ping(&alice).await.status, 200);
        assert_eq!(ping(&renewed).await.status, 200, "another token of the same subject");
        no_session("somebody else's session", &ping(&bob).await, Some(1));
        assert_eq!(with(runner, &namesake).await.status, 200, "a token of another issuer opens the server");
        no_session("the same subject of another issuer is somebody else", &ping(&namesake).await, Some(1));
        for other in [&bob, &namesake] {
            no_session("nor can somebody else end it", &end(other).await, None);
        }
        for name in SESSION_NAMES {
            let target = format!("/mcp?a=b&{name}={session}");
            for (method, body, id) in
                [(Method::POST, PING, Some(1)), (Method::GET, "", None), (Method::DELETE, "", None)]
            {
                let case = format!("{method} {target}");
                let headers = [("content-type", "application/json"), ("authorization", &*bob)];
                let stolen = runner.request(method.clone(), &target, &headers, body).await;
                no_session(&case, &stolen, id);
                let own =
                    [("content-type", "application/json"), ("authorization", &*alice), ("mcp-session-id", session)];
                let other = runner.request(method, &format!("/mcp?{name}=other"), &own, body).await;
                no_session(&format!("{case} beside one's own"), &other, id);
            }
        }
        assert_eq!(ping(&alice).await.status, 200);
        assert!(end(&alice).await.status < 300);
        no_session("it is over", &ping(&alice).await, Some(1));
    }
}

#[tokio::test]
async fn a_server_that_gives_one_id_to_two_subjects_does_not_give_the_second_the_session_of_the_first() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let mut backend = Recorder::start().await;
    let runner = Runner::login(&backend.url(), &issuer.login(&json!({}))).await;
    let [alice, bob] = ["alice", "bob"].map(|subject| bearer(&signer.sign("ES256", &issuer.claims(subject))));
    let result = r#"{"jsonrpc":"2.0","id":"init","result":{}}"#;
    for (authorization, status, id) in [(&alice, 200, Some("same")), (&bob, 502, None), (&alice, 200, Some("same"))] {
        let (opened, ()) = tokio::join!(with(&runner, authorization), async {
            backend.next().await.json("200 OK", "mcp-session-id: same\r\n", result).await;
        });
        assert_eq!((opened.status, opened.header("mcp-session-id")), (status, id), "{opened:?}");
        assert_eq!(opened.message()["id"], "init");
    }
    let headers = |authorization| [("authorization", authorization), ("mcp-session-id", "same")];
    no_session("the session of the first", &runner.post(&headers(&bob), PING).await, Some(1));
    let alice = headers(&alice);
    let (answer, ()) = tokio::join!(runner.post(&alice, PING), async {
        backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    });
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn an_opaque_token_is_what_the_provider_says_of_it() {
    let issuer = Issuer::start(vec![Signer::ec("a")]).await;
    let server = Server::go().await;
    let members = json!({
        "IntrospectionURL": format!("http://{}/introspect", issuer.address), "ClientID": "mcp+proxy", "ClientSecret": "a b",
    });
    let runner = Runner::login(&server.url(), &issuer.login(&members)).await;
    let told = |change: Value| {
        let mut told = changed(&issuer.claims("alice"), change);
        told["active"] = json!(true);
        told
    };
    for (token, answer) in [
        ("good", told(json!({}))),
        ("plain", told(json!({"iss": null, "exp": null}))),
        ("foreign", told(json!({"iss": "https://other.example"}))),
        ("elsewhere", told(json!({"aud": "other"}))),
        ("everywhere", told(json!({"aud": null}))),
        ("expired", told(json!({"exp": 1}))),
        ("nobody", told(json!({"sub": null}))),
    ] {
        issuer.state().opaque.insert(token.to_owned(), answer);
    }
    let long = "x".repeat((4 << 10) + 1);
    for token in ["good", "plain"] {
        assert_eq!(with(&runner, &bearer(token)).await.status, 200, "{token}");
    }
    for token in ["foreign", "elsewhere", "everywhere", "expired", "unknown", &long] {
        issuer.invalid(token, &with(&runner, &bearer(token)).await);
    }
    let answer = with(&runner, &bearer("nobody")).await;
    issuer.refused("nobody", &answer, "invalid_token", "Invalid authentication claims");
    assert_eq!(with(&runner, &bearer("good")).await.status, 200);
    let asked = issuer.state().asked.iter().rfind(|asked| asked.form.starts_with("token=good&")).cloned().unwrap();
    assert_eq!(asked.form, "token=good&token_type_hint=access_token");
    assert_eq!(asked.headers["authorization"], "Basic bWNwJTJCcHJveHk6YSti", "each half is encoded as in a form");
    assert_eq!(
        issuer.asked("/introspect"),
        8,
        "what it said of a good token is remembered, and a long one is not shown"
    );
    issuer.state().broken = Some(http::StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(unavailable("broken", &with(&runner, &bearer("another")).await), 1);
    assert_eq!(with(&runner, &bearer("good")).await.status, 200);
}

#[tokio::test]
async fn the_proxys_own_password_may_end_with_a_line_break_as_files_do() {
    let issuer = Issuer::start(vec![]).await;
    let server = Server::go().await;
    let members = json!({"IntrospectionURL": format!("http://{}/introspect", issuer.address), "ClientID": "mcp"});
    let secret = [("TOOLHIVE_OIDC_CLIENT_SECRET", "s\r\n")];
    let runner = Runner::login_with(&server.url(), &issuer.login(&members), &secret).await;
    issuer.invalid("opaque", &with(&runner, &bearer("opaque")).await);
    let asked = issuer.state().asked.iter().rfind(|asked| asked.path == "/introspect").cloned().unwrap();
    assert_eq!(asked.headers["authorization"], "Basic bWNwOnM=", "mcp:s");
}

#[tokio::test]
async fn clients_learn_without_a_token_who_issues_them() {
    let issuer = Issuer::start(vec![]).await;
    let server = Server::go().await;
    let runner = Runner::login(&server.url(), &issuer.login(&json!({}))).await;
    let expected = json!({
        "resource": "https://mcp.example.com/some/mcp", "authorization_servers": [issuer.url()],
        "bearer_methods_supported": ["header"], "scopes_supported": ["openid", "mcp"],
    });
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/some/mcp"] {
        let answer = runner.request(Method::GET, path, &[("origin", "https://page.example")], "").await;
        assert_eq!((answer.status, answer.message()), (200, expected.clone()), "{path}");
        for (name, value) in [
            ("content-type", "application/json"),
            ("access-control-allow-origin", "https://page.example"),
            ("access-control-allow-methods", "GET, OPTIONS"),
            ("access-control-allow-headers", "mcp-protocol-version, Content-Type, Authorization"),
            ("access-control-max-age", "86400"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        let answer = runner.request(Method::OPTIONS, path, &[], "").await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, Some("*")));
    }
    for path in ["/.well-known/oauth-protected-resourceful", "/.well-known/openid-configuration"] {
        let answer = runner.get(path).await;
        assert_eq!((answer.status, answer.body.as_str()), (404, r#"{"error":"not_found"}"#), "{path}");
    }
    let nameless = Runner::login(&server.url(), &issuer.login(&json!({"ResourceURL": ""}))).await;
    let answer = nameless.get("/.well-known/oauth-protected-resource").await;
    assert_eq!((answer.status, answer.body.as_str()), (404, ""));
}
