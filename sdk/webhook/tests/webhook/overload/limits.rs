//! One process, and everything that it may meet at once.

use std::time::{Duration, Instant};

use futures::future::join_all;
use portcullis_testing::ControlPlane;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::gate::{Gate, SERVICE};
use super::peers::{Manner, Peers};
use super::process::Process;

/// Reviews that each webhook has under way.
const CONCURRENCY: usize = 8;
/// The most that the server's memory may come to, in MiB: 64 for bodies, 64 for connections, and itself.
const MEMORY: usize = 192;

/// The answers under twice the load that saturates the server.
#[derive(Default)]
struct Shares {
    decided: usize,
    shed: usize,
    worst_shed: Duration,
}

// It takes some ten seconds: thousands of handshakes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overload_is_shed_and_the_api_server_is_answered() {
    let cluster = ControlPlane::shared().await;
    let (fast, slow) = (cluster.namespace("fast").await, cluster.namespace("slow").await);
    let names = ["webhook.test.svc".to_owned(), format!("{SERVICE}.{fast}.svc")];
    let process = Process::start(&names, CONCURRENCY).await;
    let (ca, port) = (process.ca.cert_pem(), process.address.port());
    let decided_at_once = Gate::open(&fast, &fast, "/validate/no-passwords", ca, port).await;
    let inventory = Gate::open(&slow, &fast, "/validate/inventory", ca, port).await;
    let peers = Peers::of(&process, "webhook.test.svc");
    decided_at_once.decides().await;
    let quiet = decided_at_once.decides().await;
    eprintln!("quiet: a call of the API server takes {quiet:?}; memory {} MiB", process.memory().0);

    // 2x saturation: eight places for 100 ms each are 80 reviews a second, and 160 come, for four seconds at most. The API server
    // asks again for ten, and who gets a place as long as all ask is chance.
    let done = CancellationToken::new();
    let load = join_all((0..2 * CONCURRENCY).map(|_| saturate(&peers, &done)));
    let asked = async {
        inventory_is_full(&peers).await;
        let calls = join_all((0..5).map(|_| async {
            let began = Instant::now();
            (inventory.create(json!({})).await, began.elapsed())
        }));
        let asked = async {
            let asked = tokio::join!(calls, decided_at_once.decides());
            done.cancel();
            asked
        };
        let enough = async {
            let _ = done.run_until_cancelled(sleep(Duration::from_secs(4))).await;
            done.cancel();
        };
        tokio::join!(asked, enough).0
    };
    let (load, (calls, during)) = tokio::join!(load, asked);
    let (decided, shed) = load.iter().fold((0, 0), |(d, s), share| (d + share.decided, s + share.shed));
    let worst = load.iter().map(|share| share.worst_shed).max().unwrap_or_default();
    assert!(decided > 0 && shed > 0, "{decided} decided and {shed} shed: not the load that was meant");
    let slowest = calls.iter().map(|call| call.1).max().unwrap_or_default();
    for (result, _) in calls {
        result.expect("the API server asks again until it is decided");
    }
    eprintln!(
        "2x saturation: {decided} decided, {shed} shed ({} %), slowest 429 {worst:?}; calls of the API server to the same \
         webhook: slowest {slowest:?}, to another: {during:?}",
        100 * shed / (decided + shed)
    );

    // Slow handlers: every place is taken, for two seconds and again, until the API server has its decision.
    let done = CancellationToken::new();
    let stuck = join_all((0..CONCURRENCY).map(|_| async {
        let mut decided = false;
        while !decided || !done.is_cancelled() {
            let reply = peers.ask("/validate/inventory", &json!({"think-ms": "2000"})).await.unwrap();
            match reply.expect("its own answer").status {
                // One that comes while another peer's review has the place asks again as the API server does.
                429 => {}
                status => {
                    assert_eq!(status, 200, "what was begun is decided");
                    decided = true;
                }
            }
        }
    }));
    let meanwhile = async {
        inventory_is_full(&peers).await;
        let took = decided_at_once.decides().await;
        done.cancel();
        took
    };
    let (_, took) = tokio::join!(stuck, meanwhile);
    eprintln!("slow handlers: a call of the API server to another webhook takes {took:?}");

    // Peers that hold what they got.
    let size = 7 * 1024 * 1024 - 1;
    for (what, manner, count) in [
        ("half-sent bodies", Manner::HalfBody, 600.min(wave())),
        ("half-sent heads", Manner::HalfHead, 600.min(wave())),
        ("garbage", Manner::Garbage, 2_000.min(wave())),
        ("bodies of 7 MiB without their last byte", Manner::LargeBody(size), 20),
    ] {
        let open = peers.all_misbehave((0..count).map(|_| manner)).await;
        let during = decided_at_once.decides().await;
        let (now, most) = process.memory();
        eprintln!("{what}: {} of {count} open, a call takes {during:?}, memory {now} MiB, at most {most}", open.len());
        assert!(most <= MEMORY, "{what}: {most} MiB");
        drop(open);
    }

    let mut opened = 0;
    let mut slowest = Duration::ZERO;
    let wave = wave();
    while opened < 10_000 {
        let manners = (0..wave).map(|at| match at % 10 {
            0 => Manner::Shaken,
            1 => Manner::HalfBody,
            2 => Manner::HalfHead,
            3 | 4 => Manner::Garbage,
            _ => Manner::Silent,
        });
        let (open, during) = tokio::join!(peers.all_misbehave(manners), decided_at_once.decides());
        slowest = slowest.max(during).max(decided_at_once.decides().await);
        opened += open.len();
        assert!(open.len() > wave / 10, "only {} of {wave} connections came about", open.len());
    }
    let (now, most) = process.memory();
    eprintln!("{opened} connections in waves of {wave}: slowest call {slowest:?}, memory {now} MiB, at most {most}");
    assert!(most <= MEMORY, "{most} MiB");

    eprintln!("afterwards: a call takes {:?}", decided_at_once.decides().await);
    assert!(process.end().await, "and it ends in order");
}

/// Returns when a review is shed, with a word on when to retry. As long as there is room, it is decided.
async fn inventory_is_full(peers: &Peers) {
    loop {
        let reply = peers.ask("/validate/inventory", &json!({})).await.unwrap().expect("an answer");
        if reply.status == 429 {
            return assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
        }
    }
}

/// Asks ten times a second until it is `done`, whatever the answers are.
async fn saturate(peers: &Peers, done: &CancellationToken) -> Shares {
    let mut ticks = interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut shares = Shares::default();
    while !done.is_cancelled() {
        ticks.tick().await;
        let asked = Instant::now();
        let reply = peers.ask("/validate/inventory", &json!({"think-ms": "100"})).await.unwrap().expect("an answer");
        match reply.status {
            200 => shares.decided += 1,
            429 => {
                assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
                shares.shed += 1;
                shares.worst_shed = shares.worst_shed.max(asked.elapsed());
            }
            other => panic!("{other}: {}", reply.text()),
        }
    }
    shares
}

/// The number of connections that this process may have open, less those of other tests.
fn wave() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let soft: usize = line.split_whitespace().next().unwrap().parse().unwrap_or(1024);
    soft.saturating_sub(500).clamp(100, 2_500)
}
