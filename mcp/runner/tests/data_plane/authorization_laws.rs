//! Laws over mutated bytes: no call that policies forbid reaches the server, and no entry that they hide reaches the client.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::authorization::authorized;
use crate::support::{Runner, eventually};

const ECHO: &str = r#"permit(principal, action == Action::"call_tool", resource == Tool::"echo");"#;
const OPEN: &str = r#"permit(principal, action == Action::"read_resource", resource == Resource::"file:///open");"#;
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"name":"hidden"}}}"#;
const READ: &str = r#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"file:///open"}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"name":"hidden","uri":"file:///hidden"}}"#;
/// The methods that pass whatever policies say.
const FREE: [&str; 16] = [
    "initialize",
    "ping",
    "server/discover",
    "features/list",
    "roots/list",
    "logging/setLevel",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "skills/list",
    "notifications/initialized",
    "notifications/progress",
    "notifications/cancelled",
    "notifications/message",
    "notifications/roots/list_changed",
];
const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo","description":"d"},{"name":"hidden","annotations":{}}]}}"#;
const EVENTS: &str = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"tools\":[{\"name\":\"hidden\"},{\"name\":\"echo\"}]}}\n\n";

/// A server that keeps what it gets, and gives every POST the current answer.
#[derive(Clone, Default)]
struct Server {
    got: Arc<Mutex<Vec<Vec<u8>>>>,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let this = self.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let this = this.clone();
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    let end = loop {
                        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                            break end + 4;
                        }
                        if stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
                            continue;
                        }
                        return;
                    };
                    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    let length: usize = length.unwrap_or(0);
                    while bytes.len() < end + length {
                        let _ = stream.read_buf(&mut bytes).await;
                    }
                    this.got.lock().unwrap().push(bytes[end..].to_vec());
                    let answer = this.answer.lock().unwrap().clone();
                    let _ = stream.write_all(&answer).await;
                });
            }
        });
        url
    }

    fn answers(&self, kind: &str, body: &[u8]) {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        *self.answer.lock().unwrap() = [head.as_bytes(), body].concat();
    }

    fn got(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.got.lock().unwrap())
    }
}

/// Edits of a text: something in the place of what was there, of which readers may think differently.
fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, String)>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            r#""name":"hidden","#,
            r#""Name":"hidden","#,
            r#","name":"hidden""#,
            r#""n\u0061me":"hidden","#,
            r#""params":{"name":"hidden"},"#,
            r#""Params":{"name":"hidden"},"#,
            r#""result":{"tools":[{"name":"hidden"}]},"#,
            r#""tools":[{"name":"hidden"}],"#,
            r#""Tool\u017f":[{"name":"hidden"}],"#,
            "hidden",
            "[",
            "]",
            "{",
            "}",
            ",",
            ":",
            "\"",
            "\\",
            "\u{FEFF}",
            " ",
            "\n",
            "\r",
            "\n\n",
            "data:",
            "null",
            "1e999",
            "\\ud800",
            "\0",
            "\u{2028}",
            "// x\n",
            "tools/call",
            "tools/list",
            "prompts/get",
            "resources/read",
            "resources/subscribe",
            "ping",
            "\"method\":\"tools/call\",",
            "\"method\":\"resources/read\",",
            "\"Method\":\"tools/call\",",
            "\"result\":{},",
            "\"uri\":\"file:///hidden\",",
            "\"Uri\":\"file:///hidden\",",
            "file:///hidden",
            "/../hidden",
            "%2e%2e/hidden",
            "?",
            "#",
            "/",
            "\"id\":8,",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), 0_usize..4, piece), 0..4)
}

fn mutated(text: &str, mutations: &[(prop::sample::Index, usize, String)]) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for (at, removed, piece) in mutations {
        let at = at.index(characters.len() + 1);
        let end = (at + removed).min(characters.len());
        characters.splice(at..end, piece.chars());
    }
    characters.into_iter().collect()
}

/// The members that a lenient reader takes for `name`, whatever their case.
fn members<'a>(value: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    let named = move |key: &str| key.replace('\u{17f}', "s").eq_ignore_ascii_case(name);
    value.as_object().into_iter().flatten().filter(move |(key, _)| named(key)).map(|(_, value)| value)
}

/// The texts in which a lenient reader looks for messages: the whole, a batch's parts, and the data of events.
fn messages(body: &str) -> Vec<Value> {
    let body = body.trim_start_matches('\u{FEFF}');
    let lines = body.split(['\n', '\r']).filter_map(|line| line.trim_start().strip_prefix("data:"));
    let texts: Vec<_> = lines.chain([body]).collect();
    let values = texts.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
    values.flat_map(|value| if let Value::Array(batch) = value { batch } else { vec![value] }).collect()
}

/// Whether a lenient reader finds something in it that policies forbid: a call or resource, an unknown method, or an answer that nobody asked for.
fn asks_hidden(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    messages(&text).iter().any(|message| {
        let hides = |name, open| {
            let named = members(message, "params").flat_map(|params| members(params, name)).collect::<Vec<_>>();
            named.is_empty() || named.iter().any(|value| *value != open)
        };
        let methods: Vec<_> = members(message, "method").collect();
        methods.is_empty()
            || methods.iter().any(|method| match method.as_str().unwrap_or_default().trim() {
                "tools/call" => hides("name", "echo"),
                "resources/read" | "resources/subscribe" | "resources/unsubscribe" => hides("uri", "file:///open"),
                method => !FREE.contains(&method),
            })
    })
}

fn shows_hidden(body: &str) -> bool {
    messages(body).iter().any(|message| {
        let lists = members(message, "result").flat_map(|result| members(result, "tools"));
        lists.filter_map(Value::as_array).flatten().flat_map(|tool| members(tool, "name")).any(|name| name != "echo")
    })
}

#[test]
fn the_lenient_reader_finds_what_is_hidden() {
    assert!(shows_hidden(LIST) && shows_hidden(EVENTS));
    assert!([CALL, READ, PING].iter().all(|message| !asks_hidden(message.as_bytes())));
    for (message, from, to) in [
        (CALL, r#"{"name":"echo""#, r#"{"Name":"hidden""#),
        (CALL, "tools/call", "prompts/get"),
        (READ, "open", "open/../hidden"),
        (PING, "ping", "tools/call"),
        (PING, r#""method":"ping","params""#, r#""result""#),
    ] {
        assert!(asks_hidden(message.replace(from, to).as_bytes()), "{message}: {to}");
    }
}

#[tokio::test]
async fn no_mutated_call_or_list_passes_what_policies_forbid() {
    // The same cases on each day, and others on each day.
    let seed = RandomState::new().hash_one(0).to_le_bytes().repeat(4);
    hold(TestRng::deterministic_rng(RngAlgorithm::ChaCha), "the fixed seed").await;
    hold(TestRng::from_seed(RngAlgorithm::ChaCha, &seed), &format!("seed {seed:?}")).await;
}

async fn hold(rng: TestRng, seed: &str) {
    let server = Server::default();
    let runner = Runner::http(&server.start().await, &authorized(&[ECHO, OPEN], json!({}))).await;
    let mut cases = TestRunner::new_with_rng(Config::default(), rng);
    let (mut passed, mut shown) = (0, 0);
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    for case in 0..750 {
        let edits = mutations().new_tree(&mut cases).unwrap().current();
        match case % 5 {
            asked @ 0..3 => {
                server.answers("application/json", br#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
                let asked = mutated([CALL, READ, PING][asked], &edits);
                let answer = runner.post(&[], &asked).await;
                let got: Vec<_> = server.got().into_iter().filter(|body| !body.is_empty()).collect();
                passed += usize::from(answer.status == 200);
                assert!(!got.iter().any(|body| asks_hidden(body)), "{seed}: {asked}: {answer:?}");
            }
            kind => {
                let (kind, text) = [("application/json", LIST), ("text/event-stream", EVENTS)][kind - 3];
                let answer = mutated(text, &edits);
                server.answers(kind, answer.as_bytes());
                let listed = runner.post(&[], list).await;
                shown += usize::from(listed.body.contains("echo"));
                assert!(!shows_hidden(&listed.body), "{seed}: {answer:?}: {listed:?}");
            }
        }
    }
    assert!(passed >= 60 && shown >= 30, "{seed}: some mutations break nothing: {passed} calls, {shown} lists");
}

#[tokio::test]
async fn a_list_of_ninety_mebibytes_passes_the_tool_filter_and_policies_and_a_longer_one_is_withheld() {
    let server = Server::default();
    let policies = [ECHO, r#"permit(principal, action == Action::"call_tool", resource == Tool::"greet");"#];
    let filter = json!({"tools_filter": ["say", "hidden"], "tools_override": {"echo": {"name": "say"}}});
    let runner = Runner::http(&server.start().await, &authorized(&policies, filter)).await;
    let description = "d".repeat(30 << 20);
    let tool = |name: &str| format!(r#"{{"name":"{name}","description":"{description}"}}"#);
    let tools = ["hidden", "echo", "greet"].map(tool).join(",");
    let long = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"tools":[{tools}]}}}}"#).into_bytes();
    server.answers("application/json", &long);
    let answer = runner.post(&[], r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#).await;
    assert_eq!((answer.status, answer.body.len()), (200, (30 << 20) + 77), "{}", answer.body.get(..200).unwrap());
    assert!(answer.body.starts_with(r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"say","description":"dd"#));
    server.answers("application/json", &[b" ".repeat(15 << 20), long].concat());
    let answer = runner.post(&[], r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#).await;
    assert_eq!((answer.status, answer.message()["error"]["message"].as_str()), (500, Some("internal error")));
    eventually("the memory to be given back", || async {
        let metrics = runner.get("/metrics").await.body;
        metrics.contains("mcp_runner_bound_used_ratio{bound=\"held_answers\"} 0.0\n").then_some(())
    })
    .await;
}
