//! The messages that filters see, and the handling of those that they cannot see.

use std::future::ready;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;

use bytes::{Bytes, BytesMut};
use futures::future::poll_immediate;
use futures::{StreamExt, stream};
use http::header::HeaderName;
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt, StreamBody};
use mcp_http::{Bounds, BoxError, Budget, full};
use mcp_store::Client;
use mcp_wire::sse::Event;
use mcp_wire::{List, ListKind};
use proptest::prelude::*;

use super::events::Events;
use super::*;
use crate::bodies::LONG;

/// Withholds what has the word `secret`, puts `new` in place of `old`.
struct Words;

impl Judge for Words {
    async fn judge(self: &Arc<Self>, text: Bytes, share: Share) -> (Verdict, Share) {
        let text = std::str::from_utf8(&text).unwrap();
        let verdict = if text.contains("secret") {
            Verdict::Withhold(withheld().because("it has the word"))
        } else if text.contains("old") {
            Verdict::Replace(text.replace("old", "new").into())
        } else {
            Verdict::Pass
        };
        (verdict, share)
    }
}

const ERROR: &str = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"internal error"}}"#;

fn withheld() -> Withheld {
    Withheld { id: Some("7".into()), middleware: "words", told: None }
}

/// Returns the part of `response` that the client gets.
async fn filtered<J: Judge>(judge: &Arc<J>, response: Response<Body>, share: Share) -> Response<Body> {
    let refuse = |refusal| json(StatusCode::INTERNAL_SERVER_ERROR, withheld().body(refusal));
    super::filtered(judge, response, &withheld(), share).await.unwrap_or_else(refuse)
}

/// Returns the part that the client gets of a stream in these pieces.
fn events(pieces: &[&[u8]], withheld: Withheld) -> String {
    let frames: Vec<_> = pieces.iter().map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let filtered = FilteredEvents::new(body, Arc::new(Words), withheld, wide().share(A)).into_body();
    String::from_utf8(run(filtered.collect()).unwrap().to_bytes().to_vec()).unwrap()
}

const A: Client = Client::Network(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
const B: Client = Client::Network(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

/// Room for everything.
fn wide() -> Budget {
    budget(1 << 30)
}

fn budget(total: usize) -> Budget {
    Budget::new(Bounds { total, client: total, free: 8 << 10 })
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> (u16, String) {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        response.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
    }
    run(async {
        let response = filtered(&Arc::new(Words), response, wide().share(A)).await;
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

#[test]
fn a_call_is_not_left_without_an_answer_when_that_is_withheld_of_a_stream_of_many() {
    for (data, id) in [
        (r#"{"id":"a b","result":"secret"}"#, Some(r#""id":"a b","#)),
        (r#"{"result":"secret","id":-7}"#, Some(r#""id":-7,"#)),
        (r#"{"id":null,"result":"secret"}"#, None),
        (r#"{"id":{},"result":"secret"}"#, None),
        (r#"{"id":1,"id":2,"result":"secret"}"#, None),
        (r#"{"id":1,"result":"secret"#, None),
    ] {
        let stream = format!("event: message\ndata: {data}\n\n");
        let shown = events(&[stream.as_bytes()], Withheld { id: None, ..withheld() });
        assert!(shown.starts_with("event: message\n") && shown.contains("-32603"), "{data}: {shown}");
        assert!(!shown.contains("secret") && id.is_none_or(|id| shown.contains(id)), "{data}: {shown}");
        assert!(
            id.is_some() || ![r#""id":1"#, r#""id":2"#, r#""id":{"#].iter().any(|id| shown.contains(id)),
            "{shown}"
        );
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
fn no_spelling_of_data_hides_a_line_of_an_event() {
    assert_streams(&[
        (" data: secret\n\n", None),
        ("event: message\n\tdata : secret\n\n", None),
        ("id: 1\ndata : secret\ndata: x\n\n", None),
        ("DATA: secret\n\n", None),
        (" : data: x\n data2: y\n\n", Some(" : data: x\n data2: y\n\n")),
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
    let mut filtered = FilteredEvents::new(body, Arc::new(Words), withheld(), wide().share(A)).into_body();
    let mut next = || match poll(&mut filtered) {
        Poll::Ready(Some(Ok(piece))) => Some(String::from_utf8(piece.to_vec()).unwrap()),
        _ => None,
    };
    assert_eq!(next().as_deref(), Some("data: a\n\n"));
    assert_eq!(next().as_deref(), Some("data: new\n\n: x\n\n"), "what is there already goes together");
    assert_eq!(next(), None);
}

#[test]
fn an_event_that_is_too_long_is_withheld_and_the_next_one_is_not() {
    let piece = vec![b'x'; 9 << 20];
    let stream: [&[u8]; 6] = [b"data: old\n\ndata: ", &piece, &piece, &piece, b"secret\n\n", b"data: a\n\n"];
    assert_eq!(events(&stream, withheld()), format!("data: new\n\ndata: {ERROR}\n\ndata: a\n\n"));
    let (mut found, mut kept) = (Events::default(), BytesMut::new());
    for piece in stream {
        found.push(&mut kept, piece);
        assert!(kept.capacity() <= 2 * MAX_EVENT, "{}", kept.capacity());
        while found.next(&mut kept).is_some() {}
    }
    let at_once = stream.concat();
    assert_eq!(events(&[&at_once], withheld()), format!("data: new\n\ndata: {ERROR}\n\ndata: a\n\n"));
}

/// An answer of so many bytes.
fn long(bytes: usize) -> Response<Body> {
    let body = full(vec![b' '; bytes]);
    Response::builder().header("content-type", "application/json").body(body).unwrap()
}

fn poll(body: &mut Body) -> Poll<Option<Result<Bytes, String>>> {
    let frame = Pin::new(body).poll_frame(&mut Context::from_waker(futures::task::noop_waker_ref()));
    frame.map(|frame| {
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap()).map_err(|error| error.to_string()))
    })
}

#[test]
fn an_answer_that_its_client_does_not_take_does_not_stop_those_of_others() {
    let budget = budget(1 << 20);
    let ask = |client, bytes| run(filtered(&Arc::new(Words), long(bytes), budget.share(client)));
    let mut waiting = ask(A, 900_000).into_body();
    assert_eq!(waiting.size_hint().exact(), Some(900_000));
    let Poll::Ready(Some(Ok(first))) = poll(&mut waiting) else { panic!("no first piece") };
    assert!(first.len() < 100_000, "the connection gets no more at once");
    // One that fits beside it, and short ones in any case.
    let beside = ask(B, 100_000);
    let short: Vec<_> = (0..100).map(|_| ask(A, 8 << 10)).collect();
    assert!([&beside].into_iter().chain(&short).all(|answer| answer.status() == 200));
    assert!(matches!(poll(&mut waiting), Poll::Ready(Some(Ok(_)))));
    // It holds most, so it gives way, and its memory is free although nobody polls it.
    let mut other = ask(B, 500_000).into_body();
    assert!(budget.used() < 700_000, "{}", budget.used());
    assert!(matches!(poll(&mut waiting), Poll::Ready(Some(Err(_)))));
    drop((waiting, beside));
    let mut taken = 0;
    while let Poll::Ready(Some(piece)) = poll(&mut other) {
        taken += piece.unwrap().len();
    }
    assert_eq!((taken, budget.used()), (500_000, 0), "what was taken counts no more");
}

#[test]
fn an_answer_without_room_is_withheld_and_one_that_was_shown_whole_counts_nothing() {
    let budget = budget(100_000);
    let ask = |bytes| run(filtered(&Arc::new(Words), long(bytes), budget.share(A)));
    let answer = ask(200_000);
    assert_eq!(answer.status(), 500);
    let body = run(answer.into_body().collect()).unwrap().to_bytes();
    assert_eq!(body, ERROR);
    let _in_one_piece = ask(60_000);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_rest_does_not_come_is_withheld_and_a_stream_is_not() {
    for (kind, ends) in [("application/json", true), ("text/event-stream", false)] {
        let frames = stream::iter([Ok(Frame::data(Bytes::from("{")))]).chain(stream::pending());
        let body = StreamBody::new(frames).boxed_unsync();
        let response = Response::builder().header("content-type", kind).body(body).unwrap();
        let start = tokio::time::Instant::now();
        let answer = filtered(&Arc::new(Words), response, wide().share(A)).await;
        assert_eq!((answer.status() == 500, start.elapsed() == REST), (ends, ends), "{kind}");
    }
}

#[test]
fn an_event_without_room_becomes_an_error_and_the_stream_goes_on() {
    let budget = budget(1 << 20);
    let (sender, frames) = futures::channel::mpsc::unbounded::<Result<Frame<Bytes>, BoxError>>();
    let send = |text: Vec<u8>| sender.unbounded_send(Ok(Frame::data(text.into()))).unwrap();
    let body = StreamBody::new(frames).boxed_unsync();
    let mut stream = FilteredEvents::new(body, Arc::new(Words), withheld(), budget.share(A)).into_body();
    send(b"data: x\n\ndata: ".to_vec());
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok("data: x\n\n".into()))));
    send(vec![b'y'; 600_000]);
    assert!(poll(&mut stream).is_pending());
    assert!(budget.used() >= 500_000);
    // Another client needs the room, and nobody polls the stream.
    let mut other = budget.share(B);
    other.grow(500_000).unwrap();
    assert!(budget.used() < 600_000, "{}", budget.used());
    let error = format!("data: {ERROR}\n\n");
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok(error.clone().into()))));
    send(b"yy\n\ndata: old\n\n".to_vec());
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok("data: new\n\n".into()))));
    // One that does not fit at all.
    send([b"data: ".to_vec(), vec![b'y'; 2 << 20]].concat());
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok(error.into()))));
    send(b"\n\ndata: x\n\n".to_vec());
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok("data: x\n\n".into()))));
    drop(other);
    assert_eq!(budget.used(), 0);
}

#[test]
fn an_event_that_its_client_does_not_take_ends_its_stream_alone() {
    let budget = budget(1 << 19);
    let event = [b"data: ".to_vec(), vec![b'y'; 200_000], b"\n\n".to_vec()].concat();
    let mut open = |client| {
        let frames = stream::iter([Ok(Frame::data(Bytes::from(event.clone())))]).chain(stream::pending());
        let body = StreamBody::new(frames).boxed_unsync();
        FilteredEvents::new(body, Arc::new(Words), withheld(), budget.share(client)).into_body()
    };
    let mut read = open(A);
    let mut taken = Vec::new();
    while let Poll::Ready(Some(piece)) = poll(&mut read) {
        taken.extend_from_slice(&piece.unwrap());
    }
    assert!(taken == event, "it is sent whole, in pieces");
    assert_eq!(budget.used(), 0);
    let mut streams: Vec<_> = [A, A, B].into_iter().map(&mut open).collect();
    let firsts: Vec<_> = streams.iter_mut().map(poll).collect();
    assert!(firsts.iter().all(|first| matches!(first, Poll::Ready(Some(Ok(_))))), "{firsts:?}");
    let seconds: Vec<_> = streams.iter_mut().map(poll).collect();
    let ended = seconds.iter().filter(|second| matches!(second, Poll::Ready(Some(Err(_))))).count();
    assert_eq!(ended, 1, "two of three have room");
    assert!(matches!(seconds[2], Poll::Ready(Some(Ok(_)))), "the one of the client that holds least");
}

proptest! {
    #[test]
    fn however_a_stream_is_cut_the_same_comes_of_it(
        stream in "(data: ?|id: 1|:|secret|old|x|7|\r|\n|\r\n|\n\n|\u{feff}|\u{2028}|\u{b}){0,24}",
        cuts in prop::collection::vec(0_usize..60, 0..6),
    ) {
        let whole = events(&[stream.as_bytes()], withheld());
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|cut| &stream.as_bytes()[cut[0]..cut[1]]).collect();
        let out = events(&pieces, withheld());
        let decoded = |text: &str| {
            let mut decoder = mcp_wire::sse::Decoder::new(usize::MAX);
            let mut events = decoder.push(text.as_bytes()).unwrap();
            events.extend(decoder.push(b"\n\n").unwrap());
            events
        };
        let read = decoded(&out);
        // By a reader that ends a line at more characters and drops no byte order mark.
        let lines = format!("\n{}", out.replace(['\u{2028}', '\u{b}'], "\n"));
        let read_otherwise = decoded(&lines);
        let shown = |event: &Event| event.data.as_ref().is_some_and(|data| data.contains("secret"));
        prop_assert!(!read.iter().chain(&read_otherwise).any(shown), "{stream:?} became {read:?} or {read_otherwise:?}");
        prop_assert_eq!(read, decoded(&whole));
    }
}

/// A list of one tool, and so many blanks.
fn list(tool: &str, blanks: usize) -> String {
    format!(r#"{{"id":7,"result":{{{}"tools":[{{"name":"{tool}"}}]}}}}"#, " ".repeat(blanks))
}

/// One filter of tools.
fn tools<F>(edit: impl Fn(List) -> F + Send + Sync + 'static) -> Arc<Filters>
where
    F: Future<Output = Result<List, &'static str>> + Send + 'static,
{
    let mut filters = Filters::default();
    filters.add(ListFilter { middleware: "tools", kinds: &[ListKind::Tools], cost: 0, is_private: false }, edit);
    Arc::new(filters)
}

#[test]
fn a_long_answer_whose_client_has_left_counts_until_its_filter_is_done() {
    let event = format!("data: {}\n\n", list("a", LONG));
    for (kind, body) in [("application/json", list("a", LONG)), ("text/event-stream", event)] {
        let (go_on, waiting) = mpsc::channel();
        let (started, starts) = mpsc::channel();
        let waiting = Mutex::new(waiting);
        let budget = wide();
        let held = budget.clone();
        // A failure drops what the filter waits for.
        run(async move {
            let mut response = Response::new(full(body));
            response.headers_mut().insert("content-type", HeaderValue::from_static(kind));
            let filters = tools(move |list| {
                let _ = started.send(());
                let _ = waiting.lock().unwrap().recv();
                ready(Ok(list))
            });
            let mut whole =
                Box::pin(async { filtered(&filters, response, held.share(A)).await.into_body().collect().await });
            while starts.try_recv().is_err() {
                assert!(poll_immediate(&mut whole).await.is_none(), "{kind}");
                tokio::task::yield_now().await;
            }
            drop(whole);
            assert!(held.used() > LONG / 2, "{kind}: {}", held.used());
            go_on.send(()).unwrap();
        });
        // The runtime has waited for the filter.
        assert_eq!(budget.used(), 0, "{kind}");
    }
}

#[test]
fn a_watcher_sees_requests_and_notifications_with_their_session() {
    let (tell, told) = mpsc::channel();
    let mut filters = Filters::default();
    filters.watch(move |session, message| {
        let _ = tell.send((session.map(ToString::to_string), message.method().map(str::to_owned)));
    });
    filters.session = Some("s".into());
    let filters = Arc::new(filters);
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/x"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"method":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
    ] {
        let (verdict, _) = run(async { filters.judge(text.into(), wide().share(A)).await });
        assert_eq!(verdict, Verdict::Pass, "{text}");
    }
    drop(filters);
    let seen: Vec<_> = told.iter().map(|(session, method)| (session.unwrap(), method.unwrap())).collect();
    assert_eq!(seen, [("s".to_owned(), "ping".to_owned()), ("s".to_owned(), "notifications/x".to_owned())]);
}

#[test]
fn a_long_event_is_filtered_beside_the_serving_thread() {
    let event = |blanks: usize| format!("data: {}\n\n", list("old", blanks));
    // The last one has no end.
    let stream = [event(1), event(LONG), event(2), event(LONG), event(LONG).trim().to_owned()].concat();
    let expected = stream.replace("old", "new").trim().to_owned() + "\n\n";
    for piece in [100_000, 3 * LONG, usize::MAX] {
        let (tell, told) = mpsc::channel();
        let filters = tools(move |mut list| {
            let _ = tell.send(thread::current().id());
            ready(list.retain(|tool| tool.rename("new").map(|()| true)).map(|()| list))
        });
        let pieces: Vec<_> =
            stream.as_bytes().chunks(piece).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
        let body = StreamBody::new(stream::iter(pieces)).boxed_unsync();
        let filtered = FilteredEvents::new(body, filters, withheld(), wide().share(A)).into_body();
        let shown = run(filtered.collect()).unwrap().to_bytes();
        assert!(shown == expected, "in pieces of {piece} bytes");
        let beside: Vec<_> = told.iter().map(|on| on != thread::current().id()).collect();
        assert_eq!(beside, [false, true, false, true, true], "in pieces of {piece} bytes");
    }
}

#[test]
fn a_long_event_without_room_takes_no_part_of_the_next_with_it() {
    let (budget, start) = (budget(2 * LONG - 200_000), "data: x\n\ndata: secret");
    let (sender, frames) = futures::channel::mpsc::unbounded::<Result<Frame<Bytes>, BoxError>>();
    let send = |text: String| sender.unbounded_send(Ok(Frame::data(text.into()))).unwrap();
    let body = StreamBody::new(frames).boxed_unsync();
    let mut stream = FilteredEvents::new(body, Arc::new(Words), withheld(), budget.share(A)).into_body();
    send(format!("data: a\n\ndata: {}\n\n{start}", "y".repeat(LONG)));
    // The long one is kept until its turn comes.
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok("data: a\n\n".into()))));
    let mut other = budget.share(B);
    other.grow(LONG - 50_000).unwrap();
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok(format!("data: {ERROR}\n\n").into()))));
    send("y: old\n\ndata: old\n\n".to_owned());
    assert_eq!(poll(&mut stream), Poll::Ready(Some(Ok("data: new\n\n".into()))));
}
