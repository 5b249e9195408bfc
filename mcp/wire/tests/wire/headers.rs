//! The mirroring headers: values survive, and follow the body when it changes.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use mcp_wire::{Message, headers};
use proptest::prelude::*;

#[test]
fn only_what_is_unsafe_in_a_header_is_wrapped() {
    for (text, value) in [
        ("echo", "echo"),
        ("two words", "two words"),
        ("", "=?base64??="),
        (" padded", "=?base64?IHBhZGRlZA==?="),
        ("naïve", "=?base64?bmHDr3Zl?="),
        ("a\nb", "=?base64?YQpi?="),
        ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
    ] {
        assert_eq!(headers::encode(text), value, "{text:?}");
    }
    for bad in ["=?base64?%?=", "=?base64?/w==?="] {
        assert_eq!(headers::decode(&HeaderValue::from_static(bad)), None, "{bad}");
    }
    assert_eq!(headers::decode(&HeaderValue::from_static("=?BASE64?eA==?=")).as_deref(), Some("=?BASE64?eA==?="));
}

#[test]
fn a_header_that_servers_take_for_another_is_removed() {
    let mut headers = HeaderMap::new();
    for (name, removed) in [
        ("Mcp-Session-Id", false),
        ("Mcp_Session_Id", true),
        ("Mcp-Session_Id", true),
        ("Mcp.Session.Id", true),
        ("X_Forwarded_For", true),
        ("Last_Event_Id", true),
        ("X_HTTP_Method_Override", true),
        ("_", true),
        ("x-own+name", true),
        ("X-Api-Key2", false),
        ("Mcp-Param-user_id", false),
        ("Mcp_Param_user", true),
    ] {
        headers.clear();
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static("a"));
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static("b"));
        assert_eq!(headers::remove_ambiguous(&mut headers), usize::from(removed), "{name}");
        assert_eq!(headers.is_empty(), removed, "{name}");
    }
}

#[test]
fn a_header_that_mirrors_something_else_than_the_body_is_refused() {
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"na\u00efve"}}"#;
    let (encoded, other) = ("=?base64?bmHDr3Zl?=", "=?base64?ZXZpbA==?=");
    for (body, list, refused) in [
        (call, vec![], false),
        (call, vec![("mcp-method", "tools/call"), ("mcp-name", encoded)], false),
        (call, vec![("mcp-name", encoded), ("mcp-name", encoded)], false),
        (call, vec![("mcp-name", encoded), ("mcp-name", other)], true),
        (call, vec![("mcp-method", "tools/list")], true),
        (call, vec![("mcp-method", "Tools/Call")], true),
        (call, vec![("mcp-name", "=?base64?%?=")], true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"skills/get","params":{"uri":"u"}}"#, vec![("mcp-name", "u")], false),
        (r#"{"jsonrpc":"2.0","id":7,"method":"skills/get","params":{"uri":"u"}}"#, vec![("mcp-name", "v")], true),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":""}}"#,
            vec![("mcp-name", "=?base64??=")],
            false,
        ),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, vec![("mcp-name", "evil")], true),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, vec![("mcp-name", "=?base64?%?=")], true),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, vec![("mcp-method", "tools/call")], true),
    ] {
        let mut map = HeaderMap::new();
        for (name, value) in &list {
            map.append(*name, HeaderValue::from_static(value));
        }
        let message = Message::parse_strict(body.as_bytes()).unwrap();
        let refusal = headers::check(&map, &message);
        assert_eq!(refusal.is_err(), refused, "{body} {list:?}");
        if let Err(mismatch) = refusal {
            let body = String::from_utf8(mismatch.body(message.id())).unwrap();
            assert!(body.contains(r#""id":7,"error":{"code":-32020"#), "{body}");
        }
    }
}

#[test]
fn more_mirrored_arguments_than_the_bound_are_refused() {
    let message = Message::parse_strict(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#).unwrap();
    let mut map = HeaderMap::new();
    for at in 0..headers::MAX_PARAMS {
        map.append(
            HeaderName::from_bytes(format!("mcp-param-p{at}").as_bytes()).unwrap(),
            HeaderValue::from_static("q"),
        );
    }
    assert_eq!(headers::check(&map, &message), Ok(()));
    // Values count, whatever their names.
    map.append("mcp-param-p0", HeaderValue::from_static("q"));
    let body = headers::check(&map, &message).unwrap_err().body(message.id());
    let expected = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"the request has 65 Mcp-Param-* headers; send at most 64"}}"#;
    assert_eq!(String::from_utf8(body).unwrap(), expected);
}

#[test]
fn an_error_does_not_show_megabytes_of_the_body() {
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{}"}}"#, "m".repeat(1 << 20));
    let message = Message::parse_strict(body.as_bytes()).unwrap();
    let map = [(headers::METHOD, HeaderValue::from_static("n"))].into_iter().collect();
    assert!(headers::check(&map, &message).unwrap_err().body(message.id()).len() < 1000);
}

type Row<'a> = (&'a str, Vec<(&'static str, &'a str)>, String, String, Vec<(&'a str, &'a str)>);

/// `request` and `expected` are lists of headers as `name: value`.
fn updated(request: &[(&'static str, &str)], before: &str, after: &str) -> Vec<(String, String)> {
    let body = |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,{params}}}"#);
    let (before, after) = (body(before), body(after));
    let mut map: HeaderMap = request
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect();
    let message = |text: &'static str| Message::parse_strict(text.as_bytes()).unwrap();
    headers::update(&mut map, &message(before.leak()), &message(after.leak())).unwrap();
    let mut list: Vec<_> =
        map.iter().map(|(name, value)| (name.to_string(), headers::decode(value).unwrap().into_owned())).collect();
    list.sort();
    list
}

#[test]
fn the_headers_follow_the_body_that_they_mirror() {
    let call = |name: &str, arguments: &str| {
        format!(r#""method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}"#)
    };
    let modern = [("mcp-method", "tools/call"), ("mcp-name", "echo")];
    let table: Vec<Row<'_>> = vec![
        (
            "the name follows",
            modern.to_vec(),
            call("echo", "{}"),
            call("é", "{}"),
            vec![("mcp-method", "tools/call"), ("mcp-name", "é")],
        ),
        (
            "the method follows, and the name goes with it",
            modern.to_vec(),
            call("echo", "{}"),
            r#""method":"tools/list""#.into(),
            vec![("mcp-method", "tools/list")],
        ),
        (
            "a name appears where the new method has one",
            vec![("mcp-method", "tools/list")],
            r#""method":"tools/list""#.into(),
            call("x", "{}"),
            vec![("mcp-method", "tools/call"), ("mcp-name", "x")],
        ),
        ("a legacy request gets none", vec![], call("echo", "{}"), call("x", "{}"), vec![]),
        (
            "a parameter follows its argument, found by its value",
            vec![("mcp-param-region", "eu")],
            call("echo", r#"{"where":{"place":"eu"},"n":1}"#),
            call("echo", r#"{"where":{"place":"us"},"n":1}"#),
            vec![("mcp-param-region", "us")],
        ),
        (
            "of two with one value the one named alike counts",
            vec![("mcp-param-region", "1")],
            call("echo", r#"{"Region":1,"n":1}"#),
            call("echo", r#"{"Region":2,"n":3}"#),
            vec![("mcp-param-region", "2")],
        ),
        (
            "headers of one value follow the arguments named alike",
            vec![("mcp-param-a", "7"), ("mcp-param-b", "007"), ("mcp-param-c", "7")],
            call("echo", r#"{"A":7,"in":{"b":"7"},"d":"x"}"#),
            call("echo", r#"{"A":8,"in":{"b":"9"},"d":"7"}"#),
            vec![("mcp-param-a", "8"), ("mcp-param-b", "9")],
        ),
        (
            "a parameter whose argument went away goes",
            vec![("mcp-param-region", "true")],
            call("echo", r#"{"region":true}"#),
            call("echo", r#"{"region":null}"#),
            vec![],
        ),
        (
            "a parameter whose argument cannot be told goes",
            vec![("mcp-param-region", "x")],
            call("echo", r#"{"a":"x","b":"x"}"#),
            call("echo", r#"{"a":"x","b":"y"}"#),
            vec![],
        ),
    ];
    for (promise, request, before, after, expected) in table {
        let expected: Vec<_> = expected.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        assert_eq!(updated(&request, &before, &after), expected, "{promise}");
    }
}

proptest! {
    #[test]
    fn any_text_survives_a_header(text in any::<String>()) {
        let value = headers::encode(&text);
        let decoded = headers::decode(&value);
        prop_assert_eq!(decoded.as_deref(), Some(text.as_str()));
    }
}
