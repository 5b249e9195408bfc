//! At no moment does an unguarded pod serve a server that asks for a guard, and at no moment does the status call a
//! policy enforced that a serving pod does not have. Every write of the API server during a change is looked at.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use mcp_plan::workload::ChildKind;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Operator, Place,
    recorder::{
        Guarded::{self, RemoteProxy, Server},
        Moment, Recorder,
    },
    support::{DEADLINE, labelled, minimal, oidc_config, remote_proxy, webhook_config},
};

const GUARDS: &str = "toolhive.stacklok.dev/guards";
const WEBHOOK_CONFIG: &str = "toolhive.stacklok.dev/webhook-config";
const CRASHES: &str = "CrashLoopBackOff";

/// The kinds of workloads that webhooks guard.
pub(super) const BOTH: [Guarded; 2] = [Server, RemoteProxy];

/// The workload `web` of a kind.
pub(super) fn workload(guarded: Guarded, spec: Value) -> Value {
    named(guarded, "web", spec)
}

pub(super) fn named(guarded: Guarded, name: &str, spec: Value) -> Value {
    if guarded == Server { labelled(name, spec) } else { remote_proxy(name, spec) }
}

pub(super) async fn place(guarded: Guarded, prefix: &str) -> Place {
    Place::new(&format!("{prefix}-{}", guarded.kind().to_lowercase())).await
}

/// Changes members of its spec.
pub(super) async fn edit(place: &Place, guarded: Guarded, spec: Value) {
    let edit = json!({"spec": spec});
    place.objects.merge("toolhive.stacklok.dev/v1beta1", guarded.kind(), "web", edit).await;
}

/// The guards that a pod, or what a template makes, says it has.
fn guards(metadata: &Value) -> &str {
    metadata["annotations"][GUARDS].as_str().unwrap_or_default()
}

fn enforced(server: &Value) -> Option<&Value> {
    let conditions = server["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "GuardsEnforced")
}

/// Plays the node for every proxy's pod of a kind: `state` says of each, by its guards, whether it becomes ready or crashes. What runs
/// behind the proxies does.
async fn play(objects: &super::Objects, guarded: Guarded, state: impl Fn(&str) -> bool) {
    let pods: Api<Pod> = objects.api();
    let proxies = pods.list(&guarded.pods()).await.unwrap().into_iter().map(|pod| (pod, false));
    let servers = pods.list(&ListParams::default().labels("toolhive-basename")).await.unwrap();
    for (pod, is_server) in proxies.chain(servers.into_iter().map(|pod| (pod, true))) {
        let name = pod.metadata.name.clone().unwrap();
        let pod = serde_json::to_value(pod).unwrap();
        let ready = is_server || state(guards(&pod["metadata"]));
        let played = pod["status"]["containerStatuses"][0]["ready"].as_bool();
        if played == Some(ready) {
            continue;
        }
        let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{
                "type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "containerStatuses": [{
                "name": "toolhive", "ready": ready, "restartCount": 0, "image": "i", "imageID": "i", "started": ready,
                "state": if ready { running } else { json!({"waiting": {"reason": CRASHES}}) },
            }],
        }});
        // It may have gone meanwhile.
        let played = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
        assert!(played.is_ok() || pods.get_opt(&name).await.unwrap().is_none(), "{played:?}");
    }
}

/// Plays the node until the status of the workload `web` fulfils `condition`.
pub(super) async fn until(
    place: &Place,
    guarded: Guarded,
    what: &str,
    state: impl Fn(&str) -> bool,
    condition: impl Fn(&Value) -> bool,
) -> Value {
    wait_until(what, DEADLINE, || async {
        play(&place.objects, guarded, &state).await;
        let workload = serde_json::to_value(guarded.api(&place.objects).get("web").await.unwrap()).unwrap();
        let observed = &workload["status"]["observedGeneration"];
        (*observed == workload["metadata"]["generation"] && condition(&workload)).then_some(workload)
    })
    .await
}

pub(super) fn is_ready(workload: &Value) -> bool {
    workload["status"]["phase"] == "Ready"
}

pub(super) fn says_enforced(workload: &Value) -> bool {
    enforced(workload).is_some_and(|condition| condition["status"] == "True")
}

/// A gated workload whose proxy serves, and its status.
async fn serving(place: &Place, guarded: Guarded) -> Value {
    place.objects.create(webhook_config("gate", json!({}))).await;
    place.objects.create(workload(guarded, json!({"webhookConfigRef": {"name": "gate"}}))).await;
    until(place, guarded, "the guard to be enforced", |_| true, says_enforced).await
}

/// What holds at every moment, whatever changes:
///
/// - where the status says `GuardsEnforced=True`, every pod that serves was made with the guard that the status names by
///   its hash (the status follows the pods: when the last one has just gone, none serves);
/// - a pod that lacks a guard which the Deployment's template has never serves beside that template.
pub(super) fn always(moments: &[Moment]) {
    for (at, moment) in moments.iter().enumerate() {
        let Some(server) = moment.workload("web") else { continue };
        let pods = moment.serving();
        if enforced(server).is_some_and(|condition| condition["status"] == "True") {
            let hash = ["webhookConfigHash", "oidcConfigHash", "authzConfigHash"]
                .iter()
                .find_map(|it| server["status"][it].as_str());
            let hash = hash.expect("what is enforced has a hash");
            for pod in &pods {
                let named = guards(&pod["metadata"]).split('/').nth(2) == Some(hash);
                assert!(named, "moment {at}: the status says {hash}, a pod that serves has {}", pod["metadata"]);
            }
        }
        let template = moment.deployment("web").map(|live| &live["spec"]["template"]["metadata"]);
        let asked = template.map(guards).unwrap_or_default();
        if asked.is_empty() {
            continue;
        }
        let guard = |digest: &str| digest.match_indices('/').nth(1).map(|(end, _)| digest[..end].to_owned());
        for pod in &pods {
            let had = guard(guards(&pod["metadata"]));
            // A version before the digest says it on the Deployment; what it made goes on until it is replaced.
            let older =
                moment.deployment("web").is_some_and(|live| live["metadata"]["annotations"]["upgraded"] == "yes");
            assert!(had == guard(asked) || older && had.is_none(), "moment {at}: {asked} asked for, {had:?} serves");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_edit_that_new_pods_cannot_start_with_is_never_called_enforced() {
    for guarded in BOTH {
        let place = place(guarded, "failed-rollout").await;
        let operator = place.operator();
        let before = serving(&place, guarded).await;
        let recorder = Recorder::start(&place.objects, guarded).await;
        let old =
            guards(&place.objects.get(ChildKind::Deployment, "web").await["spec"]["template"]["metadata"]).to_owned();
        let edit = json!({"spec": {"validating": [{"name": "policy", "url": "https://other.example.svc/check"}]}});
        place.objects.merge("toolhive.stacklok.dev/v1alpha1", "MCPWebhookConfig", "gate", edit).await;

        let failed = |server: &Value| {
            let message = server["status"]["message"].as_str();
            message.is_some_and(|message| message.ends_with("new pods fail: CrashLoopBackOff"))
        };
        let server = until(&place, guarded, "the failed rollout to be told", |digest| digest == old, failed).await;
        let hash = &before["status"]["webhookConfigHash"];
        assert_eq!(&server["status"]["webhookConfigHash"], hash, "of what serves");
        let condition = enforced(&server).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("PolicyOutdated")));
        assert_eq!(server["status"]["phase"], "Ready", "the old proxy serves");
        let config = place.objects.configs().get("gate").await.unwrap().status.unwrap();
        assert_ne!(json!(config.config_hash), *hash, "the configuration itself is valid and says so");
        operator.idle(place.cluster).await;
        let told = place.objects.events(guarded.kind(), "web").await;
        assert_eq!(told.iter().filter(|event| *event == "Warning RolloutFailed").count(), 1, "{told:?}");

        let server = until(&place, guarded, "the new policy to be enforced", |_| true, says_enforced).await;
        assert_eq!(server["status"]["webhookConfigHash"], json!(config.config_hash));
        let moments = recorder.moments().await;
        always(&moments);
        assert!(moments.iter().all(|moment| !moment.serving().is_empty()), "there is no gap");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_guard_is_never_called_enforced_while_a_pod_without_it_serves() {
    for guarded in BOTH {
        let place = place(guarded, "guard-added").await;
        let _operator = place.operator();
        place.objects.create(webhook_config("gate", json!({}))).await;
        place.objects.create(workload(guarded, json!({}))).await;
        until(&place, guarded, "the proxy to serve", |_| true, is_ready).await;
        let recorder = Recorder::start(&place.objects, guarded).await;
        edit(&place, guarded, json!({"webhookConfigRef": {"name": "gate"}})).await;
        until(&place, guarded, "the guard to be enforced", |_| true, says_enforced).await;
        let moments = recorder.moments().await;
        always(&moments);
        removed_first(&moments);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_added_to_a_server_never_stands_beside_a_pod_that_anybody_may_call() {
    let place = Place::new("login-added").await;
    login_added(&place, Server, minimal("web")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_added_to_a_remote_proxy_never_stands_beside_a_pod_that_anybody_may_call() {
    let place = Place::new("login-added-remote").await;
    login_added(&place, RemoteProxy, remote_proxy("web", json!({}))).await;
}

async fn login_added(place: &Place, guarded: Guarded, open: Value) {
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(oidc_config("idp", json!({}))).await;
    objects.create(open).await;
    until(place, guarded, "the proxy to serve", |_| true, is_ready).await;
    let edit = async |login: Value| {
        let edit = json!({"spec": {"oidcConfigRef": login}});
        objects.merge("toolhive.stacklok.dev/v1beta1", guarded.kind(), "web", edit).await;
    };
    let recorder = Recorder::start(objects, guarded).await;
    edit(json!({"name": "idp", "audience": "web"})).await;
    until(place, guarded, "the login to be enforced", |_| true, says_enforced).await;
    let moments = recorder.moments().await;
    always(&moments);
    removed_first(&moments);

    let recorder = Recorder::start(objects, guarded).await;
    edit(json!({"audience": "other"})).await;
    until(place, guarded, "the audience to be enforced", |_| true, says_enforced).await;
    let moments = recorder.moments().await;
    always(&moments);
    assert!(moments.iter().all(|moment| !moment.serving().is_empty()), "there is no gap");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_changed_for_another_is_never_called_enforced_while_a_pod_without_it_serves() {
    for guarded in BOTH {
        let place = place(guarded, "guard-changed").await;
        let _operator = place.operator();
        place.objects.create(webhook_config("gate", json!({}))).await;
        place.objects.create(workload(guarded, json!({"webhookConfigRef": {"name": "gate"}}))).await;
        until(&place, guarded, "the guard to be enforced", |_| true, says_enforced).await;
        place.objects.create(webhook_config("stricter", json!({"url": "https://stricter.example.svc/"}))).await;
        let recorder = Recorder::start(&place.objects, guarded).await;
        edit(&place, guarded, json!({"webhookConfigRef": {"name": "stricter"}})).await;
        until(&place, guarded, "the guard to be enforced", |_| true, says_enforced).await;
        let moments = recorder.moments().await;
        always(&moments);
        removed_first(&moments);
    }
}

/// The old Deployment went with its pods before the new one came, and no pod without the guard serves after that.
pub(super) fn removed_first(moments: &[Moment]) {
    let uid = |moment: &Moment| moment.deployment("web").map(|live| live["metadata"]["uid"].clone());
    let (first, last) = (uid(&moments[0]).unwrap(), uid(moments.last().unwrap()).unwrap());
    assert_ne!(first, last, "made anew");
    let digest = guards(&moments.last().unwrap().deployment("web").unwrap()["spec"]["template"]["metadata"]);
    assert!(!digest.is_empty());
    // The status may come later, when the new one is there already.
    let asked = moments.iter().position(|moment| moment.deployment("web").is_none());
    let asked = asked.expect("between the two there is none");
    for (at, moment) in moments.iter().enumerate() {
        let serving = moment.serving();
        let with = serving.iter().filter(|pod| guards(&pod["metadata"]) == digest).count();
        assert!(with == 0 || with == serving.len(), "moment {at}: guarded and unguarded pods serve side by side");
        assert!(at < asked || with == serving.len(), "moment {at}: an unguarded pod serves");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_guard_rolls_the_proxy_and_is_not_spoken_of_any_more() {
    for guarded in BOTH {
        let place = place(guarded, "guard-removed").await;
        let _operator = place.operator();
        serving(&place, guarded).await;
        let recorder = Recorder::start(&place.objects, guarded).await;
        edit(&place, guarded, json!({"webhookConfigRef": null})).await;
        let rolled = |server: &Value| is_ready(server) && server["status"]["webhookConfigHash"].is_null();
        until(&place, guarded, "the proxy to roll", |_| true, rolled).await;
        let without_guard = |deployment: &Value| {
            let (at, template) = (&deployment["metadata"], &deployment["spec"]["template"]["metadata"]);
            guards(template).is_empty() && at["annotations"].get(WEBHOOK_CONFIG).is_none()
        };
        place.objects.child(ChildKind::Deployment, "web", "to lose the guard", without_guard).await;
        let pods: Api<Pod> = place.objects.api();
        wait_until("only pods without the guard to serve", DEADLINE, || async {
            play(&place.objects, guarded, |_| true).await;
            let all = pods.list(&guarded.pods()).await.unwrap();
            let all: Vec<_> = all.into_iter().map(|pod| serde_json::to_value(pod).unwrap()).collect();
            all.iter().all(|pod| guards(&pod["metadata"]).is_empty()).then_some(())
        })
        .await;
        let moments = recorder.moments().await;
        always(&moments);
        let uid = |moment: &Moment| moment.deployment("web").map(|live| live["metadata"]["uid"].clone());
        assert!(moments.iter().all(|moment| uid(moment) == uid(&moments[0])), "it rolls");
        assert!(moments.iter().all(|moment| !moment.serving().is_empty()), "there is no gap");
        assert_eq!(enforced(moments.last().unwrap().workload("web").unwrap()), None);
    }
}

/// As the version before the digest left a gated server: only the Deployment's annotation names the configuration.
async fn before_the_digest(place: &Place) {
    let strip = json!({
        "metadata": {"annotations": {"upgraded": "yes"}},
        "spec": {"template": {"metadata": {"annotations": {GUARDS: null}}}},
    });
    place.objects.merge("apps/v1", "Deployment", "web", strip).await;
    let pods: Api<Pod> = place.objects.api();
    wait_until("pods without the digest alone", DEADLINE, || async {
        play(&place.objects, Server, |_| true).await;
        let all = pods.list(&Server.pods()).await.unwrap();
        let all: Vec<_> = all.into_iter().map(|pod| serde_json::to_value(pod).unwrap()).collect();
        (all.len() == 1 && guards(&all[0]["metadata"]).is_empty()).then_some(())
    })
    .await;
    // It knew no such condition where every guard is one that it can enforce.
    let server = serde_json::to_value(place.objects.servers().get("web").await.unwrap()).unwrap();
    let conditions = server["status"]["conditions"].as_array().unwrap().iter();
    let kept: Vec<_> = conditions.filter(|condition| condition["type"] != "GuardsEnforced").collect();
    let status = json!({"status": {"conditions": kept}});
    place.objects.servers().patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_rolls_a_guarded_proxy_once_and_takes_nothing_down() {
    let place = Place::new("upgrade").await;
    let operator = place.operator();
    let before = serving(&place, Server).await;
    operator.kill().await;
    before_the_digest(&place).await;
    let recorder = Recorder::start(&place.objects, Server).await;
    let operator: Operator = place.operator();
    operator.reconciles().await;

    let server = until(&place, Server, "the guard to be enforced", |_| true, says_enforced).await;
    assert_eq!(server["status"]["webhookConfigHash"], before["status"]["webhookConfigHash"]);
    operator.idle(place.cluster).await;
    let moments = recorder.moments().await;
    always(&moments);
    let all: Vec<&Value> = moments.iter().map(|moment| moment.deployment("web").expect("it stays")).collect();
    let generations: std::collections::BTreeSet<_> =
        all.iter().map(|live| live["metadata"]["generation"].as_i64().unwrap()).collect();
    assert_eq!(generations.len(), 2, "it rolls once: {generations:?}");
    for (live, moment) in all.iter().zip(&moments) {
        assert_eq!(live["metadata"]["uid"], all[0]["metadata"]["uid"], "the same Deployment");
        assert!(live["metadata"]["deletionTimestamp"].is_null());
        assert!(!moment.serving().is_empty(), "there is no gap");
    }
    assert!(!guards(&all.last().unwrap()["spec"]["template"]["metadata"]).is_empty());
    drop(operator);
}
