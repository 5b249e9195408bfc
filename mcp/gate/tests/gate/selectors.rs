//! Which messages a webhook is asked about.

use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Reply};
use crate::support::{CALL, Files, Proxy, authority, chain, entry, local_server, webhook};

const KINDS: [&str; 2] = ["mutating-webhook", "validating-webhook"];

/// An endpoint that gives this answer, and the files to call it with.
async fn endpoint(reply: Reply) -> (Files, Endpoint) {
    let (files, ca) = (Files::new(), authority("ours"));
    files.write("/ca.crt", ca.cert_pem());
    (files, Endpoint::start(Some(local_server(&ca)), move |_| reply.clone()).await)
}

fn deny() -> Reply {
    Reply::ok(r#"{"allowed":false}"#)
}

/// A webhook that is asked about what these lists match.
fn selective(endpoint: &Endpoint, name: &str, lists: &Value) -> Value {
    webhook(&endpoint.url, "fail", json!({"name": name, "portcullis": {"match": lists}}))
}

fn message(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
}

/// M6: of five webhooks, one call.
#[tokio::test]
async fn of_five_webhooks_only_the_one_that_matches_is_asked() {
    for kind in KINDS {
        let (files, endpoint) = endpoint(Reply::allow()).await;
        let lists = [
            json!({"methods": ["prompts/*"]}),
            json!({"tools": ["deploy_*"]}),
            json!({"tools": ["ec*"], "methods": ["tools/*"]}),
            json!({"tools": ["echo2", "Echo"]}),
            json!({"methods": ["tools/call"], "tools": ["*z"]}),
        ];
        let webhooks: Vec<_> =
            lists.iter().enumerate().map(|(at, lists)| selective(&endpoint, &format!("w{at}"), lists)).collect();
        let settings = files.settings();
        let metrics = settings.metrics.clone();
        let proxy = Proxy::with(settings, chain(vec![entry(kind, webhooks)]));
        assert_eq!(proxy.post(CALL).await.status, 200, "{kind}");
        assert_eq!(endpoint.calls().len(), 1, "{kind}");
        let report = metrics.encode();
        let counted = |line: &&str| line.starts_with("mcp_runner_webhook_calls_total") && !line.ends_with(" 0");
        let counted: Vec<_> = report.lines().filter(counted).collect();
        let labels = format!(r#"{{webhook="w2",type="{kind}",outcome="allowed"}}"#);
        assert_eq!(counted, [format!("mcp_runner_webhook_calls_total{labels} 1")]);
    }
}

/// M6.
#[tokio::test]
async fn a_webhook_denies_only_what_it_is_asked_about() {
    let (files, endpoint) = endpoint(deny()).await;
    let (ann, nobody) = (json!({"subject": "ann", "logged_in": true}), json!({"subject": "local"}));
    let nameless = json!({"subject": "", "logged_in": true});
    let (echo, long) = (json!({"name": "echo"}), "e".repeat(2 << 10));
    for (name, lists, caller, method, params, asked) in [
        ("no lists", json!({}), &ann, "ping", json!({}), true),
        ("the method", json!({"methods": ["resources/*"]}), &ann, "resources/read", json!({"uri": "a:b"}), true),
        ("another method", json!({"methods": ["resources/*"]}), &ann, "tools/call", echo.clone(), false),
        ("the tool", json!({"tools": ["e*o"]}), &ann, "tools/call", echo.clone(), true),
        ("another tool", json!({"tools": ["x*"]}), &ann, "tools/call", echo.clone(), false),
        ("a prompt of the tool's name", json!({"tools": ["echo"]}), &ann, "prompts/get", echo.clone(), false),
        ("a call without a name", json!({"tools": ["x*"]}), &ann, "tools/call", json!({}), true),
        ("a call of a number", json!({"tools": ["x*"]}), &ann, "tools/call", json!({"name": 7}), true),
        ("a name with escapes", json!({"tools": ["é*"]}), &ann, "tools/call", json!({"name": "école"}), true),
        ("a name in another case", json!({"tools": ["echo"]}), &ann, "tools/call", json!({"name": "Echo"}), false),
        (
            "a name in two forms",
            json!({"tools": ["caf\u{e9}"]}),
            &ann,
            "tools/call",
            json!({"name": "cafe\u{301}"}),
            false,
        ),
        ("a name that is too long", json!({"tools": ["x*"]}), &ann, "tools/call", json!({"name": long}), true),
        ("a method that is too long", json!({"methods": ["x*"]}), &ann, &*long, json!({}), true),
        ("a method with a list of tools", json!({"tools": ["*"]}), &ann, "tools/list", json!({}), false),
        ("the caller", json!({"principals": ["ann"]}), &ann, "tools/call", echo.clone(), true),
        ("another caller", json!({"principals": ["bob", "svc-*"]}), &ann, "tools/call", echo.clone(), false),
        ("a caller without a login", json!({"principals": ["bob"]}), &nobody, "tools/call", echo.clone(), true),
        ("a login without a subject", json!({"principals": ["bob"]}), &nameless, "tools/call", echo, true),
    ] {
        for kind in KINDS {
            let before = endpoint.calls().len();
            let guards = entry(kind, vec![selective(&endpoint, "policy", &lists)]);
            let proxy = Proxy::new(&files, chain(vec![json!({"type": "caller", "parameters": caller}), guards]));
            let answer = proxy.post(message(method, &params)).await;
            assert_eq!(answer.status, if asked { 403 } else { 200 }, "{name} {kind}: {answer:?}");
            assert_eq!(endpoint.calls().len() - before, usize::from(asked), "{name} {kind}");
        }
    }
}

#[tokio::test]
async fn the_next_webhook_is_asked_by_the_name_that_a_patch_gave() {
    let (files, endpoint) =
        endpoint(Reply::patch(r#"[{"op":"replace","path":"/mcp_request/params/name","value":"deploy"}]"#)).await;
    let (spoil, broken) =
        self::endpoint(Reply::patch(r#"[{"op":"replace","path":"/mcp_request/method","value":7}]"#)).await;
    drop(spoil);
    for (first, lists, calls) in [
        (&endpoint, json!({"tools": ["deploy"]}), 2),
        (&endpoint, json!({"tools": ["echo"]}), 1),
        (&broken, json!({"tools": ["deploy"]}), 2),
    ] {
        let skip = json!({"name": "first", "tls_config": {"insecure_skip_verify": true}});
        let second = selective(&endpoint, "second", &lists);
        let before = endpoint.calls().len() + broken.calls().len();
        let webhooks = vec![webhook(&first.url, "fail", skip), second];
        Proxy::new(&files, chain(vec![entry("mutating-webhook", webhooks)])).post(CALL).await;
        assert_eq!(endpoint.calls().len() + broken.calls().len() - before, calls, "{lists}");
    }
}

#[tokio::test]
async fn a_message_too_long_for_webhooks_passes_those_not_asked() {
    let (files, endpoint) = endpoint(Reply::allow()).await;
    let body = CALL.replace("hi", &"x".repeat(1 << 20));
    for (lists, status) in [(json!({"tools": ["deploy"]}), 200), (json!({"tools": ["echo"]}), 413)] {
        for kind in KINDS {
            let proxy = Proxy::new(&files, chain(vec![entry(kind, vec![selective(&endpoint, "policy", &lists)])]));
            assert_eq!(proxy.post(body.clone()).await.status, status, "{lists} {kind}");
        }
    }
    assert_eq!(endpoint.calls().len(), 0);
}
