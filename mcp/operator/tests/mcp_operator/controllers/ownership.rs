//! O2, O3, O5: a configuration's status is its own controller's. What happens to workloads leaves it alone, and whoever else
//! says something in it is not overwritten.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::TryStreamExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Map, Value, json};

use super::{
    Place,
    support::{
        DEADLINE, Objects, Operator, authz_config, external_auth_config, labelled, manager, oidc_config, remote_proxy,
        requests, telemetry_config, tool_config, virtual_server, webhook_config,
    },
};

const BETA: &str = "toolhive.stacklok.dev/v1beta1";
const ALPHA: &str = "toolhive.stacklok.dev/v1alpha1";

/// A kind of configuration, one of it, and the member of a workload's spec that refers to it.
fn kinds() -> Vec<(&'static str, Value, &'static str, Value)> {
    vec![
        (BETA, oidc_config("config", json!({})), "oidcConfigRef", json!({"name": "config", "audience": "a"})),
        (
            BETA,
            authz_config("config", &["permit(principal, action, resource);"]),
            "authzConfigRef",
            json!({"name": "config"}),
        ),
        (
            BETA,
            external_auth_config("config", json!({"type": "unauthenticated"})),
            "externalAuthConfigRef",
            json!({"name": "config"}),
        ),
        (BETA, telemetry_config("config", json!({})), "telemetryConfigRef", json!({"name": "config"})),
        (BETA, tool_config("config", json!({"toolsFilter": ["a"]})), "toolConfigRef", json!({"name": "config"})),
        (ALPHA, webhook_config("config", json!({})), "webhookConfigRef", json!({"name": "config"})),
    ]
}

/// The outgoing authentication of a virtual server that uses this credential.
fn credential_of_virtual(name: &str) -> Value {
    json!({"default": {"type": "externalAuthConfigRef", "externalAuthConfigRef": {"name": name}}})
}

async fn read(place: &Place, version: &str, kind: &str) -> Value {
    let object = place.objects.dynamic(version, kind).get("config").await.unwrap();
    serde_json::to_value(object).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconcile_of_a_workload_leaves_every_kind_of_configuration_untouched() {
    let place = Place::new("own-status").await;
    let operator = place.operator();
    let objects = &place.objects;
    let (mut server, mut remote) = (json!({"replicas": 0, "backendReplicas": 0}), json!({"replicas": 0}));
    for (_, config, field, reference) in kinds() {
        objects.create(config).await;
        remote[field] = reference.clone();
        server[field] = reference;
    }
    let mut all = virtual_server("all", "config", "config");
    all["spec"]["telemetryConfigRef"] = json!({"name": "config"});
    all["spec"]["incomingAuth"]["authzConfigRef"] = json!({"name": "config"});
    all["spec"]["outgoingAuth"] = credential_of_virtual("config");
    objects.create(all).await;
    objects.create(labelled("web", server)).await;
    objects.create(remote_proxy("far", remote)).await;
    objects.phase("web", "Stopped").await;
    objects.child(ChildKind::Deployment, "far", "to be there", |it| !it.is_null()).await;
    operator.idle(place.cluster).await;
    let mut before = Vec::new();
    for (version, config, ..) in kinds() {
        before.push(read(&place, version, config["kind"].as_str().unwrap()).await);
    }
    for config in &before {
        // A virtual server has no webhooks.
        let (status, is_webhooks) = (config["status"].to_string(), config["kind"] == "MCPWebhookConfig");
        let listed = ["\"web\"", "\"far\"", "\"all\""].map(|name| status.contains(name));
        assert_eq!(listed, [true, true, !is_webhooks], "it is referred to: {config}");
    }
    let since = place.cluster.audit().mark();
    // A spec that is edited, one that breaks a rule, a restart that is asked for, and children that go.
    objects.edit("web", json!({"args": ["--other"]})).await;
    objects.edit("web", json!({"env": [{"name": "A=B", "value": "1"}]})).await;
    objects.phase("web", "Failed").await;
    objects.edit("web", json!({"env": null})).await;
    let restart = json!({"metadata": {"annotations": {
        "mcpserver.toolhive.stacklok.dev/restarted-at": "2026-11-21T00:00:00Z",
    }}});
    objects.merge(BETA, "MCPServer", "web", restart).await;
    objects.phase("web", "Stopped").await;
    objects.merge(BETA, "MCPRemoteProxy", "far", json!({"spec": {"proxyPort": 8090}})).await;
    objects.merge(BETA, "MCPRemoteProxy", "far", json!({"spec": {"proxyPort": 8091, "endpointPrefix": "/x"}})).await;
    objects.merge(BETA, "VirtualMCPServer", "all", json!({"spec": {"groupRef": {"name": "other"}}})).await;
    for name in ["web", "far"] {
        let uid = objects.get(ChildKind::Deployment, name).await["metadata"]["uid"].clone();
        objects.children(ChildKind::Deployment).delete(name, &DeleteParams::default()).await.unwrap();
        let back = |it: &Value| !it.is_null() && it["metadata"]["uid"] != uid;
        objects.child(ChildKind::Deployment, name, "to be back", back).await;
    }
    operator.idle(place.cluster).await;
    for (before, (version, config, ..)) in before.iter().zip(kinds()) {
        let after = read(&place, version, config["kind"].as_str().unwrap()).await;
        assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "{}", config["kind"]);
        assert_eq!(after["status"], before["status"], "{}", config["kind"]);
    }
    let written = requests(place.cluster, &place.user, since).await;
    let to_configs: Vec<_> = written.iter().filter(|event| event.resource.ends_with("configs")).collect();
    assert!(to_configs.is_empty(), "{to_configs:?}");
}

/// A workload of this kind that refers to the configuration of its own name and to no other that exists; none where the kind
/// has no such reference.
fn referring(kind: &str, name: &str, field: &str, mut reference: Value) -> Option<Value> {
    reference["name"] = json!(name);
    match (kind, field) {
        ("MCPServer", _) => Some(labelled(name, json!({"replicas": 0, "backendReplicas": 0, field: reference}))),
        ("MCPRemoteProxy", _) => Some(remote_proxy(name, json!({"replicas": 0, field: reference}))),
        ("VirtualMCPServer", "webhookConfigRef") => None,
        ("VirtualMCPServer", "oidcConfigRef") => Some(virtual_server(name, name, "absent")),
        ("VirtualMCPServer", "authzConfigRef") => {
            let mut server = virtual_server(name, "absent", "absent");
            server["spec"]["incomingAuth"][field] = reference;
            Some(server)
        }
        ("VirtualMCPServer", "externalAuthConfigRef") => {
            let mut server = virtual_server(name, "absent", "absent");
            server["spec"]["outgoingAuth"] = credential_of_virtual(name);
            Some(server)
        }
        ("VirtualMCPServer", "telemetryConfigRef") => {
            let mut server = virtual_server(name, "absent", "absent");
            server["spec"][field] = reference;
            Some(server)
        }
        ("VirtualMCPServer", _) => Some(virtual_server(name, "absent", name)),
        _ => unreachable!("{kind} is no kind of workload"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reconcile_of_any_kind_of_workload_touches_any_kind_of_configuration() {
    let place = Place::new("own-pairs").await;
    let operator = place.operator();
    let objects = &place.objects;
    let edits = [
        ("MCPServer", json!({"args": ["--other"]})),
        ("MCPRemoteProxy", json!({"proxyPort": 8090})),
        ("VirtualMCPServer", json!({"groupRef": {"name": "other"}})),
    ];
    let mut pairs = Vec::new();
    for (version, mut config, field, reference) in kinds() {
        let config_kind = config["kind"].as_str().unwrap().to_owned();
        for (kind, edit) in &edits {
            let name = format!("{config_kind}-{kind}").to_lowercase();
            let Some(workload) = referring(kind, &name, field, reference.clone()) else { continue };
            config["metadata"]["name"] = json!(name);
            objects.create(config.clone()).await;
            objects.create(workload).await;
            pairs.push((name, objects.dynamic(version, &config_kind), *kind, edit));
        }
    }
    assert_eq!(pairs.len(), 17, "each kind that a kind of workload can refer to");
    let told = |config: &DynamicObject, name: &str| {
        let status = &config.data["status"];
        status["conditions"].is_array() && status["configHash"].is_string() && status.to_string().contains(name)
    };
    for (name, configs, ..) in &pairs {
        wait_for_object(configs, name, "its workload in its status", DEADLINE, |config| told(config, name)).await;
    }
    operator.idle(place.cluster).await;
    let mut before = Vec::new();
    for (name, configs, ..) in &pairs {
        before.push(configs.get(name).await.unwrap());
    }
    for (name, _, kind, edit) in &pairs {
        objects.merge(BETA, kind, name, json!({"spec": edit})).await;
    }
    for (name, _, kind, _) in &pairs {
        wait_for_object(&objects.dynamic(BETA, kind), name, "its edit to be seen", DEADLINE, |workload| {
            workload.metadata.generation > Some(1)
                && workload.data["status"]["observedGeneration"].as_i64() == workload.metadata.generation
        })
        .await;
    }
    operator.idle(place.cluster).await;
    for (before, (name, configs, ..)) in before.iter().zip(&pairs) {
        let after = configs.get(name).await.unwrap();
        assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "{name}");
        assert_eq!(after.data["status"], before.data["status"], "{name}");
    }
}

/// The members of the status, and the types of its conditions, that `manager` holds by server-side apply; nothing where it
/// holds none.
fn held(object: &DynamicObject, manager: &str) -> Option<(Vec<String>, Vec<String>)> {
    let mut entries = object.metadata.managed_fields.iter().flatten();
    let entry = entries.find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && (entry.operation.as_deref(), entry.subresource.as_deref()) == (Some("Apply"), Some("status"))
    })?;
    let fields = serde_json::to_value(&entry.fields_v1).unwrap();
    let keys = |value: &Value, prefix: &str| -> Vec<String> {
        let keys = value.as_object().into_iter().flatten().filter_map(|(key, _)| key.strip_prefix(prefix));
        keys.map(str::to_owned).collect()
    };
    let conditions = keys(&fields["f:status"]["f:conditions"], "k:");
    let types =
        conditions.iter().map(|key| serde_json::from_str::<Value>(key).unwrap()["type"].as_str().unwrap().to_owned());
    Some((keys(&fields["f:status"], "f:"), types.collect()))
}

/// What a reconcile finds, what the validators find where no webhook asks them, and the finalizer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_concern_of_a_controller_holds_its_own_fields_under_a_field_manager_of_its_own() {
    let place = Place::new("own-managers").await;
    let flags = ["--watch-namespace", place.namespace(), "--webhooks", "off"];
    let operator = Operator::start_with(&place.user, place.namespace(), &flags);
    let objects = &place.objects;
    for (_, config, ..) in kinds() {
        objects.create(config).await;
    }
    let spec: Map<String, Value> =
        kinds().into_iter().map(|(_, _, field, reference)| (field.to_owned(), reference)).collect();
    objects.create(labelled("config", Value::Object(spec))).await;
    objects.phase("config", "Pending").await;
    operator.idle(place.cluster).await;
    let kinds = kinds().into_iter().map(|(version, config, ..)| (version, config["kind"].as_str().unwrap().to_owned()));
    let kinds: Vec<_> = kinds.chain([(BETA, "MCPServer".to_owned())]).collect();
    for (version, kind) in &kinds {
        let object = objects.dynamic(version, kind).get("config").await.unwrap();
        let manager = |concern: &str| format!("portcullis-{}-{concern}", kind.to_lowercase());
        let (members, types) = held(&object, &manager("status")).unwrap();
        let hash = if kind == "MCPServer" { "oidcConfigHash" } else { "configHash" };
        for member in ["conditions", "observedGeneration", hash] {
            // Of a configuration the one condition is the validators'.
            let held = members.iter().any(|held| held == member);
            assert_eq!(held, member != "conditions" || kind == "MCPServer", "{kind} {member}: {members:?}");
        }
        assert!(!types.iter().any(|it| it == "Valid"), "{kind}: {types:?}");
        let verdict = held(&object, &manager("validity")).unwrap();
        assert_eq!(verdict, (vec!["conditions".to_owned()], vec!["Valid".to_owned()]), "{kind}");
        let mut managers: Vec<_> =
            object.metadata.managed_fields.iter().flatten().filter_map(|it| it.manager.clone()).collect();
        managers.retain(|manager| manager.starts_with("portcullis-"));
        managers.sort();
        assert_eq!(managers, ["finalizers", "status", "validity"].map(manager), "{kind}");
    }
    operator.terminate().await;

    // With webhooks nothing is left of what the validators said, and the reconcile says what is its own to say.
    let _operator = place.operator();
    for (version, kind) in &kinds {
        let manager = |concern: &str| format!("portcullis-{}-{concern}", kind.to_lowercase());
        let api = objects.dynamic(version, kind);
        wait_for_object(&api, "config", "nothing of the validators", DEADLINE, |object| {
            let (_, types) = held(object, &manager("status")).unwrap();
            held(object, &manager("validity")).is_none_or(|left| left == Default::default())
                && types.iter().any(|it| it == "Valid") == (kind != "MCPServer")
        })
        .await;
    }
}

/// Every condition that a configuration shows at any moment, as a watch sees it.
async fn watch_conditions(place: &Place, seen: Arc<AtomicUsize>) -> Result<Infallible, String> {
    let api = place.objects.dynamic(BETA, "MCPOIDCConfig");
    let mut version = api.get("config").await.unwrap().metadata.resource_version.unwrap();
    // The API server ends each watch after some minutes.
    loop {
        let mut events = Box::pin(api.watch(&WatchParams::default(), &version).await.unwrap());
        while let Some(event) = events.try_next().await.map_err(|error| error.to_string())? {
            let config: DynamicObject = match event {
                WatchEvent::Added(config) | WatchEvent::Modified(config) => config,
                WatchEvent::Error(error) => return Err(format!("{error:?}")),
                _ => continue,
            };
            let mut types: Vec<_> = config.data["status"]["conditions"].as_array().into_iter().flatten().collect();
            types.retain(|condition| ["Valid", "example.com/Audited"].contains(&condition["type"].as_str().unwrap()));
            if types.len() != 2 {
                return Err(format!("a condition is lost: {}", config.data["status"]));
            }
            version = config.metadata.resource_version.unwrap();
            seen.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The workloads that refer to the login, as its status lists them.
async fn referrers(objects: &Objects) -> Vec<Value> {
    let kinds = [
        ("MCPRemoteProxy", "/spec/oidcConfigRef"),
        ("MCPServer", "/spec/oidcConfigRef"),
        ("VirtualMCPServer", "/spec/incomingAuth/oidcConfigRef"),
    ];
    let mut named = Vec::new();
    for (kind, field) in kinds {
        let workloads = objects.dynamic(BETA, kind).list(&ListParams::default()).await.unwrap();
        let refer = workloads.iter().filter(|it| it.data.pointer(field).is_some_and(Value::is_object));
        named.extend(refer.map(|workload| json!({"kind": kind, "name": workload.metadata.name})));
    }
    named
}

/// Takes some hundred edits, which is more than ten seconds of a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_condition_is_lost_while_every_controller_races_on_one_config() {
    const ROUNDS: usize = 100;
    let place = Place::new("own-race").await;
    let operator = place.operator();
    let objects = &place.objects;
    for (_, config, ..) in kinds() {
        objects.create(config).await;
    }
    let audited = json!({
        "apiVersion": BETA, "kind": "MCPOIDCConfig", "metadata": {"name": "config"},
        "status": {"conditions": [{
            "type": "example.com/Audited", "status": "True", "reason": "Looked", "message": "",
            "lastTransitionTime": "2026-11-21T00:00:00Z",
        }]},
    });
    let api = objects.dynamic(BETA, "MCPOIDCConfig");
    wait_until("the configuration to be valid", DEADLINE, || async {
        let config = api.get("config").await.unwrap();
        config.data["status"]["conditions"].is_array().then_some(())
    })
    .await;
    api.patch_status("config", &PatchParams::apply("auditor"), &Patch::Apply(&audited)).await.unwrap();
    for name in ["a", "b", "c"] {
        objects.create(labelled(name, json!({"replicas": 0, "backendReplicas": 0}))).await;
        objects.create(remote_proxy(&format!("far-{name}"), json!({"replicas": 0}))).await;
        objects.create(virtual_server(&format!("all-{name}"), "config", "config")).await;
    }
    let seen = Arc::new(AtomicUsize::new(0));
    let rounds = async {
        for round in 0..ROUNDS {
            let name = ["a", "b", "c"][round % 3];
            let refers = round % 2 == 0;
            let mut server = json!({"endpointPrefix": format!("/{round}")});
            for (_, _, field, reference) in kinds() {
                server[field] = if refers { reference } else { Value::Null };
            }
            let remote = server.clone();
            let callers = if refers { "oidc" } else { "anonymous" };
            let incoming = json!({"type": callers, "oidcConfigRef": server["oidcConfigRef"]});
            let (far, all) = (format!("far-{name}"), format!("all-{name}"));
            let issuer = async {
                if round % 5 == 0 {
                    let issuer = ["https://idp.example.com", "not a URL"][round % 2];
                    let edit = json!({"spec": {"inline": {"issuer": issuer}}});
                    objects.merge(BETA, "MCPOIDCConfig", "config", edit).await;
                }
            };
            // All at once, so that their controllers race.
            tokio::join!(
                objects.edit(name, server),
                objects.merge(BETA, "MCPRemoteProxy", &far, json!({"spec": remote})),
                objects.merge(BETA, "VirtualMCPServer", &all, json!({"spec": {"incomingAuth": incoming}})),
                issuer,
            );
        }
        operator.idle(place.cluster).await;
    };
    tokio::select! {
        Err(lost) = watch_conditions(&place, seen.clone()) => panic!("{lost}"),
        () = rounds => {}
    }
    assert!(seen.load(Ordering::Relaxed) > ROUNDS / 10, "the controller did write: {}", seen.load(Ordering::Relaxed));
    let config = api.get("config").await.unwrap();
    let said = config.data["status"]["referencingWorkloads"].as_array().cloned().unwrap_or_default();
    assert_eq!(said, referrers(objects).await, "what it says in the end is so");
}

/// O5: the writes about a server with two configurations, from their creation to their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_names_the_controller_that_owns_the_object() {
    let place = Place::new("owned").await;
    let since = place.cluster.audit().mark();
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(webhook_config("gate", json!({}))).await;
    objects.create(tool_config("tools", json!({"toolsFilter": ["a"]}))).await;
    let spec = json!({"webhookConfigRef": {"name": "gate"}, "toolConfigRef": {"name": "tools"}});
    objects.create(labelled("web", spec)).await;
    objects.phase("web", "Pending").await;
    operator.idle(place.cluster).await;
    objects.servers().delete("web", &DeleteParams::default()).await.unwrap();
    wait_until("the server to go", DEADLINE, || async {
        objects.servers().get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
    operator.idle(place.cluster).await;
    operator.terminate().await;

    let events = requests(place.cluster, &place.user, since).await;
    let (mut of_kinds, mut children) = (BTreeSet::new(), BTreeSet::new());
    // Leases and certificates are the operator's own, and an event is part of no object.
    for event in events.iter().filter(|event| event.code < 400 && event.verb == "patch") {
        match &*event.resource {
            "leases" | "secrets" => {}
            resource if event.api_group == mcp_api::names::GROUP => _ = of_kinds.insert((manager(event), resource)),
            _ => _ = children.insert(manager(event)),
        }
    }
    let expected = [
        ("portcullis-mcpserver-finalizers", "mcpservers"),
        ("portcullis-mcpserver-status", "mcpservers"),
        ("portcullis-mcptoolconfig-finalizers", "mcptoolconfigs"),
        ("portcullis-mcptoolconfig-status", "mcptoolconfigs"),
        ("portcullis-mcpwebhookconfig-finalizers", "mcpwebhookconfigs"),
        ("portcullis-mcpwebhookconfig-status", "mcpwebhookconfigs"),
    ];
    assert_eq!(of_kinds, expected.into());
    assert_eq!(children, ["portcullis-mcpserver"].into());
    let deleted = events.iter().filter(|event| event.verb == "delete" && event.api_group == mcp_api::names::GROUP);
    assert_eq!(deleted.count(), 0);
}
