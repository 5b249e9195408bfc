//! How each field of a server reaches its children (MISSION P1, P5).

use mcp_operator::{controllers::PodTrace, subject::Subject as _};
use mcp_plan::workload::ChildKind;
use portcullis::controller::apply::{Desired, FieldManager};
use serde_json::{Value, json};

use super::world::{World, child, condition, config, deployment, is_absent, run_config, stateful_set};

fn document(world: &World) -> Value {
    serde_json::from_str(run_config(&world.plan())).unwrap()
}

// MISSION P5: of `create`, only pods/attach on the proxy's own server, and nothing else at all.
#[test]
fn a_proxy_may_attach_to_its_own_pod_and_nothing_else() {
    let plan = World::of(json!({"image": "x"})).plan();
    assert_eq!(
        child(&plan, ChildKind::Role, "fetch-proxy-runner").unwrap()["rules"],
        json!([{"apiGroups": [""], "resources": ["pods/attach"], "resourceNames": ["fetch-0"], "verbs": ["get", "create"]}])
    );
    for transport in ["sse", "streamable-http"] {
        let plan = World::of(json!({"image": "x", "transport": transport})).plan();
        for kind in [ChildKind::Role, ChildKind::RoleBinding] {
            assert!(child(&plan, kind, "fetch-proxy-runner").is_none());
            assert!(is_absent(&plan, kind, "fetch-proxy-runner"), "what a stdio server had goes");
        }
        assert_eq!(deployment(&plan)["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
    }
}

#[test]
fn replicas_are_left_to_others_when_not_said_and_capped_at_one_for_stdio() {
    for (spec, proxies, servers) in [
        (json!({"image": "x", "transport": "sse"}), Value::Null, Value::Null),
        (json!({"image": "x", "transport": "sse", "replicas": 3, "backendReplicas": 2}), json!(3), json!(2)),
        (json!({"image": "x", "replicas": 3}), json!(1), Value::Null),
        (json!({"image": "x", "replicas": 0, "backendReplicas": 0}), json!(0), json!(0)),
    ] {
        let plan = World::of(spec.clone()).plan();
        assert_eq!(deployment(&plan)["spec"]["replicas"], proxies, "{spec}");
        assert_eq!(stateful_set(&plan)["spec"]["replicas"], servers, "{spec}");
        assert_eq!(condition(&plan, "StdioReplicaCapped", "True").is_some(), spec["replicas"] == 3 && proxies == 1);
        assert_eq!(condition(&plan, "SessionStorageWarning", "True").is_some(), proxies == 3);
    }
}

#[test]
fn every_field_of_a_server_reaches_its_place() {
    let mut world = World::of(json!({
        "image": "x:1", "transport": "streamable-http", "proxyPort": 9000, "mcpPort": 3001, "args": ["-v"],
        "env": [{"name": "LEVEL", "value": "debug"}, {"name": "MCP_PORT", "value": "1"}],
        "secrets": [{"name": "token", "key": "t"}], "sessionAffinity": "None", "endpointPrefix": "/p",
        "trustProxyHeaders": true, "serviceAccount": "own", "backendReplicas": 2,
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "256Mi"}},
        "volumes": [{"name": "data", "hostPath": "/srv", "mountPath": "/data"}],
        "permissionProfile": {"type": "configmap", "name": "profiles", "key": "strict.json"},
        "resourceOverrides": {
            "proxyDeployment": {"env": [{"name": "HOME", "value": "/home"}], "imagePullSecrets": [{"name": "a"}, {"name": "b"}]},
            "proxyService": {"annotations": {"lb": "internal"}, "labels": {"tier": "gold", "toolhive": "no"}},
        },
    }));
    world.secret("token", "t", "v");
    world.settings.default_image_pull_secrets = vec!["b".into(), "c".into()];
    let plan = world.plan();

    let document = document(&world);
    assert_eq!(document["scaling_config"], json!({"backend_replicas": 2}));
    assert_eq!((&document["endpoint_prefix"], &document["trust_proxy_headers"]), (&json!("/p"), &json!(true)));
    assert_eq!(document.get("permission_profile_name_or_path"), None);
    assert_eq!(document["permission_profile"]["network"]["outbound"]["insecure_allow_all"], true);
    assert_eq!(document["permission_profile"]["write"], json!(["/srv:/data"]));
    assert_eq!(document["env_vars"]["MCP_PORT"], "3001", "the port is spec.mcpPort's to say");
    assert!(!run_config(&plan).contains("token"), "secrets never enter the RunConfig");

    let proxy = &deployment(&plan)["spec"]["template"]["spec"];
    let container = &proxy["containers"][0];
    assert_eq!(container["resources"], json!({"requests": {"cpu": "100m"}, "limits": {"memory": "256Mi"}}));
    assert_eq!(container["ports"][0]["containerPort"], 9000);
    assert_eq!(container["env"][0], json!({"name": "HOME", "value": "/home"}));
    assert_eq!(container["env"].as_array().unwrap().iter().filter(|var| var["name"] == "HOME").count(), 1);
    assert_eq!(proxy["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]));
    assert!(!container["volumeMounts"].as_array().unwrap().iter().any(|m| m["mountPath"] == "/etc/toolhive/profiles"));

    let service = child(&plan, ChildKind::Service, "mcp-fetch-proxy").unwrap();
    assert_eq!(
        (&service["spec"]["sessionAffinity"], &service["spec"]["ports"][0]["port"]),
        (&json!("None"), &json!(9000))
    );
    assert_eq!(service["metadata"]["labels"]["toolhive"], "true");
    assert_eq!(service["metadata"]["annotations"], json!({"lb": "internal"}));

    let pod = &stateful_set(&plan)["spec"]["template"]["spec"];
    assert_eq!((&pod["serviceAccountName"], &pod["containers"][0]["args"]), (&json!("own"), &json!(["-v"])));
    assert!(
        child(&plan, ChildKind::ServiceAccount, "fetch-sa").is_none()
            && is_absent(&plan, ChildKind::ServiceAccount, "fetch-sa")
    );
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "t", "valueFrom": {"secretKeyRef": {"name": "token", "key": "t"}}})));
    assert!(env.contains(&json!({"name": "MCP_PORT", "value": "3001"})));
}

#[test]
fn the_pod_template_shapes_the_mcp_server_and_not_the_proxy() {
    let world = World::of(json!({"image": "x:1", "transport": "sse", "podTemplateSpec": {
        "metadata": {"labels": {"team": "a", "app": "hijacked"}, "annotations": {"note": "1"}},
        "spec": {
            "serviceAccountName": "mine", "nodeSelector": {"disk": "ssd"},
            "containers": [
                {"name": "mcp", "image": "patched:2", "resources": {"limits": {"cpu": 2}}, "env": [{"name": "MORE", "value": "1"}]},
                {"name": "sidecar", "image": "side:1"},
            ],
        },
    }}));
    let plan = world.plan();
    let template = &stateful_set(&plan)["spec"]["template"];
    assert_eq!(
        (&template["metadata"]["labels"]["team"], &template["metadata"]["labels"]["app"]),
        (&json!("a"), &json!("fetch"))
    );
    assert_eq!(template["metadata"]["annotations"]["note"], "1");
    let containers = template["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!((&containers[0]["name"], &containers[0]["image"]), (&json!("mcp"), &json!("patched:2")));
    assert_eq!(containers[0]["resources"]["limits"]["cpu"], "2");
    assert!(containers[0]["env"].as_array().unwrap().iter().any(|var| var["name"] == "MCP_TRANSPORT"));
    assert_eq!(containers[0]["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(template["spec"]["serviceAccountName"], "mine");
    assert_eq!(condition(&plan, "PodTemplateValid", "True").unwrap().0, "ValidPodTemplateSpec");
    assert!(deployment(&plan)["spec"]["template"]["spec"].get("nodeSelector").is_none());
}

#[test]
fn backend_services_exist_for_network_transports_only() {
    let plan = World::of(json!({"image": "x"})).plan();
    for name in ["mcp-fetch", "mcp-fetch-headless"] {
        assert!(child(&plan, ChildKind::Service, name).is_none() && is_absent(&plan, ChildKind::Service, name));
    }
    let plan = World::of(json!({"image": "x", "transport": "sse", "mcpPort": 7})).plan();
    let headless = child(&plan, ChildKind::Service, "mcp-fetch-headless").unwrap();
    assert_eq!(
        (&headless["spec"]["clusterIP"], &headless["spec"]["ports"][0]["name"]),
        (&json!("None"), &json!("port-7"))
    );
}

#[test]
fn every_child_is_owned_by_its_server_and_holds_only_what_is_meant() {
    fn assert_meant(value: &Value, path: &str) {
        match value {
            Value::Null => panic!("{path} is null"),
            Value::Object(members) => {
                assert!(!members.is_empty(), "{path} is empty");
                members.iter().for_each(|(key, member)| assert_meant(member, &format!("{path}.{key}")));
            }
            Value::Array(items) => {
                assert!(!items.is_empty(), "{path} is empty");
                items.iter().enumerate().for_each(|(at, item)| assert_meant(item, &format!("{path}[{at}]")));
            }
            _ => {}
        }
    }
    for world in
        [World::gated(), World::of(json!({"image": "x"})), World::of(json!({"image": "x", "transport": "sse"}))]
    {
        let plan = world.plan();
        for child in &plan.children {
            assert_meant(&child.object, &child.reference.name);
            assert!(child.object.get("status").is_none());
            let owner = &child.object["metadata"]["ownerReferences"][0];
            assert_eq!((&owner["uid"], &owner["controller"]), (&json!("u-1"), &json!(true)));
            assert_eq!(child.object["metadata"]["namespace"], "team");
            assert_eq!(child.object["metadata"]["name"], child.reference.name);
            let resource = child.reference.kind.api_resource();
            let kind = (&child.object["apiVersion"], &child.object["kind"]);
            assert_eq!(kind, (&json!(resource.api_version), &json!(resource.kind)));
            Desired::new(&resource, child.object.clone(), &FieldManager::new("test")).unwrap();
        }
        let position = |kind| plan.children.iter().position(|child| child.reference.kind == kind).unwrap();
        assert!(position(ChildKind::ConfigMap) < position(ChildKind::Deployment), "a proxy finds its RunConfig");
    }
}

#[test]
fn references_name_all_that_a_change_of_replans_the_server() {
    let mut world = World::gated();
    world.workload.spec.secrets = serde_json::from_value(json!([{"name": "env", "key": "k"}])).unwrap();
    world.workload.spec.group_ref = Some(mcp_api::v1beta1::NameRef { name: "team".into() });
    let key = |name: &str| json!({"name": name, "key": "k"});
    let gates = config(
        "gates",
        json!({
            "validating": [{"name": "a", "url": "https://a/", "hmacSecretRef": key("hmac")}],
            "mutating": [{"name": "b", "url": "https://b/", "tlsConfig":
                {"caSecretRef": key("ca"), "clientCertSecretRef": key("crt"), "clientKeySecretRef": key("key")}}],
        }),
    );
    let tokens: Vec<_> = world.workload.references().iter().map(|it| format!("{} {}", it.kind, it.name)).collect();
    assert_eq!(tokens, ["MCPWebhookConfig gates", "MCPGroup team", "Secret env"]);
    let theirs: Vec<_> = gates.references().into_iter().map(|it| it.name).collect();
    assert_eq!(theirs, ["hmac", "ca", "crt", "key"]);
}

/// The MCP server's pods carry its name as `app`, which is the same as the proxies' where it is called `mcpserver`.
#[test]
fn the_pods_of_a_server_called_mcpserver_are_not_taken_for_its_proxy() {
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    world.workload.metadata.name = Some("mcpserver".into());
    let plan = world.plan();
    let selected = |kind| {
        let labels = &child(&plan, kind, "mcpserver").unwrap()["spec"]["template"]["metadata"]["labels"];
        let selector = PodTrace::selector("mcpserver");
        let mut terms = selector.split(',').filter_map(|term| term.split_once('='));
        terms.all(|(key, value)| labels[key] == value)
    };
    assert!(selected(ChildKind::Deployment) && !selected(ChildKind::StatefulSet));
}

// Security S16: a Service called `kubernetes` would move what the proxy takes for the Kubernetes API.
#[test]
fn services_of_the_namespace_set_no_variables_of_pods() {
    for (template, of_server) in [
        (json!({}), false),
        (json!({"spec": {"enableServiceLinks": false}}), false),
        (json!({"spec": {"enableServiceLinks": true}}), true),
    ] {
        let world = World::of(json!({"image": "x:1", "transport": "sse", "podTemplateSpec": template}));
        let plan = world.plan();
        let links = |workload: &Value| workload["spec"]["template"]["spec"]["enableServiceLinks"].clone();
        assert_eq!(
            (links(stateful_set(&plan)), links(deployment(&plan))),
            (json!(of_server), json!(false)),
            "{template}"
        );
        assert!(world.workload.warnings(&world.settings).is_empty());
    }
}

// Security S17.
#[test]
fn a_server_gets_no_token_of_the_kubernetes_api_unasked() {
    for template in [json!({}), json!({"spec": {"automountServiceAccountToken": true}})] {
        let wants = template["spec"]["automountServiceAccountToken"].clone();
        for transport in ["stdio", "sse"] {
            let plan = World::of(json!({"image": "x:1", "transport": transport, "podTemplateSpec": template})).plan();
            let mounts = |name: &str| {
                child(&plan, ChildKind::ServiceAccount, name).unwrap()["automountServiceAccountToken"].clone()
            };
            assert_eq!((mounts("fetch-sa"), mounts("fetch-proxy-runner")), (json!(false), Value::Null));
            // The pod's word counts before the account's.
            assert_eq!(stateful_set(&plan)["spec"]["template"]["spec"]["automountServiceAccountToken"], wants);
        }
    }
}

// Case 36: OpenShift's controller writes the atomic list of every account.
#[test]
fn no_account_that_is_made_has_pull_secrets_and_every_pod_has() {
    let mut world = World::of(json!({
        "image": "x:1",
        "resourceOverrides": {"proxyDeployment": {"imagePullSecrets": [{"name": "a"}]}},
        "podTemplateSpec": {"spec": {"imagePullSecrets": [{"name": "user"}]}},
    }));
    world.settings.default_image_pull_secrets = vec!["b".into()];
    let plan = world.plan();
    for name in ["fetch-sa", "fetch-proxy-runner"] {
        assert_eq!(child(&plan, ChildKind::ServiceAccount, name).unwrap()["imagePullSecrets"], Value::Null, "{name}");
    }
    let names = |workload: &Value| {
        let secrets = workload["spec"]["template"]["spec"]["imagePullSecrets"].as_array().cloned().unwrap_or_default();
        secrets.iter().map(|secret| secret["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(deployment(&plan)), ["a", "b"]);
    let mut server = names(stateful_set(&plan));
    server.sort();
    assert_eq!(server, ["a", "b", "user"]);
}

// Security S15.
#[test]
fn variables_that_decide_for_the_proxy_are_named_in_a_warning() {
    let given = [
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "LD_PRELOAD",
        "KUBECONFIG",
        "USER",
        "HOME",
        "HTTP_PROXY",
        "https_proxy",
        "NO_PROXY",
        "LOCALDOMAIN",
        "RES_OPTIONS",
        "GLIBC_TUNABLES",
    ];
    let operators =
        ["TOOLHIVE_RUNTIME", "TOOLHIVE_RUNCONFIG_CHECKSUM", "TOOLHIVE_SECRETS_PROVIDER", "TOOLHIVE_SECRET_A"];
    let free = ["TOOLHIVE_DEBUG", "RUST_LOG", "USERNAME", "TZ"];
    let names = given.iter().chain(&operators).chain(&free);
    let env: Vec<_> = names.map(|name| json!({"name": name, "value": "mine"})).collect();
    let world = World::of(json!({"image": "x:1", "resourceOverrides": {"proxyDeployment": {"env": env}}}));
    let plan = world.plan();
    let rendered = &deployment(&plan)["spec"]["template"]["spec"]["containers"][0]["env"];
    let is_rendered = |name: &&&str| rendered.as_array().unwrap().contains(&json!({"name": name, "value": "mine"}));
    // As ToolHive's operator renders them (golden 04).
    assert_eq!(given.iter().chain(&free).filter(is_rendered).count(), given.len() + free.len(), "{rendered}");
    assert_eq!(operators.iter().filter(is_rendered).count(), 0, "{rendered}");
    let warnings = world.workload.warnings(&world.settings);
    assert_eq!(warnings.len(), given.len() + operators.len(), "{warnings:?}");
    for name in given.iter().chain(&operators) {
        let field = format!("spec.resourceOverrides.proxyDeployment.env[{name}] has no effect");
        assert!(warnings.iter().any(|warning| warning.starts_with(&field)), "{field}: {warnings:?}");
    }
}

#[test]
fn a_proxy_trusts_the_roots_of_the_installation() {
    let bundle = "private-roots/ca.crt";
    let mut world = World::of(json!({"image": "x:1", "transport": "sse"}));
    world.settings.ca_bundle = Some(bundle.parse().unwrap());
    let plan = world.plan();
    let pod = &deployment(&plan)["spec"]["template"]["spec"];
    let (directory, container) = ("/etc/toolhive/ca-bundle", &pod["containers"][0]);
    assert_eq!(container["args"], json!(["run", "x:1", format!("--ca-bundle={directory}/ca.crt")]));
    let mount = json!({"name": "proxy-ca-bundle", "mountPath": directory, "readOnly": true});
    assert!(container["volumeMounts"].as_array().unwrap().contains(&mount), "{container}");
    let map = json!({"name": "private-roots", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
    let volume = json!({"name": "proxy-ca-bundle", "configMap": map});
    assert!(pod["volumes"].as_array().unwrap().contains(&volume), "{pod}");
    assert!(stateful_set(&plan)["spec"]["template"]["spec"].get("volumes").is_none());
    for wrong in ["", "roots", "roots/", "/ca.crt", "a/..", "a/b/c", "a/--x y"] {
        assert!(wrong.parse::<mcp_plan::settings::CaBundle>().is_err(), "{wrong}");
    }
}
