//! Each controller under its own ServiceAccount: against a real API server, with what is generated and nothing else.

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use portcullis_testing::{AuditEvent, ControlPlane, Mark, User, wait_until};
use serde_json::{Value, json};

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

    /// The operator's process, as its own ServiceAccount. Its kubeconfig has a client certificate.
    fn start(&self, user: &User) -> Running {
        let kubeconfig = user.kubeconfig.display().to_string();
        Running::start(&[&self.flags()[..], &["--kubeconfig", &kubeconfig]].concat())
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

    /// What the operator wrote since then, under each of its accounts.
    async fn written(&self, user: &User, mark: Mark) -> Vec<AuditEvent> {
        self.cluster.audit().writes_by_operator(&user.name, mark).await
    }

    fn accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.cluster.admin(), &self.home)
    }
}

fn resources<'a>(events: &'a [AuditEvent], user: &str) -> Vec<&'a str> {
    let mut found: Vec<_> = events.iter().filter(|event| event.user == user).map(|it| it.resource.as_str()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[tokio::test]
async fn a_controller_writes_under_its_own_account_and_the_operator_under_its_own() {
    let place = Place::new(&[]).await;
    let (user, mark) = (place.cluster.user_of(&place.manifests).await, place.cluster.audit().mark());
    let running = place.start(&user);
    place.make("mary").await;
    place.greeted("mary").await;
    let events = place.written(&user, mark).await;
    let refused: Vec<_> = events.iter().filter(|event| event.code >= 400).map(ToString::to_string).collect();
    assert_eq!(refused, Vec::<String>::new(), "the rights that are generated suffice");
    assert_eq!(resources(&events, &format!("{}-greeter", user.name)), ["configmaps", "entities"]);
    assert_eq!(resources(&events, &user.name), ["leases", "serviceaccounts"]);
    let tokens: Vec<_> = events.iter().filter(|event| event.resource == "serviceaccounts").collect();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert_eq!((&*tokens[0].subresource, &*tokens[0].name), ("token", "blue-greeter"));
    let (_, metrics) = running.health("/metrics").await;
    assert!(metrics.contains(r#"portcullis_token_held{controller="greeter"} 1"#), "{metrics}");
}

#[tokio::test]
async fn under_one_account_that_one_writes_all_of_it() {
    let place = Place::new(&["--use-service-account-credentials=false"]).await;
    let (user, mark) = (place.cluster.user_of(&place.manifests).await, place.cluster.audit().mark());
    let _running = place.start(&user);
    place.make("mary").await;
    place.greeted("mary").await;
    let events = place.written(&user, mark).await;
    assert_eq!(resources(&events, &user.name), ["configmaps", "entities", "leases"]);
    assert!(events.iter().all(|event| event.user == user.name), "{events:?}");
}

// A controller that judged what no webhook would be called for would make another operator of it.
#[tokio::test]
async fn with_webhooks_off_a_controller_judges_what_the_selectors_of_the_installation_select() {
    let place = Place::new(&["--object-selector=judged"]).await;
    let user = place.cluster.user_of(&place.manifests).await;
    let _running = place.start(&user);
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

#[tokio::test]
async fn without_the_right_to_its_tokens_a_controller_waits_and_writes_under_no_other_account_until_it_is_granted() {
    let place = Place::new(&[]).await;
    let mut without = place.manifests.clone();
    for rules in without.iter_mut().filter_map(|manifest| manifest.get_mut("rules")?.as_array_mut()) {
        rules.retain(|rule| rule["resources"] != json!(["serviceaccounts/token"]));
    }
    let (user, mark) = (place.cluster.user_of(&without).await, place.cluster.audit().mark());
    let running = place.start(&user);
    place.make("mary").await;
    let said = running.logged("cannot get a token: the controller waits; others go on").await;
    assert_eq!((&said["controller"], &said["account"]), (&json!("greeter"), &json!("blue-greeter")));
    let problem = said["problem"].as_str().unwrap();
    assert!(problem.contains("forbidden") && problem.contains("'generate rbac'"), "{problem}");
    let (_, metrics) = running.health("/metrics").await;
    for expected in
        [r#"token_held{controller="greeter"} 0"#, r#"token_requests_total{controller="greeter",outcome="failed"}"#]
    {
        assert!(metrics.contains(expected), "{metrics}");
    }
    let events = place.written(&user, mark).await;
    assert!(events.iter().all(|event| ["leases", "serviceaccounts"].contains(&&*event.resource)), "{events:?}");

    place.cluster.apply(&place.manifests).await;
    place.greeted("mary").await;
}

// Its tokens are bound to its uid: those of the account before count for nothing.
#[tokio::test]
async fn a_controller_whose_account_was_deleted_goes_on_under_the_one_that_is_made_anew() {
    let place = Place::new(&[]).await;
    let user = place.cluster.user_of(&place.manifests).await;
    let running = place.start(&user);
    place.make("mary").await;
    place.greeted("mary").await;
    let before = place.accounts().get("blue-greeter").await.unwrap();
    place.accounts().delete("blue-greeter", &DeleteParams::default()).await.unwrap();
    // The API server remembers a token for ten seconds; each of these is a request that may find out.
    let maps = Api::<ConfigMap>::namespaced(place.cluster.admin(), &place.team);
    wait_until("a refused token", PATIENCE, || async {
        maps.delete("mary", &DeleteParams::default()).await.ok();
        running.log().contains("cannot get a token: the controller waits").then_some(())
    })
    .await;
    place.cluster.apply(&place.manifests).await;
    assert_ne!(place.accounts().get("blue-greeter").await.unwrap().metadata.uid, before.metadata.uid);
    place.make("anne").await;
    place.greeted("anne").await;
}
