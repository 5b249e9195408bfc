//! Race 14: two cluster-wide installations of one operator. Which of them acts, and for how long nobody does; both
//! check all the while, and so does one beside a Lease that only looks like another's.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use portcullis_testing::{Stopwatch, wait_until};
use serde_json::json;
use tokio::task::JoinHandle;

use super::faults::{Prober, at_most, row};
use super::installation::{Installation, checked_by, try_widget};
use super::process::Process;
use super::turn::Turn;
use super::{DURATION, GRACE, LAPSE, PATIENCE, TURN};

const BACK: &str = "not leading: another cluster-wide installation of this operator was installed first";

/// Waits until it stands back. It has then said so `times` times at least, the last time with whom it stands back for,
/// and is ready all the same. It says so each time that it begins to: once more where a Lease lapses on a busy machine.
async fn stands_back(process: &Process, (release, namespace): (&str, &str), times: usize) {
    let shown = || async {
        let (_, metrics) = process.health("/metrics").await;
        metrics.contains("portcullis_scope_standing_back 1").then_some(())
    };
    wait_until("it to stand back", PATIENCE, shown).await;
    let said = || async { (process.said(BACK).len() >= times).then(|| process.said(BACK)) };
    let said = wait_until("it to say so", PATIENCE, said).await;
    let last = said.last().unwrap();
    assert_eq!((&last["release"], &last["namespace"]), (&release.into(), &namespace.into()));
    assert!(last["message"].as_str().unwrap().contains("--restrict-to-namespace"), "{last}");
    assert_eq!(process.health("/readyz").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_releases_the_first_acts_and_the_other_takes_over_when_it_is_gone() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("team").await;
    let arguments = ["--acts-in", &*team, "--ignore-failures"];
    let first = Installation::new(cluster, "platform", None, &arguments).await;
    let second = Installation::new(cluster, "twin", None, &arguments).await;
    let client = cluster.admin();
    let old = first.start(&[]);
    first.install(&old).await;
    old.acts(&team).await;

    let (begun, prober) = (Stopwatch::start(), Prober::start(client.clone(), &team));
    let twin = second.start(&[]);
    second.install(&twin).await;
    stands_back(&twin, (first.release, &first.namespace), 1).await;
    checked_by(&client, &team, &["platform", "twin"]).await;
    let checks = prober.windows().await;
    let actors = [old.acted(&team), twin.acted(&team)];
    row("a second release starts", &actors, &begun, Duration::ZERO, Some(checks));
    assert!(checks.1 <= at_most(Duration::ZERO, &begun), "nobody checked for {checks:?}");
    assert!(actors[1].is_empty() || begun.lost() > LAPSE, "the second wrote");

    let begun = Stopwatch::start();
    let mut old = old;
    let mut new = first.start(&[]);
    new.ready().await;
    first.install(&new).await;
    old.signal("TERM").await;
    assert!(old.ended().await.success());
    new.acts(&team).await;
    let actors = [old.acted(&team), new.acted(&team), twin.acted(&team)];
    assert!(actors[2].is_empty() || begun.lost() > LAPSE, "the second had a turn in a rolling update");
    // The next one looks every 0.4 s, and gives the second time to find out.
    row("rolling update of the first", &actors, &begun, TURN + GRACE, None);

    let (begun, prober) = (Stopwatch::start(), Prober::start(client.clone(), &team));
    new.signal("KILL").await;
    new.ended().await;
    twin.acts(&team).await;
    checked_by(&client, &team, &["twin"]).await;
    let checks = prober.windows().await;
    row("the first crashes", &[new.acted(&team), twin.acted(&team)], &begun, DURATION + GRACE, Some(checks));
    assert!(checks.1 <= at_most(Duration::ZERO, &begun), "nobody checked for {checks:?}");
    assert!(twin.health("/metrics").await.1.contains("portcullis_scope_standing_back 0"));

    // Its Lease is still the older one.
    let (begun, prober) = (Stopwatch::start(), Prober::start(client.clone(), &team));
    let back = first.start(&[]);
    first.install(&back).await;
    back.acts(&team).await;
    stands_back(&twin, (first.release, &first.namespace), 2).await;
    checked_by(&client, &team, &["platform", "twin"]).await;
    let checks = prober.windows().await;
    row("the first comes back", &[back.acted(&team), twin.acted(&team)], &begun, TURN, Some(checks));
    assert!(checks.1 <= at_most(Duration::ZERO, &begun), "nobody checked for {checks:?}");
    first.uninstall().await;
    second.uninstall().await;
}

// They have one configuration, and whom that calls checks.
#[tokio::test(flavor = "multi_thread")]
async fn of_one_release_in_two_namespaces_one_writes_and_whom_the_configuration_calls_checks() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("team").await;
    let arguments = |tag| ["--acts-in", &*team, "--ignore-failures", "--tag", tag].map(str::to_owned);
    let (one, two) = (arguments("one"), arguments("two"));
    let first = Installation::new(cluster, "platform", None, &one.each_ref().map(String::as_str)).await;
    let second = Installation::new(cluster, "platform", None, &two.each_ref().map(String::as_str)).await;
    let client = cluster.admin();
    let (old, twin) = (first.start(&[]), second.start(&[]));
    first.install(&old).await;
    // Created in the same second, they are ordered by name: either may be the first. On a busy machine a Lease may lapse, and
    // the other one lead for a moment: who stands back by then has said so, and the other one does not.
    let shown = || async {
        let stands = async |process: &Process| {
            let (_, metrics) = process.health("/metrics").await;
            metrics.contains("portcullis_scope_standing_back 1")
        };
        match (stands(&old).await, stands(&twin).await) {
            (true, false) if !old.said(BACK).is_empty() => Some(0),
            (false, true) if !twin.said(BACK).is_empty() => Some(1),
            _ => None,
        }
    };
    let leads = 1 - wait_until("one to stand back and to say so", PATIENCE, shown).await;
    let (acting, standing, place) = if leads == 0 { (&old, &twin, &first) } else { (&twin, &old, &second) };
    checked_by(&client, &team, &["one"]).await;

    second.install(&twin).await;
    stands_back(standing, (place.release, &place.namespace), 1).await;
    checked_by(&client, &team, &["two"]).await;
    acting.acts(&team).await;
    let begun = Stopwatch::start();
    for _ in 0..20 {
        assert_eq!(try_widget(&client, &team, 1).await.checked, ["two"]);
    }
    let both = standing.acted(&team).iter().any(|at| *at >= begun.started());
    assert!(!both || begun.lost() > LAPSE, "both write");
    acting.signal("KILL").await;
    standing.acts(&team).await;
    let actors = [acting.acted(&team), standing.acted(&team)];
    row("the same release, the first crashes", &actors, &begun, DURATION + GRACE, None);
    first.uninstall().await;
}

/// A Lease with the label and the name of a leader's, older than all that are made after it, and renewed until this is dropped.
struct Forged(JoinHandle<()>);

impl Forged {
    async fn renewed(client: kube::Client, namespace: &str) -> Self {
        let leases = Api::<Lease>::namespaced(client, namespace);
        let labels = json!({ "portcullis.dev/operator": "scopes" });
        let lease = json!({
            "metadata": { "name": "tenant-leader", "labels": labels },
            "spec": { "holderIdentity": "tenant", "leaseDurationSeconds": 3 },
        });
        let made = leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
        let created = made.metadata.creation_timestamp.unwrap().0;
        let later = || async { (Timestamp::now().as_second() > created.as_second()).then_some(()) };
        wait_until("the next second", PATIENCE, later).await;
        Self(tokio::spawn(async move {
            let mut turns = tokio::time::interval(TURN / 3);
            loop {
                turns.tick().await;
                let renewal = json!({ "spec": { "renewTime": format!("{:.6}", Timestamp::now()) } });
                leases.patch("tenant-leader", &PatchParams::default(), &Patch::Merge(&renewal)).await.unwrap();
            }
        }))
    }
}

impl Drop for Forged {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// Whoever may edit a namespace may put such a Lease into it, and keep it renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_lease_that_looks_like_an_older_installations_lets_nothing_in_unchecked() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("team").await;
    let operator = Installation::new(cluster, "platform", None, &["--acts-in", &*team, "--ignore-failures"]).await;
    let client = cluster.admin();
    let tenant = Forged::renewed(client.clone(), &team).await;
    let process = operator.start(&[]);
    operator.install(&process).await;
    stands_back(&process, ("tenant", &team), 1).await;
    checked_by(&client, &team, &["platform"]).await;
    assert!(process.acted(&team).is_empty(), "nobody knows that it is not another's: it does not write");

    drop(tenant);
    process.acts(&team).await;
    checked_by(&client, &team, &["platform"]).await;
    operator.uninstall().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_user_does_to_the_lease_of_the_first_two_never_write_and_one_does_again() {
    let turn = Turn::take().await;
    let cluster = turn.cluster;
    let team = cluster.namespace("team").await;
    let arguments = ["--acts-in", &*team, "--webhooks", "off"];
    let first = Installation::new(cluster, "platform", None, &arguments).await;
    let second = Installation::new(cluster, "twin", None, &arguments).await;
    // The replica of the first that begins is the one that acts.
    let old = first.start(&[]);
    old.acts(&team).await;
    let processes = [old, first.start(&[]), second.start(&[]), second.start(&[])];
    for process in &processes {
        process.ready().await;
    }
    let leases = |of: &Installation| Api::<Lease>::namespaced(cluster.admin(), &of.namespace);
    let strip = json!({ "metadata": { "labels": { "portcullis.dev/operator": null } } });
    let free = json!({ "spec": { "holderIdentity": "" } });
    let give = json!({ "spec": { "holderIdentity": "somebody" } });
    let young = json!({ "spec": { "leaseTransitions": 0 } });
    for (what, patch, none) in [
        ("the first's Lease loses its label", Some(strip), TURN),
        ("it is freed", Some(free), 2 * TURN),
        ("its number is set back", Some(young), 2 * TURN),
        ("it is given to somebody", Some(give), DURATION + 2 * TURN),
        ("it is deleted", None, DURATION + GRACE + TURN),
    ] {
        let begun = Stopwatch::start();
        match patch {
            Some(patch) => {
                _ = leases(&first)
                    .patch("platform-leader", &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .unwrap();
            }
            None => _ = leases(&first).delete("platform-leader", &DeleteParams::default()).await.unwrap(),
        }
        // Whoever was to write after that does by now.
        let end = begun.started() + DURATION + GRACE + 2 * TURN;
        let acted = || processes.each_ref().map(|process| process.acted(&team));
        let written = || async { acted().iter().flatten().any(|at| *at > end).then_some(()) };
        wait_until("one to act again", PATIENCE, written).await;
        row(what, &acted(), &begun, none, None);
    }
}
