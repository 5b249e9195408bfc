//! Measures the cost of a CA rotation for those who create objects: before it, during it and after it, in one run. Two
//! replicas run as two processes behind one Service; the API server calls both. The load is that of the tests, which
//! assert that no call fails; here it is measured.
#![allow(clippy::print_stdout, reason = "the figures are the result")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the tests' own code, which ends with its first error"
)]
#![allow(dead_code, reason = "the tests use the rest")]

#[path = "../../../sdk/operator/tests/sdk_operator/rotation/caller.rs"]
mod caller;
#[path = "../../../sdk/operator/tests/sdk_operator/rotation/fixture.rs"]
mod fixture;
#[path = "../../../sdk/operator/tests/sdk_operator/rotation/forwarder.rs"]
mod forwarder;
#[path = "../../../sdk/operator/tests/sdk_operator/rotation/load.rs"]
mod load;
#[path = "../../../sdk/operator/tests/sdk_operator/scopes/proxy.rs"]
mod proxy;
#[path = "../../../sdk/operator/tests/sdk_operator/rotation/replica.rs"]
mod replica;

use std::time::Duration;

use anyhow::Result;
use fixture::{Installation, Seen, Times};
use load::{FULL, Load};
use portcullis_benches::proc;

/// Nothing here takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// Ten times as long as in the tests, so that one rotation is many creates.
const TIMES: Times = Times { settle: Duration::from_secs(15), drain: Duration::from_secs(10) };
/// The time of the measurements before and after, and of the rest before them.
const WINDOW: Duration = Duration::from_secs(20);
const WARM_UP: Duration = Duration::from_secs(5);

/// The CPU time that was used until now: by the API server, by the replicas, and by the whole machine.
struct Used([Duration; 3]);

impl Used {
    fn until_now(installation: &Installation) -> Result<Self> {
        let [_, api_server, ..] = installation.cluster.process_ids()[..] else { anyhow::bail!("no API server") };
        let replicas = installation.replicas.iter().map(|replica| proc::cpu(replica.pid())).sum::<Result<_>>()?;
        Ok(Self([proc::cpu(api_server)?, replicas, proc::machine_cpu()?]))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let installation = Installation::new([0, 0], TIMES).await;
    let (mut load, late) = installation.load(FULL).await;
    tokio::time::sleep(WARM_UP).await;
    load.lap();
    println!(
        "{:<18} {:>9} {:>8} {:>8} {:>8} {:>7} {:>17} {:>12} {:>11} {:>9}",
        "",
        "creates/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "failed",
        "handshake errors",
        "API CPU ms",
        "replicas ms",
        "CPUs used"
    );
    let mut errors = installation.handshake_errors().len();
    let mut used = Used::until_now(&installation)?;
    for (what, rotates) in [("without rotation", false), ("during rotation", true), ("again without", false)] {
        if rotates {
            let before = installation.rotate().await;
            installation.until("the end", |seen: &Seen| seen.leaf != before.leaf && seen.at_rest()).await;
        } else {
            tokio::time::sleep(WINDOW).await;
        }
        let seen = installation.handshake_errors().len();
        let now = Used::until_now(&installation)?;
        row(what, &mut load, seen - errors + late.refused().len(), [&used, &now]);
        (errors, used) = (seen, now);
    }
    load.end().await;
    installation.cluster.stop().await;
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "figures to look at")]
fn row(what: &str, load: &mut Load, errors: usize, [before, after]: [&Used; 2]) {
    let lap = load.lap();
    let milliseconds = |percent| lap.percentile(percent).as_secs_f64() * 1000.0;
    let [api_server, replicas, machine] =
        [0, 1, 2].map(|which| after.0[which].saturating_sub(before.0[which]).as_secs_f64());
    let each = |seconds: f64| seconds * 1000.0 / lap.created() as f64;
    println!(
        "{what:<18} {:>9.0} {:>8.1} {:>8.1} {:>8.1} {:>7} {errors:>17} {:>12.2} {:>11.2} {:>9.2}",
        lap.per_second(),
        milliseconds(50),
        milliseconds(99),
        milliseconds(100),
        lap.failed.len(),
        each(api_server),
        each(replicas),
        machine / lap.took.as_secs_f64(),
    );
    for failure in lap.failed.iter().take(5) {
        println!("  {failure}");
    }
}
