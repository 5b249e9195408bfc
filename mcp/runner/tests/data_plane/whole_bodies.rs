//! Work on whole bodies keeps no other client waiting, and no probe (MISSION P8).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::stdio_modern::META;
use super::tool_filter::filter;
use crate::support::{Runner, within};

/// The members of an object of so many bytes, about: many small ones, which take the longest.
fn members(bytes: usize) -> String {
    let mut members = String::with_capacity(bytes + 20);
    for at in 0..bytes / 15 {
        write!(members, "{}\"a{at:07}\":\"q\"", if at == 0 { "" } else { "," }).unwrap();
    }
    members
}

fn call(bytes: usize) -> String {
    let members = members(bytes);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"say","arguments":{{{members}}}}}}}"#)
}

/// A server that gives everybody `answer`, and tells when a POST begins to arrive.
async fn server(answer: String) -> (String, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (answer, tell) = (answer.clone(), tell.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.is_ok_and(|count| count > 0) {
                        continue;
                    }
                    return;
                }
                if head.starts_with(b"POST") {
                    let _ = tell.send(());
                }
                // One request a connection, the rest of which nobody reads here.
                let (mut read, mut write) = stream.split();
                let mut nowhere = tokio::io::sink();
                let written = async {
                    let _ = write.write_all(answer.as_bytes()).await;
                    let _ = write.shutdown().await;
                };
                let _ = tokio::join!(written, tokio::io::copy(&mut read, &mut nowhere));
            });
        }
    });
    (url, told)
}

/// Asks `/health` again and again until `done`. No answer may take a quarter of that time, so that whatever the machine does, no large part of the
/// work is done by the thread that answers.
async fn health_is_answered_during<T>(what: &str, runner: &Runner, done: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let (mut slowest, mut answers) = (Duration::ZERO, 0);
    let probes = async {
        loop {
            let asked = Instant::now();
            let answer = runner.get("/health").await;
            assert_eq!(answer.status, 200, "{what}: {answer:?}");
            (slowest, answers) = (slowest.max(asked.elapsed()), answers + 1);
        }
    };
    let done = within(what, async {
        tokio::select! {
            () = probes => unreachable!("the probes go on"),
            done = done => done,
        }
    });
    let done = done.await;
    let whole = start.elapsed();
    assert!(answers > 3 && slowest * 4 < whole, "{what}: of {answers} answers one took {slowest:?} of {whole:?}");
    done
}

#[tokio::test]
async fn health_is_answered_while_the_worst_call_is_at_work() {
    const OK: &str = "HTTP/1.1 202 Accepted\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let body = call(7_900_000);
    let names: Vec<_> = (0..95).map(|at| format!("mcp-param-p{at}")).collect();
    let mirrored = |count: usize| -> Vec<(&str, &str)> { names[..count].iter().map(|name| (&**name, "q")).collect() };
    let short =
        json!([{"type": "bodylimit", "parameters": {"max_bytes": 8_388_608}}, {"type": "auth", "parameters": {}}]);
    for (what, members, headers) in [
        ("a chain that reads nothing", json!({"middleware_configs": short}), vec![]),
        ("a chain that parses", json!({}), vec![]),
        ("a renamed tool", filter("real", &["say"]), vec![]),
        ("a renamed tool with as many mirrored arguments as may be", filter("real", &["say"]), mirrored(64)),
    ] {
        let (url, mut arrived) = server(OK.to_owned()).await;
        let runner = Runner::http(&url, &members).await;
        let post = async {
            let answer = runner.post(&headers, &body).await;
            assert_eq!(answer.status, 202, "{what}: {answer:?}");
        };
        // The server may have read all before the runner has passed its answer on.
        let (_, ()) = tokio::join!(health_is_answered_during(what, &runner, arrived.recv()), post);
    }
    // Above the bound there is no work but reading.
    let (url, mut arrived) = server(OK.to_owned()).await;
    let runner = Runner::http(&url, &filter("real", &["say"])).await;
    let headers = mirrored(95);
    let refused = runner.post(&headers, &body);
    let answer = health_is_answered_during("95 mirrored arguments", &runner, refused).await;
    let error = json!({"code": -32600, "message": "the request has 95 Mcp-Param-* headers; send at most 64"});
    assert_eq!((answer.status, &answer.message()["error"]), (400, &error));
    assert!(arrived.try_recv().is_err());
}

#[tokio::test]
async fn health_is_answered_while_the_worst_answer_is_filtered() {
    let tools = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"real","x":{{{}}}}},{{"name":"hidden"}}]}}}}"#,
        members(7_900_000)
    );
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (kind, body) in [("application/json", tools.clone()), ("text/event-stream", format!("data: {tools}\n\n"))] {
        let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\n\r\n{body}");
        let (url, _arrived) = server(answer).await;
        let runner = Runner::http(&url, &filter("real", &["say"])).await;
        let answer = health_is_answered_during(kind, &runner, runner.post(&[], list)).await;
        assert_eq!(answer.status, 200, "{kind}");
        assert!(answer.body.len() > 7_000_000 && !answer.body.contains("hidden"), "{kind}");
    }
}

/// Lists a tool with 64 mirrored arguments, then tells of the next line on its standard error, and answers none.
fn process() -> Vec<std::ffi::OsString> {
    let mut properties = serde_json::Map::new();
    for at in 0..64 {
        properties.insert(format!("a{at:07}"), json!({"type": "string", "x-mcp-header": format!("P{at}")}));
    }
    let tools = json!({"tools": [{"name": "say", "inputSchema": {"properties": properties}}]});
    let script = format!(
        r#"while read -r line; do id=${{line#*'"id":'}}; id=${{id%%,*}}; case $line in
            *tools/list*) printf '%s\n' '{{"jsonrpc":"2.0","id":'"$id"',"result":{tools}}}'; break;;
            *'"id":'*) echo '{{"jsonrpc":"2.0","id":'"$id"',"result":{{}}}}';;
        esac; done
        head -c 1 > /dev/null; echo 'the line begins' >&2; cat > /dev/null"#
    );
    vec!["sh".into(), "-c".into(), script.into()]
}

fn modern(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{META}{params}}}}}"#)
}

#[tokio::test]
async fn health_is_answered_while_the_worst_call_goes_to_a_process() {
    let runner = Runner::stdio(&process(), &json!({})).await;
    let version = ("mcp-protocol-version", "2026-07-28");
    let listed = runner.post(&[version, ("mcp-method", "tools/list")], &modern("tools/list", "")).await;
    assert!(listed.message()["result"]["tools"][0] != Value::Null, "{listed:?}");
    let body = modern("tools/call", &format!(r#","name":"say","arguments":{{{}}}"#, members(7_000_000)));
    let names: Vec<_> = (0..64).map(|at| format!("mcp-param-p{at}")).collect();
    let mut headers = vec![version, ("mcp-method", "tools/call"), ("mcp-name", "say")];
    headers.extend(names.iter().map(|name| (&**name, "q")));
    let begins = async {
        tokio::select! {
            answer = runner.post(&headers, &body) => panic!("nobody answers: {answer:?}"),
            () = runner.logged("the line begins") => {}
        }
    };
    health_is_answered_during("a process", &runner, begins).await;
}

#[tokio::test]
async fn a_body_limit_above_the_bound_is_clamped_and_logged() {
    const BOUND: u64 = 256 << 20;
    let bare = json!([{"type": "auth", "parameters": {}}]);
    for (members, clamped) in [
        (json!({"max_request_body_size": BOUND}), false),
        (json!({"max_request_body_size": BOUND + 1}), true),
        (json!({"middleware_configs": bare, "max_request_body_size": 1_u64 << 40}), true),
    ] {
        let runner = Runner::http("http://127.0.0.1:9", &members).await;
        let mut stream = TcpStream::connect(runner.address).await.unwrap();
        let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length:";
        stream.write_all(format!("{head} {}\r\n\r\n", BOUND + 1).as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        within("a refusal", stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413", "{members}");
        // It was announced before the runner listened.
        assert_eq!(runner.log().contains("above the proxy's bound"), clamped, "{members}: {}", runner.log());
    }
}
