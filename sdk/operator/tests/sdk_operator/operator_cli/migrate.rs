//! `migrate-storage`: what is stored is in the storage version, or is named.

use std::process::Output;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{ListParams, Patch, PatchParams};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::gate::{self, Instead};
use super::process::{PATIENCE, Running, VERSIONS, output_of};
use super::refusal::Refusal;
use super::versions::Home;

fn arguments<'a>(kubeconfig: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["migrate-storage", "--kubeconfig", kubeconfig], more].concat()
}

async fn migrate(home: &Home, more: &[&str]) -> Output {
    let kubeconfig = home.cluster.kubeconfig_path();
    output_of(VERSIONS, &arguments(kubeconfig.to_str().unwrap(), more)).await
}

/// The report on the one kind, and the exit code.
async fn report(home: &Home, more: &[&str]) -> (Value, Option<i32>) {
    let output = migrate(home, &[&["--output", "json"], more].concat()).await;
    let said = String::from_utf8_lossy(&output.stderr);
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (report["crds"][0].take(), output.status.code())
}

/// With the old versions gone from the CRD, an object that is still stored in one could not be read.
async fn old_versions_can_be_removed(home: &Home, manifest: &Value, people: usize) {
    let mut manifest = manifest.clone();
    manifest["spec"]["versions"].as_array_mut().unwrap().retain(|version| version["name"] == "v3");
    manifest["spec"]["conversion"] = json!({ "strategy": "None" });
    let params = PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    // A list is replaced as a whole.
    let patch = json!({ "spec": { "versions": manifest["spec"]["versions"], "conversion": { "strategy": "None", "webhook": null } } });
    home.crds().patch("people.versions.example", &params, &Patch::Merge(patch)).await.unwrap();
    let gone = || async { home.api("v1").list(&ListParams::default()).await.err() };
    wait_until("v1 to be gone", PATIENCE, gone).await;
    let read = home.api("v3").list(&ListParams::default()).await.unwrap();
    assert_eq!(read.items.len(), people);
    assert!(read.items.iter().all(|person| person.data["spec"]["name"]["first"] == "Ada"));
}

// No other SDK prunes `status.storedVersions` this safely.
#[tokio::test]
async fn no_object_is_in_an_old_version_when_versions_are_pruned() {
    let home = Home::new().await;
    let running = home.start();
    let manifest = home.install(&running).await;
    home.store_in("v1", &manifest).await;
    home.populate(0..20).await;
    home.store_in("v3", &manifest).await;
    home.populate(20..30).await;
    assert_eq!(home.stored_versions().await, ["v3", "v1"]);

    let (dry, code) = report(&home, &["--dry-run"]).await;
    assert_eq!((dry["outcome"].as_str(), dry["rewritten"].as_u64(), code), (Some("dryRun"), Some(0), Some(0)), "{dry}");
    assert_eq!(home.stored_versions().await, ["v3", "v1"]);

    let (done, code) = report(&home, &[]).await;
    assert_eq!(
        done,
        json!({
            "name": "people.versions.example", "storageVersion": "v3", "storedVersions": ["v3"], "outcome": "migrated",
            "rewritten": 20, "unchanged": 10, "gone": 0, "refused": { "count": 0, "objects": [] },
        })
    );
    assert_eq!((code, home.stored_versions().await), (Some(0), vec!["v3".to_owned()]));
    let again = migrate(&home, &["--kind", "Person"]).await;
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "people.versions.example: all objects are stored in v3\n");
    old_versions_can_be_removed(&home, &manifest, 30).await;
}

// An upgraded operator beside the CRD of the one before it.
#[tokio::test]
async fn objects_are_not_rewritten_under_an_outdated_crd() {
    let home = Home::new().await;
    let running = home.start();
    let manifest = home.install(&running).await;
    home.populate(0..2).await;
    home.store_in("v1", &manifest).await;
    home.populate(2..4).await;
    assert_eq!(home.stored_versions().await, ["v3", "v1"]);
    let kubeconfig = home.cluster.kubeconfig_as("hasty", &["system:masters"]);
    let user = kubeconfig.to_str().unwrap();
    let mark = home.cluster.audit().mark();
    for more in [&["--dry-run"][..], &[], &["--storage-version", "v2"]] {
        let refused = output_of(VERSIONS, &arguments(user, more)).await;
        let (out, err) = (String::from_utf8(refused.stdout).unwrap(), String::from_utf8(refused.stderr).unwrap());
        let wanted = more.get(1).unwrap_or(&"v3");
        let said = format!("CRD people.versions.example stores objects in v1 in this cluster, not in {wanted}: ");
        assert!(out.contains(&said), "{out}");
        assert!(
            err.contains("generate crds | kubectl apply --server-side -f -; if v1 is meant, say --storage-version v1"),
            "{err}"
        );
        assert_eq!(
            (refused.status.code(), err.lines().last()),
            (Some(1), Some("error: not migrated: people.versions.example"))
        );
    }
    assert_eq!(home.cluster.audit().writes_by("hasty", mark).await, [], "nothing is written");
    assert_eq!(home.stored_versions().await, ["v3", "v1"]);

    // Before a downgrade, it is meant.
    let (done, code) = report(&home, &["--storage-version", "v1"]).await;
    assert_eq!((done["outcome"].as_str(), &done["rewritten"], code), (Some("migrated"), &json!(2), Some(0)), "{done}");
    assert_eq!(home.stored_versions().await, ["v1"]);
    // That nothing is stored in another version is no success either.
    let (stopped, code) = report(&home, &[]).await;
    assert_eq!((stopped["outcome"].as_str(), code), (Some("stopped"), Some(1)), "{stopped}");
}

/// Starts a migration of thirty objects, and returns when ten are written. It gets them by the page, and the second
/// page never comes.
async fn in_the_middle(home: &Home) -> Running {
    let gate = gate::open(home.cluster, home.cluster.admin(), |head| {
        let asked = head.uri.to_string();
        head.uri = asked.replace("limit=500", "limit=10").parse().unwrap();
        asked.contains("continue=").then_some(Instead::Silence)
    });
    let migration = Running::spawn(VERSIONS, &arguments(&gate.await, &[]));
    migration.says("10 of 30 objects").await;
    migration
}

#[tokio::test]
async fn a_killed_migration_is_finished_by_the_next() {
    let home = Home::new().await;
    let running = home.start();
    let manifest = home.install(&running).await;
    home.store_in("v1", &manifest).await;
    home.populate(0..30).await;
    home.store_in("v3", &manifest).await;
    in_the_middle(&home).await.kill().await;
    assert_eq!(home.stored_versions().await, ["v3", "v1"], "nothing is pruned before everything is written");
    let (done, code) = report(&home, &[]).await;
    assert_eq!((done["outcome"].as_str(), code), (Some("migrated"), Some(0)), "{done}");
    let count = |member: &str| done[member].as_u64().unwrap();
    assert_eq!((count("rewritten"), count("unchanged")), (20, 10), "what was done is not done again: {done}");
    old_versions_can_be_removed(&home, &manifest, 30).await;
}

#[tokio::test]
async fn a_migration_that_is_stopped_says_what_is_left() {
    let home = Home::new().await;
    let running = home.start();
    let manifest = home.install(&running).await;
    home.store_in("v1", &manifest).await;
    home.populate(0..30).await;
    home.store_in("v3", &manifest).await;
    let mut migration = in_the_middle(&home).await;
    migration.terminate().await;
    assert_eq!(migration.ended().await.code(), Some(1));
    assert_eq!(migration.last_line().await, "error: ended by SIGTERM; run it again for what is left");
    assert_eq!(home.stored_versions().await, ["v3", "v1"], "nothing is pruned before everything is written");
}

#[tokio::test]
async fn a_refused_object_is_named_and_keeps_its_version_listed() {
    let home = Home::new().await;
    let running = home.start();
    let manifest = home.install(&running).await;
    home.store_in("v1", &manifest).await;
    home.populate(0..5).await;
    home.store_in("v3", &manifest).await;
    let stuck = Refusal::of(&home, "p-3").await;
    for more in [&["--dry-run"][..], &[]] {
        let (refused, code) = report(&home, more).await;
        assert_eq!((refused["outcome"].as_str(), code), (Some("refused"), Some(1)), "{refused}");
        assert_eq!(refused["refused"]["count"], 1);
        let object = &refused["refused"]["objects"][0];
        assert_eq!((object["namespace"].as_str(), object["name"].as_str()), (Some(&*home.namespace), Some("p-3")));
        assert!(object["reason"].as_str().unwrap().contains("p-3 stays as it is"), "{object}");
        assert_eq!(home.stored_versions().await, ["v3", "v1"]);
    }
    let said = migrate(&home, &[]).await;
    let (out, err) = (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap());
    assert!(out.contains("1 objects are refused, so stored versions stay v3, v1"), "{out}");
    assert!(out.contains(&format!("  {}/p-3: ", home.namespace)), "{out}");
    assert!(err.ends_with("error: not migrated: people.versions.example\n"), "{err}");

    stuck.lift().await;
    let (done, code) = report(&home, &[]).await;
    assert_eq!((done["outcome"].as_str(), &done["rewritten"], code), (Some("migrated"), &json!(1), Some(0)), "{done}");
}

/// The list alone would not show it: it is the same before and after, while what is written in between is in the other
/// version.
#[tokio::test]
async fn no_version_is_pruned_if_the_storage_version_has_changed() {
    let home = Home::new().await;
    let running = home.start();
    let manifest = home.install(&running).await;
    home.store_in("v1", &manifest).await;
    home.populate(0..3).await;
    home.store_in("v3", &manifest).await;
    let stuck = Refusal::unavailable(&home, "p-1").await;

    let mark = home.cluster.audit().mark();
    // A name by which its writes are known.
    let kubeconfig = home.cluster.kubeconfig_as("migration", &["system:masters"]);
    let mut migration = Running::spawn(VERSIONS, &arguments(kubeconfig.to_str().unwrap(), &[]));
    let met = || async {
        let writes = home.cluster.audit().writes_by("migration", mark).await;
        writes.iter().any(|write| write.code >= 500).then_some(())
    };
    wait_until("the object that cannot be written to be met", PATIENCE, met).await;
    home.store_in("v1", &manifest).await;
    home.store_in("v3", &manifest).await;
    stuck.lift().await;
    assert_eq!(migration.ended().await.code(), Some(1), "{}", migration.log());
    assert_eq!(home.stored_versions().await, ["v3", "v1"]);
    let (done, code) = report(&home, &[]).await;
    assert_eq!((done["outcome"].as_str(), code), (Some("migrated"), Some(0)), "{done}");
}

#[tokio::test]
async fn a_kind_that_is_not_installed_or_not_known_is_named() {
    let home = Home::new().await;
    let (stopped, code) = report(&home, &[]).await;
    assert_eq!((stopped["outcome"].as_str(), code), (Some("stopped"), Some(1)), "{stopped}");
    let problem = stopped["problem"].as_str().unwrap();
    assert!(problem.starts_with("cannot read CRD people.versions.example: "), "{problem}");
    let said = migrate(&home, &["--kind", "Entity"]).await;
    assert_eq!(
        String::from_utf8(said.stderr).unwrap(),
        "error: --kind Entity is none of this operator's; it brings Person\n"
    );
}

#[tokio::test]
async fn objects_are_migrated_to_a_version_that_is_not_served() {
    let home = Home::new().await;
    let running = home.start();
    let mut manifest = home.install(&running).await;
    home.store_in("v1", &manifest).await;
    home.populate(0..3).await;
    for version in manifest["spec"]["versions"].as_array_mut().unwrap() {
        version["served"] = json!(version["name"] != "v3");
    }
    home.store_in("v3", &manifest).await;
    let (done, code) = report(&home, &[]).await;
    assert_eq!((done["outcome"].as_str(), &done["rewritten"], code), (Some("migrated"), &json!(3), Some(0)), "{done}");
    assert_eq!(home.stored_versions().await, ["v3"]);
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_reported_with_the_cause() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("kubeconfig");
    // Nothing listens on port 1.
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [],
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": ""}}]});
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let migrate = arguments(file, &[]);
    let commands: [&[&str]; 5] = [
        &migrate,
        &["doctor", "--kubeconfig", file],
        &["certs", "ensure", "--kubeconfig", file],
        &["certs", "show", "--kubeconfig", file],
        &["dev", "--owner", "ann", "--kubeconfig", file],
    ];
    for command in commands {
        let said = output_of(VERSIONS, command).await;
        let err = String::from_utf8(said.stderr).unwrap();
        assert_eq!(
            err,
            "error: the API server at https://127.0.0.1:1/ does not answer: connection refused; check --kubeconfig or its \
             current context\n"
        );
        assert_eq!((said.status.code(), said.stdout.len()), (Some(1), 0), "{command:?}");
    }
}

// The user may see that the kind is there, and no more.
#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let home = Home::new().await;
    let running = home.start();
    let manifest = home.install(&running).await;
    home.store_in("v1", &manifest).await;
    home.populate(0..3).await;
    home.store_in("v3", &manifest).await;
    let right = |group: &str, resource: &str, verb: &str| PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(vec![resource.into()]),
        verbs: vec![verb.into()],
        ..PolicyRule::default()
    };
    let rights = [
        right("apiextensions.k8s.io", "customresourcedefinitions", "get"),
        right("versions.example", "people", "list"),
        right("versions.example", "people", "patch"),
    ];
    let missing = [
        "cannot get resource \"customresourcedefinitions\"",
        "cannot list resource \"people\"",
        "cannot patch resource \"people\"",
        "cannot patch resource \"customresourcedefinitions/status\"",
    ];
    for (granted, missing) in missing.into_iter().enumerate() {
        let user = home.cluster.client_with_rules("migrate", &rights[..granted]).await;
        let said = output_of(VERSIONS, &arguments(user.kubeconfig.to_str().unwrap(), &[])).await;
        let (out, err) = (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap());
        assert_eq!(said.status.code(), Some(1), "{out}{err}");
        assert!(out.contains(missing), "{missing}: {out}");
    }
    assert_eq!(home.stored_versions().await, ["v3", "v1"]);
}
