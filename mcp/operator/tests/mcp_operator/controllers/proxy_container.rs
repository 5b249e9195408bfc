//! The proxy's container is the operator's: in the Deployment others add nothing that the gate rests on, and a pod that
//! runs something else does not count as guarded.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{apply_manifests, wait_until};
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, Operator, children_of, labelled, minimal, ready_pods, webhook_config, writes},
};

/// Patches the proxy's container, and its pod, as `kubectl patch` and `kubectl edit` do.
async fn patch(place: &Place, server: &str, container: Value, pod: Value) {
    let (mut container, mut pod) = (container, pod);
    container["name"] = json!("toolhive");
    pod["containers"] = json!([container]);
    let patch = Patch::Strategic(json!({"spec": {"template": {"spec": pod}}}));
    let params = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
    place.objects.children(ChildKind::Deployment).patch(server, &params, &patch).await.unwrap();
}

/// The pod of a Deployment's template, where sets have no order.
fn pod(deployment: &Value) -> Value {
    let mut pod = deployment["spec"]["template"]["spec"].clone();
    let sort = |list: &mut Value| {
        list.as_array_mut().into_iter().for_each(|items| items.sort_by_key(ToString::to_string));
    };
    sort(&mut pod["volumes"]);
    for container in pod["containers"].as_array_mut().unwrap() {
        for list in ["env", "volumeMounts"] {
            sort(&mut container[list]);
        }
    }
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_add_to_the_proxys_container_is_taken_away() {
    let place = Place::new("proxy-container").await;
    let operator = place.operator();
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    operator.idle(place.cluster).await;
    let made = place.objects.get(ChildKind::Deployment, "web").await;
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["command"], json!(["/mcp-runner"]));
    let own = json!({"volumes": [{"name": "own", "emptyDir": {}}]});
    let none = json!({});
    let mount = |path: &str| json!({"volumeMounts": [{"name": "own", "mountPath": path}]});
    let cases = [
        (json!({"command": ["/own/proxy"]}), &none),
        (json!({"args": ["run", "--backend=http://evil.example"]}), &none),
        (json!({"workingDir": "/own"}), &none),
        (json!({"envFrom": [{"configMapRef": {"name": "own"}}]}), &none),
        (json!({"lifecycle": {"postStart": {"exec": {"command": ["/own/x"]}}}}), &none),
        (json!({"env": [{"name": "TOOLHIVE_OIDC_CLIENT_SECRET", "value": "own"}]}), &none),
        (json!({"env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.1"}]}), &none),
        (json!({"env": [{"name": "HOME", "value": "/own"}]}), &none),
        (json!({"volumeMounts": [{"mountPath": "/etc/runconfig", "name": "runconfig", "subPath": "own"}]}), &none),
        (json!({"livenessProbe": {"periodSeconds": 7}}), &none),
        (mount("/mcp-runner"), &own),
        (mount("/etc/ssl/certs/ca-certificates.crt"), &own),
        (mount("/etc/runconfig/runconfig.json"), &own),
        (mount("/etc/toolhive/own"), &own),
        (mount("/var/run/secrets/kubernetes.io/serviceaccount"), &own),
        (json!({"stdin": true, "tty": true}), &none),
        (json!({"terminationMessagePath": "/mcp-runner"}), &none),
        (
            json!({"volumeDevices": [{"name": "own-device", "devicePath": "/etc/ssl/certs/ca-certificates.crt"}]}),
            &json!({"volumes": [{"name": "own-device", "persistentVolumeClaim": {"claimName": "own"}}]}),
        ),
        (json!({}), &json!({"hostname": "policy-0", "subdomain": "policy"})),
        (json!({}), &json!({"setHostnameAsFQDN": true})),
        (json!({}), &json!({"hostnameOverride": "login.example.com"})),
        (json!({}), &json!({"shareProcessNamespace": true})),
        (json!({}), &json!({"hostPID": true})),
        (json!({}), &json!({"hostIPC": true})),
        (json!({}), &json!({"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["idp.example.com"]}]})),
        (json!({}), &json!({"dnsConfig": {"searches": ["evil.example"]}})),
        (json!({}), &json!({"dnsPolicy": "Default"})),
        (json!({}), &json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}})),
        (
            json!({}),
            &json!({"volumes": [{"name": "runconfig", "configMap": {"items": [{"key": "own", "path": "runconfig.json"}]}}]}),
        ),
    ];
    for (container, more) in cases {
        let since = place.cluster.audit().mark();
        patch(&place, "web", container.clone(), (*more).clone()).await;
        place
            .objects
            .child(ChildKind::Deployment, "web", &format!("to be itself after {container} {more}"), |now| {
                let mut now = pod(now);
                // A volume that nothing mounts stays: it is beside ours.
                now["volumes"]
                    .as_array_mut()
                    .unwrap()
                    .retain(|volume| !volume["name"].as_str().unwrap().starts_with("own"));
                now == pod(&made)
            })
            .await;
        operator.idle(place.cluster).await;
        let written = writes(place.cluster, &place.user, since).await;
        assert!(written.len() <= 2, "{container} {more}:\n{}", written.join("\n"));
    }
}

/// Another image starts what it was built to start: nothing is sent, and nobody else sets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_of_another_runner_image_is_nobodys() {
    let place = Place::new("other-runner").await;
    let image = "ghcr.io/stacklok/toolhive/proxyrunner:v0.63.0";
    let flags = ["--watch-namespace", place.namespace(), "--bind", "127.0.0.1:0", "--runner-image", image];
    let operator = Operator::start_with(&place.user, place.namespace(), &flags);
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    let since = operator.idle(place.cluster).await;
    let made = place.objects.get(ChildKind::Deployment, "web").await;
    let command = |deployment: &Value| deployment["spec"]["template"]["spec"]["containers"][0]["command"].clone();
    assert_eq!(command(&made), Value::Null);
    patch(&place, "web", json!({"command": ["/own/proxy"]}), json!({})).await;
    place.objects.child(ChildKind::Deployment, "web", "no command", |now| command(now).is_null()).await;
    operator.idle(place.cluster).await;
    assert_eq!(writes(place.cluster, &place.user, since).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_put_beside_the_proxy_stays_and_costs_no_write() {
    let place = Place::new("beside-proxy").await;
    let operator = place.operator();
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    let since = operator.idle(place.cluster).await;
    let container = json!({
        "env": [{"name": "OWN", "value": "1"}, {"name": "SSL_CERT_FILE", "value": "/unread"}],
        "volumeMounts": [{"name": "own", "mountPath": "/own"}],
        "resources": {"limits": {"memory": "1Gi"}},
    });
    let more = json!({"volumes": [{"name": "own", "emptyDir": {}}], "nodeSelector": {"disk": "ssd"}});
    patch(&place, "web", container, more).await;
    let sidecar = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "own", "image": "own:1", "command": ["/own"], "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
    ]}}}});
    let params = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
    place.objects.children(ChildKind::Deployment).patch("web", &params, &Patch::Strategic(sidecar)).await.unwrap();
    operator.wrote_nothing(place.cluster, since, "after foreign additions beside ours").await;
    let live = place.objects.get(ChildKind::Deployment, "web").await;
    let pod = pod(&live);
    assert_eq!((pod["containers"].as_array().unwrap().len(), &pod["nodeSelector"]["disk"]), (2, &json!("ssd")));
    let text = pod.to_string();
    for kept in ["SSL_CERT_FILE", "\"mountPath\":\"/own\"", "1Gi", "\"preStop\""] {
        assert!(text.contains(kept), "{kept} in {text}");
    }
}

/// Lets the API server make `changes` (CEL, of a pod) to the proxy's pods in the namespace when they are created.
async fn mutate(place: &Place, changes: &str) {
    let name = place.namespace();
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": selector,
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            },
            "matchConditions": [{"name": "proxy", "expression": "object.spec.containers.exists(c, c.name == 'toolhive')"}],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": format!("Object{{spec: Object.spec{{{changes}}}}}")}}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name},
    });
    apply_manifests(&place.cluster.admin(), &[policy, binding]).await;
}

/// Replaces the pods of the proxy until `is_changed` of one, which is ready then.
async fn replaced(place: &Place, server: &str, is_changed: impl Fn(&Value) -> bool) {
    let pods: Api<Pod> = place.objects.api();
    let selector = ListParams::default().labels(&format!("app=mcpserver,toolhive-name={server}"));
    // The API server follows policies by a watch.
    wait_until("a pod as the policy makes it", DEADLINE, || async {
        let found = pods.list(&selector).await.unwrap();
        let is_wanted = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && is_changed(&json!(pod)["spec"]);
        if found.items.len() == 1 && found.iter().all(is_wanted) {
            return Some(());
        }
        for pod in found.iter().filter(|pod| !is_wanted(pod)) {
            let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        }
        None
    })
    .await;
    ready_pods(&place.objects, server).await;
}

/// Waits until the condition `GuardsEnforced` has this status and reason, and returns its message.
async fn enforced(place: &Place, server: &str, status: &str, reason: &str) -> String {
    let condition = |server: &mcp_api::v1beta1::MCPServer| {
        let all = server.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        all.into_iter().find(|it| it.type_ == "GuardsEnforced" && it.status == status && it.reason == reason)
    };
    let what = format!("GuardsEnforced={status} {reason}");
    condition(&place.objects.server(server, &what, |server| condition(server).is_some()).await).unwrap().message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_proxy_was_changed_does_not_count_as_guarded() {
    let place = Place::new("changed-pod").await;
    let flags = ["--watch-namespace", place.namespace(), "--bind", "127.0.0.1:0", "--image-mirrors", "mirror.local"];
    let _operator = Operator::start_with(&place.user, place.namespace(), &flags);
    place.objects.create(webhook_config("gate", json!({}))).await;
    place.objects.create(labelled("web", json!({"webhookConfigRef": {"name": "gate"}}))).await;
    place.objects.has_children("web", &children_of("web")).await;
    ready_pods(&place.objects, "web").await;
    enforced(&place, "web", "True", "Enforced").await;

    // As service meshes, secret injectors and mirrors do.
    let beside = "
        containers: [
            Object.spec.containers{name: 'toolhive', image: 'mirror.local/portcullis/mcp-runner:' +
                object.spec.containers.filter(c, c.name == 'toolhive')[0].image.split(':')[1],
                env: [Object.spec.containers.env{name: 'VAULT_ADDR', value: 'https://vault'}],
                volumeMounts: [Object.spec.containers.volumeMounts{name: 'vault', mountPath: '/vault/secrets'}]},
            Object.spec.containers{name: 'vault-agent', image: 'vault:1'}
        ],
        volumes: [Object.spec.volumes{name: 'vault', emptyDir: Object.spec.volumes.emptyDir{medium: 'Memory'}}]";
    mutate(&place, beside).await;
    replaced(&place, "web", |pod| pod["containers"].as_array().unwrap().len() == 2).await;
    enforced(&place, "web", "True", "Enforced").await;

    let elsewhere = "image: 'evil.example/portcullis/mcp-runner:' +
        object.spec.containers.filter(c, c.name == 'toolhive')[0].image.split(':')[1]";
    let own = concat!("image \"evil.example/portcullis/mcp-runner:", env!("CARGO_PKG_VERSION"), "\"");
    let mount = "volumeMounts: [Object.spec.containers.volumeMounts{name: 'runconfig', mountPath: '/etc/ssl/certs'}]";
    let changes = [
        ("image: 'evil.example/proxy-without-login:1'", "image \"evil.example/proxy-without-login:1\""),
        (elsewhere, own),
        ("env: [Object.spec.containers.env{name: 'TOOLHIVE_RUNTIME', value: 'own'}]", "env"),
        (mount, "volumeMounts"),
        ("workingDir: '/own'", "workingDir"),
        ("terminationMessagePath: '/mcp-runner'", "terminationMessagePath"),
    ];
    for (grace, (change, field)) in (40..).zip(changes) {
        let container = format!("containers: [Object.spec.containers{{name: 'toolhive', {change}}}]");
        mutate(&place, &format!("terminationGracePeriodSeconds: {grace}, {container}")).await;
        replaced(&place, "web", |pod| pod["terminationGracePeriodSeconds"] == grace).await;
        let message = enforced(&place, "web", "False", "ProxyChanged").await;
        wait_until(&format!("{field} in the status"), DEADLINE, || async {
            enforced(&place, "web", "False", "ProxyChanged").await.ends_with(&format!("({field})")).then_some(())
        })
        .await;
        assert!(message.starts_with("1 of 1 proxy pods"), "{message}");
    }
    mutate(&place, "terminationGracePeriodSeconds: 31").await;
    replaced(&place, "web", |pod| pod["terminationGracePeriodSeconds"] == 31).await;
    enforced(&place, "web", "True", "Enforced").await;
}

/// A debugger in the proxy's process namespace reads its memory; one beside it sees the pod's network, as a sidecar does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_a_debugger_of_its_proxy_is_not_guarded() {
    let place = Place::new("debugged").await;
    let _operator = place.operator();
    place.objects.create(webhook_config("gate", json!({}))).await;
    place.objects.create(labelled("web", json!({"webhookConfigRef": {"name": "gate"}}))).await;
    place.objects.has_children("web", &children_of("web")).await;
    ready_pods(&place.objects, "web").await;
    enforced(&place, "web", "True", "Enforced").await;
    let pods: Api<Pod> = place.objects.api();
    let name = pods.list(&ListParams::default().labels("app=mcpserver,toolhive-name=web")).await.unwrap().items;
    let debug = async |debugger: Value| {
        let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": [debugger]}}));
        let params = PatchParams::default();
        pods.patch_subresource("ephemeralcontainers", &name[0].name_any(), &params, &patch).await.unwrap();
    };
    debug(json!({"name": "beside", "image": "busybox:1"})).await;
    debug(json!({"name": "inside", "image": "busybox:1", "targetContainerName": "toolhive"})).await;
    let message = enforced(&place, "web", "False", "ProxyChanged").await;
    assert!(message.ends_with("(ephemeralContainers)"), "{message}");
}
