//! Bounds that all callers share: one principal takes all that it can get, and another is served (the table in ARCHITECTURE.md).

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use portcullis_testing::Stopwatch;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::places::{PROBE, probe};
use crate::stdio_faults::faults;
use crate::support::{Answer, INITIALIZE, Issuer, Runner, Signer, within};

/// Buffers, the allocator's reserve, and what a few thousand requests leave behind, in MiB.
const SLACK: u64 = 48;

/// A bound, and how to reach it.
struct Bound {
    name: &'static str,
    /// MiB that one client's share takes.
    memory: u64,
    /// Mallory takes all that she can; what is returned holds it.
    fill: for<'a> fn(&'a World) -> BoxFuture<'a, Held>,
    /// Alice is served while Mallory holds it.
    serve: for<'a> fn(&'a World, &'a mut Held) -> BoxFuture<'a, ()>,
}

#[derive(Default)]
struct Held {
    calls: JoinSet<Answer>,
    unread: Vec<Response<Incoming>>,
}

/// A proxy in front of one process, with a login, and sessions of two principals on one host.
struct World {
    runner: Arc<Runner>,
    mallory: Caller,
    alice: Caller,
    _issuer: Issuer,
    _directory: TempDir,
}

#[derive(Clone)]
struct Caller {
    authorization: String,
    session: String,
}

impl World {
    async fn start() -> Self {
        let (signer, directory) = (Signer::ec("a"), TempDir::new().unwrap());
        let issuer = Issuer::start(vec![signer.clone()]).await;
        let record = directory.path().join("read");
        std::fs::write(&record, "").unwrap();
        let runner = Arc::new(Runner::login_stdio(&faults(&record), &issuer.login(&json!({}))).await);
        let caller = async |subject| {
            let authorization = format!("Bearer {}", signer.sign("ES256", &issuer.claims(subject)));
            let caller = Caller { authorization, session: String::new() };
            Caller { session: open(&runner, &caller).await, ..caller }
        };
        let (mallory, alice) = (caller("mallory").await, caller("alice").await);
        Self { runner, mallory, alice, _issuer: issuer, _directory: directory }
    }
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

const BOUNDS: [Bound; 5] = [
    Bound {
        name: "subscriptions",
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
        memory: 64,
        fill: |world| {
            Box::pin(async {
                let mut held = Held::default();
                for message in [call("stop", 0)].into_iter().chain((0..14).map(|_| notification(2 << 20))) {
                    let (runner, caller) = (Arc::clone(&world.runner), world.mallory.clone());
                    held.calls.spawn(async move { post(&runner, &caller, &message).await });
                }
                // Those that there is no room for stay under way.
                let mut looks: Vec<usize> = Vec::new();
                while looks.len() < 20 || looks.iter().rev().take(20).any(|seen| Some(seen) != looks.last()) {
                    let metrics = probe(&world.runner, "/metrics").await.1;
                    let seen = metrics.lines().find_map(|line| line.strip_prefix("mcp_runner_requests_in_flight "));
                    looks.push(seen.unwrap().parse().unwrap());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
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
];

/// The resident memory of the runner, in MiB.
fn resident(runner: &Runner) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", runner.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[tokio::test]
async fn a_caller_that_takes_all_it_can_leaves_others_theirs() {
    for Bound { name, memory, fill, serve } in BOUNDS {
        let world = World::start().await;
        let before = resident(&world.runner);
        let mut held = fill(&world).await;
        let began = Stopwatch::start();
        assert_eq!(probe(&world.runner, "/health").await.0, 200, "{name}");
        assert!(began.elapsed() < PROBE, "{name}: {:?}", began.elapsed());
        within(name, serve(&world, &mut held)).await;
        let grown = resident(&world.runner).saturating_sub(before);
        assert!(grown <= memory + SLACK, "{name}: {grown} MiB");
    }
}
