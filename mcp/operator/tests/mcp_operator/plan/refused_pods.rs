//! The parts of their node and of the operator that the pods of a workload may not have.

use mcp_api::v1beta1::MCPRemoteProxy;
use mcp_operator::workload::{Workload, refused_pods};
use mcp_plan::{
    settings::Home,
    workload::{ChildKind, ChildRef},
};
use serde_json::{Value, json};

use super::world::{self, World, condition, inline, is_absent, oidc_config};

type Remote = World<MCPRemoteProxy>;

/// A server with this in the pods' spec of its template.
fn server(pod: Value) -> World {
    World::of(json!({"image": "x:1", "transport": "sse", "podTemplateSpec": {"spec": pod}}))
}

/// A remote proxy with this in its spec.
fn remote(change: Value) -> Remote {
    let mut spec = json!({"remoteUrl": "https://mcp.example.com/mcp"});
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    World::around(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPRemoteProxy",
        "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3}, "spec": spec,
    }))
}

fn restricted<W: Workload>(mut world: World<W>) -> World<W> {
    world.settings.restrict_workloads = true;
    world
}

/// In the operator's own namespace.
fn at_home<W: Workload>(mut world: World<W>) -> World<W> {
    world.settings.home = Some(Home {
        namespace: "team".to_owned(),
        account: "op".to_owned(),
        secrets: vec!["op-webhook-tls".to_owned(), "op-digest".to_owned()],
    });
    world
}

fn fields<W: Workload>(world: &World<W>) -> Vec<String> {
    refused_pods(&world.workload, &world.settings).into_iter().map(|problem| problem.field).collect()
}

/// Asserts that each of these is refused with its field, and that the plan makes no workload of it and says so.
fn are_refused<W: Workload<Status: Clone>>(cases: impl IntoIterator<Item = (World<W>, &'static str)>) {
    for (world, field) in cases {
        assert_eq!(fields(&world), [field]);
        let plan = world.plan();
        assert!(plan.children.is_empty(), "{field}");
        let (reason, message) = condition(&plan, "PodsAllowed", "False").unwrap();
        assert!(reason == "PodsRefused" && message.starts_with(field), "{reason}: {message}");
    }
}

#[test]
fn a_restricted_workload_gets_nothing_of_its_node() {
    let container = |member: Value| json!({"containers": [{"name": "more", "image": "y", "securityContext": member}]});
    let at = |field: &'static str| ["spec.podTemplateSpec.spec.", field].concat().leak() as &'static str;
    let ports = json!({"containers": [{"name": "mcp", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    let cases = [
        (json!({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}), "volumes[0].hostPath"),
        (json!({"hostNetwork": true}), "hostNetwork"),
        (json!({"hostPID": true}), "hostPID"),
        (json!({"hostIPC": true}), "hostIPC"),
        (ports, "containers[0].ports[0].hostPort"),
        (container(json!({"privileged": true})), "containers[0].securityContext.privileged"),
        (
            json!({"initContainers": [{"name": "i", "image": "y", "securityContext": {"privileged": true}}]}),
            "initContainers[0].securityContext.privileged",
        ),
        (
            container(json!({"windowsOptions": {"hostProcess": true}})),
            "containers[0].securityContext.windowsOptions.hostProcess",
        ),
        (json!({"serviceAccountName": "admin"}), "serviceAccountName"),
        (json!({"serviceAccountName": "other-sa"}), "serviceAccountName"),
    ];
    for (pod, _) in &cases {
        assert_eq!(fields(&server(pod.clone())), Vec::<String>::new(), "{pod}: only where it is asked for");
    }
    are_refused(cases.clone().map(|(pod, field)| (restricted(server(pod)), at(field))));
    // An account of this name would be made for it, but for this field: somebody else has made this one.
    let named = World::of(json!({"image": "x:1", "serviceAccount": "fetch-sa"}));
    are_refused([(restricted(named), "spec.serviceAccount")]);
    let template = |pod: Value| remote(json!({"podTemplateSpec": {"spec": pod}}));
    // All else in such a template has no effect, or is refused whatever the operator's settings are.
    let of_remote =
        cases.into_iter().filter(|(_, field)| field.contains("hostPath") || field.starts_with("containers"));
    let of_remote = of_remote.filter(|(_, field)| !field.ends_with("hostPort"));
    are_refused(of_remote.map(|(pod, field)| (restricted(template(pod)), at(field))));
    are_refused([(restricted(remote(json!({"serviceAccount": "admin"}))), "spec.serviceAccount")]);
    let volume = json!([{"name": "data", "hostPath": "/srv", "mountPath": "/data"}]);
    for (member, value, field) in
        [("volumes", volume, "spec.volumes[0].hostPath"), ("serviceAccount", json!("admin"), "spec.serviceAccount")]
    {
        are_refused([(restricted(World::of(json!({"image": "x:1", member: value}))), field)]);
    }
}

#[test]
fn a_restricted_workload_may_have_all_else() {
    let pod = json!({
        "hostNetwork": false, "hostUsers": true, "serviceAccountName": "fetch-sa", "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"hostPath": "yes", "privileged": "true"}, "securityContext": {"runAsUser": 0},
        "containers": [{"name": "mcp", "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "ports": [{"containerPort": 80, "hostPort": 0}], "securityContext": {"privileged": false}}],
        "volumes": [{"name": "s", "secret": {"secretName": "s"}}, {"name": "e", "emptyDir": {}}],
    });
    assert_eq!(fields(&at_home(restricted(server(pod.clone())))), Vec::<String>::new());
    let plan = at_home(restricted(server(pod))).plan();
    assert!(!plan.children.is_empty() && condition(&plan, "PodsAllowed", "False").is_none());
    assert_eq!(fields(&at_home(restricted(remote(json!({}))))), Vec::<String>::new());
}

#[test]
fn an_account_with_an_empty_name_is_not_the_one_of_the_namespace() {
    let nobody = json!({"serviceAccountName": "", "serviceAccount": ""});
    let account = |set: &Value| set["spec"]["template"]["spec"]["serviceAccountName"].clone();
    let world = restricted(server(nobody.clone()));
    assert_eq!(fields(&world), Vec::<String>::new());
    assert_eq!(account(world::stateful_set(&world.plan())), "fetch-sa");
    let world = restricted(remote(json!({"podTemplateSpec": {"spec": nobody}})));
    assert_eq!(account(world::deployment(&world.plan())), account(world::deployment(&remote(json!({})).plan())));
}

#[test]
fn what_a_restriction_refuses_does_not_go_on() {
    let mut world = server(json!({"hostPID": true}));
    world.applied(&world.plan());
    world.settings.restrict_workloads = true;
    let plan = world.plan();
    for kind in [ChildKind::Deployment, ChildKind::StatefulSet] {
        assert!(is_absent(&plan, kind, "fetch"), "{kind:?} in {:?}", plan.absent);
    }
    let policy = ChildRef::new(ChildKind::NetworkPolicy, "fetch");
    assert!(!plan.absent.iter().any(|child| child.kind == policy.kind), "it closes the way to pods that are ending");
    let removed = plan.events.iter().find(|event| event.reason == "ProxyRemoved").unwrap();
    assert!(removed.note.contains("refuses"), "{removed:?}");
}

#[test]
fn no_pod_has_an_account_or_a_secret_of_the_operator() {
    let tls = "op-webhook-tls";
    let key = json!({"name": tls, "key": "tls.key"});
    let container = |member: &str, value: Value| json!({"containers": [{"name": "mcp", member: value}]});
    let variable = json!([{"name": "KEY", "valueFrom": {"secretKeyRef": key}}]);
    let volume = |source: Value| json!({"volumes": [source]});
    let cases = [
        (json!({"serviceAccountName": "op"}), "serviceAccountName"),
        (json!({"serviceAccountName": "op"}), "serviceAccountName"),
        (json!({"imagePullSecrets": [{"name": "op-digest"}]}), "imagePullSecrets[0].name"),
        (container("env", variable), "containers[0].env[0].valueFrom.secretKeyRef.name"),
        (container("envFrom", json!([{"secretRef": {"name": tls}}])), "containers[0].envFrom[0].secretRef.name"),
        (
            json!({"initContainers": [{"name": "i", "image": "y", "envFrom": [{"secretRef": {"name": tls}}]}]}),
            "initContainers[0].envFrom[0].secretRef.name",
        ),
        (volume(json!({"name": "v", "secret": {"secretName": tls}})), "volumes[0].secret.secretName"),
        (
            volume(json!({"name": "v", "projected": {"sources": [{"secret": {"name": tls}}]}})),
            "volumes[0].projected.sources[0].secret.name",
        ),
        (
            volume(json!({"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": tls}}})),
            "volumes[0].csi.nodePublishSecretRef.name",
        ),
        (
            volume(json!({"name": "v", "csi": {"driver": "d", "volumeAttributes": {"secretName": tls}}})),
            "volumes[0].csi.volumeAttributes.secretName",
        ),
        (
            volume(json!({"name": "v", "azureFile": {"secretName": tls, "shareName": "s"}})),
            "volumes[0].azureFile.secretName",
        ),
        (
            volume(
                json!({"name": "v", "iscsi": {"iqn": "i", "lun": 0, "targetPortal": "t", "secretRef": {"name": tls}}}),
            ),
            "volumes[0].iscsi.secretRef.name",
        ),
    ];
    let at = |field: &'static str| ["spec.podTemplateSpec.spec.", field].concat().leak() as &'static str;
    for (pod, _) in &cases {
        let mut elsewhere = at_home(server(pod.clone()));
        elsewhere.workload.metadata.namespace = Some("elsewhere".to_owned());
        assert_eq!(fields(&elsewhere), Vec::<String>::new(), "{pod}: these names say nothing elsewhere");
    }
    are_refused(cases.map(|(pod, field)| (at_home(server(pod)), at(field))));
    let with = |member: &str, value: Value| at_home(World::of(json!({"image": "x:1", member: value})));
    let pull = json!({"proxyDeployment": {"imagePullSecrets": [{"name": tls}]}});
    let pull_field = "spec.resourceOverrides.proxyDeployment.imagePullSecrets[0].name";
    are_refused([
        (with("serviceAccount", json!("op")), "spec.serviceAccount"),
        (with("secrets", json!([key])), "spec.secrets[0].name"),
        (with("resourceOverrides", pull.clone()), pull_field),
    ]);
    let header = json!({"addHeadersFromSecret": [{"headerName": "X-Key", "valueSecretRef": key}]});
    are_refused([
        (at_home(remote(json!({"serviceAccount": "op"}))), "spec.serviceAccount"),
        (at_home(remote(json!({"resourceOverrides": pull}))), pull_field),
        (
            at_home(remote(json!({"headerForward": header}))),
            "spec.headerForward.addHeadersFromSecret[0].valueSecretRef.name",
        ),
    ]);
}

#[test]
fn no_login_sends_a_secret_of_the_operator() {
    let mut world = at_home(World::login());
    world.secret("op-digest", "key", "hunter2");
    let secret =
        json!({"clientSecretRef": {"name": "op-digest", "key": "key"}, "introspectionUrl": "https://evil.example"});
    world.has(oidc_config("idp", inline(secret)));
    let plan: world::Plan = world.plan();
    assert!(plan.children.is_empty());
    let said = plan.status.message.unwrap();
    assert!(said.contains("Secret \"op-digest\" belongs to the operator"), "{said}");
}
