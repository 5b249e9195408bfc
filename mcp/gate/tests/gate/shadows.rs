//! Webhooks that are tried: asked as if they decided, and without effect.

use http::Request;
use mcp_http::Body;
use mcp_middleware::Found;
use serde_json::{Value, json};

use std::time::{Duration, Instant};

use crate::endpoint::{Endpoint, Reply};
use crate::support::{CALL, Files, Log, Proxy, authority, chain, entry, local_server, post, webhook};

const KINDS: [&str; 2] = ["mutating-webhook", "validating-webhook"];

/// Endpoints that give these answers, and the files to call them with.
async fn endpoints<const N: usize>(replies: [Reply; N]) -> (Files, [Endpoint; N]) {
    let (files, ca) = (Files::new(), authority("ours"));
    files.write("/ca.crt", ca.cert_pem());
    let started = replies.map(|reply| Endpoint::start(Some(local_server(&ca)), move |_| reply.clone()));
    let mut all = Vec::new();
    for endpoint in started {
        all.push(endpoint.await);
    }
    let all: [Endpoint; N] = all.try_into().map_err(|_| "as many as there are replies").unwrap();
    (files, all)
}

fn deny() -> Reply {
    Reply::ok(r#"{"allowed":false}"#)
}

fn shadow(endpoint: &Endpoint, name: &str, more: Value) -> Value {
    let mut members = json!({"name": name, "portcullis": {"mode": "shadow"}});
    for (member, value) in more.as_object().cloned().unwrap_or_default() {
        members[member] = value;
    }
    webhook(&endpoint.url, "fail", members)
}

fn enforced(endpoint: &Endpoint, name: &str) -> Value {
    webhook(&endpoint.url, "fail", json!({"name": name}))
}

/// The lines of these metrics that are not zero, without their prefix.
fn counted(report: &str) -> Vec<String> {
    let names =
        ["mcp_runner_shadow_decisions_total", "mcp_runner_would_refuse_total", "mcp_runner_webhook_calls_total"];
    let lines = report.lines().filter(|line| names.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0"));
    lines.map(|line| line.trim_start_matches("mcp_runner_").to_owned()).collect()
}

#[tokio::test]
async fn a_shadow_sees_what_reaches_it_and_changes_nothing() {
    let rename = Reply::patch(r#"[{"op":"replace","path":"/mcp_request/params/name","value":"other"}]"#);
    for kind in KINDS {
        let (files, [refusing, renaming, last]) = endpoints([deny(), rename.clone(), Reply::allow()]).await;
        let settings = files.settings();
        let metrics = settings.metrics.clone();
        let webhooks = vec![
            shadow(&refusing, "refusing", json!({})),
            shadow(&renaming, "renaming", json!({})),
            enforced(&last, "last"),
        ];
        let proxy = Proxy::with(settings, chain(vec![entry(kind, webhooks)]));
        assert_eq!(proxy.post(CALL).await.status, 200);
        proxy.close().await;
        assert_eq!(proxy.forwarded()[0].body, CALL);
        for endpoint in [&refusing, &renaming, &last] {
            let calls = endpoint.calls();
            assert_eq!(calls.len(), 1, "{kind}");
            assert_eq!(calls[0].json()["mcp_request"]["params"]["name"], "echo", "{kind}");
        }
        let changes = if kind == "mutating-webhook" { "changed" } else { "allowed" };
        let expected = [
            format!(r#"webhook_calls_total{{webhook="last",type="{kind}",outcome="allowed"}} 1"#),
            format!(r#"shadow_decisions_total{{guard="{kind}",webhook="refusing",outcome="denied"}} 1"#),
            format!(r#"shadow_decisions_total{{guard="{kind}",webhook="renaming",outcome="{changes}"}} 1"#),
            format!(r#"would_refuse_total{{guard="{kind}",webhook="refusing",subject="call"}} 1"#),
        ];
        let (mut counted, mut expected) = (counted(&metrics.encode()), expected.to_vec());
        counted.sort();
        expected.sort();
        assert_eq!(counted, expected);
    }
}

#[tokio::test]
async fn a_call_that_is_refused_before_reaches_no_shadow() {
    for kind in KINDS {
        let (files, [refusing, tried]) = endpoints([deny(), Reply::allow()]).await;
        let webhooks = vec![enforced(&refusing, "refusing"), shadow(&tried, "tried", json!({}))];
        let proxy = Proxy::new(&files, chain(vec![entry(kind, webhooks)]));
        assert_eq!(proxy.post(CALL).await.status, 403);
        proxy.close().await;
        assert!(tried.calls().is_empty());
    }
}

/// Nor does a shadow that is asked first make a difference to one that decides behind it.
#[tokio::test]
async fn a_shadow_that_is_silent_holds_no_call_up() {
    for kind in KINDS {
        let (files, [silent, last]) = endpoints([Reply::Silence, Reply::allow()]).await;
        let webhooks = vec![shadow(&silent, "silent", json!({"timeout": "30s"})), enforced(&last, "last")];
        let proxy = Proxy::new(&files, chain(vec![entry(kind, webhooks)]));
        let (context, answer) = proxy.observed([10, 244, 0, 9], post("application/json", CALL)).await;
        assert_eq!((answer.status, proxy.forwarded().len()), (200, 1), "{kind}");
        assert!(!context.shadows().unwrap().are_done(), "it is asked still");
    }
}

#[tokio::test]
async fn a_shadow_that_fails_counts_as_its_policy_says() {
    for (policy, outcome, refused) in [("fail", "failed", 1), ("ignore", "ignored", 0)] {
        let log = Log::capture();
        let (files, [broken]) = endpoints([Reply::ok("?")]).await;
        let hook = webhook(&broken.url, policy, json!({"portcullis": {"mode": "shadow"}}));
        let proxy = Proxy::new(&files, chain(vec![entry("validating-webhook", vec![hook])]));
        let (context, answer) = proxy.observed([10, 244, 0, 9], post("application/json", CALL)).await;
        assert_eq!(answer.status, 200);
        let shadows = context.shadows().unwrap();
        shadows.done().await;
        let findings = shadows.findings();
        assert!(matches!(findings[0].found, Found::Decision(found, ..) if found.as_str() == outcome), "{findings:?}");
        assert_eq!(findings.iter().filter(|finding| finding.refuses()).count(), refused);
        let (text, reason) = (log.text(), "reason=\"invalid response: expected value");
        assert!(text.lines().any(|line| line.contains("a shadow") && line.contains(reason)), "{text}");
    }
}

/// A trial takes no proxy down: its Secret may come later than the proxy, or be no key of it.
#[tokio::test]
async fn a_shadow_waits_for_its_files_and_takes_them_up() {
    let (files, ca, log) = (Files::new(), authority("ours"), Log::capture());
    files.write("/broken.crt", "no certificate");
    let endpoint = Endpoint::start(Some(local_server(&ca)), |_| Reply::allow()).await;
    for (name, path, later, outcome) in [
        ("a key", "/hmac", "key", "failed"),
        ("authorities", "/late.crt", ca.cert_pem(), "ignored"),
        ("authorities that are none", "/broken.crt", ca.cert_pem(), "ignored"),
    ] {
        files.write("/ca.crt", ca.cert_pem());
        let more = match path {
            "/hmac" => json!({"hmac_secret_ref": path, "portcullis": {"mode": "shadow"}}),
            _ => json!({"tls_config": {"ca_bundle_path": path}, "portcullis": {"mode": "shadow"}}),
        };
        let hook = webhook(&endpoint.url, "ignore", more);
        let proxy = Proxy::new(&files, chain(vec![entry("validating-webhook", vec![hook])]));
        let found = async || {
            let (context, answer) = proxy.observed([10, 244, 0, 9], post("application/json", CALL)).await;
            assert_eq!(answer.status, 200, "{name}");
            let shadows = context.shadows().unwrap();
            shadows.done().await;
            let Found::Decision(outcome, ..) = shadows.findings()[0].found else { panic!("it hides no entries") };
            outcome.as_str()
        };
        assert_eq!(found().await, outcome, "{name}");
        files.write(path, later);
        let deadline = Instant::now() + Duration::from_mins(1);
        while found().await != "allowed" {
            assert!(Instant::now() < deadline, "{name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let taken_up = log.text().lines().filter(|line| line.contains("certificates changed and are used")).count();
    assert_eq!(taken_up, 2, "the authorities of two");
}

/// Neither message nor answer takes more memory than the bound tells of.
#[tokio::test]
async fn long_messages_and_answers_are_counted_and_not_held() {
    let long = format!(r#"{{"allowed":false,"message":"{}"}}"#, "x".repeat(64 << 10));
    for (name, text, counts) in [
        ("a long answer to a short message", "x".repeat(8), ["shadow_decisions_total dropped 1", ""]),
        (
            "a long answer to a long message",
            "x".repeat(80 << 10),
            ["shadow_decisions_total denied 1", "would_refuse_total call 1"],
        ),
        (
            "a message too long for webhooks",
            "x".repeat(3 << 20),
            ["shadow_decisions_total denied 1", "would_refuse_total call 1"],
        ),
    ] {
        for kind in KINDS {
            let (files, [long]) = endpoints([Reply::ok(long.clone())]).await;
            let settings = files.settings();
            let metrics = settings.metrics.clone();
            let proxy = Proxy::with(settings, chain(vec![entry(kind, vec![shadow(&long, "long", json!({}))])]));
            assert_eq!(proxy.post(CALL.replace("hi", &text)).await.status, 200, "{name}");
            proxy.close().await;
            let brief = |line: String| {
                let (metric, rest) = line.split_once('{').unwrap();
                format!("{metric} {}", rest.rsplit_once('=').unwrap().1.replace(['"', '}'], ""))
            };
            let counted: Vec<_> = counted(&metrics.encode()).into_iter().map(brief).collect();
            assert_eq!(
                counted,
                counts.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>(),
                "{name} {kind}"
            );
        }
    }
}

/// A client has 64 calls of a shadow under way, and leaves the others theirs.
#[tokio::test]
async fn calls_of_a_shadow_beyond_its_bound_are_dropped_and_counted() {
    let (files, [silent]) = endpoints([Reply::Silence]).await;
    let settings = files.settings();
    let metrics = settings.metrics.clone();
    let hook = shadow(&silent, "silent", json!({"timeout": "30s"}));
    let proxy = Proxy::with(settings, chain(vec![entry("validating-webhook", vec![hook])]));
    let call = || -> Request<Body> { post("application/json", CALL) };
    for _ in 0..66 {
        assert_eq!(proxy.send_from([10, 1, 0, 1], call()).await.status, 200);
    }
    assert_eq!(proxy.send_from([10, 2, 0, 1], call()).await.status, 200);
    let dropped = r#"shadow_decisions_total{guard="validating-webhook",webhook="silent",outcome="dropped"} 2"#;
    assert_eq!(counted(&metrics.encode()), [dropped]);
    assert_eq!(proxy.bound("validating_shadows").used, 65 * (64 << 10));
}
