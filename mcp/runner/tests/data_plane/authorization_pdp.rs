//! Authorization by a policy decision point (toolhive-auth §4.8).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::{join, join_all};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::stdio_modern::META;
use crate::support::{Answer, Issuer, Recorder, Runner, Signer, TlsFront, eventually};

/// A policy decision point. The name of what is asked for says what it answers.
struct Pdp {
    address: std::net::SocketAddr,
    asked: Arc<Mutex<Vec<Value>>>,
    /// The most questions that were open at once.
    most: Arc<AtomicUsize>,
}

impl Pdp {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, most, open) = (Arc::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let pdp = Self { address, asked: Arc::clone(&asked), most: Arc::clone(&most) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&asked), Arc::clone(&most), Arc::clone(&open)));
            }
        });
        pdp
    }

    /// The members of a document that ask it.
    fn members(&self, http: Value) -> Value {
        let mut all = json!({"url": format!("http://{}/v1/", self.address), "timeout": 20});
        for (name, value) in http.as_object().unwrap() {
            all[name] = value.clone();
        }
        let context = json!({"include_args": true, "include_operation": true});
        let pdp = json!({"http": all, "context": context, "claim_mapping": "standard"});
        json!({"middleware_configs": [], "authz_config": {"version": "1.0", "type": "httpv1", "pdp": pdp}})
    }

    fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

async fn serve(
    mut stream: TcpStream,
    asked: Arc<Mutex<Vec<Value>>>,
    most: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            (stream.read_buf(&mut bytes).await.ok()? > 0).then_some(())?;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        assert!(head.starts_with("post /v1/decision http/1.1\r\n"), "{head}");
        assert!(!head.contains("authorization:") && !head.contains("mcp-session-id:"), "{head}");
        let length: usize =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        while bytes.len() < end + length {
            (stream.read_buf(&mut bytes).await.ok()? > 0).then_some(())?;
        }
        let question: Value = serde_json::from_slice(&bytes[end..end + length]).unwrap();
        bytes.clear();
        let name = question["resource"].as_str().unwrap().rsplit([':', '/']).next().unwrap().to_owned();
        asked.lock().unwrap().push(question);
        most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Others of a list come meanwhile.
        tokio::task::yield_now().await;
        let (status, body) = match &*name {
            "slow" => return std::future::pending().await,
            "gone" => return None,
            "lazy" => {
                tokio::time::sleep(std::time::Duration::from_secs(5)).await;
                ("200 OK", r#"{"allow":true}"#.to_owned())
            }
            "wrong" => ("200 OK", "<allow>true</allow>".to_owned()),
            "long" => ("200 OK", format!(r#"{{"allow":true,"x":"{}"}}"#, "x".repeat(70_000))),
            "down" => ("503 Service Unavailable", r#"{"allow":true}"#.to_owned()),
            "elsewhere" => ("307 Temporary Redirect\r\nlocation: /v1/decision", r#"{"allow":true}"#.to_owned()),
            "refused" => ("400 Bad Request", r#"{"allow":true}"#.to_owned()),
            name => ("200 OK", format!(r#"{{"allow":{}}}"#, name.starts_with("ok"))),
        };
        open.fetch_sub(1, Ordering::SeqCst);
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.ok()?;
    }
}

/// Sends a message, which the server answers with `answer` if it gets it. Returns whether it did.
async fn ask(runner: &Runner, backend: &mut Recorder, message: &Value, answer: &str) -> (Answer, bool) {
    let message = message.to_string();
    let post = runner.post(&[], &message);
    tokio::pin!(post);
    tokio::select! {
        request = backend.next() => {
            let (answered, ()) = tokio::join!(post, request.json("200 OK", "", answer));
            (answered, true)
        }
        refused = &mut post => (refused, false),
    }
}

fn call(tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": {"n": 1}}})
}

const DONE: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;

#[tokio::test]
async fn a_call_passes_where_the_decision_point_allows_it_in_time_and_in_form() {
    let (pdp, mut backend) = (Pdp::start().await, Recorder::start().await);
    let runner = Runner::http(&backend.url(), &pdp.members(json!({"timeout": 1}))).await;
    for (tool, passes) in [
        ("ok", true),
        ("no", false),
        ("slow", false),
        ("gone", false),
        ("wrong", false),
        ("long", false),
        ("down", false),
        ("elsewhere", false),
        ("refused", false),
        ("ok", true),
    ] {
        let (answer, got) = ask(&runner, &mut backend, &call(tool), DONE).await;
        assert_eq!((answer.status, got), (if passes { 200 } else { 403 }, passes), "{tool}: {answer:?}");
    }
    let asked = pdp.asked();
    let local = asked[0]["principal"]["sub"].clone();
    assert!(local.is_string());
    assert_eq!(
        asked[0],
        json!({
            "principal": {"sub": local}, "operation": "mcp:tool:call", "resource": "mrn:mcp:demo:tool:ok",
            "context": {"mcp": {"feature": "tool", "operation": "call", "resource_id": "ok", "args": {"n": 1}}},
        })
    );
    let metrics = runner.get("/metrics").await.body;
    for (outcome, count) in [("allowed", 2), ("denied", 2), ("failed", 6)] {
        let line = format!(r#"mcp_runner_guard_decisions_total{{guard="authorization",outcome="{outcome}"}} {count}"#);
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_list_asks_each_question_once_and_few_at_a_time_and_is_withheld_where_one_has_no_answer() {
    let (pdp, mut backend) = (Pdp::start().await, Recorder::start().await);
    let runner = Runner::http(&backend.url(), &pdp.members(json!({"timeout": 1}))).await;
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let answer = |tools: &[Value]| json!({"jsonrpc": "2.0", "id": 7, "result": {"tools": tools}}).to_string();
    let read = json!({"readOnlyHint": true});
    let mut tools: Vec<_> = (0..300).map(|at| json!({"name": format!("{}{at}", ["ok", "no"][at % 2])})).collect();
    tools.extend([
        json!({"name": "ok0"}),
        json!({"name": "refused"}),
        json!({"name": "ok-hinted", "annotations": read}),
    ]);
    let (listed, _) = ask(&runner, &mut backend, &list, &answer(&tools)).await;
    let shown = listed.message()["result"]["tools"].as_array().unwrap().len();
    assert_eq!((listed.status, shown), (200, 152), "{listed:?}");
    let asked = pdp.asked();
    assert_eq!(asked.len(), 302);
    let most = pdp.most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most} at once");
    // Hints are told wherever they are known, of a call as well.
    assert!(asked.iter().any(|question| question["context"]["mcp"]["annotations"] == read));
    ask(&runner, &mut backend, &call("ok-hinted"), DONE).await;
    assert_eq!(pdp.asked()[0]["context"]["mcp"]["annotations"], read);
    for tool in ["slow", "gone", "wrong", "long", "down", "elsewhere"] {
        let (withheld, _) =
            ask(&runner, &mut backend, &list, &answer(&[json!({"name": "ok"}), json!({"name": tool})])).await;
        let error = json!({"code": -32603, "message": "internal error"});
        assert_eq!((withheld.status, &withheld.message()["error"]), (500, &error), "{tool}");
    }
}

#[tokio::test]
async fn a_decision_point_is_believed_by_its_certificate_alone() {
    let (pdp, mut backend) = (Pdp::start().await, Recorder::start().await);
    let front = TlsFront::before(pdp.address).await;
    let other = TlsFront::before(pdp.address).await;
    let url = |front: &TlsFront| format!("https://{}/v1", front.address);
    let ca = front.ca();
    for (members, passes) in [
        (pdp.members(json!({"url": url(&front)})), true),
        (pdp.members(json!({"url": url(&other)})), false),
        (pdp.members(json!({"url": url(&other), "insecure_skip_verify": true})), true),
    ] {
        let environment = [("SSL_CERT_FILE", ca.to_str().unwrap())];
        let runner = Runner::http_with(&backend.url(), &members, &environment).await;
        let (answer, got) = ask(&runner, &mut backend, &call("ok"), DONE).await;
        assert_eq!((answer.status, got), (if passes { 200 } else { 403 }, passes), "{members}");
        let loud = runner.log().contains("anybody on the path can answer");
        assert_eq!(loud, members["authz_config"]["pdp"]["http"]["insecure_skip_verify"] == true, "{members}");
    }
}

#[tokio::test]
async fn a_client_that_asks_much_leaves_the_decision_point_to_the_others() {
    let (pdp, mut backend, signer) = (Pdp::start().await, Recorder::start().await, Signer::rsa("k"));
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let mut members = pdp.members(json!({}));
    members["oidc_config"] = issuer.login(&json!({}));
    let flags = ["--backend", &backend.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    let runner = Runner::start("streamable-http", &members, &flags, &[]).await;
    let caller = |subject| format!("Bearer {}", signer.sign("RS256", &issuer.claims(subject)));
    let (ann, bob) = (caller("ann"), caller("bob"));
    let (slow, ok) = (call("slow").to_string(), call("ok").to_string());
    let headers = [("authorization", &*ann)];
    let mut open = join_all((0..16).map(|_| Box::pin(runner.post(&headers, &slow))));
    tokio::select! {
        _ = &mut open => panic!("they wait"),
        () = eventually("sixteen questions", || async {
            (pdp.asked.lock().unwrap().len() == 16).then_some(())
        }) => {}
    }
    let mut next = Box::pin(runner.post(&headers, &ok));
    let headers = [("authorization", &*bob)];
    let (answer, ()) = tokio::select! {
        _ = &mut open => panic!("they wait"),
        refused = &mut next => panic!("it waits for one of them: {refused:?}"),
        answered = join(runner.post(&headers, &ok), async {
            backend.next().await.json("200 OK", "", DONE).await;
        }) => answered,
    };
    let asked: Vec<_> = pdp.asked().iter().map(|question| question["principal"]["sub"].clone()).collect();
    assert_eq!((answer.status, asked.len(), &asked[16]), (200, 17, &json!("bob")), "the seventeenth of ann waits");
    let metrics = runner.get("/metrics").await.body;
    assert!(metrics.contains(r#"mcp_runner_bound_used_ratio{bound="policy_questions"} 0.0625"#), "{metrics}");
    drop(open);
    let (answer, ()) = join(next, async { backend.next().await.json("200 OK", "", DONE).await }).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn a_subscription_to_much_does_not_wait_for_each_answer_as_long_as_one_may_take() {
    let (pdp, mut backend) = (Pdp::start().await, Recorder::start().await);
    let runner = Runner::http(&backend.url(), &pdp.members(json!({"timeout": 60}))).await;
    let uris: Vec<_> = (0..20).map(|at| format!("x://{at}/lazy")).collect();
    let params = json!({"notifications": {"resourceSubscriptions": uris}, "_meta": serde_json::from_str::<Value>(META).unwrap()});
    let listen = json!({"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}).to_string();
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let answer = runner.post(&headers, &listen).await;
    assert_eq!((answer.status, backend.is_quiet()), (403, true), "{answer:?}");
    let asked = pdp.asked().len();
    assert!((1..20).contains(&asked), "{asked} were asked");
}
