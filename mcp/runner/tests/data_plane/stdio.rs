//! One process, many clients.

use std::ffi::OsString;
use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{EventStream, INITIALIZE, Runner, SdkClient, eventually, go, node_server, signal, within};

/// A shell that has everything recorded that `server` reads and then becomes it; its pid is in the file `pid`.
pub(crate) fn recorded(directory: &Path, server: &str) -> Vec<OsString> {
    let script = format!(
        "echo $$ > '{dir}/pid'; [ -p '{dir}/in' ] || mkfifo '{dir}/in'; exec 3<&0; tee -a '{dir}/read' <&3 > '{dir}/in' & \
         exec {server} < '{dir}/in' 3<&-",
        dir = directory.display(),
    );
    vec!["sh".into(), "-c".into(), script.into()]
}

pub(crate) fn node_stdio() -> String {
    format!("node '{}' stdio", node_server().display())
}

/// What the process was told so far, line by line.
pub(crate) fn read(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("read")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The process has read these methods, and no others. The record may lag behind the answer to the last.
pub(crate) async fn has_read(directory: &Path, expected: &[&str]) {
    let methods = || read(directory).iter().filter_map(|line| Some(line["method"].as_str()?.to_owned())).collect();
    let complete = || {
        let methods: Vec<String> = methods();
        std::future::ready((methods.len() >= expected.len()).then_some(methods))
    };
    assert_eq!(eventually("what the process read", complete).await, expected);
}

pub(crate) fn kill(directory: &Path) {
    let pid = std::fs::read_to_string(directory.join("pid")).unwrap();
    signal("KILL", pid.trim().parse().unwrap());
}

/// Reads ids as numbers in floating point and writes them so, and says nothing to other ids.
const FLOATING_IDS: &str = r#"
require('readline').createInterface({input: process.stdin}).on('line', line => {
  const {id, method} = JSON.parse(line);
  if (typeof id !== 'number') return;
  const result = method === 'initialize'
    ? {protocolVersion: '2025-06-18', capabilities: {}, serverInfo: {name: 's', version: '1'}} : {tools: []};
  console.log(`{"jsonrpc":"2.0","id":${id}.0,"result":${JSON.stringify(result)}}`);
});"#;

#[tokio::test]
async fn a_server_that_knows_only_numbers_as_ids_is_not_left_hanging() {
    let runner = Runner::stdio(&["node".into(), "-e".into(), FLOATING_IDS.into()], &json!({})).await;
    let session = runner.session().await;
    for id in [json!(7), json!("seven")] {
        let list = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}).to_string();
        let answer = within("an answer", runner.post(&[("mcp-session-id", &session)], &list)).await.message();
        assert_eq!((&answer["id"], &answer["result"]), (&id, &json!({"tools": []})));
    }
}

#[tokio::test]
async fn clients_with_the_same_ids_at_the_same_time_get_their_own_answers() {
    let runner = Runner::stdio(&[go().into()], &json!({})).await;
    let sessions = futures::future::join_all((0..8).map(|_| runner.session())).await;
    let calls = (0..40).flat_map(|round| {
        let runner = &runner;
        sessions.iter().enumerate().map(move |(client, session)| async move {
            // Strings and numbers, the same for every client.
            let id = if round % 2 == 0 { json!(round) } else { json!(format!("{round}")) };
            let name = format!("c{client}r{round}");
            let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": name}}});
            let answer = runner.post(&[("mcp-session-id", session)], &body.to_string()).await.message();
            assert_eq!(answer["id"], id);
            assert_eq!(answer["result"]["content"][0]["text"], format!("Hi {name}"));
        })
    });
    futures::future::join_all(calls).await;
}

#[tokio::test]
async fn the_handshake_reaches_the_process_once_and_every_client_gets_its_result() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&recorded(directory.path(), &go().display().to_string()), &json!({})).await;
    // Too early: the process would take what follows for a second handshake.
    runner.post(&[], r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    let (first, second) = tokio::join!(runner.session(), runner.session());
    assert_ne!(first, second);
    let answer = runner.post(&[("mcp-session-id", "chosen")], &INITIALIZE.replace("\"init\"", "77")).await;
    assert_eq!(answer.message()["id"], 77);
    assert_eq!(answer.message()["result"]["serverInfo"]["name"], "everything");
    assert_ne!(answer.header("mcp-session-id"), Some("chosen"), "a client does not choose its session");
    runner.post(&[("mcp-session-id", &first)], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    has_read(directory.path(), &["initialize", "notifications/initialized", "ping"]).await;
}

#[tokio::test]
async fn the_process_does_not_inherit_the_proxys_secrets() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("env");
    let script = format!("env > '{}'; exec '{}'", file.display(), go().display());
    let environment = [
        ("TOOLHIVE_OIDC_CLIENT_SECRET", "hush-1"),
        ("TOOLHIVE_SECRET_KEY", "hush-2"),
        ("TOOLHIVE_SECRETS_PROVIDER", "environment"),
    ];
    let members = json!({"env_vars": {"TOOLHIVE_SECRET_MINE": "given"}});
    let runner = Runner::stdio_with(&["sh".into(), "-c".into(), script.into()], &members, &environment).await;
    runner.session().await;
    let inherited = std::fs::read_to_string(file).unwrap();
    assert!(!inherited.contains("hush-"), "{inherited}");
    for line in ["TOOLHIVE_SECRETS_PROVIDER=environment", "TOOLHIVE_SECRET_MINE=given"] {
        assert!(inherited.lines().any(|inherited| inherited == line), "{line}");
    }
}

/// Method, path, headers, body; status, a part of the answer.
type Row<'a> = (Method, &'a str, Vec<(&'a str, &'a str)>, &'a str, u16, &'a str);

#[tokio::test]
async fn http_around_the_pipe_follows_the_table() {
    let runner = Runner::stdio(&[go().into()], &json!({"strict_protocol_validation": true})).await;
    let session = runner.session().await;
    let known = ("mcp-session-id", session.as_str());
    let unknown = ("mcp-session-id", "nobody's");
    let json_type = ("content-type", "application/json");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let table: Vec<Row<'_>> = vec![
        (Method::POST, "/other", vec![json_type], ping, 404, "Not Found"),
        (Method::POST, "/mcp//", vec![json_type], ping, 404, "Not Found"),
        (Method::PUT, "/mcp", vec![], "", 405, "Method Not Allowed"),
        (Method::GET, "/mcp", vec![], "", 400, "Mcp-Session-Id is missing"),
        (Method::GET, "/mcp", vec![unknown], "", 404, "-32001"),
        (Method::DELETE, "/mcp", vec![], "", 400, "Mcp-Session-Id is missing"),
        (Method::DELETE, "/mcp", vec![unknown], "", 404, "-32001"),
        (Method::POST, "/mcp", vec![("content-type", "text/plain")], ping, 415, "application/json"),
        (Method::POST, "/mcp", vec![json_type], "{", 400, ""),
        (Method::POST, "/mcp", vec![json_type], "[]", 400, "batch"),
        (Method::POST, "/mcp", vec![json_type, unknown], ping, 404, "-32001"),
        (Method::POST, "/mcp", vec![json_type, ("mcp-protocol-version", "2019-01-01")], ping, 400, "Unsupported"),
        (Method::POST, "/mcp", vec![json_type, ("mcp-method", "tools/call")], ping, 400, "-32020"),
        // Anybody could end what others subscribed to.
        (
            Method::POST,
            "/mcp",
            vec![json_type],
            r#"{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"u"}}"#,
            400,
            "Mcp-Session-Id is missing",
        ),
        (Method::POST, "/mcp", vec![json_type, known], r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, 202, ""),
        (
            Method::POST,
            "/mcp",
            vec![json_type, known],
            r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
            202,
            "",
        ),
        (
            Method::POST,
            "/mcp",
            vec![json_type, known],
            r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#,
            200,
            r#""result":{}"#,
        ),
        (
            Method::POST,
            "/mcp",
            vec![json_type, known],
            r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#,
            200,
            r#""code":-32601"#,
        ),
        (Method::DELETE, "/mcp", vec![known], "", 204, ""),
        (Method::POST, "/mcp", vec![json_type, known], ping, 404, "-32001"),
    ];
    for (method, path, headers, body, status, said) in table {
        let answer = runner.request(method.clone(), path, &headers, body).await;
        assert_eq!(answer.status, status, "{method} {path} {headers:?} {body}: {answer:?}");
        assert!(answer.body.contains(said), "{method} {path} {headers:?} {body}: {answer:?}");
    }
}

#[tokio::test]
async fn a_call_fails_when_the_process_is_killed_and_the_session_goes_on_with_the_next() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&recorded(directory.path(), &node_stdio()), &json!({})).await;
    let mut client = SdkClient::connect(&runner.url()).await;
    for progress in [true, false] {
        let slow = json!({"do": "start", "name": "trigger-long-running-operation", "args": {"duration": 50, "steps": 100}, "progress": progress});
        client.ask(slow).await;
        if progress {
            client.hears(|line| line["progress"]["progress"] == 1).await;
        } else {
            // Its predecessor's answer shows that the pipe is read.
            client.ask(json!({"do": "ping"})).await;
        }
        kill(directory.path());
        let failure = client.fails(json!({"do": "finish"})).await;
        assert!(failure["failed"].as_str().unwrap().contains("process ended"), "{failure}");
        assert!(client.call("echo", json!({"message": "again"})).await.ends_with("again"));
    }
    assert_eq!(runner.get("/health").await.message()["status"], "healthy");
}

#[tokio::test]
async fn a_new_process_is_greeted_and_told_of_subscriptions_before_anything_else() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&recorded(directory.path(), &node_stdio()), &json!({})).await;
    let (one, two) = (runner.session().await, runner.session().await);
    let post = |session, method: &str, uri: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 5, "method": method, "params": {"uri": uri}}).to_string();
        let runner = &runner;
        async move {
            let answer = runner.post(&[("mcp-session-id", session)], &body).await;
            assert_eq!(answer.message()["result"], json!({}), "{answer:?}");
        }
    };
    let uri = "demo://resource/dynamic/text/1";
    // Counted: only the first to come and the last to go concern the process.
    post(&one, "resources/subscribe", uri).await;
    post(&two, "resources/subscribe", uri).await;
    post(&one, "resources/unsubscribe", uri).await;
    has_read(directory.path(), &["initialize", "notifications/initialized", "resources/subscribe"]).await;
    std::fs::write(directory.path().join("read"), "").unwrap();
    kill(directory.path());
    // From here on calls wait for the next process; those that were written before fail with the one that ended.
    runner.logged("opening it again after a pause").await;
    let ping = r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#;
    assert_eq!(runner.post(&[("mcp-session-id", &two)], ping).await.message()["result"], json!({}));
    post(&two, "resources/unsubscribe", uri).await;
    has_read(
        directory.path(),
        &["initialize", "notifications/initialized", "resources/subscribe", "ping", "resources/unsubscribe"],
    )
    .await;
}

#[tokio::test]
async fn a_session_that_ends_before_it_is_subscribed_leaves_no_subscription_behind() {
    let directory = TempDir::new().unwrap();
    let (read, go) = (directory.path().join("read"), directory.path().join("go"));
    // Records what it reads, and takes its time for a subscription.
    let script = r#"while read -r line; do
        printf '%s\n' "$line" >> "$0"; id=${line#*'"id":'}; id=${id%%,*}
        case $line in *resources/subscribe*) until [ -e "$1" ]; do sleep 0.05; done;; *'"id"'*) ;; *) continue;; esac
        echo '{"jsonrpc":"2.0","id":'"$id"',"result":{}}'; done"#;
    let command = ["sh".into(), "-c".into(), script.into(), read.into(), go.clone().into()];
    let runner = Runner::stdio(&command, &json!({})).await;
    let session = runner.session().await;
    let named = [("mcp-session-id", session.as_str())];
    let subscribe = r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"demo://a"}}"#;
    let ending = async {
        has_read(directory.path(), &["initialize", "notifications/initialized", "resources/subscribe"]).await;
        let ended = runner.request(Method::DELETE, "/mcp", &named, "").await;
        assert_eq!(ended.status, 204, "{ended:?}");
        std::fs::write(&go, "").unwrap();
    };
    let (subscribed, ()) = tokio::join!(runner.post(&named, subscribe), ending);
    assert_eq!(subscribed.status, 200, "{subscribed:?}");
    let methods = ["initialize", "notifications/initialized", "resources/subscribe", "resources/unsubscribe"];
    has_read(directory.path(), &methods).await;
}

#[tokio::test]
async fn what_a_client_cancels_is_cancelled_at_the_process_under_the_process_id_of_the_call() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&recorded(directory.path(), &node_stdio()), &json!({})).await;
    let mut client = SdkClient::connect(&runner.url()).await;
    let slow = json!({"do": "start", "name": "trigger-long-running-operation", "args": {"duration": 50, "steps": 100}, "progress": true});
    client.ask(slow).await;
    client.hears(|line| line["progress"]["progress"] == 1).await;
    client.ask(json!({"do": "cancel"})).await;
    let cancelled = eventually("the cancellation", || async {
        read(directory.path()).into_iter().find(|line| line["method"] == "notifications/cancelled")
    })
    .await;
    let call = read(directory.path()).into_iter().find(|line| line["method"] == "tools/call").unwrap();
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
    assert_eq!(call["params"]["_meta"]["progressToken"], call["id"], "tokens of different clients would clash");
}

#[tokio::test]
async fn in_the_modern_era_leaving_is_cancelling_and_in_the_legacy_era_it_is_not() {
    // A process that answers nothing but what the proxy asks for itself.
    let directory = TempDir::new().unwrap();
    let script = r#"while read -r line; do printf '%s\n' "$line" >> "$0/read"; case $line in *'"id":'*) ;; *) continue;; esac
        case $line in *tools/call*) continue;; esac
        id=${line#*'"id":'}; echo '{"jsonrpc":"2.0","id":'"${id%%,*}"',"result":{}}'; done"#;
    let command = ["sh".into(), "-c".into(), script.into(), directory.path().into()];
    let runner = Runner::stdio(&command, &json!({})).await;
    let meta =
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    for (name, meta) in [("legacy", "{}"), ("modern", meta)] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{{"name":"{name}","_meta":{meta}}}}}"#
        );
        let stream = tokio::net::TcpStream::connect(runner.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let headers = [("content-type", "application/json"), ("mcp-method", "tools/call"), ("mcp-name", name)];
        let post = runner.build(Method::POST, "/mcp", &headers, &body);
        let waiting = tokio::spawn(async move { sender.send_request(post).await.map(|_| ()) });
        eventually("the call to reach the process", || async {
            read(directory.path()).iter().any(|line| line["params"]["name"] == name).then_some(())
        })
        .await;
        waiting.abort();
        connection.abort();
    }
    let lines = eventually("the cancellation", || async {
        let lines = read(directory.path());
        lines.iter().any(|line| line["method"] == "notifications/cancelled").then_some(lines)
    })
    .await;
    let cancelled: Vec<_> = lines.iter().filter(|line| line["method"] == "notifications/cancelled").collect();
    let modern = lines.iter().find(|line| line["params"]["name"] == "modern").unwrap();
    assert_eq!(cancelled.len(), 1, "{lines:?}");
    assert_eq!(cancelled[0]["params"]["requestId"], modern["id"]);
}

#[tokio::test]
async fn lists_that_change_are_told_to_every_session() {
    use http_body_util::BodyExt as _;
    // Answers the handshake, then says that its tools changed whenever it hears a notification.
    let script = r#"while read -r line; do case $line in
        *'"initialize"'*) id=${line#*'"id":'}; echo '{"jsonrpc":"2.0","id":'"${id%%,*}"',"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}';;
        *notifications/poke*) echo 'noise before {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'; echo 'only noise';;
    esac; done"#;
    let runner = Runner::stdio(&["sh".into(), "-c".into(), script.into()], &json!({})).await;
    let (one, two) = (runner.session().await, runner.session().await);
    let listen = async |session: &str| {
        let get =
            runner.build(Method::GET, "/mcp", &[("accept", "text/event-stream"), ("mcp-session-id", session)], "");
        runner.send(get).await
    };
    let mut evicted = listen(&one).await;
    let mut streams = [listen(&one).await, listen(&two).await];
    let end = within("the first stream of the session to end", evicted.body_mut().frame()).await;
    assert!(end.is_none(), "a session has one stream");
    let poke = r#"{"jsonrpc":"2.0","method":"notifications/poke"}"#;
    assert_eq!(runner.post(&[("mcp-session-id", &one)], poke).await.status, 202);
    for stream in &mut streams {
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        let frame = within("a notification", stream.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&frame),
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
        );
    }
    runner.logged("only noise").await;
    runner.request(Method::DELETE, "/mcp", &[("mcp-session-id", &two)], "").await;
    let end = within("the stream to end with its session", streams[1].body_mut().frame()).await;
    assert!(end.is_none());
}

#[tokio::test]
async fn a_process_that_ends_again_and_again_ends_the_runner() {
    let script = "echo 'cannot open the database' >&2; exit 3";
    let mut runner = Runner::stdio(&["sh".into(), "-c".into(), script.into()], &json!({})).await;
    runner.logged("cannot open the database").await;
    eventually("the report to say so", || async {
        let report = runner.get("/health").await;
        (report.status == 200 && report.message()["status"] == "degraded").then_some(())
    })
    .await;
    assert_eq!(runner.ended().await.code(), Some(1), "{}", runner.log());
    runner.logged("ends without answering").await;
}

#[tokio::test]
async fn no_client_decides_how_a_shared_process_is_greeted() {
    let directory = TempDir::new().unwrap();
    let command = recorded(directory.path(), &format!("'{}'", go().display()));
    let runner = Runner::stdio(&command, &json!({})).await;
    let initialize = |version: &str| {
        let params = json!({"protocolVersion": version, "capabilities": {"sampling": {}}, "clientInfo": {"name": "mallory", "version": "1"}});
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string()
    };
    for version in ["2024-11-05", "2025-11-25", "2025-06-18"] {
        let answer = runner.post(&[], &initialize(version)).await;
        assert_eq!(answer.message()["result"]["protocolVersion"], version, "{answer:?}");
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(runner.post(&[("mcp-session-id", &session)], initialized).await.status, 202);
    }
    has_read(directory.path(), &["initialize", "notifications/initialized"]).await;
    kill(directory.path());
    has_read(directory.path(), &["initialize", "notifications/initialized"].repeat(2)).await;
    let greeted = read(directory.path()).into_iter().filter(|line| line["method"] == "initialize");
    for params in greeted.map(|line| line["params"].clone()) {
        let told = (&params["protocolVersion"], &params["capabilities"], &params["clientInfo"]["name"]);
        assert_eq!(told, (&json!("2025-11-25"), &json!({}), &json!("portcullis")), "{params}");
    }
}

#[tokio::test]
async fn a_process_is_greeted_in_the_newest_revision_that_it_knows() {
    // Both know older revisions alone: one says so, as MCP wants it, and the other refuses all others.
    let result = r#"echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}'"#;
    let error =
        r#"echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32602,"message":"Unsupported protocol version"}}'"#;
    for cases in [format!("*) {result};;"), format!("*2025-03-26*) {result};; *) {error};;")] {
        let script = format!(
            r#"while read -r line; do id=${{line#*'"id":'}}; id=${{id%%,*}}; case $line in *notifications*) ;; {cases} esac; done"#
        );
        for mode in ["streamable-http", "sse"] {
            let runner =
                Runner::stdio(&["sh".into(), "-c".into(), (&script).into()], &json!({"proxy_mode": mode})).await;
            for (asked, told) in
                [("2025-11-25", "2025-03-26"), ("2025-03-26", "2025-03-26"), ("2024-11-05", "2024-11-05")]
            {
                let greeting = INITIALIZE.replace("2025-11-25", asked);
                let answer = if mode == "sse" {
                    let mut session = EventStream::open(&runner, &[]).await;
                    session.says(&runner, &greeting).await;
                    session.message().await
                } else {
                    runner.post(&[], &greeting).await.message()
                };
                assert_eq!(answer["result"]["protocolVersion"], told, "{mode} {cases}: {answer}");
            }
        }
    }
}
