//! Requests of HTTP that two readers could frame, route or decode in two ways.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Recorder, Runner, within};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const JSON: &str = "content-type: application/json\r\n";

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The server gets one request with the message in it, framed by its length alone.
    Served,
    /// The client gets this status, and the server nothing.
    Refused(u16),
    /// The connection ends without an answer, and the server gets nothing.
    Closed,
}
use Fate::{Closed, Refused, Served};

/// A POST with these lines of its head, and this behind the head.
fn post(lines: &str, body: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n{body}")
}

/// A POST of the message with its length, and `lines` beside.
fn with(lines: &str) -> String {
    post(&format!("{JSON}content-length: {}\r\n{lines}", PING.len()), PING)
}

fn typed(content_type: &str) -> String {
    post(&format!("{content_type}content-length: {}\r\n", PING.len()), PING)
}

fn chunked(lines: &str, chunks: &str) -> String {
    post(&format!("{JSON}{lines}"), chunks)
}

/// The message as one chunk.
fn chunk() -> String {
    format!("{:x}\r\n{PING}\r\n0\r\n\r\n", PING.len())
}

/// Lengths that two readers could take for different ones.
fn lengths() -> Vec<(&'static str, String, Fate)> {
    let (chunk, length) = (chunk(), PING.len());
    let te = "transfer-encoding: chunked\r\n";
    let cl = |value: &str| post(&format!("{JSON}content-length: {value}\r\n"), PING);
    let line = |encoding: &str| chunked(&format!("transfer-encoding: {encoding}\r\n"), &chunk);
    vec![
        ("a length", with(""), Served),
        ("chunks", chunked(te, &chunk), Served),
        ("chunks, then a length", chunked(&format!("{te}content-length: 5\r\n"), &chunk), Served),
        ("a length, then chunks", chunked(&format!("content-length: 5\r\n{te}"), &chunk), Served),
        ("unknown coding", line("xchunked"), Refused(400)),
        ("identity", line("identity"), Refused(400)),
        ("chunked, then another", line("chunked, identity"), Refused(400)),
        ("chunked in quotes", line("\"chunked\""), Refused(400)),
        ("vertical tab", line("\u{b}chunked"), Refused(400)),
        ("list of lengths", cl(&format!("{length}, {length}")), Refused(400)),
        ("two lengths", cl(&format!("{length}\r\ncontent-length: 5")), Refused(400)),
        ("signed length", cl(&format!("+{length}")), Refused(400)),
        ("negative length", cl("-1"), Refused(400)),
        ("length in hexadecimal", cl("0x28"), Refused(400)),
        ("endless length", cl("99999999999999999999"), Refused(400)),
        ("fractional length", cl("40.0"), Refused(400)),
        ("empty length", cl(""), Refused(400)),
        ("chunk too long to count", chunked(te, &format!("10000000000000028\r\n{PING}\r\n0\r\n\r\n")), Refused(400)),
        ("chunk with a sign", chunked(te, &format!("+28\r\n{PING}\r\n0\r\n\r\n")), Refused(400)),
        ("chunk with 0x", chunked(te, &format!("0x28\r\n{PING}\r\n0\r\n\r\n")), Refused(400)),
        ("line feed in an extension", chunked(te, &format!("28;a\nb\r\n{PING}\r\n0\r\n\r\n")), Refused(400)),
        ("chunk without its end", chunked(te, &format!("28\r\n{PING}0\r\n\r\n")), Refused(400)),
        ("trailers", chunked(te, &format!("28\r\n{PING}\r\n0\r\nmcp-session-id: x\r\n\r\n")), Served),
        ("chunks in HTTP/1.0", chunked(te, &chunk).replace("HTTP/1.1", "HTTP/1.0"), Refused(400)),
    ]
}

/// Heads that two readers could take apart in two ways.
fn heads() -> Vec<(&'static str, String, Fate)> {
    let to = |line: &str| with("").replacen("POST /mcp HTTP/1.1", line, 1);
    let many: Vec<_> = (0..101).map(|at| format!("x-{at}: 1\r\n")).collect();
    vec![
        ("folded line", with("x-a: 1\r\n mcp-session-id: x\r\n"), Refused(400)),
        ("bare carriage return", with("x-a: 1\rmcp-session-id: x\r\n"), Refused(400)),
        ("NUL", with("x-a: 1\0\r\n"), Refused(400)),
        ("blank before the colon", with("mcp-session-id : x\r\n"), Refused(400)),
        ("no colon", with("mcp-session-id\r\n"), Refused(400)),
        ("no name", with(": x\r\n"), Refused(400)),
        ("101 headers", with(&many.concat()), Refused(431)),
        ("absolute form", to("POST http://127.0.0.1/mcp HTTP/1.1"), Served),
        ("two hosts", with("host: 127.0.0.1\r\n"), Served),
        ("no host, on a loopback address", with("").replace("host: localhost\r\n", ""), Refused(403)),
        ("lower case", to("post /mcp HTTP/1.1"), Refused(405)),
        ("PUT", to("PUT /mcp HTTP/1.1"), Refused(405)),
        ("PATCH", to("PATCH /mcp HTTP/1.1"), Refused(405)),
        ("TRACE", to("TRACE /mcp HTTP/1.1"), Refused(405)),
        ("CONNECT", "CONNECT h:80 HTTP/1.1\r\nhost: h:80\r\n\r\n".into(), Refused(405)),
        ("HTTP/2.0", to("POST /mcp HTTP/2.0"), Refused(400)),
        ("HTTP/0.9", "GET /mcp\r\n\r\n".into(), Refused(400)),
        ("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), Closed),
        ("message on GET", to("GET /mcp HTTP/1.1"), Refused(400)),
        ("message on DELETE", to("DELETE /mcp HTTP/1.1"), Refused(400)),
        ("message on HEAD", to("HEAD /mcp HTTP/1.1"), Refused(400)),
        ("chunks on GET", chunked("transfer-encoding: chunked\r\n", &chunk()).replacen("POST", "GET", 1), Refused(400)),
        ("Connection names a session", with("connection: mcp-session-id\r\n"), Refused(400)),
        ("Connection names a token", with("connection: close, authorization\r\n"), Refused(400)),
        ("upgrade to h2c", with("connection: upgrade\r\nupgrade: h2c\r\n"), Served),
        // Java's HttpClient sends these with every request.
        (
            "upgrade to h2c with settings",
            with("connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAA\r\n"),
            Served,
        ),
        ("another method in a header", with("mcp-method: tools/call\r\n"), Refused(400)),
        ("two methods in headers", with("mcp-method: ping\r\nmcp-method: tools/call\r\n"), Refused(400)),
        ("a name in a header", with("mcp-name: safe\r\n"), Refused(400)),
        ("a method in an underscored header", with("mcp_method: tools/call\r\n"), Served),
    ]
}

/// Types and codings under which a server could read another text.
fn types() -> Vec<(&'static str, String, Fate)> {
    vec![
        ("UTF-8", typed("content-type: application/json; charset=utf-8\r\n"), Served),
        ("no type", typed(""), Refused(415)),
        ("text", typed("content-type: text/plain\r\n"), Refused(415)),
        ("a form", typed("content-type: application/x-www-form-urlencoded\r\n"), Refused(415)),
        ("a list of types", typed("content-type: application/json, text/plain\r\n"), Refused(415)),
        ("two types", typed(&format!("{JSON}content-type: text/plain\r\n")), Refused(415)),
        ("another JSON", typed("content-type: application/json-patch+json\r\n"), Refused(415)),
        ("UTF-7", typed("content-type: application/json; charset=utf-7\r\n"), Refused(415)),
        ("UTF-16", typed("content-type: application/json; charset=\"utf-16\"\r\n"), Refused(415)),
        ("charset*", typed("content-type: application/json; charset*=''utf-7\r\n"), Refused(415)),
        ("two charsets", typed("content-type: application/json; charset=utf-8; charset=utf-7\r\n"), Refused(415)),
        ("gzip", with("content-encoding: gzip\r\n"), Refused(415)),
        ("two codings", with("content-encoding: identity\r\ncontent-encoding: br\r\n"), Refused(415)),
        ("identity coding", with("content-encoding: identity\r\n"), Served),
    ]
}

/// Sends `bytes`, and says what became of them.
async fn send(runner: &Runner, backend: &mut Recorder, bytes: &str) -> (Fate, String) {
    let mut stream = TcpStream::connect(runner.address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut served = String::new();
    let mut answer = Vec::new();
    let mut read = [0; 4096];
    while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
        tokio::select! {
            count = stream.read(&mut read) => match count {
                Ok(count @ 1..) => answer.extend_from_slice(&read[..count]),
                _ => break,
            },
            request = backend.next() => {
                served = format!("{}{}", request.head, String::from_utf8_lossy(&request.body));
                request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
            }
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let fate = match status {
        None => Closed,
        Some(200) if !served.is_empty() => Served,
        Some(status) => Refused(status),
    };
    (fate, format!("{served}\n{answer}"))
}

#[tokio::test]
async fn no_request_is_another_one_to_the_server_than_to_the_proxy() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let rows: Vec<_> = lengths().into_iter().chain(heads()).chain(types()).collect();
    assert!(rows.len() >= 50, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for (name, bytes, expected) in rows {
        let (fate, seen) = within(name, send(&runner, &mut backend, &bytes)).await;
        let head = seen.to_ascii_lowercase();
        let whole = fate != Served
            || seen.starts_with("POST /mcp HTTP/1.1\r\n")
                && head.contains(&format!("content-length: {}\r\n", PING.len()))
                && !["transfer-encoding", "mcp-session-id", "mcp_", "upgrade"].iter().any(|name| head.contains(name))
                && seen.contains(&format!("\r\n\r\n{PING}\n"));
        if fate != expected || !whole || !backend.is_quiet() {
            wrong.push(format!("{name}: {fate:?} and not {expected:?}: {seen}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
