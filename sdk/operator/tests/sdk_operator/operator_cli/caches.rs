//! Webhooks that read caches: against a real API server, with what is generated and nothing else.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use portcullis_testing::{ControlPlane, User, wait_until};
use serde_json::{Value, json};

use super::process::{PATIENCE, Running, output_of};

const CACHED: &str = "cached_operator";

async fn generate(arguments: &[&str]) -> Vec<Value> {
    let output = output_of(CACHED, &[&["generate"], arguments].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

fn region(name: &str) -> Value {
    json!({ "apiVersion": "caches.example/v1", "kind": "Region", "metadata": { "name": name }, "spec": {} })
}

fn depot(namespace: &str, region: &str, size: u32) -> Value {
    json!({
        "apiVersion": "caches.example/v1", "kind": "Depot", "metadata": { "name": region, "namespace": namespace },
        "spec": { "region": region, "size": size },
    })
}

fn order(region: &str) -> Value {
    json!({
        "apiVersion": "caches.example/v1", "kind": "Order", "metadata": { "name": "one" }, "spec": { "region": region },
    })
}

/// An installation: what it is generated and run with, and the user that it runs as.
struct Place {
    cluster: &'static ControlPlane,
    flags: Vec<String>,
    user: User,
}

impl Place {
    async fn new(cluster: &'static ControlPlane, flags: &[&str]) -> Self {
        let user = cluster.user_from_manifests(&generate(&[&["rbac"], flags].concat()).await).await;
        Self { cluster, flags: flags.iter().map(|flag| (*flag).to_owned()).collect(), user }
    }

    fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    fn start(&self) -> Running {
        let kubeconfig = self.user.kubeconfig.to_str().unwrap();
        Running::run(CACHED, &[&self.flags()[..], &["--kubeconfig", kubeconfig]].concat())
    }

    /// Puts this process in the API server's way.
    async fn install(&self, running: &Running) {
        let manifests = generate(&[&["webhooks"], &self.flags()[..]].concat()).await;
        self.cluster.install_webhooks(&manifests, running.webhooks().await.port()).await;
    }

    /// Creates an object in a dry run, and returns the API server's error, if any.
    async fn tried(&self, namespace: &str, object: Value) -> Option<String> {
        let kind = GroupVersionKind::gvk("caches.example", "v1", object["kind"].as_str().unwrap());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.cluster.admin(), namespace, &ApiResource::from_gvk(&kind));
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let answer = api.create(&dry, &serde_json::from_value(object).unwrap()).await;
        answer.err().map(|error| error.to_string())
    }

    /// Waits until the API server says this to an order.
    async fn says(&self, namespace: &str, region: &str, words: Option<&str>) {
        let tell = || async {
            let said = self.tried(namespace, order(region)).await;
            (said.as_deref().map(|said| said.contains(words.unwrap_or("nothing"))) == words.map(|_| true)).then_some(())
        };
        wait_until(&format!("{words:?} about region {region}"), PATIENCE, tell).await;
    }
}

/// The value of the first metric whose line begins so.
async fn metric(running: &Running, line: &str) -> u64 {
    let page = running.health("/metrics").await.1;
    let value = page.lines().find_map(|it| it.starts_with(line).then(|| it.rsplit_once(' ')?.1.parse().ok())?);
    value.unwrap_or_default()
}

#[tokio::test]
async fn no_webhook_decides_by_an_unfilled_cache() {
    let cluster = ControlPlane::shared().await;
    let (home, team) = (cluster.namespace("caches").await, cluster.namespace("team").await);
    let crds = generate(&["crds", "--namespace", &home]).await.into_iter();
    let crds: Vec<CustomResourceDefinition> = crds.map(|crd| serde_json::from_value(crd).unwrap()).collect();
    let (regions, others): (Vec<_>, Vec<_>) = crds.into_iter().partition(|crd| crd.spec.names.kind == "Region");
    cluster.install_crds(&others).await;
    let place = Place::new(cluster, &["--namespace", &home]).await;

    // Regions cannot be listed: the kind is unknown.
    let first = place.start();
    place.install(&first).await;
    let refused = || async { place.tried(&team, depot(&team, "north", 0)).await?.contains("some room").then_some(()) };
    wait_until("the other webhook to be served", PATIENCE, refused).await;
    let said = place.tried(&team, order("north")).await.unwrap();
    assert!(said.contains("failed calling webhook"), "{said}");
    let shed = r#"portcullis_webhook_rejected_total{webhook="/validate/place",reason="shed"}"#;
    assert!(metric(&first, shed).await > 0, "{said}");
    let judged = r#"portcullis_admission_requests_total{webhook="/validate/place""#;
    assert_eq!(metric(&first, judged).await, 0, "it was asked all the same");
    let (status, waits) = first.health("/readyz").await;
    assert_eq!((status, waits.as_str()), (503, "waiting for the first list of regions.caches.example\n"));

    cluster.install_crds(&regions).await;
    cluster.apply(&[region("north"), depot(&team, "north", 1)]).await;
    place.says(&team, "north", None).await;
    place.says(&team, "south", Some("there is no region south")).await;
    place.says(&home, "north", Some("you have no depot in region north")).await;
    first.ready().await;
    assert!(metric(&first, "cached_refused_orders_total").await >= 2, "{}", first.health("/metrics").await.1);

    // One leads; the other is asked.
    first.logged("leading: this replica runs the controllers").await;
    let second = place.start();
    second.ready().await;
    place.install(&second).await;
    let asked = || async {
        place.says(&team, "south", Some("there is no region south")).await;
        (metric(&second, judged).await > 0).then_some(())
    };
    wait_until("the other replica to be asked", PATIENCE, asked).await;
    place.says(&team, "north", None).await;
    assert!(!second.log().contains("leading: this replica"), "{}", second.log());

    // Restricted to a namespace, it is granted and lists the depots of that one, and the regions of the cluster.
    let other = cluster.namespace("other").await;
    let restricted =
        Place::new(cluster, &["--release", "blue", "--namespace", &home, "--restrict-to-namespace", &other]).await;
    let third = restricted.start();
    restricted.install(&third).await;
    third.ready().await;
    let asked = || async {
        restricted.says(&other, "north", Some("you have no depot in region north")).await;
        (metric(&third, judged).await > 0).then_some(())
    };
    wait_until("the restricted operator to be asked", PATIENCE, asked).await;
    cluster.apply(&[depot(&other, "north", 1)]).await;
    restricted.says(&other, "north", None).await;
    assert!(!third.log().contains("not listed yet"), "{}", third.log());
}

#[tokio::test]
async fn explain_fills_caches_from_the_given_files() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, object: Value| {
        let path = directory.path().join(name);
        std::fs::write(&path, object.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut mine = order("north");
    mine["metadata"]["namespace"] = json!("team");
    let (order, region, here) =
        (file("order", mine), file("region", region("north")), file("here", depot("team", "north", 1)));
    let there = file("there", depot("other", "north", 1));
    let missing = "place: not evaluated: reads regions.caches.example, depots.caches.example";
    for (files, code, expected) in [
        (vec![&order], 0, missing),
        (vec![&order, &region], 0, "place: not evaluated: reads depots.caches.example"),
        (vec![&order, &region, &there], 1, "you have no depot in region north"),
        (vec![&order, &region, &here], 0, "place allows it"),
    ] {
        let arguments = files.iter().flat_map(|file| ["-f", file.as_str()]);
        let arguments: Vec<&str> = ["doctor", "--all", "explain"].into_iter().chain(arguments).collect();
        let output = output_of(CACHED, &arguments).await;
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(expected) && output.status.code() == Some(code), "{files:?}: {said}");
    }
}
