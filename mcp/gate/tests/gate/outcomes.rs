//! The effect of each answer of a webhook, or of none, on the call (toolhive-runner §3.9).

use std::net::TcpListener;

use futures::{FutureExt, StreamExt};
use http::StatusCode;
use portcullis_pki::{Ca, Usage};
use serde_json::{Value, json};

use crate::endpoint::{Call, Endpoint, Reply};
use crate::support::{CALL, Files, Proxy, authority, chain, entry, issue, local_server, post, server, webhook};

/// The names of the rows with answers that take more memory than a shadow may.
const LONGEST: &str = "1 MiB";
const TOO_LONG: &str = "too big by a byte";

/// The outcome of a situation, before kind and failure policy apply.
#[derive(Clone, Copy, Debug)]
enum Class {
    Allowed,
    Denied,
    Unprocessable,
    /// No usable answer.
    Failed,
    /// Allowed, and the tool's argument is now `ho`.
    Patched,
    /// Allowed, with a patch that is not applied; the message to the client.
    BadPatch(&'static str),
    /// Allowed, with a patch after which the body is no MCP request.
    Spoilt,
}

/// Status and body that the client gets; `None` where the call passes.
fn expected(class: Class, kind: &str, policy: &str) -> Option<(u16, String)> {
    let error = |status, code: i64, message: &str| {
        Some((status, format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":{code},"message":"{message}"}}}}"#)))
    };
    match (kind, class, policy) {
        (_, Class::Allowed | Class::Patched, _)
        | ("validating-webhook", Class::BadPatch(_) | Class::Spoilt, _)
        | (_, Class::Failed | Class::BadPatch(_), "ignore") => None,
        ("validating-webhook", ..) => error(403, 403, "Request denied by policy"),
        (_, Class::Denied, _) => error(403, 403, "Request denied by webhook policy"),
        (_, Class::Unprocessable, _) => error(422, 403, "Request denied by webhook policy"),
        (_, Class::Spoilt, _) => error(500, -32603, "Webhook produced an invalid MCP request"),
        (_, Class::Failed, _) => error(500, -32603, "Webhook error"),
        (_, Class::BadPatch(message), _) => error(500, -32603, message),
    }
}

struct Situation {
    name: &'static str,
    class: Class,
    endpoint: Option<Endpoint>,
    /// Members of the webhook's configuration that differ.
    more: Value,
}

/// The authorities, and the files every webhook of the table may name.
struct World {
    files: Files,
    ours: Ca,
    other: Ca,
    rows: Vec<Situation>,
}

impl World {
    fn new() -> Self {
        let (files, ours, other) = (Files::new(), authority("ours"), authority("other"));
        files.write("/ca.crt", ours.cert_pem());
        files.write("/hmac", "another key");
        for (name, ca) in [("good", &ours), ("bad", &other)] {
            let pair = issue(ca, Usage::Client, [127, 0, 0, 1]);
            files.write(&format!("/{name}/tls.crt"), pair.cert_pem);
            files.write(&format!("/{name}/tls.key"), pair.key_pem);
        }
        Self { files, ours, other, rows: Vec::new() }
    }

    fn row(&mut self, name: &'static str, class: Class, endpoint: Endpoint, more: Value) {
        self.rows.push(Situation { name, class, endpoint: Some(endpoint), more });
    }

    async fn reply(&mut self, name: &'static str, class: Class, reply: Reply) {
        // Only those that are to run out of time get little of it: the machine may be busy.
        let timeout = if matches!(reply, Reply::Silence | Reply::HalfAnswer) { "1s" } else { "30s" };
        let endpoint = Endpoint::start(Some(local_server(&self.ours)), move |_| reply.clone()).await;
        self.row(name, class, endpoint, json!({"timeout": timeout}));
    }

    async fn patch(&mut self, name: &'static str, class: Class, patch: &str) {
        self.reply(name, class, Reply::patch(patch)).await;
    }
}

/// Exactly `length` bytes of an answer that allows.
fn padded(length: usize) -> Vec<u8> {
    let mut answer = br#"{"allowed":true}"#.to_vec();
    answer.resize(length, b' ');
    answer
}

async fn answers(world: &mut World) {
    use Class::{Allowed, Denied, Failed, Unprocessable};
    let status = |status: u16| Reply::Answer(StatusCode::from_u16(status).unwrap(), br#"{"allowed":true}"#.to_vec());
    let long = |status: u16| Reply::Answer(StatusCode::from_u16(status).unwrap(), padded(2 << 20));
    let elsewhere = Endpoint::start(Some(local_server(&world.ours)), |_| Reply::allow()).await;
    for (name, class, reply) in [
        ("allowed", Allowed, Reply::allow()),
        ("another version is not looked at", Allowed, Reply::ok(r#"{"version":"v9","allowed":true}"#)),
        ("unknown keys and other case", Allowed, Reply::ok(r#"{"Allowed":true,"x":[{}]}"#)),
        ("denied", Denied, Reply::ok(r#"{"allowed":false,"code":200,"message":"m","reason":"r"}"#)),
        ("no verdict", Denied, Reply::ok("{}")),
        ("null", Denied, Reply::ok("null")),
        ("null verdict", Denied, Reply::ok(r#"{"allowed":null}"#)),
        ("422", Unprocessable, status(422)),
        ("slow", Failed, Reply::Silence),
        ("slow body", Failed, Reply::HalfAnswer),
        ("garbage", Failed, Reply::ok("<html>")),
        ("empty", Failed, Reply::ok("")),
        ("a list", Failed, Reply::ok("[]")),
        ("data after the answer", Failed, Reply::ok(r#"{"allowed":true}{}"#)),
        ("version of the wrong type", Failed, Reply::ok(r#"{"version":1,"allowed":true}"#)),
        ("verdict of the wrong type", Failed, Reply::ok(r#"{"allowed":"true"}"#)),
        ("code of the wrong type beside a denial", Failed, Reply::ok(r#"{"allowed":false,"code":"403"}"#)),
        (LONGEST, Allowed, Reply::ok(padded(1 << 20))),
        (TOO_LONG, Failed, Reply::ok(padded((1 << 20) + 1))),
        ("422 that quotes a long request", Unprocessable, long(422)),
        ("400 that quotes a long request", Denied, long(400)),
        ("500 that quotes a long request", Failed, long(500)),
        ("201", Failed, status(201)),
        ("204", Failed, Reply::Answer(StatusCode::NO_CONTENT, Vec::new())),
        ("redirect to one that allows", Failed, Reply::Redirect(elsewhere.url.clone())),
        ("400", Denied, status(400)),
        ("401", Failed, status(401)),
        ("403", Failed, status(403)),
        ("404", Failed, status(404)),
        ("413", Denied, status(413)),
        ("414", Denied, status(414)),
        ("415", Denied, status(415)),
        ("429", Failed, status(429)),
        ("431", Denied, status(431)),
        ("500", Failed, status(500)),
        ("503", Failed, status(503)),
    ] {
        world.reply(name, class, reply).await;
    }
    world.row("elsewhere, asked directly", Allowed, elsewhere, json!({}));
}

async fn patches(world: &mut World) {
    use Class::{Allowed, BadPatch, Patched, Spoilt};
    let set = r#"{"op":"replace","path":"/mcp_request/params/arguments/text","value":"ho"}"#;
    let typed =
        |kind: &str, patch: &str| Reply::ok(format!(r#"{{"allowed":true,"patch_type":{kind},"patch":{patch}}}"#));
    world.patch("patch", Patched, &format!("[{set}]")).await;
    world.patch("empty patch", Allowed, "[]").await;
    world.patch("null patch", Allowed, "null").await;
    world.reply("patch without type", Allowed, typed("\"\"", &format!("[{set}]"))).await;
    world.reply("type without patch", Allowed, Reply::ok(r#"{"allowed":true,"patch_type":"merge"}"#)).await;
    let unsupported = BadPatch("Unsupported patch type from webhook");
    world.reply("another patch type", unsupported, typed("\"merge\"", &format!("[{set}]"))).await;
    for (name, patch) in [
        ("patch that is an object", "{}"),
        ("patch that is base64", r#""W10=""#),
        ("operation that is a string", r#"["x"]"#),
        ("operation with a number for its path", r#"[{"op":"remove","path":7}]"#),
        ("half of a surrogate pair in a name", r#"[{"op":"add","path":"/mcp_request/params/x","value":{"\udc00":1}}]"#),
        ("operation with two paths", r#"[{"op":"remove","path":"/mcp_request/id","path":"/mcp_request/x"}]"#),
    ] {
        world.patch(name, BadPatch("Malformed patch from webhook"), patch).await;
    }
    for (name, patch) in [
        ("unknown operation", r#"[{"op":"merge","path":"/mcp_request/params","value":1}]"#),
        ("operation without op", r#"[{"path":"/mcp_request/params","value":1}]"#),
        ("operation without path", r#"[{"op":"remove"}]"#),
        ("copy without from", r#"[{"op":"copy","path":"/mcp_request/params/x"}]"#),
        ("add without value", r#"[{"op":"add","path":"/mcp_request/params/x"}]"#),
        ("another id", r#"[{"op":"replace","path":"/mcp_request/id","value":8}]"#),
        ("id as a string", r#"[{"op":"replace","path":"/mcp_request/id","value":"7"}]"#),
        ("no id", r#"[{"op":"remove","path":"/mcp_request/id"}]"#),
    ] {
        world.patch(name, BadPatch("Invalid patch from webhook"), patch).await;
    }
    for (name, patch) in [
        ("patch of the principal", r#"[{"op":"replace","path":"/principal/sub","value":"root"}]"#),
        ("patch of the whole request", r#"[{"op":"replace","path":"/mcp_request","value":{}}]"#),
        ("copy from outside", r#"[{"op":"copy","from":"/principal","path":"/mcp_request/params/x"}]"#),
        ("path that only begins alike", r#"[{"op":"add","path":"/mcp_request2/x","value":1}]"#),
    ] {
        world.patch(name, BadPatch("Patch must be scoped to mcp_request"), patch).await;
    }
    for (name, patch) in [
        ("replace of what is not there", r#"[{"op":"replace","path":"/mcp_request/params/x","value":1}]"#),
        ("add into what is not there", r#"[{"op":"add","path":"/mcp_request/params/x/y","value":1}]"#),
        ("failing test", r#"[{"op":"test","path":"/mcp_request/params/name","value":"other"}]"#),
        ("path with a bad escape", r#"[{"op":"remove","path":"/mcp_request/params/~2"}]"#),
    ] {
        world.patch(name, BadPatch("Failed to apply patch from webhook"), patch).await;
    }
    for (name, patch) in [
        ("no method", r#"[{"op":"remove","path":"/mcp_request/method"}]"#),
        (
            "a response",
            r#"[{"op":"move","from":"/mcp_request/method","path":"/mcp_request/result"},{"op":"remove","path":"/mcp_request/params"}]"#,
        ),
        ("a result beside the method", r#"[{"op":"add","path":"/mcp_request/result","value":{}}]"#),
        ("a method that is a list", r#"[{"op":"replace","path":"/mcp_request/method","value":["tools/call"]}]"#),
        ("version of another protocol", r#"[{"op":"replace","path":"/mcp_request/jsonrpc","value":"1.0"}]"#),
        ("half of a surrogate pair", r#"[{"op":"add","path":"/mcp_request/params/x","value":"\ud800"}]"#),
        ("a method that looks like another", r#"[{"op":"replace","path":"/mcp_request/method","value":"Tools/Call"}]"#),
        ("an object with two members of one name", r#"[{"op":"add","path":"/mcp_request/Id","value":8}]"#),
    ] {
        world.patch(name, Spoilt, patch).await;
    }
}

async fn connections(world: &mut World) {
    use Class::{Allowed, Failed};
    let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = json!({"url": format!("https://{down}/review")});
    world.rows.push(Situation { name: "down", class: Failed, endpoint: None, more: url });
    let metadata = json!({"url": "https://169.254.169.254/review"});
    world.rows.push(Situation { name: "link-local", class: Failed, endpoint: None, more: metadata });
    let unknown = json!({"url": "https://policy.invalid/review"});
    world.rows.push(Situation { name: "no such host", class: Failed, endpoint: None, more: unknown });

    let allow = |_: &Call| Reply::allow();
    let stranger = Endpoint::start(Some(local_server(&world.other)), allow).await;
    world.row("certificate of another authority", Failed, stranger, json!({}));
    let misnamed = server(&issue(&world.ours, Usage::Server, [127, 0, 0, 9]), None);
    world.row("certificate of another host", Failed, Endpoint::start(Some(misnamed), allow).await, json!({}));
    let plain = Endpoint::start(None, allow).await;
    let https = json!({"url": plain.url.replace("http:", "https:")});
    world.row("plain HTTP where TLS was said", Failed, plain, https);

    let skip = json!({"tls_config": {"insecure_skip_verify": true}});
    let stranger = Endpoint::start(Some(local_server(&world.other)), allow).await;
    world.row("any certificate, unchecked", Allowed, stranger, skip.clone());
    world.row("plain HTTP, unchecked", Allowed, Endpoint::start(None, allow).await, skip);

    let pair = |name: &str| {
        json!({"tls_config": {"ca_bundle_path": "/ca.crt",
            "client_cert_path": format!("/{name}/tls.crt"), "client_key_path": format!("/{name}/tls.key")}})
    };
    for (name, class, more) in [
        ("client certificate", Allowed, pair("good")),
        ("client certificate of another authority", Failed, pair("bad")),
        ("no client certificate where one is asked for", Failed, json!({})),
    ] {
        let config = server(&issue(&world.ours, Usage::Server, [127, 0, 0, 1]), Some(&world.ours));
        world.row(name, class, Endpoint::start(Some(config), allow).await, more);
    }
    for (name, class, key) in
        [("signature", Allowed, "another key"), ("signature under another key", Failed, "the right key")]
    {
        let verify = move |call: &Call| {
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key.as_bytes());
            let header = |name: &str| call.headers[name].to_str().unwrap();
            let hex = header("x-toolhive-signature").strip_prefix("sha256=").unwrap();
            let tag: Vec<u8> =
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
            let signed = [header("x-toolhive-timestamp").as_bytes(), b".", &call.body].concat();
            match aws_lc_rs::hmac::verify(&key, &signed, &tag) {
                Ok(()) => Reply::allow(),
                Err(_) => Reply::Answer(StatusCode::UNAUTHORIZED, br#"{"allowed":true}"#.to_vec()),
            }
        };
        let endpoint = Endpoint::start(Some(local_server(&world.ours)), verify).await;
        world.row(name, class, endpoint, json!({"hmac_secret_ref": "/hmac"}));
    }
}

async fn check(world: &World, row: &Situation, kind: &str, policy: &str) {
    let what = format!("{} × {kind} × {policy}", row.name);
    let url = row.endpoint.as_ref().map_or("", |endpoint| &endpoint.url);
    let hook = webhook(url, policy, row.more.clone());
    let proxy = Proxy::new(&world.files, chain(vec![entry(kind, vec![hook])]));
    let answer = proxy.post(CALL).await;
    let forwarded: Vec<_> = proxy.forwarded().into_iter().map(|forwarded| forwarded.body).collect();
    if let Some((status, body)) = expected(row.class, kind, policy) {
        assert_eq!((answer.status, answer.text), (status, body), "{what}");
        assert_eq!(answer.headers["content-type"], "application/json", "{what}");
        assert!(forwarded.is_empty(), "{what}: the backend was called");
    } else {
        assert_eq!((answer.status, answer.text.as_str()), (200, "done"), "{what}");
        let changed = matches!(row.class, Class::Patched) && kind == "mutating-webhook";
        let body = if changed { CALL.replace("\"hi\"", "\"ho\"") } else { CALL.to_owned() };
        assert_eq!(forwarded, [body], "{what}");
    }
}

/// The same call, with the webhook in shadow: it passes as it is, and is counted as refused where it would have been.
async fn check_shadow(world: &World, row: &Situation, kind: &str, policy: &str) {
    let what = format!("{} × {kind} × {policy} in shadow", row.name);
    let url = row.endpoint.as_ref().map_or("", |endpoint| &endpoint.url);
    let mut hook = webhook(url, policy, row.more.clone());
    hook["portcullis"] = json!({"mode": "shadow"});
    let proxy = Proxy::new(&world.files, chain(vec![entry(kind, vec![hook])]));
    let (context, answer) = proxy.observed([10, 244, 0, 9], post("application/json", CALL)).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "done"), "{what}");
    assert_eq!(proxy.forwarded().remove(0).body, CALL, "{what}");
    let shadows = context.shadows().unwrap();
    shadows.done().await;
    let findings = shadows.findings();
    if [LONGEST, TOO_LONG].contains(&row.name) {
        return assert_eq!(findings, [], "{what}");
    }
    assert_eq!(findings.len(), 1, "{what}: {findings:?}");
    assert_eq!(findings[0].refuses(), expected(row.class, kind, policy).is_some(), "{what}: {findings:?}");
}

/// M4: the outcome tables of both kinds under both failure policies.
#[tokio::test]
async fn every_answer_and_every_failure_has_the_outcome_of_the_tables() {
    let mut world = World::new();
    answers(&mut world).await;
    patches(&mut world).await;
    connections(&mut world).await;
    let mut cases = Vec::new();
    for row in &world.rows {
        for kind in ["mutating-webhook", "validating-webhook"] {
            for policy in ["fail", "ignore"] {
                cases.push(check(&world, row, kind, policy).boxed());
                cases.push(check_shadow(&world, row, kind, policy).boxed());
            }
        }
    }
    assert!(cases.len() > 400, "{} cases", cases.len());
    futures::stream::iter(cases).buffer_unordered(16).collect::<Vec<()>>().await;
}

/// A webhook that knows calls only may answer 400 to anything else.
#[tokio::test]
async fn a_caller_does_not_make_a_webhook_fail_for_a_call() {
    let mut world = World::new();
    let answer = Reply::Answer(StatusCode::BAD_REQUEST, b"?".to_vec());
    world.reply("400", Class::Denied, answer).await;
    let url = &world.rows[0].endpoint.as_ref().unwrap().url;
    for (method, denied) in [
        ("tools/call", true),
        ("prompts/get", true),
        ("resources/read", true),
        ("resources/list", true),
        ("resources/subscribe", true),
        ("completion/complete", true),
        ("initialize", false),
        ("ping", false),
        ("tools/list", false),
        ("notifications/initialized", false),
        ("own/method", false),
    ] {
        for (kind, failed) in [("mutating-webhook", 500), ("validating-webhook", 403)] {
            for (policy, otherwise) in [("ignore", 200), ("fail", failed)] {
                let settings = world.files.settings();
                let metrics = settings.metrics.clone();
                let entries = chain(vec![entry(kind, vec![webhook(url, policy, json!({}))])]);
                let proxy = Proxy::with(settings, entries);
                let answer =
                    proxy.post(format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{}}}}"#)).await;
                let expected = if denied { 403 } else { otherwise };
                assert_eq!(answer.status, expected, "{method} {kind} {policy}: {answer:?}");
                assert_eq!(proxy.forwarded().is_empty(), expected != 200, "{method} {kind} {policy}");
                let outcome = match (denied, policy) {
                    (true, _) => "blamed",
                    (false, "ignore") => "ignored",
                    (false, _) => "failed",
                };
                let labels = format!(r#"{{webhook="policy",type="{kind}",outcome="{outcome}"}}"#);
                let metrics = metrics.encode();
                let counted = metrics
                    .lines()
                    .filter(|line| line.starts_with("mcp_runner_webhook_calls_total") && !line.ends_with(" 0"));
                let counted: Vec<_> = counted.collect();
                assert_eq!(counted, [format!("mcp_runner_webhook_calls_total{labels} 1")], "{method} {kind} {policy}");
            }
        }
    }
}
