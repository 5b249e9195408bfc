//! O2, O3, O5: what a controller writes has one owner. Each acts under a ServiceAccount of its own, and the API server knows
//! them apart.

use std::{cell::Cell, collections::BTreeMap};

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use portcullis_testing::{AuditEvent, wait_until};
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, IMPOSTOR, labelled, oversteps, requests, tool_config, webhook_config},
};

/// The controller that wrote, or nothing for the operator itself.
fn controller<'a>(place: &Place, event: &'a AuditEvent) -> &'a str {
    event.user.strip_prefix(&place.user.name).unwrap().trim_start_matches('-')
}

/// What each controller wrote, by its account, of a server with two configurations, from their creation to their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_carries_the_account_of_the_controller_that_owns_what_is_written() {
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

    let mut by_controller: BTreeMap<&str, Vec<&AuditEvent>> = BTreeMap::new();
    let events = requests(place.cluster, &place.user, since).await;
    for event in events.iter().filter(|event| event.code < 400) {
        by_controller.entry(controller(&place, event)).or_default().push(event);
    }
    let controllers: Vec<_> = by_controller.keys().copied().collect();
    assert_eq!(controllers, ["", "mcpserver", "mcptoolconfig", "mcpwebhookconfig"]);
    for (controller, written) in by_controller {
        let resources: Vec<_> = written.iter().map(|it| (it.resource.as_str(), it.subresource.as_str())).collect();
        if controller.is_empty() {
            // Nothing of what controllers do: leases, certificates, and tokens for the others.
            let own = [("leases", ""), ("secrets", ""), ("serviceaccounts", "token")];
            assert!(resources.iter().all(|it| own.contains(it)), "{resources:?}");
            continue;
        }
        let status = format!("{controller}s");
        assert!(resources.contains(&(&status, "status")), "{controller}: {resources:?}");
        let children = resources.iter().any(|(resource, _)| *resource == "deployments");
        assert_eq!(children, controller == "mcpserver", "{controller}: {resources:?}");
    }
}

/// A kind of the API in its newest version, and the account of its controller.
fn kinds() -> Vec<(String, ApiResource)> {
    let kinds = mcp_api::crds().into_iter().map(|crd| {
        let spec = crd.spec;
        let version = spec.versions.iter().find(|version| version.storage).unwrap();
        let kind = GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind);
        (spec.names.kind.to_lowercase(), ApiResource::from_gvk_with_plural(&kind, &spec.names.plural))
    });
    kinds.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_refuses_a_controller_the_status_of_another_kind() {
    let place = Place::new("foreign-status").await;
    let kinds = kinds();
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    let since = place.cluster.audit().mark();
    for (account, _) in &kinds {
        let client = controllers_client(&place, account);
        for (owner, resource) in &kinds {
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), place.namespace(), resource);
            let status: Value = json!({
                "apiVersion": resource.api_version, "kind": resource.kind, "status": {"observedGeneration": 1},
            });
            let params = PatchParams::apply(IMPOSTOR).force();
            let tried = api.patch_status("absent", &params, &Patch::Apply(&status)).await;
            // Rights are asked before it is looked for: its own controller is told that there is none.
            let expected = if account == owner { 404 } else { 403 };
            match tried {
                Err(kube::Error::Api(status)) => assert_eq!(status.code, expected, "{account}: {status:?}"),
                other => panic!("{account} {}: {other:?}", resource.kind),
            }
        }
    }
    // What every test is held to sees each of them.
    let events = requests(place.cluster, &place.user, since).await;
    let seen: Vec<_> = oversteps(&events).map(|event| (&*event.subresource, event.code)).collect();
    assert_eq!(seen, [("status", 403)].repeat(kinds.len() * (kinds.len() - 1)));
}

/// A Secret of the type `kubernetes.io/service-account-token` is a token of the account that it names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_controller_can_make_itself_a_token_of_another_account() {
    let place = Place::new("token-made").await;
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "stolen", "annotations": {"kubernetes.io/service-account.name": "mcp-operator"}},
    });
    let token: Secret = serde_json::from_value(token).unwrap();
    for (account, _) in kinds() {
        let secrets: Api<Secret> = Api::namespaced(controllers_client(&place, &account), place.namespace());
        let tried = secrets.create(&PostParams::default(), &token).await;
        let refused = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
        assert!(tried.as_ref().is_err_and(refused), "{account}: {tried:?}");
    }
}

fn controllers_client(place: &Place, account: &str) -> kube::Client {
    place.cluster.client_as(&format!("{}-{account}", place.user.name), &["system:serviceaccounts"])
}

/// Its account's tokens are good for nothing from then on: the uid is another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_whose_account_was_deleted_waits_and_goes_on_under_the_new_one_while_others_work() {
    let place = Place::new("account-lost").await;
    let operator = place.operator();
    operator.reconciles().await;
    let objects = &place.objects;
    objects.create(labelled("before", json!({}))).await;
    objects.phase("before", "Pending").await;

    let accounts: Api<ServiceAccount> = Api::namespaced(place.cluster.admin(), place.namespace());
    let kept = accounts.get("mcp-operator-mcpserver").await.unwrap();
    accounts.delete(&kept.name_any(), &DeleteParams::default()).await.unwrap();
    // The API server remembers tokens for ten seconds; each of these is a write that may find out.
    let edits = Cell::new(0);
    wait_until("a token to be refused", DEADLINE, || async {
        edits.set(edits.get() + 1);
        objects.edit("before", json!({"args": [format!("--edit={}", edits.get())]})).await;
        operator.log().contains("cannot get a token: the controller waits; others go on").then_some(())
    })
    .await;
    objects.create(labelled("after", json!({}))).await;
    objects.create(tool_config("tools", json!({"toolsFilter": ["a"]}))).await;
    let tools = objects.dynamic("toolhive.stacklok.dev/v1beta1", "MCPToolConfig");
    wait_until("another controller's status", DEADLINE, || async {
        tools.get("tools").await.unwrap().data.get("status").cloned()
    })
    .await;

    let anew = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": kept.name_any(), "namespace": place.namespace()}});
    place.cluster.apply(&[anew]).await;
    objects.edit("before", json!({"proxyPort": 8091})).await;
    objects.phase("after", "Pending").await;
    let server = |server: &mcp_api::v1beta1::MCPServer| {
        server.status.as_ref().is_some_and(|status| status.observed_generation == server.metadata.generation)
    };
    objects.server("before", "to be reconciled again", server).await;
}
