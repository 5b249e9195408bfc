//! Laws: reading is total, agrees with a plain parser, and the SSE codec is its own inverse.

use mcp_wire::sse::{Decoder, Event, TooLong};
use mcp_wire::{Message, check_structure, classify, compact};
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\é{}:,\\[\\] ]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d\":\\\\]{0,2}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
    .prop_flat_map(|value| any::<bool>().prop_map(move |p| if p { format!("{value:#}") } else { value.to_string() }))
}

fn event() -> impl Strategy<Value = Event> {
    let line = prop::option::of("[ a-z:é]{0,8}");
    (line.clone(), line, prop::option::of(any::<u64>()), prop::option::of("[ a-z:é\n]{0,24}"))
        .prop_map(|(event, id, retry, data)| Event { event, id, retry, data })
        .prop_filter("an event has a field", |event| *event != Event::default())
}

proptest! {
    #[test]
    fn reading_and_classifying_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        version in prop::option::of(prop_oneof![Just("2026-07-28".to_owned()), any::<String>()]),
    ) {
        let _ = Message::parse(&bytes);
        if let Ok(message) = Message::parse_strict(&bytes) {
            let _ = classify(version.as_deref(), &message);
        }
    }

    #[test]
    fn a_strict_reading_finds_the_members_that_a_plain_one_finds(meta in json_text(), name in json_text()) {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":{{}},"name":{name},"_meta":{meta},"requestId":7}}}}"#
        );
        let Ok(strict) = Message::parse_strict(body.as_bytes()) else { return Ok(()) };
        let plain = Message::parse(body.as_bytes()).unwrap();
        let text = |raw: Option<&RawValue>| raw.map(|raw| raw.get().to_owned());
        for member in ["name", "_meta", "requestId", "uri", "a"] {
            prop_assert_eq!(text(strict.param(member).unwrap()), text(plain.param(member).unwrap()));
        }
        for member in ["a", "b", "progressToken"] {
            prop_assert_eq!(text(strict.meta(member).unwrap()), text(plain.meta(member).unwrap()));
        }
    }

    #[test]
    fn every_request_has_an_era_or_an_error(
        meta in json_text(),
        keys in prop::collection::btree_map(
            prop_oneof![
                Just("io.modelcontextprotocol/protocolVersion"),
                Just("io.modelcontextprotocol/clientInfo"),
                Just("io.modelcontextprotocol/clientCapabilities"),
            ],
            prop_oneof![Just(json!("2026-07-28")), Just(json!({})), Just(json!("x")), Just(Value::Null)],
            0..4,
        ),
        header in prop::option::of(prop_oneof![Just("2026-07-28"), Just("2025-11-25"), Just("")]),
    ) {
        for meta in [meta, json!(keys).to_string()] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"_meta":{meta}}}}}"#);
            let message = Message::parse(body.as_bytes()).unwrap();
            if let Err(error) = classify(header, &message) {
                let body: Value = serde_json::from_slice(&error.body(message.id())).unwrap();
                prop_assert_eq!(&body["error"]["code"], &json!(error.code()));
                prop_assert_eq!(&body["id"], &json!(1));
            }
        }
    }

    #[test]
    fn json_without_repeated_names_is_accepted_and_compacts_to_the_same_value(text in json_text()) {
        prop_assert_eq!(check_structure(&text), Ok(()));
        let compacted = compact(text.as_bytes());
        let value: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(std::str::from_utf8(&compacted).unwrap(), value.to_string());
    }

    #[test]
    fn events_survive_encoding_whatever_the_pieces(
        events in prop::collection::vec(event(), 1..5), piece in 1..40_usize, crlf in any::<bool>(),
    ) {
        let text: String = events.iter().map(Event::encode).collect();
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let mut decoder = Decoder::new(4096);
        let mut decoded = Vec::new();
        for piece in text.as_bytes().chunks(piece) {
            decoded.extend(decoder.push(piece).unwrap());
        }
        prop_assert_eq!(decoded, events);
    }
}

#[test]
fn the_decoder_reads_streams_as_browsers_do() {
    let event = |data: &str| Event { data: Some(data.into()), ..Event::default() };
    for (stream, expected) in [
        ("data: a\n\n", vec![event("a")]),
        ("data:a\r\rdata: b\r\n\r\n", vec![event("a"), event("b")]),
        ("\u{feff}data: a\n\n", vec![event("a")]),
        ("data\n\n", vec![event("")]),
        ("data: a\ndata:  b\n\n", vec![event("a\n b")]),
        (": comment\n\ndata: a\nunknown: x\n\n", vec![event("a")]),
        ("id: 7\ndata:\n\n", vec![Event { id: Some("7".into()), ..event("") }]),
        ("retry: 10\n\nretry: x\n\n", vec![Event { retry: Some(10), ..Event::default() }]),
        ("data: unfinished\n", vec![]),
    ] {
        assert_eq!(Decoder::new(64).push(stream.as_bytes()), Ok(expected), "{stream:?}");
    }
}

#[test]
fn a_line_or_event_over_the_limit_ends_the_stream() {
    let mut decoder = Decoder::new(16);
    assert_eq!(decoder.push(b"data: 0123456789"), Ok(vec![]));
    assert_eq!(decoder.push(b"0"), Err(TooLong { limit: 16 }));
    assert_eq!(decoder.push(b"\n\n"), Err(TooLong { limit: 16 }));
    let mut decoder = Decoder::new(16);
    assert_eq!(decoder.push(b"data: 01234567\n"), Ok(vec![]));
    assert_eq!(decoder.push(b"data: 01234567\n"), Err(TooLong { limit: 16 }));
}
