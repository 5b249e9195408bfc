//! Bounds that all callers share: one principal takes all that it can get, and another is served (the table in ARCHITECTURE.md).

use std::ops::RangeInclusive;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use portcullis_testing::Stopwatch;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::place_shares::from;
use crate::places::{PROBE, probe};
use crate::stdio_faults::faults;
use crate::support::{Answer, INITIALIZE, Issuer, Recorded, Recorder, Runner, Signer, eventually, within};

/// Buffers, the allocator's reserve, and what a few thousand requests leave behind, in MiB.
const SLACK: u64 = 48;

const PROCESS_LINES: &str = "mcp_runner_bound_used_ratio{bound=\"process_lines\"}";

/// A bound, and how to reach it.
struct Bound {
    name: &'static str,
    /// Its series in the metrics, and the values that it may have while Mallory holds all that she can.
    series: (&'static str, RangeInclusive<f64>),
    server: Server,
    /// MiB that one client's share takes.
    memory: u64,
    /// Mallory takes all that she can; what is returned holds it.
    fill: for<'a> fn(&'a World) -> BoxFuture<'a, Held>,
    /// Alice is served while Mallory holds it.
    serve: for<'a> fn(&'a World, &'a mut Held) -> BoxFuture<'a, ()>,
}

/// The server behind the proxy.
enum Server {
    /// A process.
    Process,
    /// One that speaks HTTP, whose lists of tools are filtered: see [`lists`].
    Http,
}

#[derive(Default)]
struct Held {
    calls: JoinSet<Answer>,
    unread: Vec<Response<Incoming>>,
    asked: Vec<Recorded>,
}

/// A proxy with a login, and sessions of two principals on one host.
struct World {
    runner: Arc<Runner>,
    mallory: Caller,
    alice: Caller,
    signer: Signer,
    issuer: Issuer,
    /// The provider's endpoint for opaque tokens.
    introspection: Mutex<Recorder>,
    _directory: TempDir,
}

#[derive(Clone)]
struct Caller {
    authorization: String,
    session: String,
}

impl World {
    async fn start(server: &Server) -> Self {
        let (signer, directory) = (Signer::ec("a"), TempDir::new().unwrap());
        let issuer = Issuer::start(vec![signer.clone()]).await;
        let introspection = Recorder::start().await;
        let login = issuer.login(&json!({"IntrospectionURL": introspection.url(), "ClientID": "mcp"}));
        let runner = match server {
            Server::Process => {
                let record = directory.path().join("read");
                std::fs::write(&record, "").unwrap();
                Runner::login_stdio(&faults(&record), &login).await
            }
            Server::Http => {
                let members = json!({"middleware_configs": [], "oidc_config": login, "tools_filter": ["say"]});
                let flags = ["--backend", &lists().await, "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
                Runner::start("streamable-http", &members, &flags, &[]).await
            }
        };
        let runner = Arc::new(runner);
        let caller = async |subject| {
            let authorization = format!("Bearer {}", signer.sign("ES256", &issuer.claims(subject)));
            let caller = Caller { authorization, session: String::new() };
            Caller { session: open(&runner, &caller).await, ..caller }
        };
        let (mallory, alice) = (caller("mallory").await, caller("alice").await);
        Self { runner, mallory, alice, signer, issuer, introspection: introspection.into(), _directory: directory }
    }
}

/// A server whose answer to a message with the id 2 is a list of tools of which 40 MiB come, and no end.
async fn lists() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, client)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"}") && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
                let endless = String::from_utf8_lossy(&request).contains("\"id\":2");
                let short = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#.to_owned();
                let long = || format!("{{\"jsonrpc\":\"2.0\",\"id\":2,{}", " ".repeat(40 << 20));
                let (length, body) = if endless { (60 << 20, long()) } else { (short.len(), short) };
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: {client}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
                );
                // The proxy closes the connection of an answer that it gives up.
                if stream.write_all((head + &body).as_bytes()).await.is_ok() && endless {
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
    });
    url
}

async fn open(runner: &Runner, caller: &Caller) -> String {
    let answer = runner.post(&[("authorization", &caller.authorization)], INITIALIZE).await;
    answer.header("mcp-session-id").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

async fn post(runner: &Runner, caller: &Caller, message: &Value) -> Answer {
    let headers = [("authorization", &*caller.authorization), ("mcp-session-id", &caller.session)];
    runner.post(&headers, &message.to_string()).await
}

fn call(tool: &str, length: usize) -> Value {
    let params = json!({"name": tool, "arguments": {"x": "x".repeat(length)}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
}

fn list(id: u8) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
}

fn subscribe(name: &str) -> Value {
    let params = json!({"uri": format!("demo://resources/of/the/table/{name}")});
    json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": params})
}

fn notification(length: usize) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"x": "x".repeat(length)}})
}

/// So many at a time, each with its number.
async fn many<F>(count: usize, run: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut running = JoinSet::new();
    for number in 0..count {
        if running.len() >= 32 {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(run(number));
    }
    running.join_all().await;
}

const BOUNDS: [Bound; 8] = [
    Bound {
        name: "subscriptions",
        series: ("mcp_runner_bound_used_ratio{bound=\"subscriptions\"}", 0.9..=1.0),
        server: Server::Process,
        memory: 4,
        fill: |world| {
            Box::pin(async {
                for session in 0..10 {
                    let (runner, mallory) = (&world.runner, &world.mallory);
                    let caller = Caller { session: open(runner, mallory).await, ..mallory.clone() };
                    many(1_000, |number| {
                        let (runner, caller) = (Arc::clone(runner), caller.clone());
                        async move {
                            let answer = post(&runner, &caller, &subscribe(&format!("{session}/{number}"))).await;
                            assert_eq!(answer.status, 200, "{answer:?}");
                        }
                    })
                    .await;
                }
                let answer = post(&world.runner, &world.mallory, &subscribe("more")).await;
                assert_eq!(answer.message()["error"]["message"], "too many subscriptions");
                Held::default()
            })
        },
        serve: |world, _| {
            Box::pin(async {
                let answer = post(&world.runner, &world.alice, &subscribe("first")).await;
                assert!(answer.message()["result"].is_object(), "{answer:?}");
            })
        },
    },
    Bound {
        name: "sessions",
        series: ("mcp_runner_sessions", 9_000.0..=10_000.0),
        server: Server::Process,
        memory: 24,
        fill: |world| {
            Box::pin(async {
                many(10_100, |_| {
                    let (runner, caller) = (Arc::clone(&world.runner), world.mallory.clone());
                    async move { drop(open(&runner, &caller).await) }
                })
                .await;
                Held::default()
            })
        },
        serve: |world, _| {
            Box::pin(async {
                let newer = Caller { session: open(&world.runner, &world.alice).await, ..world.alice.clone() };
                for caller in [&world.alice, &newer] {
                    let answer = post(&world.runner, caller, &call("ok", 0)).await;
                    assert!(answer.message()["result"].is_object(), "{answer:?}");
                }
            })
        },
    },
    Bound {
        name: "bodies of requests",
        series: ("mcp_runner_bound_used_ratio{bound=\"request_bodies\"}", 0.3..=0.5),
        server: Server::Process,
        // As received, and as a line for the process.
        memory: 64,
        fill: |world| {
            Box::pin(async {
                let mut held = Held::default();
                for _ in 0..9 {
                    let (runner, caller) = (Arc::clone(&world.runner), world.mallory.clone());
                    held.calls.spawn(async move { post(&runner, &caller, &call("deaf", 4 << 20)).await });
                }
                // One of them is more than a share.
                let answer = within("a refusal", held.calls.join_next()).await.unwrap().unwrap();
                assert_eq!(answer.status, 503, "{answer:?}");
                held
            })
        },
        serve: |world, _| {
            Box::pin(async {
                let answer = post(&world.runner, &world.alice, &call("ok", 4 << 20)).await;
                assert_eq!(answer.status, 200, "{answer:?}");
            })
        },
    },
    Bound {
        name: "answers that wait for their reader",
        series: ("mcp_runner_bound_used_ratio{bound=\"waiting_messages\"}", 0.2..=0.375),
        server: Server::Process,
        memory: 24,
        fill: |world| {
            Box::pin(async {
                let mut held = Held::default();
                loop {
                    let headers = [
                        ("authorization", &*world.mallory.authorization),
                        ("content-type", "application/json"),
                        ("accept", "application/json, text/event-stream"),
                    ];
                    let message = call("long", 0).to_string();
                    let request = world.runner.build(http::Method::POST, "/mcp", &headers, &message);
                    let answer = world.runner.send(request).await;
                    if answer.headers()["content-length"].len() > 4 {
                        held.unread.push(answer);
                        continue;
                    }
                    let body = answer.into_body().collect().await.unwrap().to_bytes();
                    assert!(String::from_utf8_lossy(&body).contains("too many bytes wait"), "{body:?}");
                    break;
                }
                held
            })
        },
        serve: |world, _| {
            Box::pin(async {
                let answer = post(&world.runner, &world.alice, &call("long", 0)).await;
                assert!(answer.message()["result"].is_object(), "{} bytes", answer.body.len());
            })
        },
    },
    Bound {
        name: "lines that wait for the process",
        series: (PROCESS_LINES, 0.1..=0.25),
        server: Server::Process,
        memory: 64,
        fill: |world| {
            Box::pin(async {
                let mut held = Held::default();
                for message in [call("stop", 0)].into_iter().chain((0..14).map(|_| notification(2 << 20))) {
                    let (runner, caller) = (Arc::clone(&world.runner), world.mallory.clone());
                    held.calls.spawn(async move { post(&runner, &caller, &message).await });
                }
                // Those that there is no room for stay under way.
                eventually("lines without room", || async {
                    let waiting = value(&world.runner, "mcp_runner_requests_in_flight").await;
                    let lines = value(&world.runner, PROCESS_LINES).await;
                    (waiting >= 10.0 && lines > 0.1).then_some(())
                })
                .await;
                held
            })
        },
        serve: |world, held| {
            Box::pin(async {
                let answer = post(&world.runner, &world.alice, &notification(0)).await;
                assert_eq!(answer.status, 202, "{answer:?}");
                // Not only because lines of Mallory's were given up in the end.
                while let Some(answer) = held.calls.try_join_next() {
                    assert_eq!(answer.unwrap().status, 202);
                }
            })
        },
    },
    Bound {
        name: "tokens that were found valid",
        // A quarter of half of each shard: the other half is younger or empty.
        series: ("mcp_runner_bound_used_ratio{bound=\"verified_tokens\"}", 0.05..=0.126),
        server: Server::Process,
        memory: 32,
        fill: |world| {
            Box::pin(async {
                many(2_500, |number| {
                    let mut claims = world.issuer.claims("mallory");
                    claims["jti"] = json!(number);
                    let authorization = format!("Bearer {}", world.signer.sign("ES256", &claims));
                    let (runner, caller) =
                        (Arc::clone(&world.runner), Caller { authorization, ..world.mallory.clone() });
                    async move { assert_eq!(post(&runner, &caller, &notification(0)).await.status, 202) }
                })
                .await;
                Held::default()
            })
        },
        serve: |world, _| {
            Box::pin(async {
                let answer = post(&world.runner, &world.alice, &call("ok", 0)).await;
                assert!(answer.message()["result"].is_object(), "{answer:?}");
            })
        },
    },
    Bound {
        name: "answers that a filter holds",
        series: ("mcp_runner_bound_used_ratio{bound=\"held_answers\"}", 0.3..=0.782),
        server: Server::Http,
        // A part of an answer is in a buffer of up to twice its length.
        memory: 200,
        fill: |world| {
            Box::pin(async {
                let mut held = Held::default();
                for _ in 0..3 {
                    let (runner, caller) = (Arc::clone(&world.runner), world.mallory.clone());
                    held.calls.spawn(async move { post(&runner, &caller, &list(2)).await });
                }
                let answer = within("an answer that is given up", held.calls.join_next()).await.unwrap().unwrap();
                assert!(answer.status >= 500, "{answer:?}");
                held
            })
        },
        serve: |world, _| {
            Box::pin(async {
                let answer = post(&world.runner, &world.alice, &list(1)).await;
                assert!(answer.message()["result"].is_object(), "{answer:?}");
            })
        },
    },
    Bound {
        name: "tokens that the provider is asked about",
        series: ("mcp_runner_bound_used_ratio{bound=\"introspections\"}", 0.125..=0.125),
        server: Server::Http,
        memory: 0,
        fill: |world| {
            Box::pin(async {
                let mut held = Held::default();
                let mut introspection = world.introspection.lock().await;
                for number in 0..9 {
                    let caller = Caller { authorization: format!("Bearer opaque{number}"), ..world.mallory.clone() };
                    let runner = Arc::clone(&world.runner);
                    held.calls.spawn(async move { post(&runner, &caller, &list(1)).await });
                }
                for _ in 0..8 {
                    held.asked.push(introspection.next().await);
                }
                let answer = within("a refusal", held.calls.join_next()).await.unwrap().unwrap();
                assert_eq!(answer.status, 503, "{answer:?}");
                held
            })
        },
        serve: |world, held| {
            Box::pin(async {
                let message = list(1).to_string();
                let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer hers\r\n";
                let call = format!("{head}content-length: {}\r\n\r\n{message}", message.len());
                let mut stream = from(3, &world.runner, &call).await;
                let asked = world.introspection.lock().await.next().await;
                assert!(String::from_utf8_lossy(&asked.body).starts_with("token=hers&"));
                let mut claims = world.issuer.claims("alice");
                claims["active"] = json!(true);
                asked.json("200 OK", "", &claims.to_string()).await;
                let mut head = [0; 12];
                stream.read_exact(&mut head).await.unwrap();
                assert_eq!(&head, b"HTTP/1.1 200");
                assert!(held.calls.try_join_next().is_none(), "Mallory's calls still wait");
            })
        },
    },
];

/// The resident memory of the runner, in MiB.
pub(crate) fn resident(runner: &Runner) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", runner.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// The value of a series of the runner's metrics.
pub(crate) async fn value(runner: &Runner, series: &str) -> f64 {
    let metrics = probe(runner, "/metrics").await.1;
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{series} is not in {metrics}")).parse().unwrap()
}

// P8
#[tokio::test]
async fn a_caller_that_takes_all_it_can_leaves_others_theirs() {
    for Bound { name, series: (series, values), server, memory, fill, serve } in BOUNDS {
        let world = World::start(&server).await;
        let before = resident(&world.runner);
        let mut held = fill(&world).await;
        let began = Stopwatch::start();
        assert_eq!(probe(&world.runner, "/health").await.0, 200, "{name}");
        assert!(began.elapsed() < PROBE, "{name}: {:?}", began.elapsed());
        let value = value(&world.runner, series).await;
        assert!(values.contains(&value), "{name}: {value} is not within {values:?}");
        within(name, serve(&world, &mut held)).await;
        let grown = resident(&world.runner).saturating_sub(before);
        assert!(grown <= memory + SLACK, "{name}: {grown} MiB");
    }
}
