//! What counts as one message, and what is refused because two readers could disagree.

use mcp_wire::{Ambiguity, Kind, Message, MessageError, is_batch};

#[test]
fn a_message_is_a_request_a_notification_or_a_response() {
    for (body, kind, id) in [
        (r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#, Kind::Request, Some("0")),
        (r#"{"jsonrpc":"2.0","id":"","method":"ping"}"#, Kind::Request, Some(r#""""#)),
        (
            r#" {"method":"ping","id":-9223372036854775808,"jsonrpc":"2.0"} "#,
            Kind::Request,
            Some("-9223372036854775808"),
        ),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}"#, Kind::Notification, None),
        (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, Kind::Response, Some(r#""a""#)),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#, Kind::Response, None),
        (r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"?","data":[],"more":1}}"#, Kind::Response, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"skills/list"}"#, Kind::Request, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","trace":{"any":1}}"#, Kind::Request, Some("1")),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"trace":{"any":"\ud83d\ude00"}}"#, Kind::Response, Some("1")),
    ] {
        let message = Message::parse_strict(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!(message.kind(), kind, "{body}");
        assert_eq!(message.id().map(|id| id.raw().to_owned()).as_deref(), id, "{body}");
    }
}

#[test]
fn what_is_no_message_is_refused_with_its_reason() {
    for (body, part) in [
        ("", "EOF"),
        ("null", "a JSON-RPC message object"),
        ("\"x\"", "a JSON-RPC message object"),
        (r#"{"id":1,"method":"ping"}"#, "`jsonrpc` must be"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "`jsonrpc` must be"),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "expected a"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "`id` must be a string or a number"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "`id` must be a string or a number"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, "`id` must be a string or a number"),
        (r#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#, "`id` must be a string or a 64-bit integer"),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#, "`id` must be a string or a 64-bit integer"),
        (r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}"#, "`id` must be a string or a 64-bit integer"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, "`params` must be an object"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#, "`params` must be an object"),
        (r#"{"jsonrpc":"2.0","id":1,"error":[]}"#, "`error` must be an object"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"m"}}"#, "`error.code` must be an integer"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#, "`error.message` must be a string"),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#, "`method` must not be empty"),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "expected a"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, "must not stand beside"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","error":{"code":1,"message":"m"}}"#, "must not stand beside"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":null}"#, "must not stand beside"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "must not stand beside"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"params":{"name":"danger"}}"#, "`params` must not stand beside"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"params":null}"#, "`params` must not stand beside"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"},"params":{}}"#, "`params` must not stand beside"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"Tools/Call"}"#, "only in case or blanks; spell it `tools/call`"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call\u0020"}"#, "only in case or blanks; spell it `tools/call`"),
        (r#"{"jsonrpc":"2.0","method":"notifications/Cancelled"}"#, "spell it `notifications/cancelled`"),
        (r#"{"jsonrpc":"2.0","id":"\ud800","method":"ping"}"#, "half of a surrogate pair"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"\udc00":1}}"#, "half of a surrogate pair"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":["\ud83d\ud83d"]}}"#, "half of a surrogate pair"),
        (r#"{"jsonrpc":"2.0","result":{}}"#, "`result` needs an `id`"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "is missing"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, "trailing"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}{}"#, "trailing"),
    ] {
        let error = Message::parse_strict(body.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{body}: {error}");
    }
    assert!(matches!(Message::parse(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"), Err(MessageError::Encoding)));
}

#[test]
fn a_member_that_two_parsers_could_read_differently_is_refused() {
    for (body, member) in [
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, "id"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#, "method"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"tools/call"}"#, "method"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}"#, "Method"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{},"param\u017f":{}}"#, "param\u{17f}"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#, "name"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","NAME":"b"}}"#, "NAME"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[{"y":1,"y":2}]}}}"#,
            "y",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","Data":1}}"#, "Data"),
    ] {
        match Message::parse_strict(body.as_bytes()) {
            Err(MessageError::Ambiguous { problem: Ambiguity::Duplicate(name) | Ambiguity::Case(name, _), .. }) => {
                assert_eq!(name, member, "{body}");
            }
            other => panic!("{body}: {other:?}"),
        }
    }
    // The names of arguments are the tool's.
    for arguments in [r#"{"Name":1,"Data":2}"#, r#"{"env":{"HTTP_PROXY":"a","http_proxy":"b"}}"#, r#"{"n":3,"N":4}"#] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","arguments":{arguments}}}}}"#
        );
        assert!(Message::parse_strict(body.as_bytes()).is_ok(), "{body}");
    }
    let twice = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"n":1,"n":2}}}"#;
    let refusal = Message::parse_strict(twice).unwrap_err().body();
    assert!(String::from_utf8_lossy(&refusal).contains(r#""id":7,"#), "the client learns which call was refused");
}

#[test]
fn a_batch_is_seen_behind_white_space() {
    for (body, batch) in [("[1]", true), (" \r\n\t[]", true), ("{}", false), ("", false), ("\u{b}[", false)] {
        assert_eq!(is_batch(body.as_bytes()), batch, "{body:?}");
        assert_eq!(matches!(Message::parse(body.as_bytes()), Err(MessageError::Batch)), batch, "{body:?}");
    }
}

#[test]
fn the_answer_to_what_is_no_message_says_what_is_wrong_and_echoes_no_id_that_may_be_another() {
    for (body, code, id) in [
        ("", -32700, None),
        ("{", -32700, None),
        ("[{]", -32700, None),
        ("[]", -32600, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, -32700, None),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"} x"#, -32700, None),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, -32600, None),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":2}}"#, -32600, None),
        (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"a":1e1000}}"#, -32600, Some("a")),
        (r#"{"jsonrpc":"2.0","method":"ping","params":{"a":1e1000}}"#, -32600, None),
    ] {
        let error = Message::parse_strict(body.as_bytes()).unwrap_err();
        let answer: serde_json::Value = serde_json::from_slice(&error.body()).unwrap();
        assert_eq!(answer["error"]["code"], code, "{body}: {answer}");
        assert_eq!(answer.get("id").and_then(|id| id.as_str()), id, "{body}: {answer}");
    }
}

#[test]
fn the_target_is_the_member_that_the_method_acts_on() {
    for (method, params, target) in [
        ("tools/call", r#"{"name":"e\u0063ho"}"#, Some("echo")),
        ("prompts/get", r#"{"name":"p","uri":"u"}"#, Some("p")),
        ("resources/read", r#"{"name":"p","uri":"file:///u"}"#, Some("file:///u")),
        ("tasks/cancel", r#"{"taskId":"t"}"#, Some("t")),
        ("tools/list", r#"{"name":"p"}"#, None),
        ("tools/call", r#"{"name":7}"#, None),
        ("skills/get", r#"{"uri":"skill://s"}"#, Some("skill://s")),
        ("skills/list", r#"{"uri":"skill://s"}"#, None),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let message = Message::parse_strict(body.as_bytes()).unwrap();
        assert_eq!(message.target().unwrap().as_deref(), target, "{body}");
    }
}
