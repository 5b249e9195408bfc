//! The gate has no side door: who reaches the MCP server's pods (MISSION P6).

use mcp_operator::subject::Subject as _;
use mcp_plan::workload::{ChildKind, ChildRef, Opened, Ways};
use serde_json::{Value, json};

use super::world::{Plan, World, child, condition, deployment, is_absent, stateful_set};

fn policy(plan: &Plan) -> &Value {
    &child(plan, ChildKind::NetworkPolicy, "mcp-fetch").expect("the policy is planned")["spec"]
}

fn labels(workload: &Value) -> &Value {
    &workload["spec"]["template"]["metadata"]["labels"]
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let terms = selector["matchLabels"].as_object().unwrap();
    assert!(!terms.is_empty() && selector.get("matchExpressions").is_none(), "{selector}");
    terms.iter().all(|(key, value)| labels[key] == *value)
}

fn to_proxy(port: i32) -> Value {
    let labels = json!({
        "app": "mcpserver", "app.kubernetes.io/name": "mcpserver", "app.kubernetes.io/instance": "fetch",
        "toolhive": "true", "toolhive-name": "fetch",
    });
    json!({"from": [{"podSelector": {"matchLabels": labels}}], "ports": [{"port": port, "protocol": "TCP"}]})
}

#[test]
fn only_the_proxy_reaches_the_server_and_only_on_its_port() {
    let ports = |ports: Value| json!({"spec": {"containers": [{"name": "mcp", "ports": ports}]}});
    let cases = [
        (json!({"image": "x", "transport": "streamable-http"}), Some(to_proxy(8080)), None),
        (
            json!({"image": "x", "transport": "streamable-http", "proxyPort": 1, "mcpPort": 3001}),
            Some(to_proxy(3001)),
            None,
        ),
        (json!({"image": "x", "transport": "sse", "mcpPort": 7}), Some(to_proxy(7)), None),
        (json!({"image": "x", "transport": "stdio"}), None, None),
        (json!({"image": "x", "transport": "stdio", "mcpPort": 7}), None, None),
        // Listing the server's port does not open it, under no protocol and in no container.
        (
            json!({"image": "x", "transport": "streamable-http", "mcpPort": 7, "podTemplateSpec": ports(json!([
                {"containerPort": 7}, {"containerPort": 7, "protocol": "TCP", "name": "a"}, {"containerPort": 7, "protocol": "UDP", "name": "b"},
            ]))}),
            Some(to_proxy(7)),
            None,
        ),
        (
            json!({"image": "x", "transport": "sse", "mcpPort": 7, "podTemplateSpec": {"spec": {
                "containers": [{"name": "side", "ports": [{"containerPort": 9}, {"containerPort": 7}]}],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always", "ports": [
                    {"containerPort": 7}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 9}]}],
            }}}),
            Some(to_proxy(7)),
            Some(json!([{"port": 9, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}])),
        ),
        (
            json!({"image": "x", "transport": "stdio", "podTemplateSpec": ports(json!([{"containerPort": 9090, "name": "metrics"}]))}),
            None,
            Some(json!([{"port": 9090, "protocol": "TCP"}])),
        ),
    ];
    for (spec, proxy, others) in cases {
        let plan = World::of(spec.clone()).plan();
        let policy = policy(&plan);
        assert_eq!(policy["policyTypes"], json!(["Ingress"]), "{spec}: what goes out is not ours to close");
        assert_eq!(policy.get("egress"), None, "{spec}");
        let open = others.map(|ports| json!({"ports": ports}));
        let rules: Vec<_> = [proxy, open].into_iter().flatten().collect();
        assert_eq!(policy["ingress"].as_array().cloned().unwrap_or_default(), rules, "{spec}");
    }
}

#[test]
fn the_policy_selects_the_pods_of_the_server_and_not_its_proxies_whatever_it_is_called() {
    for name in ["fetch", "mcpserver"] {
        let mut world = World::of(json!({"image": "x", "transport": "streamable-http", "podTemplateSpec": {
        "metadata": {
            "labels": {
                "app": "hidden", "toolhive-basename": "hidden", "toolhive-name": "hidden",
                "app.kubernetes.io/name": "mcpserver", "app.kubernetes.io/instance": name,
            },
            "annotations": {"toolhive.stacklok.dev/guards": "MCPWebhookConfig/gates/forged"},
        }}}));
        world.workload.metadata.name = Some(name.into());
        let plan = world.plan();
        let of = |kind, name: &str| child(&plan, kind, name).unwrap().clone();
        let policy = of(ChildKind::NetworkPolicy, &format!("mcp-{name}"))["spec"].clone();
        let (server, proxy) = (of(ChildKind::StatefulSet, name), of(ChildKind::Deployment, name));
        assert!(selects(&policy["podSelector"], labels(&server)), "{name}");
        assert!(!selects(&policy["podSelector"], labels(&proxy)), "{name}");
        let from = &policy["ingress"][0]["from"][0]["podSelector"];
        assert!(selects(from, labels(&proxy)), "{name}");
        assert!(!selects(from, labels(&server)), "{name}: another pod of the server is no proxy of it");
        let service = of(ChildKind::Service, &format!("mcp-{name}-proxy"))["spec"]["selector"].clone();
        assert!(!selects(&json!({"matchLabels": service}), labels(&server)), "{name}: clients go to the proxy");
        assert!(!server["spec"]["template"].to_string().contains("forged"), "{name}: it says nothing of guards");
    }
}

#[test]
fn the_proxy_of_another_server_is_not_let_in() {
    let plan = World::of(json!({"image": "x", "transport": "streamable-http"})).plan();
    let mut other = World::of(json!({"image": "x", "transport": "streamable-http"}));
    other.workload.metadata.name = Some("other".into());
    let other = other.plan();
    let from = &policy(&plan)["ingress"][0]["from"][0];
    assert!(selects(&from["podSelector"], labels(deployment(&plan))));
    let theirs = child(&other, ChildKind::Deployment, "other").unwrap();
    assert!(!selects(&from["podSelector"], labels(theirs)));
    assert_eq!(from.get("namespaceSelector"), None, "no other namespace either");
}

#[test]
fn the_way_is_closed_before_the_server_exists_and_until_the_last_of_it_is_gone() {
    let world = World::of(json!({"image": "x", "transport": "streamable-http"}));
    let plan = world.plan();
    assert!(stateful_set(&plan).is_object());
    let at = |kind| plan.children.iter().position(|child| child.reference.kind == kind).unwrap();
    assert!(at(ChildKind::NetworkPolicy) < at(ChildKind::StatefulSet));

    let mut going = world;
    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(going.now);
    going.workload.metadata.deletion_timestamp = Some(time);
    let plan = going.plan();
    assert!(is_absent(&plan, ChildKind::NetworkPolicy, "mcp-fetch"));
    let at = |kind| plan.absent.iter().position(|child| child.kind == kind).unwrap();
    assert!(at(ChildKind::StatefulSet) < at(ChildKind::NetworkPolicy));
}

// Security S20.
#[test]
fn a_way_around_the_proxy_is_told_in_a_condition() {
    const SERVER: (ChildKind, &str) = (ChildKind::StatefulSet, "fetch");
    const PROXY: (ChildKind, &str) = (ChildKind::Deployment, "fetch");
    const POLICY: (ChildKind, &str) = (ChildKind::NetworkPolicy, "mcp-fetch");
    let ports = |port: Value| json!({"containers": [{"name": "mcp", "ports": [port]}]});
    let none = Ways::default();
    let host_network = Ways { host_network: true, ..none };
    let host_port = Ways { host_port: true, ..none };
    let ingress = Ways { ingress: true, ..none };
    for (pod, others, reason, names) in [
        (json!({}), None, None, ""),
        (json!({"hostNetwork": false}), None, None, ""),
        (json!({"hostNetwork": true}), None, Some("HostNetwork"), "StatefulSet fetch"),
        (ports(json!({"containerPort": 9})), None, None, ""),
        (ports(json!({"containerPort": 9, "hostPort": 9})), None, Some("HostPort"), "StatefulSet fetch"),
        (json!({}), Some((SERVER, host_network)), Some("HostNetwork"), "StatefulSet fetch"),
        (json!({}), Some((PROXY, host_network)), Some("HostNetwork"), "Deployment fetch"),
        (json!({}), Some((PROXY, host_port)), Some("HostPort"), "Deployment fetch"),
        (json!({}), Some((POLICY, ingress)), Some("NetworkPolicyChanged"), "NetworkPolicy mcp-fetch"),
        (json!({"hostNetwork": true}), Some((POLICY, ingress)), Some("NetworkPolicyChanged"), "StatefulSet fetch"),
    ] {
        let spec = json!({"image": "x:1", "transport": "streamable-http", "podTemplateSpec": {"spec": pod.clone()}});
        let mut world = World::of(spec.clone());
        world.applied(&world.plan());
        // `kubectl apply` warns of what the spec itself opens.
        let warned = world.workload.warnings(&world.settings).len();
        assert_eq!(warned, usize::from(others.is_none() && reason.is_some() || pod["hostNetwork"] == true), "{pod}");
        if let Some(((kind, name), others)) = others {
            world.opened.insert(ChildRef::new(kind, name), Opened { others, ours: none });
        }
        let plan = world.plan();
        let told = condition(&plan, "NetworkRestricted", "False");
        assert_eq!(told.as_ref().map(|(reason, _)| &**reason), reason, "{spec} {others:?}");
        let all = plan.conditions.iter().filter(|condition| condition.type_ == "NetworkRestricted").count();
        assert_eq!(all, usize::from(reason.is_some()), "{spec}");
        let Some((reason, message)) = told else { continue };
        assert!(message.contains(names), "{message}");
        world.workload.status = None;
        let events = world.plan().events;
        assert!(events.iter().any(|event| event.reason == reason), "{events:?}");
    }
}

/// Running pods go on, and nothing is applied that would close the way.
#[test]
fn a_refused_edit_does_not_hide_a_way_around_the_proxy() {
    let mut world = World::of(json!({"image": "x:1", "podTemplateSpec": {"spec": {"hostNetwork": true}}}));
    world.applied(&world.plan());
    world.workload.spec.image = String::new();
    assert_eq!(condition(&world.plan(), "NetworkRestricted", "False"), None);
    let ours = Ways { host_network: true, ..Ways::default() };
    let server = ChildRef::new(ChildKind::StatefulSet, "fetch");
    world.opened.insert(server, Opened { ours, ..Opened::default() });
    assert_eq!(condition(&world.plan(), "NetworkRestricted", "False").unwrap().0, "HostNetwork");
    assert!(world.children.remove(&ChildRef::new(ChildKind::NetworkPolicy, "mcp-fetch")));
    assert_eq!(condition(&world.plan(), "NetworkRestricted", "False").unwrap().0, "NetworkPolicyMissing");
}
