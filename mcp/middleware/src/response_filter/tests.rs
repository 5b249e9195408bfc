//! What is shown to a filter, and what becomes of what cannot be shown.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::HeaderName;
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt, StreamBody};
use mcp_wire::sse::Event;
use proptest::prelude::*;

use super::*;

/// Withholds what has the word `secret`, puts `new` in place of `old`.
struct Words;

impl ResponseFilter for Words {
    fn filter(&self, text: &str) -> Verdict {
        if text.contains("secret") {
            Verdict::Withhold("it has the word")
        } else if text.contains("old") {
            Verdict::Replace(text.replace("old", "new"))
        } else {
            Verdict::Pass
        }
    }
}

const ERROR: &str = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"internal error"}}"#;

fn withheld() -> Withheld {
    Withheld { id: Some("7".into()) }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> (u16, String) {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        response.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
    }
    run(async {
        let response = filtered(&Arc::new(Words), response, withheld()).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        if let Some(length) = head.headers.get(CONTENT_LENGTH) {
            assert_eq!(length, &body.len().to_string());
        }
        (head.status.as_u16(), String::from_utf8_lossy(&body).into_owned())
    })
}

#[test]
fn an_answer_is_filtered_however_it_is_labelled_and_withheld_where_it_cannot_be_read() {
    let json = ("content-type", "application/json");
    let events = ("content-type", "text/event-stream");
    for (status, headers, body, expected, text) in [
        (200, vec![json], r#"{"a":"b"}"#, 200, r#"{"a":"b"}"#),
        (200, vec![json], r#"{"a":"old"}"#, 200, r#"{"a":"new"}"#),
        (200, vec![("content-type", "Application/JSON; Charset=\"UTF-8\"")], "old", 200, "new"),
        (206, vec![json], "secret", 500, ERROR),
        (200, vec![json], "\u{feff}old", 200, "new"),
        (200, vec![json], "s\0e\0c\0r\0e\0t\0", 500, ERROR),
        // An error is not read as a message.
        (404, vec![json], "secret", 404, "secret"),
        (404, vec![], "secret", 404, "secret"),
        // Two types: the client may take either, whatever the status.
        (404, vec![json, events], "secret", 500, ERROR),
        (200, vec![("content-type", "text/plain, application/json")], "secret", 500, ERROR),
        // No type, and one that MCP does not have.
        (200, vec![], "secret", 500, ERROR),
        (200, vec![("content-type", "text/plain")], "old", 200, "new"),
        (200, vec![("content-type", "application/x; a=\"b;c\"")], "old", 200, "new"),
        // Not what is shown to the filter.
        (200, vec![json, ("content-encoding", "gzip")], "x", 500, ERROR),
        (200, vec![json, ("content-encoding", "identity")], "old", 200, "new"),
        (200, vec![("content-type", "application/json; charset=utf-7")], "x", 500, ERROR),
        (200, vec![("content-type", "application/json; charset*=''utf-7")], "x", 500, ERROR),
        (200, vec![("content-type", "application/json; charset=us-ascii")], "x", 200, "x"),
        (200, vec![events, ("content-encoding", "br")], "data: x\n\n", 500, ERROR),
    ] {
        let (got, shown) = answer(status, &headers, body);
        assert_eq!((got, shown.as_str()), (expected, text), "{status} {headers:?} {body:?}");
    }
    assert_eq!(answer(200, &[json], vec![0xff, 0xfe]).0, 500);
    assert_eq!(answer(202, &[], "").0, 202);
}

#[test]
fn an_event_is_filtered_alone_and_the_others_keep_their_bytes() {
    let error = format!("data: {ERROR}\n\n");
    for (stream, expected) in [
        (": hi\n\ndata:x\n\n", ": hi\n\ndata:x\n\n".to_owned()),
        (
            "id: 1\r\ndata: x\r\n\r\nevent: message\ndata: old\n\n",
            "id: 1\r\ndata: x\r\n\r\nevent: message\ndata: new\n\n".into(),
        ),
        ("id: 4\ndata: secret\n\ndata: x\n\n", format!("id: 4\n{error}data: x\n\n")),
        // Over several lines, and with the line breaks that readers disagree on.
        ("data: sec\ndata: old\n\n", "data: sec\ndata: new\n\n".into()),
        ("data: a\rdata: b\r\r", "data: a\ndata: b\n\n".into()),
        ("data: a\rdata: secret\r\rdata: x\n\n", format!("{error}data: x\n\n")),
        // Without its end.
        ("data: secret", error.clone()),
        ("data: x\n\ndata: old\n", "data: x\n\ndata: new\n\n".into()),
        ("data: x", "data: x".into()),
    ] {
        let shown = answer(200, &[("content-type", "text/event-stream")], stream);
        assert_eq!(shown, (200, expected.clone()), "{stream:?}");
        let unlabelled = answer(200, &[], stream);
        let as_a_whole = if stream.contains("secret") { (500, ERROR.to_owned()) } else { (200, expected) };
        assert!(unlabelled == as_a_whole || stream.contains("old"), "{stream:?}: {unlabelled:?}");
    }
}

/// Whether the filter withholds each of these streams, or what it makes of it.
fn assert_streams(cases: &[(&str, Option<&str>)]) {
    for (stream, expected) in cases {
        let error = format!("data: {ERROR}\n\n");
        let (_, shown) = answer(200, &[("content-type", "text/event-stream")], (*stream).to_owned());
        match expected {
            Some(expected) => assert_eq!(shown, *expected, "{stream:?}"),
            None => assert!(shown.ends_with(&error) && !shown.contains("secret"), "{stream:?} became {shown:?}"),
        }
    }
}

#[test]
fn a_byte_order_mark_hides_no_line_of_an_event_from_the_filter() {
    assert_streams(&[
        (": hi\n\n\u{feff}data: 7\ndata: x\n\n", None),
        ("\u{feff}data: 7\ndata: x\n\n", None),
        ("data: 7\n\u{feff}data: x\n\n", None),
        ("id: 1\r\u{feff}data: secret\r\r", None),
        ("\u{feff}\u{feff}data: secret\n\n", None),
        ("\u{feff}id: 1\n\ndata: old\n\n", Some("\u{feff}id: 1\n\ndata: new\n\n")),
        ("data: a\u{feff}b\n\n", Some("data: a\u{feff}b\n\n")),
    ]);
}

#[test]
fn a_character_that_some_readers_end_a_line_at_hides_no_data_from_the_filter() {
    for c in ['\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'] {
        assert_streams(&[
            (&format!(": x{c}data: secret\n\n"), None),
            (&format!(": x{c}data: 7\n\n"), None),
            (&format!("foo{c}\u{feff}data: 7\n\n"), None),
            (&format!("data: 7{c}data: 8\n\n"), None),
            (&format!("data: 7{c}{c}data: 8"), None),
            (&format!("id: 1{c}data: 7\ndata: 8\n\n"), None),
            (&format!("id: 1{c}data: 7\ndata: secret\n\n"), None),
            (&format!("event: a{c}data: 7\ndata: old\n\n"), None),
            // It goes where it does no harm, and stays where there is no data at all.
            (&format!("id: 1\nfoo: {c}data: 7\ndata: 8\n\n"), Some("id: 1\ndata: 8\n\n")),
            (&format!(": x{c}y\n\n"), Some(&format!(": x{c}y\n\n"))),
        ]);
    }
    for (c, escape) in [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")] {
        assert_streams(&[
            (
                &format!("id: 1\ndata: {{\"a\":\ndata: \"b{c}data: 7\"}}\n\n"),
                Some(&format!("id: 1\ndata: {{\"a\":\ndata: \"b{escape}data: 7\"}}\n\n")),
            ),
            (&format!("data: \"old{c}\"\n\n"), Some(&format!("data: \"new{escape}\"\n\n"))),
        ]);
    }
}

#[test]
fn an_event_that_is_complete_is_passed_at_once() {
    let pieces = ["data: a\n", "\ndata: o", "ld\n\n: x\n\ndata: b"];
    let frames = stream::iter(pieces).map(|piece| Ok(Frame::data(Bytes::from(piece)))).chain(stream::pending());
    let body = StreamBody::new(frames).boxed_unsync();
    let mut filtered = FilteredEvents::new(body, Arc::new(Words), withheld());
    let mut next =
        || match Pin::new(&mut filtered).poll_frame(&mut Context::from_waker(futures::task::noop_waker_ref())) {
            Poll::Ready(Some(Ok(frame))) => Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()),
            _ => None,
        };
    assert_eq!(next().as_deref(), Some("data: a\n\n"));
    assert_eq!(next().as_deref(), Some("data: new\n\n: x\n\n"), "what is there already goes together");
    assert_eq!(next(), None);
}

#[test]
fn an_event_that_is_too_long_is_withheld_and_the_next_one_is_not() {
    let mut filtered = FilteredEvents::new(mcp_http::empty(), Arc::new(Words), withheld());
    let piece = vec![b'x'; 9 << 20];
    assert_eq!(filtered.take(b"data: "), "");
    assert_eq!(filtered.take(&piece), "");
    assert_eq!(filtered.take(&piece), format!("data: {ERROR}\n\n"));
    assert_eq!(filtered.take(&piece), "");
    assert!(filtered.event.len() <= MAX_EVENT);
    assert_eq!(filtered.take(b"secret\n\ndata: a\n\n"), "data: a\n\n");
}

proptest! {
    #[test]
    fn however_a_stream_is_cut_the_same_comes_of_it(
        stream in "(data: ?|id: 1|:|secret|old|x|7|\r|\n|\r\n|\n\n|\u{feff}|\u{2028}|\u{b}){0,24}",
        cuts in prop::collection::vec(0_usize..60, 0..6),
    ) {
        let whole = filter_events(&Words, &Bytes::from(stream.clone()), &withheld());
        let mut pieces = FilteredEvents::new(mcp_http::empty(), Arc::new(Words), withheld());
        let mut out = Vec::new();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        for cut in cuts.windows(2) {
            out.extend_from_slice(&pieces.take(&stream.as_bytes()[cut[0]..cut[1]]));
        }
        out.extend_from_slice(&pieces.finish());
        let events = |bytes: &[u8]| {
            let mut decoder = mcp_wire::sse::Decoder::new(usize::MAX);
            let mut events = decoder.push(bytes).unwrap();
            events.extend(decoder.push(b"\n\n").unwrap());
            events
        };
        let read = events(&out);
        // By a reader that ends a line at more characters and drops no byte order mark.
        let lines = format!("\n{}", String::from_utf8_lossy(&out).replace(['\u{2028}', '\u{b}'], "\n"));
        let read_otherwise = events(lines.as_bytes());
        let shown = |event: &Event| event.data.as_ref().is_some_and(|data| data.contains("secret"));
        prop_assert!(!read.iter().chain(&read_otherwise).any(shown), "{stream:?} became {read:?} or {read_otherwise:?}");
        prop_assert_eq!(read, events(&whole));
    }
}
