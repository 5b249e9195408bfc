//! A process whose memory is limited, and reviews that would take more.

use std::fmt::Write as _;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::peers::{Peers, review};
use super::process::Process;
use crate::client::post;

const MIB: usize = 1024 * 1024;
/// A debug build on a busy machine converts a list in this time.
const PATIENCE: Duration = Duration::from_mins(2);

/// A list that is to be converted, of about so many bytes: people with few fields, which is when an object
/// costs most beside its bytes.
fn list(bytes: usize) -> String {
    let mut review = String::from(
        r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"demo.example/v2","objects":["#,
    );
    for at in 0.. {
        let comma = if at == 0 { "" } else { "," };
        write!(
            review,
            r#"{comma}{{"apiVersion":"demo.example/v1","kind":"Person","metadata":{{"name":"person-{at}","namespace":"people","uid":"00000000-0000-0000-0000-{at:012}","resourceVersion":"{at}","generation":1}},"spec":{{"name":"Ada Lovelace"}}}}"#
        )
        .unwrap();
        if review.len() >= bytes {
            break;
        }
    }
    review + "]}}"
}

/// The status of the answer to one call, which is read to its end; none where the server hung up. Of the body, `length`
/// is announced.
async fn status(peers: &Peers, path: &str, length: usize, body: &str) -> Option<u16> {
    let mut connection = peers.connect().await.ok()?;
    let head = post(path, "").replace("content-length: 0", &format!("content-length: {length}"));
    // The server may refuse the call before all of it was sent.
    for part in [head.as_str(), body] {
        let _ = connection.write_all(part.as_bytes()).await;
    }
    let _ = connection.flush().await;
    let (mut head, mut read, mut part) = (String::new(), 0, vec![0; 64 * 1024]);
    loop {
        let came = timeout(PATIENCE, connection.read(&mut part)).await.expect("an answer in time").unwrap_or_default();
        if head.len() < 1024 {
            head += &String::from_utf8_lossy(&part[..came.min(1024)]);
        }
        read += came;
        let whole = head.split_once("\r\n\r\n").and_then(|(head, _)| {
            let mut lines = head.lines().map(str::to_lowercase);
            let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok())?;
            Some(head.len() + 4 + length)
        });
        if came == 0 || whole.is_some_and(|whole| read >= whole) {
            return head.split(' ').nth(1)?.parse().ok();
        }
    }
}

/// All at once: lists, each as large as may be or a third of it, and objects of the largest size that admission takes.
async fn flood(peers: &Peers, limit: usize) -> Vec<u16> {
    let close = |path: &str| format!("{path}?timeout=30s");
    // The most that one review may have, of what the limit leaves beside the process itself.
    let largest = (limit - 24 * MIB) / 8;
    let (whole, third) = (list(largest - 64 * 1024), list(largest / 3));
    let large = json!({ "data": "x".repeat(6 * MIB) });
    let object = review(&large);
    let lists = (0..8).map(|at| (close("/convert/people"), if at % 2 == 0 { &whole } else { &third }));
    let objects = (0..16).map(|_| (close("/validate/no-passwords"), &object));
    let calls = lists.chain(objects).map(|(path, body)| async move { status(peers, &path, body.len(), body).await });
    join_all(calls).await.into_iter().flatten().collect()
}

// The generated Deployment limits memory to 512 Mi, which conversions alone were allowed to take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_never_exceed_the_memory_limit_of_the_process() {
    // A debug build takes ten seconds for these. What one flood leaves behind shows in the next.
    for (limit, floods) in [(128, 3), (256, 1), (512, 2)] {
        let bytes = (limit * MIB).to_string();
        let process = Process::start_with(&["webhook.test.svc".to_owned()], &["--memory-limit", &bytes]).await;
        let peers = Peers::of(&process, "webhook.test.svc");
        let (quiet, _) = process.memory();
        let (mut decided, mut shed) = (0, 0);
        for _ in 0..floods {
            let answers = flood(&peers, limit * MIB).await;
            // A debug build on a busy machine may not be done within the API server's 30 s.
            assert!(answers.iter().all(|status| [200, 429, 500].contains(status)), "{answers:?}");
            decided += answers.iter().filter(|status| **status == 200).count();
            shed += answers.iter().filter(|status| **status == 429).count();
        }
        // On a machine that is slow enough, all of a flood is shed. What comes alone is not.
        let alone = list((limit - 24) * MIB / 24);
        assert_eq!(status(&peers, "/convert/people?timeout=30s", alone.len(), &alone).await, Some(200), "{limit} MiB");
        let (now, most) = process.memory();
        eprintln!(
            "limit {limit} MiB: {decided} decided, {shed} shed; memory {quiet} MiB at rest, {now} after, {most} at most"
        );
        assert!(shed > 0, "{decided} decided and {shed} shed: not the load that was meant");
        assert!(most <= limit, "{most} MiB of {limit}");
        // A review that can never fit is not answered with a retry.
        let too_long = limit * MIB / 8 + MIB;
        assert_eq!(status(&peers, "/convert/people", too_long, "").await, Some(413), "{limit} MiB");
        assert!(process.end().await, "and it ends in order");
    }
}
