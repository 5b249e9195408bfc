//! Authorization: policies between real clients and real servers (toolhive-auth §4, toolhive-0.63 §5.2).

use http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Issuer, Recorder, Runner, SdkClient, Server, Signer, TlsFront, eventually, go};

/// The members of a document with these policies, whose chain follows from its members.
pub(crate) fn authorized(policies: &[&str], members: Value) -> Value {
    let mut document = json!({
        "middleware_configs": [],
        "authz_config": {"version": "1.0", "type": "cedarv1", "cedar": {"policies": policies, "entities_json": "[]"}},
    });
    for (name, value) in members.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

pub(crate) const PERMIT_ALL: &str = "permit(principal, action, resource);";
const ECHO: &str = r#"permit(principal, action == Action::"call_tool", resource == Tool::"echo");"#;
const OPS: &str = r#"permit(principal in THVGroup::"ops", action, resource in MCP::"demo");"#;
const SMALL: &str = r#"permit(principal, action == Action::"call_tool", resource == Tool::"pay")
    when { context has arg_amount && context.arg_amount.lessThanOrEqual(decimal("100.0")) };"#;
const OPEN: &str = r#"permit(principal, action == Action::"read_resource", resource == Resource::"file:///open");"#;
const HELLO: &str = r#"permit(principal, action == Action::"get_prompt", resource == Prompt::"hello");"#;
const NEVER: &str = r#"forbid(principal, action, resource == Tool::"rm");"#;
pub(crate) const EVERYDAY: [&str; 6] = [ECHO, OPS, SMALL, OPEN, HELLO, NEVER];

/// A proxy with a login in front of a server made of one socket, and callers.
pub(crate) struct World {
    pub(crate) runner: Runner,
    pub(crate) backend: Recorder,
    issuer: Issuer,
    signer: Signer,
}

impl World {
    pub(crate) async fn start(policies: &[&str], members: Value) -> Self {
        Self::over("streamable-http", policies, members).await
    }

    pub(crate) async fn over(transport: &str, policies: &[&str], mut members: Value) -> Self {
        let (signer, backend) = (Signer::rsa("k"), Recorder::start().await);
        let issuer = Issuer::start(vec![signer.clone()]).await;
        members["oidc_config"] = issuer.login(&json!({}));
        let flags = ["--backend", &backend.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
        let runner = Runner::start(transport, &authorized(policies, members), &flags, &[]).await;
        Self { runner, backend, issuer, signer }
    }

    /// The header of a caller with these claims.
    pub(crate) fn caller(&self, subject: &str, claims: Value) -> String {
        let mut all = self.issuer.claims(subject);
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        format!("Bearer {}", self.signer.sign("RS256", &all))
    }

    /// Sends a message, which the server answers with `answer` if it gets it. Returns the client's answer and what the server got.
    pub(crate) async fn ask(&mut self, who: &str, message: &str, answer: &str) -> (Answer, Option<String>) {
        self.ask_for(who, message, &http("application/json", answer)).await
    }

    /// The same with an answer that is written out.
    async fn ask_for(&mut self, who: &str, message: &str, answer: &str) -> (Answer, Option<String>) {
        let headers = [("authorization", who)];
        let asked = self.runner.post(&headers, message);
        tokio::pin!(asked);
        tokio::select! {
            request = self.backend.next() => {
                let got = String::from_utf8(request.body.clone()).unwrap();
                let (answered, ()) = tokio::join!(asked, request.answer(answer));
                (answered, Some(got))
            }
            refused = &mut asked => (refused, None),
        }
    }
}

/// An answer of a server, as it writes it.
fn http(kind: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn message(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
}

pub(crate) fn call(tool: &str, arguments: &Value) -> String {
    message("tools/call", &json!({"name": tool, "arguments": arguments}))
}

pub(crate) const DONE: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;

fn unauthorized() -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "error": {"code": 403, "message": "Unauthorized"}})
}

#[tokio::test]
async fn a_call_passes_where_the_policies_permit_it_and_no_other_one_reaches_the_server() {
    let mut world = World::start(&EVERYDAY, json!({})).await;
    let ann = world.caller("ann", json!({}));
    let olga = world.caller("olga", json!({"groups": ["ops"]}));
    let text = world.caller("tess", json!({"groups": "ops"}));
    let none = json!({});
    for (who, message, passes) in [
        (&ann, call("echo", &none), true),
        (&ann, call("Echo", &none), false),
        (&ann, call("", &none), false),
        (&ann, call("say", &none), false),
        (&olga, call("say", &none), true),
        (&text, call("say", &none), false),
        (&olga, call("rm", &none), false),
        (&ann, call("pay", &json!({"amount": 100})), true),
        (&ann, call("pay", &json!({"amount": 100.5})), false),
        (&ann, call("pay", &json!({"amount": "1"})), false),
        // An error of one policy denies what another one permits.
        (&olga, call("pay", &json!({"amount": "1"})), false),
        (&ann, message("prompts/get", &json!({"name": "hello"})), true),
        (&ann, message("prompts/get", &json!({"name": "echo"})), false),
        (&ann, message("resources/read", &json!({"uri": "file:///open"})), true),
        (&ann, message("resources/subscribe", &json!({"uri": "file:///open"})), true),
        (&ann, message("resources/read", &json!({"uri": "file:///secret"})), false),
        (&olga, message("resources/read", &json!({"uri": "file:///a/../open"})), false),
        (&ann, message("completion/complete", &json!({"ref": {"type": "ref/prompt", "name": "hello"}})), true),
        (&ann, message("completion/complete", &json!({"ref": {"type": "ref/prompt", "name": "echo"}})), false),
        (&olga, message("tools/call", &none), false),
        (&olga, message("tasks/list", &none), false),
        (&olga, message("sampling/createMessage", &none), false),
        (&olga, message("x/unknown", &none), false),
        (&ann, message("ping", &none), true),
        (&ann, message("logging/setLevel", &json!({"level": "info"})), true),
    ] {
        let (answer, got) = world.ask(who, &message, DONE).await;
        if passes {
            assert_eq!((answer.status, got.as_deref()), (200, Some(&*message)), "{answer:?}");
        } else {
            assert_eq!((answer.status, got, answer.message()), (403, None, unauthorized()), "{message}");
            assert_eq!(answer.header("content-type"), Some("application/json"), "{message}");
        }
    }
    // A refusal of a notification has no id.
    let (answer, _) = world.ask(&olga, r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete"}"#, "").await;
    assert_eq!(
        (answer.status, answer.message()),
        (403, json!({"jsonrpc": "2.0", "error": {"code": 403, "message": "Unauthorized"}}))
    );
    assert!(world.backend.is_quiet());
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_reaches_no_server() {
    let mut world = World::start(&EVERYDAY, json!({"max_request_body_size": 4096})).await;
    let ann = world.caller("ann", json!({}));
    let say = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"say"}}"#;
    for (headers, body, status) in [
        (&[][..], r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","name":"say"}}"#, 400),
        (&[], r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","Name":"say"}}"#, 400),
        (&[], r#"{"jsonrpc":"2.0","id":7,"method":"ping","METHOD":"tools/call","params":{"name":"say"}}"#, 400),
        (&[], r#"{"jsonrpc":"2.0","id":7,"method":"Tools/Call","params":{"name":"say"}}"#, 400),
        (&[], r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"say"}"#, 400),
        (
            &[],
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"amount":1,"AMOUNT":999}}}"#,
            403,
        ),
        (
            &[],
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":"{\"text\":\"x\"}"}}"#,
            403,
        ),
        (&[], r#"[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"say"}}]"#, 400),
        (&[("content-encoding", "gzip")], say, 415),
        (&[("content-type", "text/plain")], say, 415),
        (&[("mcp-method", "ping")], say, 400),
    ] {
        let plain = [("content-type", "application/json")];
        let typed = if headers.iter().any(|(name, _)| *name == "content-type") { &[][..] } else { &plain };
        let headers = [&[("authorization", &*ann)], typed, headers].concat();
        let answer = world.runner.request(Method::POST, "/mcp", &headers, body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
    }
    let long = call("echo", &json!({"text": "x".repeat(5000)}));
    assert_eq!(world.ask(&ann, &long, DONE).await.0.status, 413);
    for path in ["/sse", "/other/sse", "/"] {
        let headers = [("authorization", &*ann), ("content-type", "application/json")];
        let answer = world.runner.request(Method::POST, path, &headers, say).await;
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
    }
    assert!(world.backend.is_quiet());
}

fn listed(member: &str, entries: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "result": {member: entries, "nextCursor": "n", "ttlMs": 60}}).to_string()
}

#[tokio::test]
async fn a_list_has_what_its_caller_may_call_get_or_read_and_is_for_no_cache() {
    let mut world = World::start(&EVERYDAY, json!({})).await;
    let ann = world.caller("ann", json!({}));
    let olga = world.caller("olga", json!({"groups": ["ops"]}));
    for (method, member, entries, anns, olgas) in [
        (
            "tools/list",
            "tools",
            json!([{"name": "rm"}, {"name": "say"}, {"name": "echo", "x": 1.0}, {"name": "pay"}]),
            json!([{"name": "echo", "x": 1.0}]),
            json!([{"name": "say"}, {"name": "echo", "x": 1.0}, {"name": "pay"}]),
        ),
        (
            "prompts/list",
            "prompts",
            json!([{"name": "hello"}, {"name": "echo"}]),
            json!([{"name": "hello"}]),
            json!([{"name": "hello"}, {"name": "echo"}]),
        ),
        (
            "resources/list",
            "resources",
            json!([{"uri": "file:///open", "name": "a"}, {"uri": "file:///b", "name": "a"}]),
            json!([{"uri": "file:///open", "name": "a"}]),
            json!([{"uri": "file:///open", "name": "a"}, {"uri": "file:///b", "name": "a"}]),
        ),
        (
            "resources/templates/list",
            "resourceTemplates",
            json!([{"uriTemplate": "file:///{x}"}]),
            json!([]),
            json!([{"uriTemplate": "file:///{x}"}]),
        ),
        ("skills/list", "skills", json!([{"uri": "skill://a"}]), json!([]), json!([{"uri": "skill://a"}])),
        // A list is filtered in any answer.
        ("ping", "tools", json!([{"name": "say"}]), json!([]), json!([{"name": "say"}])),
    ] {
        for (who, expected) in [(&ann, &anns), (&olga, &olgas)] {
            let (answer, _) = world.ask(who, &message(method, &json!({})), &listed(member, &entries)).await;
            let result = &answer.message()["result"];
            assert_eq!((answer.status, &result[member]), (200, expected), "{method}: {answer:?}");
            assert_eq!((&result["nextCursor"], &result["ttlMs"]), (&json!("n"), &json!(0)), "{method}");
            assert_eq!(answer.header("cache-control"), Some("private, no-store"), "{method}");
        }
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_judged_is_withheld() {
    let mut world = World::start(&EVERYDAY, json!({})).await;
    let ann = world.caller("ann", json!({}));
    let withheld = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "internal error"}});
    for body in [
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo"},{"title":"no name"}]}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo","name":"say"}]}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo","Name":"say"}]}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":{"name":"say"}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"Tools":[{"name":"say"}]}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[],"prompts":[{"name":"say"}]}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[]},"result":{"tools":[{"name":"say"}]}}"#,
        r#"[{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"say"}]}}]"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"say"}"#,
    ] {
        let (answer, got) = world.ask(&ann, &message("tools/list", &json!({})), body).await;
        assert!(got.is_some());
        assert_eq!((answer.status, answer.message()), (500, withheld.clone()), "{body}");
    }
    // The first list has an entry too many. An encoded answer is withheld unread, and an event that is too long in its place on the stream.
    for (entries, status) in [(10_001, 500), (10_000, 200)] {
        let tools = vec![r#"{"name":"say"}"#; entries].join(",");
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"tools":[{tools}]}}}}"#);
        let (answer, _) = world.ask(&ann, &message("tools/list", &json!({})), &body).await;
        assert_eq!((answer.status, answer.body.contains("say")), (status, false), "{entries} entries");
    }
    let say = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"say"}]}}"#;
    let long = format!("data: {}\ndata: {say}\n\n", " ".repeat(17 << 20));
    for (kind, body, status) in [
        ("application/json\r\ncontent-encoding: gzip", say, 500),
        ("application/json; charset=utf-16", say, 500),
        ("text/event-stream", &*long, 200),
    ] {
        let (answer, _) = world.ask_for(&ann, &message("tools/list", &json!({})), &http(kind, body)).await;
        assert_eq!((answer.status, answer.body.contains("say")), (status, false), "{kind}");
        assert!(answer.body.contains("internal error"), "{kind}");
    }
    // An error beside a list hides nothing of it.
    let both = r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"},"result":{"tools":[{"name":"say"}]}}"#;
    let (answer, _) = world.ask(&ann, &message("tools/list", &json!({})), both).await;
    assert!(!answer.body.contains("say"), "{answer:?}");
}

#[tokio::test]
async fn a_mutating_webhook_makes_no_call_of_one_that_the_caller_may_not_make() {
    let mut reviewer = Recorder::start().await;
    let front = TlsFront::before(reviewer.address).await;
    let webhook = json!({
        "name": "mutate", "url": format!("https://{}/review", front.address), "timeout": 20_000_000_000_i64,
        "failure_policy": "fail", "tls_config": {"ca_bundle_path": front.ca()},
    });
    let mut world = World::start(&EVERYDAY, json!({"mutating_webhooks": [webhook]})).await;
    let ann = world.caller("ann", json!({}));
    for (from, to, passes) in [("echo", "say", false), ("say", "echo", true)] {
        let patch = json!([{"op": "replace", "path": "/mcp_request/params/name", "value": to}]);
        let review =
            json!({"version": "v0.1.0", "uid": "u", "allowed": true, "patch_type": "json_patch", "patch": patch});
        let replaced = async { reviewer.next().await.json("200 OK", "", &review.to_string()).await };
        let asked = call(from, &json!({}));
        let ((answer, got), ()) = tokio::join!(world.ask(&ann, &asked, DONE), replaced);
        assert_eq!((answer.status, got.is_some()), (if passes { 200 } else { 403 }, passes), "{answer:?}");
    }
}

#[tokio::test]
async fn decisions_are_in_audit_and_metrics() {
    let mut world = World::start(&EVERYDAY, json!({"audit_config": {}})).await;
    let ann = world.caller("ann", json!({}));
    for (tool, arguments) in [("echo", json!({})), ("say", json!({})), ("pay", json!({"amount": "1"}))] {
        world.ask(&ann, &call(tool, &arguments), DONE).await;
    }
    let metrics = world.runner.get("/metrics").await.body;
    for outcome in ["allowed", "denied", "failed"] {
        let line = format!(r#"mcp_runner_guard_decisions_total{{guard="authorization",outcome="{outcome}"}} 1"#);
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    let lines = eventually("three lines of audit", || async {
        let output = world.runner.output();
        let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() == 3).then_some(lines)
    })
    .await;
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["success", "denied", "denied"]);
    assert_eq!(lines[1]["metadata"]["extra"]["denied_by"], "authorization");
}

/// A client of the official TypeScript SDK sees one tool, and calls no other one.
async fn sees_and_calls_greet_alone(runner: &Runner) {
    let mut client = SdkClient::connect(&runner.url()).await;
    let listed = client.ask(json!({"do": "list"})).await;
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["greet"], "{listed}");
    assert_eq!(client.call("greet", json!({"name": "Ada"})).await, "Hi Ada");
    let failed = client.fails(json!({"do": "call", "name": "ping", "args": {}})).await;
    assert!(failed["failed"].as_str().unwrap().contains("Unauthorized"), "{failed}");
}

#[tokio::test]
async fn a_real_client_sees_and_calls_what_the_local_user_may() {
    let policies = [
        r#"permit(principal, action == Action::"call_tool", resource == Tool::"greet") when { principal has claim_sub };"#,
    ];
    let server = Server::go().await;
    sees_and_calls_greet_alone(&Runner::http(&server.url(), &authorized(&policies, json!({}))).await).await;
    sees_and_calls_greet_alone(&Runner::stdio(&[go().into()], &authorized(&policies, json!({}))).await).await;
}

#[test]
fn the_page_has_each_row_of_the_crates_table_of_differences() {
    let crate_text = include_str!("../../../authz/src/lib.rs");
    let page = include_str!("../../../../docs/src/reference/authorization.md");
    let (_, table) = crate_text.split_once("# Where decisions differ from ToolHive's").unwrap();
    let rows: Vec<_> =
        table.lines().filter_map(|line| line.strip_prefix("//! ")).filter(|row| row.starts_with('|')).collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        // A link to an item of the crate leads nowhere on the page.
        let row = row
            .split_once(" ([")
            .map_or_else(|| row.to_owned(), |(text, link)| text.to_owned() + link.split_once("])").unwrap().1);
        assert!(page.lines().any(|line| line == row), "docs/src/reference/authorization.md lacks the row {row}");
    }
}
