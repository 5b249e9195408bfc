//! Controllers of sessions beside those of an installed operator: one of them acts.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use portcullis_manifest::{ScopePolicy, scope_policy_name};
use portcullis_testing::{ControlPlane, Grant, Mark, User, wait_until};
use serde_json::json;

use super::fixture::{cluster, controllers_alone, entities, entity};
use super::process::{Dev, ENTITIES, PATIENCE};

/// Durations of all leases here: seconds where an operator has many.
const TIMING: [&str; 2] = ["--lease-timing", "3s,2s,400ms,3600ms,1s,3s"];
/// The Leases of the example.
pub(crate) const LEADER: &str = "entity-operator-leader";
const SCOPE: &str = "entity-operator-namespace-scope";

/// A namespace for the operator, one for its objects, and somebody whose writes are known by the name.
pub(crate) struct Place {
    pub(crate) cluster: &'static ControlPlane,
    pub(crate) home: String,
    pub(crate) team: String,
    ann: User,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let cluster = cluster().await;
        let (home, team) = (cluster.namespace("home").await, cluster.namespace("team").await);
        let all = Some(vec!["*".to_owned()]);
        let everything = PolicyRule {
            api_groups: all.clone(),
            resources: all,
            verbs: vec!["*".to_owned()],
            ..PolicyRule::default()
        };
        let ann = cluster.user_with("ann", &[Grant::ClusterRules(&[everything])]).await;
        Self { cluster, home, team, ann }
    }

    /// A replica of an installed operator, without webhooks.
    pub(crate) fn installed(&self, arguments: &[&str]) -> Dev {
        let kubeconfig = self.cluster.kubeconfig_path();
        let fixed = ["run", "--kubeconfig", kubeconfig.to_str().unwrap(), "--namespace", &self.home];
        let listen = ["--bind", "127.0.0.1:0", "--health-bind", "127.0.0.1:0", "--webhooks", "off"];
        Dev::spawn(ENTITIES, &[&fixed[..], &listen, &TIMING, arguments].concat())
    }

    /// What an administrator applies with a restricted operator: the policy that hands the namespace of objects over.
    pub(crate) async fn hand_over(&self) {
        let (name, namespace) = (scope_policy_name(SCOPE, &self.team), self.team.clone());
        let mut manifests = ScopePolicy { name, namespace, lease: SCOPE.to_owned() }.manifests();
        for manifest in &mut manifests {
            manifest["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "entity-operator" });
        }
        self.cluster.apply(&manifests).await;
    }

    /// A session with controllers, for the namespace of objects and for those that the arguments add.
    pub(crate) fn session(&self, arguments: &[&str]) -> Dev {
        self.session_of("ann", arguments)
    }

    /// The same under another owner's name.
    fn session_of(&self, owner: &str, arguments: &[&str]) -> Dev {
        let home: &[&str] = if arguments.contains(&"--namespace") { &[] } else { &["--namespace", &self.home] };
        // A restricted one is called for its own alone, and may not be told another.
        let restricted = arguments.contains(&"--restrict-to-namespace");
        let only: &[&str] = if restricted { &[] } else { &["--only-namespace", &self.team] };
        let arguments = [&["--controllers"], only, home, &TIMING, arguments].concat();
        Dev::start(ENTITIES, &self.ann.kubeconfig, owner, &arguments)
    }

    /// Makes an entity, and waits until somebody has greeted it.
    async fn greeted(&self, namespace: &str, name: &str) {
        let mut made: DynamicObject = entity(name);
        made.metadata.name = Some(name.to_owned());
        entities(self.cluster, namespace).create(&PostParams::default(), &made).await.unwrap();
        let maps = Api::<ConfigMap>::namespaced(self.cluster.admin(), namespace);
        wait_until("the greeting", PATIENCE, || async { maps.get_opt(name).await.unwrap() }).await;
        // The status is written after it, by the same.
        let entities = entities(self.cluster, namespace);
        wait_until("the status", PATIENCE, || async {
            entities.get(name).await.unwrap().data.get("status").is_some().then_some(())
        })
        .await;
    }

    /// The namespaces in which controllers of the session wrote since then.
    async fn written(&self, mark: Mark) -> Vec<String> {
        let mut found: Vec<String> = self
            .cluster
            .audit()
            .writes_by(&self.ann.name, mark)
            .await
            .into_iter()
            .filter(|event| matches!(event.resource.as_str(), "configmaps" | "entities"))
            .map(|event| event.namespace)
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// The Leases in a namespace, with their holders.
    pub(crate) async fn leases(&self, namespace: &str) -> Vec<(String, String)> {
        let leases =
            Api::<Lease>::namespaced(self.cluster.admin(), namespace).list(&ListParams::default()).await.unwrap();
        let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        leases.iter().map(|lease| (lease.name_any(), holder(lease).unwrap_or_default())).collect()
    }
}

// K6, D6
#[tokio::test]
async fn beside_an_installed_leader_a_session_waits_says_so_goes_on_when_there_is_room_and_makes_room_itself() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    let mut installed = place.installed(&[]);
    installed.says("leading: this replica runs the controllers").await;
    let mark = place.cluster.audit().mark();
    let mut session = place.session(&[]);
    session.open().await;
    session
        .says(&format!(
            "Controllers wait: entity-operator leads, by the Lease {0}/{LEADER}; to make room: kubectl -n {0} scale \
             deployment entity-operator --replicas=0",
            place.home
        ))
        .await;
    place.greeted(&place.team, "mary").await;
    assert_eq!(place.written(mark).await, [""; 0], "two operators wrote");

    installed.end("-TERM").await;
    session.says("Controllers run here: this session holds the Lease").await;
    let mark = place.cluster.audit().mark();
    place.greeted(&place.team, "jane").await;
    assert!(place.written(mark).await.contains(&place.team));

    // A replica that comes now waits in its turn, and need not wait for a lapse.
    let mut installed = place.installed(&[]);
    installed.says("the leases are known").await;
    session.end("-TERM").await;
    installed.says("leading: this replica runs the controllers").await;
    installed.end("-TERM").await;
    assert_eq!(
        place.leases(&place.home).await,
        [(LEADER.to_owned(), String::new())],
        "the installed operator's Lease stays"
    );
}

#[tokio::test]
async fn without_an_installed_operator_nothing_is_left_not_even_of_a_session_that_was_killed() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    for signal in ["-TERM", "-KILL", "-INT"] {
        let mut session = place.session(&[]);
        session.says("Controllers run here: this session holds the Lease").await;
        place.greeted(&place.team, &format!("mary{}", signal.to_lowercase())).await;
        if signal == "-KILL" {
            session.signal(signal).await;
            session.ended().await;
            assert_eq!(place.leases(&place.home).await.len(), 1);
        } else {
            let said = session.end(signal).await;
            assert!(said.contains(&format!("removed Lease {}/{LEADER}", place.home)), "{said}");
            assert_eq!(place.leases(&place.home).await, []);
        }
    }
}

// D7
#[tokio::test]
async fn a_session_keeps_to_the_namespaces_of_restricted_operators_and_a_restricted_one_says_which_is_its_own() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    let others = place.cluster.namespace("others").await;
    let restrict = ["--restrict-to-namespace", &place.team];
    place.hand_over().await;
    let mut restricted = place.installed(&restrict);
    restricted.says("leading: this replica runs the controllers").await;
    let mark = place.cluster.audit().mark();
    let mut wide = place.session(&["--only-namespace", &others]);
    wide.says("Controllers run here: this session holds the Lease").await;
    place.greeted(&others, "mary").await;
    place.greeted(&place.team, "mary").await;
    assert_eq!(place.written(mark).await, [others.as_str()]);

    // Its own replicas are those of the restricted operator.
    // Under another owner: a session of the same one takes the place of the first, which notices that in time.
    let mut narrow = place.session_of("narrow", &restrict);
    narrow.says(&format!("Controllers wait: entity-operator leads, by the Lease {}/{SCOPE}", place.team)).await;
    restricted.end("-TERM").await;
    narrow.says(&format!("Controllers run here: this session holds the Lease {}/{SCOPE}", place.team)).await;
    narrow.end("-TERM").await;
    wide.end("-TERM").await;
    assert_eq!(place.leases(&place.home).await, []);
    assert_eq!(place.leases(&place.team).await, [(SCOPE.to_owned(), String::new())]);
}

// A cluster that others use.
#[tokio::test]
async fn the_controllers_of_a_session_for_one_namespace_do_not_write_in_others() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    let others = place.cluster.namespace("others").await;
    // There before the session, so it is at the head of the queue of a controller that takes it up.
    entities(place.cluster, &others).create(&PostParams::default(), &entity("mary")).await.unwrap();
    let mark = place.cluster.audit().mark();
    let mut session = place.session(&[]);
    session
        .says("no controller reconciles objects in other namespaces while the controllers of this session lead")
        .await;
    session.says("Controllers run here: this session holds the Lease").await;
    place.greeted(&place.team, "mary").await;
    assert_eq!(place.written(mark).await, [place.team.as_str()]);
    session.end("-TERM").await;
}

// D6
#[tokio::test]
async fn a_session_of_another_installation_than_the_one_that_leads_waits_for_it_or_says_how_to() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    let mut installed = place.installed(&["--release", "first"]);
    installed.says("leading: this replica runs the controllers").await;
    let words = format!(
        "beside those of the installed operator in namespace {0}; to take turns with them, say \
         --leader-election-namespace {0}",
        place.home
    );
    let refused = place.session(&["--release", "nowhere", "--namespace", "nowhere"]).fails().await;
    assert!(refused.contains(&words), "{refused}");
    let refused = place.session(&["--restrict-to-namespace", "nowhere"]).fails().await;
    assert!(refused.contains("there is no namespace nowhere, which --restrict-to-namespace names"), "{refused}");

    let mut session = place.session(&[]);
    session.says(&format!("Controllers wait: first leads, by the Lease {}/{LEADER}", place.home)).await;
    installed.end("-TERM").await;
    session.says("Controllers run here: this session holds the Lease").await;
    session.end("-TERM").await;
}
