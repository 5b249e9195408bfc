//! Objects that every constraint admits. Together the objects of a kind have every member its schema knows.

mod auth_server;
mod external_auth_config;
mod virtual_server;

use serde_json::{Value, json};

use crate::contract::document::Contract;

/// Members that the schema knows and a rule refuses.
pub(crate) const REFUSED: [(&str, &str); 1] = [("VirtualMCPServer", ".spec.config.sessionStorage.tls")];

pub(crate) fn of(kind: &str) -> Vec<Value> {
    match kind {
        "MCPExternalAuthConfig" => external_auth_config::all(),
        "MCPOIDCConfig" => mcp_oidc_configs(),
        "MCPRemoteProxy" => mcp_remote_proxies(),
        "MCPServer" => mcp_servers(),
        "MCPTelemetryConfig" => vec![mcp_telemetry_config()],
        "MCPWebhookConfig" => vec![mcp_webhook_config()],
        "VirtualMCPServer" => virtual_server::all(),
        other => in_contract(other),
    }
}

/// The examples that stand in the contract of a kind, each with its spec and its status.
fn in_contract(kind: &str) -> Vec<Value> {
    let contract = Contract::of(kind);
    let version = format!("toolhive.stacklok.dev/{}", contract.stored());
    let examples = contract.0["examples"].as_array().unwrap_or_else(|| panic!("no examples of {kind}"));
    examples.iter().map(|it| object(&version, kind, it["spec"].clone(), it["status"].clone())).collect()
}

fn mcp_oidc_configs() -> Vec<Value> {
    let inline = json!({
        "type": "inline",
        "inline": {
            "caBundleRef": {"configMapRef": {"name": "provider-ca", "key": "ca.crt", "optional": false}},
            "clientId": "proxy",
            "clientSecretRef": {"name": "a-secret", "key": "a-key"},
            "insecureAllowHTTP": true,
            "introspectionUrl": "https://idp.example/introspect",
            "issuer": "https://idp.example",
            "jwksAllowPrivateIP": true,
            "jwksAuthTokenPath": "/var/run/secrets/token",
            "jwksUrl": "https://idp.example/keys",
            "protectedResourceAllowPrivateIP": true,
        },
    });
    let cluster = json!({
        "type": "kubernetesServiceAccount",
        "kubernetesServiceAccount": {
            "introspectionUrl": "https://idp.example/introspect",
            "issuer": "https://kubernetes.example",
            "jwksUrl": "https://kubernetes.example/openid/v1/jwks",
            "namespace": "demo",
            "serviceAccount": "caller",
            "useClusterAuth": true,
        },
    });
    let status = json!({
        "conditions": [condition()], "configHash": "a", "observedGeneration": 1,
        "referencingWorkloads": [{"kind": "MCPServer", "name": "server"}],
    });
    let api = "toolhive.stacklok.dev/v1beta1";
    vec![object(api, "MCPOIDCConfig", inline, status), object(api, "MCPOIDCConfig", cluster, json!({}))]
}

/// One that has every member, but for the choices that exclude each other; the others choose differently.
fn mcp_remote_proxies() -> Vec<Value> {
    let full = json!({
        "allowPrivateEndpoint": true,
        "audit": {"enabled": true},
        "authServerRef": {"kind": "MCPExternalAuthConfig", "name": "auth-server"},
        "authzConfig": authz_config(),
        "endpointPrefix": "/tools",
        "externalAuthConfigRef": {"name": "external"},
        "groupRef": {"name": "group"},
        "headerForward": {
            "addHeadersFromSecret": [{"headerName": "X-Api-Key", "valueSecretRef": secret_key()}],
            "addPlaintextHeaders": {"X-Tenant": "a"},
        },
        "oidcConfigRef": oidc_config_ref(),
        "podTemplateSpec": {"spec": {"containers": [{"name": "toolhive", "anything": {"nested": [1, "two"]}}]}},
        "proxyPort": 9090,
        "remoteUrl": "https://mcp.example/mcp",
        "replicas": 2,
        "resourceOverrides": resource_overrides(),
        "resources": resources(),
        "serviceAccount": "proxy",
        "sessionAffinity": "None",
        "sessionStorage": session_storage(),
        "telemetryConfigRef": {"name": "telemetry", "serviceName": "proxy"},
        "toolConfigRef": {"name": "tools"},
        "transport": "sse",
        "trustProxyHeaders": true,
    });
    let status = json!({
        "authServerConfigHash": "a", "authzConfigHash": "b", "externalAuthConfigHash": "c", "oidcConfigHash": "d",
        "telemetryConfigHash": "e", "toolConfigHash": "f",
        "conditions": [condition()], "externalUrl": "https://proxy.example/mcp", "message": "the proxy serves",
        "observedGeneration": 1, "phase": "Ready", "url": "http://mcp-example-remote-proxy.demo.svc.cluster.local:8080/mcp",
    });
    let inline = json!({
        "remoteUrl": "https://mcp.example/mcp",
        "authzConfig": inline_authz_config(),
        "sessionStorage": {"provider": "memory"},
    });
    let shared = json!({"remoteUrl": "https://mcp.example/mcp", "authzConfigRef": {"name": "policies"}});
    let api = "toolhive.stacklok.dev/v1beta1";
    vec![
        object(api, "MCPRemoteProxy", full, status),
        object(api, "MCPRemoteProxy", inline, json!({})),
        object(api, "MCPRemoteProxy", shared, json!({})),
    ]
}

/// As [`mcp_remote_proxies`].
fn mcp_servers() -> Vec<Value> {
    let full = json!({
        "args": ["--verbose"],
        "audit": {"enabled": true},
        "authServerRef": {"kind": "MCPExternalAuthConfig", "name": "auth-server"},
        "authzConfig": authz_config(),
        "backendReplicas": 2,
        "endpointPrefix": "/tools",
        "env": [{"name": "LOG", "value": "debug"}],
        "externalAuthConfigRef": {"name": "external"},
        "groupRef": {"name": "group"},
        "image": "registry.example/server:1",
        "maxRequestBodySize": 1_048_576,
        "mcpPort": 8081,
        "oidcConfigRef": oidc_config_ref(),
        "permissionProfile": {"type": "configmap", "name": "profiles", "key": "profile.json"},
        "podTemplateSpec": {"spec": {"containers": [{"name": "mcp", "anything": {"nested": [1, "two"]}}]}},
        "proxyMode": "sse",
        "proxyPort": 9090,
        "proxyReadTimeout": "1m0s",
        "rateLimiting": rate_limiting(),
        "replicas": 2,
        "resourceOverrides": resource_overrides(),
        "resources": resources(),
        "secrets": [{"name": "a-secret", "key": "a-key", "targetEnvName": "TOKEN"}],
        "serviceAccount": "server",
        "sessionAffinity": "None",
        "sessionStorage": session_storage(),
        "telemetryConfigRef": {"name": "telemetry", "serviceName": "server"},
        "toolConfigRef": {"name": "tools"},
        "transport": "streamable-http",
        "trustProxyHeaders": true,
        "volumes": [{"name": "data", "hostPath": "/srv", "mountPath": "/data", "readOnly": true}],
        "webhookConfigRef": {"name": "gate"},
    });
    let status = json!({
        "authServerConfigHash": "a", "authzConfigHash": "b", "externalAuthConfigHash": "c", "oidcConfigHash": "d",
        "telemetryConfigHash": "e", "toolConfigHash": "f", "webhookConfigHash": "g",
        "conditions": [condition()], "message": "MCP server is running", "observedGeneration": 1, "phase": "Ready",
        "readyReplicas": 1, "url": "http://mcp-example-proxy.demo.svc.cluster.local:8080/mcp",
    });
    let inline = json!({
        "image": "registry.example/server:1",
        "authzConfig": inline_authz_config(),
        "sessionStorage": {"provider": "memory"},
    });
    let shared = json!({"image": "registry.example/server:1", "authzConfigRef": {"name": "policies"}});
    let api = "toolhive.stacklok.dev/v1beta1";
    vec![
        object(api, "MCPServer", full, status),
        object(api, "MCPServer", inline, json!({})),
        object(api, "MCPServer", shared, json!({})),
    ]
}

fn secret_key() -> Value {
    json!({"name": "a-secret", "key": "a-key"})
}

fn oidc_config_ref() -> Value {
    json!({"audience": "server", "name": "oidc", "resourceUrl": "https://server.example", "scopes": ["openid"]})
}

fn authz_config() -> Value {
    json!({
        "type": "configMap",
        "configMap": {"name": "policies", "key": "policies.json"},
        "groupClaimName": "groups",
        "groupEntityType": "Team",
        "roleClaimName": "roles",
    })
}

fn inline_authz_config() -> Value {
    let policies = ["permit(principal, action, resource);"];
    json!({
        "type": "inline",
        "inline": {"entitiesJson": "[{}]", "policies": policies, "primaryUpstreamProvider": "idp"},
    })
}

fn rate_limiting() -> Value {
    let bucket = json!({"maxTokens": 10, "refillPeriod": "1m0s"});
    json!({"perUser": bucket, "shared": bucket, "tools": [{"name": "fetch", "perUser": bucket, "shared": bucket}]})
}

fn session_storage() -> Value {
    json!({
        "provider": "redis", "address": "redis:6379", "db": 1, "keyPrefix": "server", "passwordRef": secret_key(),
        "tls": {"caCertSecretRef": secret_key(), "insecureSkipVerify": false},
    })
}

fn resources() -> Value {
    json!({"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}})
}

fn resource_overrides() -> Value {
    let metadata = json!({"annotations": {"note": "a"}, "labels": {"team": "b"}});
    json!({
        "proxyDeployment": {
            "affinity": affinity(),
            "annotations": {"note": "a"},
            "env": [{"name": "LOG", "value": "debug"}],
            "imagePullSecrets": [{"name": "registry"}],
            "labels": {"team": "b"},
            "nodeSelector": {"disk": "ssd"},
            "podTemplateMetadataOverrides": metadata,
            "tolerations": [
                {"effect": "NoExecute", "key": "gpu", "operator": "Equal", "tolerationSeconds": 60, "value": "yes"},
            ],
        },
        "proxyService": metadata,
    })
}

/// A core/v1 Affinity with every member.
fn affinity() -> Value {
    let requirement = json!([{"key": "zone", "operator": "In", "values": ["a"]}]);
    let nodes = json!({"matchExpressions": requirement, "matchFields": requirement});
    let labels = json!({"matchExpressions": requirement, "matchLabels": {"app": "fetch"}});
    let pods = json!({
        "labelSelector": labels, "matchLabelKeys": ["version"], "mismatchLabelKeys": ["tenant"],
        "namespaceSelector": labels, "namespaces": ["demo"], "topologyKey": "kubernetes.io/hostname",
    });
    let places = json!({
        "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": pods, "weight": 1}],
        "requiredDuringSchedulingIgnoredDuringExecution": [pods],
    });
    json!({
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"preference": nodes, "weight": 1}],
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [nodes]},
        },
        "podAffinity": places,
        "podAntiAffinity": places,
    })
}

fn mcp_telemetry_config() -> Value {
    let spec = json!({
        "openTelemetry": {
            "caBundleRef": {"configMapRef": {"name": "collector-ca", "key": "ca.crt", "optional": false}},
            "enabled": true,
            "endpoint": "https://collector.example:4318",
            "headers": {"x-tenant": "acme"},
            "insecure": false,
            "metrics": {"enabled": true},
            "resourceAttributes": {"deployment.environment": "test"},
            "sensitiveHeaders": [{"name": "x-api-key", "secretKeyRef": secret_key()}],
            "tracing": {"enabled": true, "samplingRate": "0.25"},
            "useLegacyAttributes": false,
        },
        "prometheus": {"enabled": true, "metricsOnTransportPort": false},
    });
    let status = json!({
        "conditions": [condition()], "configHash": "a", "observedGeneration": 1,
        "referencingWorkloads": [{"kind": "MCPServer", "name": "server"}],
    });
    object("toolhive.stacklok.dev/v1beta1", "MCPTelemetryConfig", spec, status)
}

fn mcp_webhook_config() -> Value {
    let reference = |key: &str| json!({"name": "a-secret", "key": key});
    let webhook = json!({
        "name": "policy",
        "url": "https://policy.example/check",
        "failurePolicy": "ignore",
        "timeout": "5s",
        "hmacSecretRef": reference("hmac"),
        "tlsConfig": {
            "caSecretRef": reference("ca.crt"),
            "clientCertSecretRef": reference("tls.crt"),
            "clientKeySecretRef": reference("tls.key"),
            "insecureSkipVerify": true,
        },
    });
    let status = json!({
        "conditions": [condition()], "configHash": "a", "observedGeneration": 1, "referencingServers": ["server"],
    });
    let spec = json!({"mutating": [webhook], "validating": [webhook]});
    object("toolhive.stacklok.dev/v1alpha1", "MCPWebhookConfig", spec, status)
}

fn condition() -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "it runs",
        "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1,
    })
}

fn object(api_version: &str, kind: &str, spec: Value, status: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "example"}, "spec": spec, "status": status})
}
