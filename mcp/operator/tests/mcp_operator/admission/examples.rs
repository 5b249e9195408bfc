//! ToolHive's examples (`examples/operator` of stacklok/toolhive, Apache-2.0) ask for these combinations of fields. The objects here are our
//! own, one for each combination, as the examples are applied: beside the operator, before what they refer to. Left out are the kinds that this
//! operator does not serve: MCPGroup, MCPRegistry, MCPServerEntry, EmbeddingServer and
//! VirtualMCPCompositeToolDefinition.

use serde_json::{Value, json};

use super::{
    Gate,
    support::{exchange, external_auth_config, oidc_config, remote_proxy, telemetry_config, tool_config},
};

fn server(name: &str, transport: &str, change: Value) -> Value {
    let resources = json!({"limits": {"cpu": "100m", "memory": "128Mi"}, "requests": {"cpu": "50m", "memory": "64Mi"}});
    let mut spec =
        json!({"image": "example.com/mcp/server", "transport": transport, "proxyPort": 8080, "resources": resources});
    if transport != "stdio" {
        spec["mcpPort"] = json!(8080);
    }
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": {"name": name}, "spec": spec,
    })
}

fn restarted(mut server: Value, strategy: &str) -> Value {
    server["metadata"]["annotations"] = json!({
        "mcpserver.toolhive.stacklok.dev/restarted-at": "", "mcpserver.toolhive.stacklok.dev/restart-strategy": strategy,
    });
    server
}

fn servers() -> Vec<Value> {
    let token = json!([{"name": "token", "key": "value", "targetEnvName": "TOKEN"}]);
    let pod = json!({
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "mcp", "effect": "NoSchedule"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "mcp", "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsUser": 1000},
        }],
    });
    let account = |name: &str| json!({"podTemplateSpec": {"spec": {"serviceAccountName": name, "containers": [{"name": "mcp"}]}}});
    let both = json!({"labels": {"team": "platform", "example.com/a": "b"}, "annotations": {"example.com/c": "d", "e.f/g": "h.i"}});
    let vault = json!({
        "vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/role": "workloads",
        "vault.hashicorp.com/agent-inject-secret-config": "secrets/data/config",
        "vault.hashicorp.com/agent-inject-template-config": "{{- with secret \"secrets/data/config\" -}}\nT={{ .Data.token }}\n{{- end -}}\n",
    });
    vec![
        server("plain", "stdio", json!({})),
        server("streaming", "streamable-http", json!({"env": [{"name": "TRANSPORT", "value": "streamable-http"}]})),
        server("sse", "sse", json!({"env": [{"name": "TRANSPORT", "value": "sse"}]})),
        server("secrets", "stdio", json!({"secrets": token, "env": [{"name": "LOG_LEVEL", "value": "info"}]})),
        server("profile", "sse", json!({"permissionProfile": {"type": "builtin", "name": "network"}})),
        server("template", "sse", json!({"podTemplateSpec": {"spec": pod}})),
        server("runner", "sse", account("runner-proxy-runner")),
        server("account", "sse", account("toolhive")),
        server("overrides", "stdio", json!({"resourceOverrides": {"proxyDeployment": both, "proxyService": both}})),
        server(
            "vault",
            "stdio",
            json!({"resourceOverrides": {"proxyDeployment": {"podTemplateMetadataOverrides": {"annotations": vault}}}}),
        ),
        server("group", "streamable-http", json!({"groupRef": {"name": "services"}})),
        server("tools", "streamable-http", json!({"toolConfigRef": {"name": "tools"}})),
        server("exchange", "streamable-http", json!({"externalAuthConfigRef": {"name": "exchange"}})),
        server(
            "login",
            "streamable-http",
            json!({"oidcConfigRef": {"name": "idp", "audience": "login", "scopes": ["openid"]}}),
        ),
        server(
            "telemetry",
            "streamable-http",
            json!({"telemetryConfigRef": {"name": "telemetry", "serviceName": "fetch"}}),
        ),
        restarted(server("rolling", "stdio", json!({})), "rolling"),
        restarted(server("immediate", "stdio", json!({})), "immediate"),
    ]
}

fn virtual_servers() -> Vec<Value> {
    let policies = json!({"type": "inline", "inline": {"policies": ["permit(principal, action, resource);"]}});
    let anonymous = json!({"type": "anonymous", "authzConfig": policies});
    let operational = json!({
        "failureHandling": {"healthCheckInterval": "30s", "unhealthyThreshold": 3, "partialFailureMode": "fail"},
        "timeouts": {"default": "5m", "perWorkload": {"sse": "3m"}},
    });
    let server = |name: &str, config: Value, change: Value| {
        let mut spec = json!({
            "groupRef": {"name": "services"}, "incomingAuth": anonymous, "outgoingAuth": {"source": "discovered"}, "config": config,
        });
        spec["config"]["operational"] = operational.clone();
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "VirtualMCPServer", "metadata": {"name": name}, "spec": spec,
        })
    };
    let resolved = |strategy: &str, how: Value| json!({"aggregation": {"conflictResolution": strategy, "conflictResolutionConfig": how}});
    let prefixed = resolved("prefix", json!({"prefixFormat": "{workload}_"}));
    let with = |member: &str, value: Value| {
        let mut config = prefixed.clone();
        config[member] = value;
        config
    };
    let tools = json!([{"workload": "sse", "filter": ["echo", "add"]}, {"workload": "streaming", "filter": ["fetch"]}]);
    let optimizer = json!({
        "embeddingServiceTimeout": "45s", "maxToolsToReturn": 10, "hybridSearchSemanticRatio": "0.7", "semanticDistanceThreshold": "0.8",
    });
    let preference = json!({"matchExpressions": [{"key": "type", "operator": "In", "values": ["production"]}]});
    let affinity = json!({"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": preference}],
    }});
    let container = json!({"name": "vmcp", "resources": {"limits": {"cpu": "1"}}, "env": [{"name": "VMCP_LOG_LEVEL", "value": "info"}]});
    let login = json!({"type": "oidc", "oidcConfigRef": {"name": "idp", "audience": "all"}, "authzConfig": policies});
    vec![
        server("prefix", prefixed.clone(), json!({})),
        server("priority", resolved("priority", json!({"priorityOrder": ["sse", "streaming"]})), json!({})),
        server("manual", json!({"aggregation": {"conflictResolution": "manual", "tools": tools}}), json!({})),
        server("composite", with("compositeToolRefs", json!([{"name": "steps"}])), json!({})),
        server("optimizer", with("optimizer", optimizer), json!({"embeddingServerRef": {"name": "embedding"}})),
        server(
            "telemetry",
            prefixed.clone(),
            json!({"telemetryConfigRef": {"name": "telemetry", "serviceName": "all"}}),
        ),
        server(
            "production",
            prefixed.clone(),
            json!({
                "incomingAuth": login, "serviceType": "LoadBalancer",
                "podTemplateSpec": {"spec": {"containers": [container], "affinity": affinity}},
            }),
        ),
    ]
}

fn others() -> Vec<Value> {
    let key = json!({"name": "idp", "key": "client-secret"});
    let mut cluster = oidc_config("cluster", json!({}));
    cluster["spec"] = json!({"type": "kubernetesServiceAccount", "kubernetesServiceAccount": {}});
    let login = json!({"name": "idp", "audience": "proxy"});
    vec![
        cluster,
        oidc_config(
            "idp",
            json!({"clientId": "client", "clientSecretRef": key, "jwksUrl": "https://idp.example.com/keys"}),
        ),
        telemetry_config(
            "telemetry",
            json!({"endpoint": "https://otel.example.com:4318", "metrics": {"enabled": true}}),
        ),
        external_auth_config(
            "exchange",
            exchange(json!({
                "clientId": "client", "clientSecretRef": key, "scopes": ["read", "write"],
                "externalTokenHeaderName": "X-Upstream-Token",
            })),
        ),
        external_auth_config("bearer", json!({"type": "bearerToken", "bearerToken": {"tokenSecretRef": key}})),
        tool_config("tools", json!({"toolsFilter": ["fetch"]})),
        tool_config("renamed", json!({"toolsOverride": {"fetch": {"name": "get", "description": "Gets a page"}}})),
        remote_proxy("proxy", json!({"transport": "streamable-http", "proxyPort": 8080, "oidcConfigRef": login})),
        remote_proxy("bearer", json!({"oidcConfigRef": login, "externalAuthConfigRef": {"name": "bearer"}})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn toolhives_examples_get_warnings_at_most() {
    let gate = Gate::at_home("examples").await;
    let _operator = gate.serving(&[]).await;
    for object in servers().into_iter().chain(virtual_servers()).chain(others()) {
        let answer = gate.objects.post(object.clone(), true).await;
        assert_eq!(answer.code, 201, "{object}: {}", answer.body);
        let unknown = answer.warnings.iter().find(|warning| warning.contains("unknown field"));
        assert_eq!(unknown, None, "{object}: the schema has every field");
    }
}
