//! M3, M6: webhooks guard the workloads of both kinds alike.

use mcp_api::v1beta1::{MCPRemoteProxy, MCPServer};
use mcp_operator::{subject::Subject as _, workload::Workload};
use mcp_plan::workload::{ChildKind, ChildRef};
use serde_json::{Value, json};

use super::world::{World, checksum, child, condition, config, deployment, guards, is_absent, run_config};

/// Runs a check for each kind.
macro_rules! for_both_kinds {
    ($check:ident) => {
        $check::<MCPServer>();
        $check::<MCPRemoteProxy>();
    };
}

/// A workload called `fetch`, with these members in its spec.
pub(super) fn open<W: Workload>(change: &Value) -> World<W>
where
    W::Status: Clone,
{
    let kind = W::kind(&());
    let mut spec = if kind == "MCPServer" {
        json!({"image": "x:1", "transport": "streamable-http"})
    } else {
        json!({"remoteUrl": "https://mcp.example.com/mcp"})
    };
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    World::around(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind,
        "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3,
            "finalizers": ["mcpserver.toolhive.stacklok.dev/finalizer"]},
        "spec": spec,
    }))
}

fn webhooks(url: &str) -> Value {
    json!({"validating": [{"name": "policy", "url": url}]})
}

/// A workload behind the webhook configuration `gates`.
fn gated<W: Workload>() -> World<W>
where
    W::Status: Clone,
{
    let mut world = open(&json!({"webhookConfigRef": {"name": "gates"}}));
    world.has(config("gates", webhooks("https://policy/")));
    world
}

/// Changes members of the spec.
pub(super) fn edit<W: Workload>(world: &mut World<W>, change: &Value)
where
    W::Status: Clone,
{
    let mut workload = serde_json::to_value(&world.workload).unwrap();
    for (member, value) in change.as_object().unwrap() {
        workload["spec"][member] = value.clone();
    }
    world.workload = serde_json::from_value(workload).unwrap();
}

fn assert_nothing_runs<W: Workload>(world: &World<W>, why: &str)
where
    W::Status: Clone,
{
    let plan = world.plan();
    let (kind, status) = (W::kind(&()), serde_json::to_value(&plan.status).unwrap());
    assert!(plan.children.is_empty(), "{kind}, {why}: {:?}", plan.children);
    assert!(is_absent(&plan, ChildKind::Deployment, "fetch"), "{kind}, {why}");
    assert_eq!(status["phase"], "Failed", "{kind}, {why}");
    assert!(status["url"].is_null(), "{kind}, {why}");
}

fn assert_left_alone<W: Workload>(world: &World<W>, why: &str)
where
    W::Status: Clone,
{
    let plan = world.plan();
    let (kind, status) = (W::kind(&()), serde_json::to_value(&plan.status).unwrap());
    assert!(plan.children.is_empty() && plan.absent.is_empty(), "{kind}, {why}");
    assert_eq!(status["phase"], "Failed", "{kind}, {why}");
    assert!(status["message"].as_str().unwrap().ends_with("what runs already is left as it is"), "{kind}, {why}");
    assert!(status["url"].is_string(), "{kind}, {why}");
}

fn broken_configs<W: Workload>()
where
    W::Status: Clone,
{
    let webhook = |change: Value| {
        let mut webhook = json!({"name": "p", "url": "https://p/"});
        webhook.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        Some(config("gates", json!({"validating": [webhook]})))
    };
    let key = json!({"name": "s", "key": "k"});
    let cases = [
        (None, "WebhookConfigNotFound", "spec.webhookConfigRef: MCPWebhookConfig \"gates\" does not exist; create it"),
        (Some(config("gates", json!({}))), "WebhookConfigNotValid", "at least one validating or mutating webhook"),
        (webhook(json!({"url": "http://p/"})), "WebhookConfigNotValid", "spec.validating[0].url: "),
        (webhook(json!({"timeout": "1h"})), "WebhookConfigNotValid", "timeout 1h0m0s is out of range"),
        (webhook(json!({"tlsConfig": {"clientCertSecretRef": key}})), "WebhookConfigNotValid", "set both or neither"),
        (webhook(json!({"match": {"tools": ["a?"]}})), "WebhookConfigNotValid", "spec.validating[0].match.tools: "),
        (
            webhook(json!({"hmacSecretRef": key})),
            "WebhookSecretNotFound",
            "spec.validating[0].hmacSecretRef: Secret \"s\" does",
        ),
    ];
    for (found, reason, message) in cases {
        let mut world = gated::<W>();
        world.configs.clear();
        if let Some(config) = found {
            world.has(config);
        }
        assert_nothing_runs(&world, reason);
        let condition = condition(&world.plan(), "WebhookConfigValidated", "False").unwrap();
        assert!(condition.0 == reason && condition.1.contains(message), "{condition:?}");
    }
    let nameless = open::<W>(&json!({"webhookConfigRef": {"name": ""}}));
    assert_nothing_runs(&nameless, "a reference without a name still asks for a guard");
}

#[test]
fn without_its_webhook_config_a_new_workload_gets_no_proxy() {
    for_both_kinds!(broken_configs);
}

fn vanished_configs<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = gated::<W>();
    world.applied(&world.plan());
    world.configs.clear();
    assert_left_alone(&world, "config deleted by force");
    world.has(config("gates", webhooks("ftp://p/")));
    assert_left_alone(&world, "config edited into nonsense");
}

#[test]
fn a_gated_proxy_outlives_its_vanished_config() {
    for_both_kinds!(vanished_configs);
}

fn wished_gates<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = open::<W>(&json!({}));
    world.applied(&world.plan());
    assert!(deployment(&world.plan())["metadata"].get("annotations").is_none());
    edit(&mut world, &json!({"webhookConfigRef": {"name": "gates"}}));
    assert_nothing_runs(&world, "the wished-for gate does not exist");

    // It exists: the old pods go before the new ones come, since a rolling update could keep them for ever.
    world.has(config("gates", webhooks("https://policy/")));
    let first = world.plan();
    assert!(is_absent(&first, ChildKind::Deployment, "fetch"), "the ungated proxy goes");
    assert!(child(&first, ChildKind::Deployment, "fetch").is_none());
    world.applied(&first);
    let second = world.plan();
    assert!(!is_absent(&second, ChildKind::Deployment, "fetch"));
    assert!(run_config(&second).contains("validating-webhook") && deployment(&second).is_object());
}

#[test]
fn an_ungated_proxy_does_not_outlive_the_wish_for_a_gate() {
    for_both_kinds!(wished_gates);
}

fn switched_gates<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = gated::<W>();
    world.applied(&world.plan());
    edit(&mut world, &json!({"webhookConfigRef": {"name": "stricter"}}));
    world.configs.clear();
    assert_nothing_runs(&world, "the stricter gate does not exist");
    world.has(config("stricter", webhooks("https://q/")));
    assert!(is_absent(&world.plan(), ChildKind::Deployment, "fetch"));
}

#[test]
fn a_proxy_behind_another_config_does_not_outlive_the_switch() {
    for_both_kinds!(switched_gates);
}

fn edited_gates<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = gated::<W>();
    world.applied(&world.plan());
    let hash = serde_json::to_value(world.plan().status).unwrap()["webhookConfigHash"].clone();
    assert_eq!(hash, world.hash("MCPWebhookConfig", "gates"));
    let matched = json!({"name": "policy", "url": "https://new/", "match": {"tools": ["deploy_*"]}});
    world.has(config("gates", json!({"validating": [matched]})));
    let plan = world.plan();
    assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"));
    let document: Value = serde_json::from_str(run_config(&plan)).unwrap();
    let webhook = &document["validating_webhooks"][0];
    assert_eq!(webhook["url"], "https://new/");
    assert_eq!(webhook["portcullis"], json!({"match": {"tools": ["deploy_*"]}}));

    edit(&mut world, &json!({"webhookConfigRef": null}));
    let plan = world.plan();
    assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "a gate that is no longer asked for goes the same way");
    assert!(deployment(&plan)["metadata"].get("annotations").is_none());
}

#[test]
fn an_edit_of_the_config_rolls_the_proxy_without_a_gap() {
    for_both_kinds!(edited_gates);
}

fn enforced_shadows<W: Workload>()
where
    W::Status: Clone,
{
    let tried = json!({"name": "policy", "url": "https://policy/", "mode": "shadow"});
    let mut world = gated::<W>();
    world.has(config("gates", json!({"validating": [tried]})));
    let first = world.plan();
    let document: Value = serde_json::from_str(run_config(&first)).unwrap();
    assert_eq!(document["validating_webhooks"][0]["portcullis"], json!({"mode": "shadow"}));
    world.applied(&first);
    let (before, checksum_before) = (guards(&first).clone(), checksum(&first).to_owned());
    world.has(config("gates", webhooks("https://policy/")));
    let plan = world.plan();
    assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "nothing goes first");
    assert!(
        guards(&plan) != &before && checksum(&plan) != checksum_before,
        "it rolls, and pods of before are told apart"
    );
    world.applied(&plan);
    assert_eq!(checksum(&world.plan()), checksum(&plan), "once");
}

#[test]
fn a_shadow_becomes_a_webhook_that_decides_by_one_edit() {
    for_both_kinds!(enforced_shadows);
}

fn tried_secrets<W: Workload>()
where
    W::Status: Clone,
{
    let key = |key: &str| json!({"name": "s", "key": key});
    let tls = json!({"caSecretRef": key("ca"), "clientCertSecretRef": key("crt"), "clientKeySecretRef": key("key")});
    let webhook = json!({"name": "policy", "url": "https://policy/", "hmacSecretRef": key("k"), "tlsConfig": tls});
    let tried = |mode: &str| {
        let mut tried = webhook.clone();
        tried["mode"] = json!(mode);
        tried
    };
    let optional = |world: &World<W>| -> Vec<Value> {
        let plan = world.plan();
        let volumes = deployment(&plan)["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
        let secrets = volumes.into_iter().filter(|volume| volume["secret"]["secretName"] == "s");
        secrets.map(|mut volume| volume["secret"]["optional"].take()).collect()
    };
    let mut world = gated::<W>();
    world.has(config("gates", json!({"validating": [tried("shadow")]})));
    assert_eq!(optional(&world), vec![json!(true); 4], "pods start without it");
    let shadow = world.plan();
    assert!(condition(&shadow, "WebhookConfigValidated", "True").is_some());
    world.secret("s", "ca", "none");
    assert_eq!(deployment(&world.plan()), deployment(&shadow), "nor does anything depend on what is in it");
    world.applied(&shadow);
    world.has(config("gates", json!({"validating": [tried("enforce")]})));
    assert_left_alone(&world, "a webhook that decides needs its Secret");
    let (reason, _) = condition(&world.plan(), "WebhookConfigValidated", "False").unwrap();
    assert_eq!(reason, "WebhookSecretNotFound");
    // Either way is one for itself, also under one name.
    let mut keyed = json!({"name": "policy", "url": "https://policy/", "hmacSecretRef": key("k")});
    let enforced = keyed.clone();
    keyed["mode"] = json!("shadow");
    world.secret("s", "k", "key");
    world.has(config("gates", json!({"validating": [enforced, keyed]})));
    assert_eq!(optional(&world).iter().filter(|optional| optional.is_null()).count(), 1);
    let warnings: Vec<_> = config("gates", json!({"validating": [tried("shadow")]})).references();
    assert_eq!(warnings.len(), 4);
    assert!(warnings.iter().all(|it| it.warning().ends_with("until it does, calls of this shadow fail")));
}

#[test]
fn a_shadow_without_its_secret_takes_no_proxy_down() {
    for_both_kinds!(tried_secrets);
}

fn images_without_selectors<W: Workload>()
where
    W::Status: Clone,
{
    let webhook = |more: Value| {
        let mut webhook = json!({"name": "policy", "url": "https://policy/"});
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config("gates", json!({"validating": [{"name": "first", "url": "https://first/"}, webhook]}))
    };
    for (more, field) in [
        (json!({}), None),
        (json!({"match": {}}), None),
        (json!({"mode": "enforce"}), None),
        (json!({"match": {"tools": ["a"]}}), Some("spec.validating[1].match: ")),
        (json!({"mode": "shadow"}), Some("spec.validating[1].mode: ")),
    ] {
        let mut world = gated::<W>();
        world.settings.runner_middleware.retain(|ability| ability != "webhook-match");
        world.applied(&world.plan());
        world.has(webhook(more.clone()));
        let plan = world.plan();
        let Some(field) = field else {
            assert!(run_config(&plan).contains("https://first/"), "{more}");
            continue;
        };
        let (reason, message) = condition(&plan, "WebhookConfigValidated", "False").unwrap();
        assert!(reason == "WebhookConfigNotValid" && message.contains(field), "{message}");
        assert!(message.contains("--runner-image"), "{message}");
        assert_left_alone(&world, "pods that ask about everything would be no shadows");
        world.settings.runner_middleware.push("webhook-match".to_owned());
        assert!(run_config(&world.plan()).contains("portcullis"), "{more}");
    }
}

#[test]
fn an_image_without_selectors_gets_no_config_that_has_them() {
    for_both_kinds!(images_without_selectors);
}

fn broken_specs<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = gated::<W>();
    world.applied(&world.plan());
    edit(&mut world, &json!({"image": "", "remoteUrl": "ftp://x"}));
    assert_left_alone(&world, "the guard is the one asked for");
    world.has(config("gates", webhooks("https://new/")));
    let plan = world.plan();
    assert!(plan.children.is_empty(), "the new webhook cannot be put in place");
    assert_eq!(plan.absent, [ChildRef::new(ChildKind::Deployment, "fetch")], "what runs behind it does no wrong");
    world.applied(&plan);
    assert_eq!(world.plan().absent, [], "nor does it later");
}

#[test]
fn a_stricter_config_beside_a_broken_spec_leaves_no_laxer_proxy() {
    for_both_kinds!(broken_specs);
}

fn forged_gates<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = gated::<W>();
    let forged = json!({"proxyDeployment": {"annotations": {"toolhive.stacklok.dev/webhook-config": "gates/forged"}}});
    edit(&mut world, &json!({"resourceOverrides": forged}));
    let plan = world.plan();
    let annotations = &deployment(&plan)["metadata"]["annotations"];
    let gate = annotations["toolhive.stacklok.dev/webhook-config"].as_str().unwrap();
    assert!(gate.starts_with("gates/") && gate != "gates/forged", "{gate}");

    // Without a gate there is nothing to say, and what the user says there counts for nothing.
    edit(&mut world, &json!({"webhookConfigRef": null}));
    assert!(deployment(&world.plan())["metadata"].get("annotations").is_none());
}

#[test]
fn users_cannot_forge_the_gate_of_their_proxy() {
    for_both_kinds!(forged_gates);
}
