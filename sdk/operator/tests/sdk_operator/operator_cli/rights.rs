//! The operator's process with the rights that are generated and no others, against a real API server.

use std::collections::BTreeSet;

use kube::api::PostParams;
use portcullis_testing::{ControlPlane, User, wait_until};
use serde_json::Value;

use super::cluster::{cluster, entities, entity, generate};
use super::process::{PATIENCE, Running};

/// An installation that is restricted to a namespace of its own: those of other tests are none of its business.
struct Place {
    cluster: &'static ControlPlane,
    home: String,
    team: String,
    more: Vec<&'static str>,
    manifests: Vec<Value>,
}

impl Place {
    async fn new(more: &[&'static str]) -> Self {
        let cluster = cluster().await;
        let (home, team) = (cluster.namespace("home").await, cluster.namespace("team").await);
        let mut place = Self { cluster, home, team, more: more.to_vec(), manifests: Vec::new() };
        place.manifests = generate(&[&["rbac"], &place.flags()[..]].concat()).await;
        place
    }

    fn flags(&self) -> Vec<&str> {
        let fixed = ["--release", "blue", "--namespace", &self.home, "--restrict-to-namespace", &self.team];
        [&fixed[..], &["--webhooks", "off"], &self.more].concat()
    }

    /// Starts the operator's process as its ServiceAccount. Returns once the namespace is its own: before that, a
    /// cluster-wide operator of another test may do its work.
    async fn start(&self, user: &User) -> Running {
        let kubeconfig = user.kubeconfig.display().to_string();
        let running = Running::start(&[&self.flags()[..], &["--kubeconfig", &kubeconfig]].concat());
        let scope = format!("portcullis_lease_held{{lease=\"{}/", self.team);
        wait_until("the Lease of its scope", PATIENCE, || async {
            let (_, metrics) = running.health("/metrics").await;
            metrics.lines().any(|line| line.starts_with(&scope) && line.ends_with(" 1")).then_some(())
        })
        .await;
        running
    }

    async fn make(&self, name: &str) {
        entities(self.cluster.admin(), &self.team).create(&PostParams::default(), &entity(name, name)).await.unwrap();
    }

    /// Waits until the controller has written all that there is to write about an entity.
    async fn greeted(&self, name: &str) {
        let entities = entities(self.cluster.admin(), &self.team);
        wait_until("the status", PATIENCE, || async {
            entities.get(name).await.unwrap().data.get("status").is_some().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_generated_rights_suffice_for_operator_and_controllers() {
    let place = Place::new(&[]).await;
    let (user, mark) = (place.cluster.user_from_manifests(&place.manifests).await, place.cluster.audit().mark());
    let _running = place.start(&user).await;
    place.make("mary").await;
    place.greeted("mary").await;
    let events = place.cluster.audit().writes_by(&user.name, mark).await;
    let refused: Vec<_> = events.iter().filter(|event| event.code >= 400).map(ToString::to_string).collect();
    assert_eq!(refused, Vec::<String>::new());
    let written: BTreeSet<_> = events.iter().map(|event| &*event.resource).collect();
    assert_eq!(written, ["configmaps", "entities", "leases"].into());
}

// A controller that judged what no webhook would be called for would make another operator of it.
#[tokio::test]
async fn controllers_validate_selected_objects_with_webhooks_off() {
    let place = Place::new(&["--object-selector=judged"]).await;
    let user = place.cluster.user_from_manifests(&place.manifests).await;
    let _running = place.start(&user).await;
    let entities = entities(place.cluster.admin(), &place.team);
    place.make("forbidden").await;
    let mut judged = entity("judged", "forbidden");
    judged.metadata.labels = Some([("judged".to_owned(), String::new())].into());
    entities.create(&PostParams::default(), &judged).await.unwrap();
    let said = async |name: &str, pointer: &str| {
        wait_until(&format!("{pointer} of {name}"), PATIENCE, || async {
            entities.get(name).await.unwrap().data.pointer(pointer).cloned()
        })
        .await
    };
    assert_eq!(said("forbidden", "/status/greeting").await, "Hello forbidden!");
    assert_eq!(said("judged", "/status/conditions/0/reason").await, "ValidationFailed");
}
