//! Bodies by which a caller could show a guard another message than the server reads.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Reply};
use crate::support::{CALL, Files, Proxy, authority, local_server, webhook};

/// The outcome of a body.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It is refused before any webhook is asked, with a text that has this in it.
    Refused(&'static str),
    /// The webhook judges what the server gets, byte for byte.
    Judged,
    /// It answers a request: the server gets it, and no webhook does.
    Unjudged,
}
use Fate::{Judged, Refused, Unjudged};

/// A call of `safe`, with `members` in place of its own.
fn call(members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,{members}}}"#)
}

fn arguments(arguments: &str) -> String {
    call(&format!(r#""method":"tools/call","params":{{"name":"safe","arguments":{arguments}}}"#))
}

fn utf16(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
    "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(unit).collect()
}

/// A call of `safe` with these bytes in an argument.
fn raw(bytes: &[u8]) -> Vec<u8> {
    let text = arguments(r#"{"x":"?"}"#);
    let at = text.find('?').unwrap();
    [&text.as_bytes()[..at], bytes, &text.as_bytes()[at + 1..]].concat()
}

/// Members that two readers could find in one message.
fn members() -> Vec<(&'static str, String, Fate)> {
    let params = r#""params":{"name":"safe"}"#;
    let danger = r#""params":{"name":"danger"}"#;
    vec![
        ("duplicate params", call(&format!(r#""method":"tools/call",{params},{danger}"#)), Refused("duplicate")),
        (
            "duplicate method",
            call(r#""method":"ping","method":"tools/call","params":{"name":"danger"}"#),
            Refused("duplicate"),
        ),
        ("escaped duplicate", call(r#""method":"ping","m\u0065thod":"tools/call""#), Refused("duplicate")),
        (
            "duplicate name",
            call(r#""method":"tools/call","params":{"name":"safe","name":"danger"}"#),
            Refused("duplicate"),
        ),
        (
            "escaped duplicate name",
            call(r#""method":"tools/call","params":{"name":"safe","n\u0061me":"danger"}"#),
            Refused("duplicate"),
        ),
        ("deep duplicate", arguments(r#"{"a":[{"b":1,"b":2}]}"#), Refused("duplicate")),
        (
            "name in another case",
            call(r#""method":"tools/call","params":{"name":"safe","Name":"danger"}"#),
            Refused("duplicate"),
        ),
        ("method in another case", call(r#""method":"ping","Method":"tools/call""#), Refused("case")),
        (
            "params in another case",
            call(&format!(r#""method":"tools/call",{params},"PARAMS":{{"name":"danger"}}"#)),
            Refused("case"),
        ),
        (
            "params with a long s",
            call(&format!(r#""method":"tools/call",{params},"param\u017f":{{"name":"danger"}}"#)),
            Refused("case"),
        ),
        ("id in another case", call(r#""method":"ping","ID":2"#), Refused("case")),
        ("escaped method", call(r#""method":"tools\/call","params":{"name":"safe"}"#), Judged),
        ("escaped name", call(r#""method":"tools/call","params":{"name":"s\u0061fe"}"#), Judged),
        ("unknown members", call(&format!(r#""method":"tools/call",{params},"x":1,"":[]"#)), Judged),
    ]
}

/// Messages that are not of one kind, and methods that are nearly others.
fn kinds() -> Vec<(&'static str, String, Fate)> {
    vec![
        (
            "request with a result",
            call(r#""method":"tools/call","params":{"name":"safe"},"result":{}"#),
            Refused("beside"),
        ),
        ("request with an error", call(r#""method":"ping","error":{"code":1,"message":"m"}"#), Refused("beside")),
        ("response with a method", call(r#""result":{},"method":"tools/call""#), Refused("beside")),
        ("response with params", call(r#""result":{},"params":{"name":"danger"}"#), Refused("beside")),
        (
            "error with params",
            call(r#""error":{"code":1,"message":"m"},"params":{"name":"danger"}"#),
            Refused("beside"),
        ),
        ("result and error", call(r#""result":{},"error":{"code":1,"message":"m"}"#), Refused("beside")),
        ("response", call(r#""result":{},"x":1"#), Unjudged),
        ("capital method", call(r#""method":"Tools/Call","params":{"name":"danger"}"#), Refused("blanks")),
        ("method with a blank", call(r#""method":"tools/call ","params":{"name":"danger"}"#), Refused("blanks")),
        ("method with NUL", call(r#""method":"tools/call\u0000","params":{"name":"danger"}"#), Refused("NUL")),
        ("name with NUL", call(r#""method":"tools/call","params":{"name":"safe\u0000"}"#), Refused("NUL")),
        (
            "member with NUL",
            call(r#""method\u0000":"x","method":"tools/call","params":{"name":"safe"}"#),
            Refused("NUL"),
        ),
        ("member of completions", call(r#""method":"completion/complete","params":{"Ref":{}}"#), Refused("`ref`")),
        ("method with a long s", call(r#""method":"tool\u017f/call","params":{"name":"danger"}"#), Refused("blanks")),
        ("an own method", call(r#""method":"own/Method","params":{"name":"danger"}"#), Judged),
        ("params in a list", call(r#""method":"tools/call","params":["danger"]"#), Refused("must be an object")),
        ("params null", call(r#""method":"tools/call","params":null"#), Refused("must be an object")),
        (
            "a call without an answer",
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"safe"}}"#.into(),
            Judged,
        ),
        ("null id", r#"{"jsonrpc":"2.0","id":null,"method":"tools/call"}"#.into(), Refused("`id`")),
        ("float id", r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#.into(), Refused("`id`")),
        ("long id", r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}"#.into(), Refused("`id`")),
        ("batch", format!("[{CALL}]"), Refused("batch")),
        ("batch behind a mark", format!("\u{feff}[{CALL}]"), Refused("batch")),
        ("empty batch", "[]".into(), Refused("batch")),
    ]
}

/// Bodies that are JSON to some readers only.
fn texts() -> Vec<(&'static str, Vec<u8>, Fate)> {
    let good = arguments("{}");
    let (le, be) = (utf16(&good, u16::to_le_bytes), utf16(&good, u16::to_be_bytes));
    let text = |name, text: String, fate| (name, text.into_bytes(), fate);
    vec![
        text("one mark", format!("\u{feff}{good}"), Judged),
        text("two marks", format!("\u{feff}\u{feff}{good}"), Refused("-32700")),
        text("data behind", format!("{good}{CALL}"), Refused("-32700")),
        text("NUL behind", format!("{good}\0"), Refused("-32700")),
        text("a comment", good.replacen('{', "{/*x*/", 1), Refused("-32700")),
        text("a line comment", good.replacen('{', "{//x\n", 1), Refused("-32700")),
        text("a comma too many", arguments(r#"{"a":1,}"#), Refused("-32700")),
        text("NaN", arguments(r#"{"a":NaN}"#), Refused("-32700")),
        text("infinity", arguments(r#"{"a":-Infinity}"#), Refused("-32700")),
        text("1e400", arguments(r#"{"a":1e400}"#), Refused("out of range")),
        text("a leading zero", arguments(r#"{"a":01}"#), Refused("-32700")),
        text("single quotes", arguments("{'a':1}"), Refused("-32700")),
        text("depth 200", arguments(&format!("{}{}", "[".repeat(200), "]".repeat(200))), Refused("nesting")),
        text("half a pair", arguments(r#"{"x":"\ud800"}"#), Refused("surrogate")),
        text("half a pair in a name", arguments(r#"{"\udc00":1}"#), Refused("surrogate")),
        text("half a pair in an unknown member", call(r#""method":"ping","x":["\ud83d!"]"#), Refused("surrogate")),
        text("half a pair in a response", call(r#""result":{"x":"\ud800"}"#), Refused("surrogate")),
        text("a whole pair", arguments(r#"{"x":"\ud83d\ude00"}"#), Judged),
        text("a line break in a string", arguments("{\"x\":\"a\nb\"}"), Refused("-32700")),
        ("overlong UTF-8", raw(b"\xc0\xaf"), Refused("UTF-8")),
        ("CESU-8", raw(b"\xed\xa0\xbd\xed\xb8\x80"), Refused("UTF-8")),
        ("half a character", raw(b"\xc3"), Refused("UTF-8")),
        ("UTF-16, little", le, Refused("UTF-8")),
        ("UTF-16, big", be, Refused("UTF-8")),
        text("nothing", String::new(), Refused("-32700")),
    ]
}

/// A chain with a tool filter before a webhook that allows everything.
async fn guarded() -> (Proxy, Endpoint) {
    let (files, ca) = (Files::new(), authority("ours"));
    files.write("/ca.crt", ca.cert_pem());
    let endpoint = Endpoint::start(Some(local_server(&ca)), |_| Reply::allow()).await;
    let hook = webhook(&endpoint.url, "ignore", json!({}));
    let filter = json!({"filter_tools": ["safe"]});
    let entries = json!([
        {"type": "auth", "parameters": {}},
        {"type": "tool-filter", "parameters": filter},
        {"type": "tool-call-filter", "parameters": filter},
        {"type": "mcp-parser", "parameters": {}},
        {"type": "validating-webhook", "parameters": {"webhooks": [hook]}},
    ]);
    (Proxy::new(&files, entries), endpoint)
}

#[tokio::test]
async fn no_body_is_another_message_to_the_server_than_to_a_guard() {
    let (proxy, endpoint) = guarded().await;
    let written = members().into_iter().chain(kinds()).map(|(name, text, fate)| (name, text.into_bytes(), fate));
    let rows: Vec<_> = written.chain(texts()).collect();
    assert!(rows.len() >= 45, "{} rows", rows.len());
    for (name, body, fate) in rows {
        let (judged, forwarded) = (endpoint.calls().len(), proxy.forwarded().len());
        let answer = proxy.post(body.clone()).await;
        let (judged, forwarded) = (endpoint.calls().split_off(judged), proxy.forwarded().split_off(forwarded));
        let seen: Vec<Value> = judged.iter().map(|call| call.json()["mcp_request"].clone()).collect();
        let sent: Vec<Cow<'_, str>> = forwarded.iter().map(|request| String::from_utf8_lossy(&request.body)).collect();
        match fate {
            Refused(text) => {
                assert!(answer.status == 400 && answer.text.contains(text), "{name}: {answer:?}");
                assert!(seen.is_empty() && sent.is_empty(), "{name}: {seen:?} {sent:?}");
            }
            Judged | Unjudged => {
                let body = String::from_utf8(body).unwrap();
                assert_eq!((answer.status, &*sent), (200, &[body.trim_start_matches('\u{feff}').into()][..]), "{name}");
                let message: Value = serde_json::from_str(&sent[0]).unwrap();
                assert_eq!(seen, if matches!(fate, Judged) { vec![message] } else { vec![] }, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn no_spelling_of_a_hidden_tool_is_a_tool() {
    let (proxy, endpoint) = guarded().await;
    for name in [r"danger", r"d\u0061nger", r"safe ", r" safe", r"Safe", r"\ufeffsafe", r"\u017fafe", ""] {
        let body = call(&format!(r#""method":"tools/call","params":{{"name":"{name}"}}"#));
        let answer = proxy.post(body).await;
        assert!(answer.text.contains("tool not found"), "{name:?}: {answer:?}");
    }
    assert!(proxy.forwarded().is_empty() && endpoint.calls().is_empty());
}
