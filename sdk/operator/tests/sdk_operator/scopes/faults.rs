//! Faults: the time for which two operators act, or none. Figures are printed; bounds are the documented ones, scaled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portcullis_testing::{ControlPlane, Stopwatch, wait_until};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::installation::{Installation, checked_by, try_widget};
use super::process::Process;
use super::proxy::Proxy;
use super::trace::windows;
use super::turn::Turn;
use super::{DURATION, GRACE, LAPSE, PATIENCE, SETTLE, SLACK};

/// Asks all the time who checks in a namespace.
pub(crate) struct Prober {
    done: Arc<AtomicBool>,
    task: JoinHandle<Vec<(Instant, BTreeSet<String>)>>,
}

impl Prober {
    pub(crate) fn start(client: kube::Client, namespace: &str) -> Self {
        let (done, namespace) = (Arc::new(AtomicBool::new(false)), namespace.to_owned());
        let end = Arc::clone(&done);
        let task = tokio::spawn(async move {
            let mut seen = Vec::new();
            while !end.load(Ordering::Acquire) {
                let answer = try_widget(&client, &namespace, 1).await;
                assert_eq!(answer.status, 201, "{}", answer.body);
                seen.push((Instant::now(), answer.checked.into_iter().collect()));
                sleep(Duration::from_millis(50)).await;
            }
            seen
        });
        Self { done, task }
    }

    /// The longest time in which two checked, and in which none did.
    pub(crate) async fn windows(self) -> (Duration, Duration) {
        self.done.store(true, Ordering::Release);
        let seen = self.task.await.unwrap();
        let longest = |count: &dyn Fn(usize) -> bool| {
            let (mut longest, mut began) = (Duration::ZERO, None);
            for (at, who) in &seen {
                began = if count(who.len()) { began.or(Some(*at)) } else { None };
                longest = longest.max(began.map_or(Duration::ZERO, |began| at.duration_since(began)));
            }
            longest
        };
        (longest(&|count| count > 1), longest(&|count| count == 0))
    }
}

struct Pair {
    cluster: &'static ControlPlane,
    team: String,
    platform: Installation,
    tenant: Installation,
    wide: Process,
}

impl Pair {
    /// A cluster-wide operator at work, and the installation of a restricted one beside it. Neither configuration
    /// refuses what its operator cannot be asked about: so that it shows who is asked.
    async fn new(cluster: &'static ControlPlane) -> Self {
        let team = cluster.namespace("team").await;
        let arguments = ["--acts-in", &*team, "--ignore-failures"];
        let platform = Installation::new(cluster, "platform", None, &arguments).await;
        let tenant = Installation::new(cluster, "tenant", Some(&team), &arguments).await;
        let wide = platform.start(&[]);
        platform.install(&wide).await;
        wide.acts(&team).await;
        checked_by(&cluster.admin(), &team, &["platform"]).await;
        Self { cluster, team, platform, tenant, wide }
    }

    async fn settled(&self, own: &Process) {
        self.tenant.install(own).await;
        own.acts(&self.team).await;
        checked_by(&self.cluster.admin(), &self.team, &["tenant"]).await;
    }

    fn acted(&self, others: &[&Process]) -> Vec<Vec<Instant>> {
        [&self.wide].into_iter().chain(others.iter().copied()).map(|process| process.acted(&self.team)).collect()
    }

    async fn end(self) {
        self.platform.uninstall().await;
        self.tenant.uninstall().await;
    }
}

/// For how long none may act or check, if it is `time` on a machine that does not stall. Each stall that lets Leases
/// lapse takes all of that time once more, and processes stall one after another.
pub(crate) fn at_most(time: Duration, begun: &Stopwatch) -> Duration {
    let lost = begun.lost();
    let lapses = u32::try_from(lost.as_millis() / LAPSE.as_millis()).unwrap_or(u32::MAX);
    (time + SLACK).saturating_mul(lapses.saturating_add(1)) + lost
}

/// Prints a row of what happened since the stopwatch was started, and holds it against the bound: no two writers, no
/// for this long at most.
pub(crate) fn row(
    what: &str,
    actors: &[Vec<Instant>],
    begun: &Stopwatch,
    none: Duration,
    checks: Option<(Duration, Duration)>,
) {
    let (seen, lost) = (windows(actors, begun.started()), begun.lost());
    let checks = checks.map(|(two, none)| format!("; two check {two:?}, nobody {none:?}")).unwrap_or_default();
    eprintln!("{what}: two write {:?}, nobody {:?} (bound {none:?}, stalls {lost:?}){checks}", seen.two, seen.none);
    assert!(seen.two <= Duration::from_millis(100) + lost, "{what}: {seen:?}");
    assert!(seen.none <= at_most(none, begun), "{what}: {seen:?}");
}

// Races 1, 5 and 7.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_write_when_a_restricted_operator_starts_or_crashes() {
    let turn = Turn::take().await;
    let pair = Pair::new(turn.cluster).await;
    let client = pair.cluster.admin();

    let (begun, prober) = (Stopwatch::start(), Prober::start(client.clone(), &pair.team));
    let mut old = pair.tenant.start(&[]);
    pair.settled(&old).await;
    let checks = prober.windows().await;
    row("start", &pair.acted(&[&old]), &begun, SETTLE, Some(checks));
    assert!(checks.1 <= at_most(SETTLE, &begun), "no operator checked for {checks:?}");

    let begun = Stopwatch::start();
    let new = pair.tenant.start(&[]);
    new.ready().await;
    // The Service's endpoints.
    pair.tenant.install(&new).await;
    old.signal("TERM").await;
    assert!(old.ended().await.success());
    new.acts(&pair.team).await;
    let actors = pair.acted(&[&old, &new]);
    let had_turn = actors[0].iter().any(|at| *at >= begun.started());
    assert!(!had_turn || begun.lost() > LAPSE, "the cluster-wide operator had a turn in a rolling update");
    row("rolling update", &actors, &begun, SETTLE + Duration::from_secs(1), None);

    let (begun, prober) = (Stopwatch::start(), Prober::start(client.clone(), &pair.team));
    new.signal("KILL").await;
    pair.wide.acts(&pair.team).await;
    checked_by(&client, &pair.team, &["platform"]).await;
    let checks = prober.windows().await;
    row("crash", &pair.acted(&[&old, &new]), &begun, DURATION + GRACE, Some(checks));
    assert!(checks.1 <= at_most(DURATION + GRACE, &begun), "no operator checked for {checks:?}");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_write_when_a_restricted_operator_is_cut_off() {
    let turn = Turn::take().await;
    let pair = Pair::new(turn.cluster).await;
    let proxy = Proxy::start(pair.cluster, &pair.tenant.kubeconfig).await;
    let own = pair.tenant.start_by(&proxy.kubeconfig, &[]);
    pair.settled(&own).await;

    let begun = Stopwatch::start();
    own.signal("STOP").await;
    pair.wide.acts(&pair.team).await;
    own.signal("CONT").await;
    own.acts(&pair.team).await;
    row("paused past its lease", &pair.acted(&[&own]), &begun, DURATION + GRACE, None);

    let begun = Stopwatch::start();
    proxy.cut();
    pair.wide.acts(&pair.team).await;
    row("cut off", &pair.acted(&[&own]), &begun, DURATION + GRACE, None);
    let mended = Stopwatch::start();
    proxy.repair();
    own.acts(&pair.team).await;
    row("connected again", &pair.acted(&[&own]), &mended, SETTLE, None);

    let begun = Stopwatch::start();
    pair.wide.signal("STOP").await;
    sleep(DURATION).await;
    pair.wide.signal("CONT").await;
    sleep(Duration::from_secs(1)).await;
    row("cluster-wide paused", &pair.acted(&[&own]), &begun, Duration::ZERO, None);
    pair.end().await;
}

// Race 6: only people can know of a dead operator's configuration. Deleting it is all that is needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_tenants_configuration_refuses_writes_until_removed() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("orphan").await;
    let platform = Installation::new(cluster, "platform", None, &["--acts-in", &team]).await;
    let tenant = Installation::new(cluster, "tenant", Some(&team), &[]).await;
    let (wide, own) = (platform.start(&[]), tenant.start(&[]));
    platform.install(&wide).await;
    tenant.install(&own).await;
    let client = cluster.admin();
    checked_by(&client, &team, &["tenant"]).await;
    own.signal("KILL").await;
    wide.acts(&team).await;
    let answer = try_widget(&client, &team, 1).await;
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert!(answer.body["message"].as_str().unwrap().contains("failed calling webhook"), "{}", answer.body);
    tenant.uninstall().await;
    checked_by(&client, &team, &["platform"]).await;
    platform.uninstall().await;
}

// A webhook that is asked to end is still called for a while.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_readiness_at_once_and_serving_later() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let platform = Installation::new(cluster, "platform", None, &[]).await;
    let mut wide = platform.start(&["--drain-delay", "2s"]);
    platform.install(&wide).await;
    let (client, begun) = (cluster.admin(), Instant::now());
    checked_by(&client, "default", &["platform"]).await;
    wide.signal("TERM").await;
    let unready = || async { (wide.health("/readyz").await.0 == 503).then_some(()) };
    wait_until("it to say that it ends", PATIENCE, unready).await;
    assert_eq!(try_widget(&client, "default", 1).await.checked, ["platform"]);
    assert!(wide.ended().await.success());
    assert!(begun.elapsed() > Duration::from_secs(2), "it ended after {:?}", begun.elapsed());
    platform.uninstall().await;
}
