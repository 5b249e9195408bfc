//! VirtualMCPServers.

use serde_json::{Value, json};

use super::{
    auth_server, authz_config, condition, inline_authz_config, object, oidc_config_ref, rate_limiting, session_storage,
};

pub(super) fn all() -> Vec<Value> {
    let status = json!({
        "authzConfigHash": "a", "oidcConfigHash": "b", "telemetryConfigHash": "c",
        "backendCount": 1, "conditions": [condition()], "discoveredBackends": [discovered_backend()],
        "message": "it serves", "observedGeneration": 1, "phase": "Ready",
        "runtime": {
            "backendCount": 1, "conditions": [condition()], "discoveredBackends": [discovered_backend()],
            "message": "it serves", "phase": "Degraded",
        },
        "url": "http://vmcp-example.demo.svc.cluster.local:4483/mcp",
    });
    let second = json!({
        "authServerConfig": auth_server::deprecated(),
        "authServerUpstreamFilter": {
            "claim": "groups",
            "defaultUpstreams": ["first"],
            "rules": [{"groups": ["staff"], "upstreamProviders": ["second"]}],
        },
        "config": {"optimizer": {"embeddingProvider": "openai", "embeddingHeaders": {"X-Team": "search"}}},
        "groupRef": {"name": "group"},
        "incomingAuth": {"type": "anonymous", "authzConfig": inline_authz_config()},
        "sessionStorage": {"provider": "memory"},
    });
    let third = json!({
        "authServerConfig": auth_server::without_users(),
        "groupRef": {"name": "group"},
        "incomingAuth": {"type": "anonymous", "authzConfigRef": {"name": "policies"}},
    });
    let api = "toolhive.stacklok.dev/v1beta1";
    vec![
        object(api, "VirtualMCPServer", first(), status),
        object(api, "VirtualMCPServer", second, json!({})),
        object(api, "VirtualMCPServer", third, json!({})),
    ]
}

/// The most that one spec can have.
fn first() -> Value {
    json!({
        "authServerConfig": auth_server::canonical(),
        "config": config(),
        "embeddingServerRef": {"name": "embeddings"},
        "groupRef": {"name": "group"},
        "imagePullSecrets": [{"name": "registry"}],
        "incomingAuth": {"type": "oidc", "authzConfig": authz_config(), "oidcConfigRef": oidc_config_ref()},
        "outgoingAuth": {
            "source": "inline",
            "backends": {"github": {"type": "externalAuthConfigRef", "externalAuthConfigRef": {"name": "github"}}},
            "default": {"type": "externalAuthConfigRef", "externalAuthConfigRef": {"name": "external"}},
        },
        "passthroughHeaders": ["X-Request-Id"],
        "podTemplateSpec": {"spec": {"containers": [{"name": "vmcp", "anything": {"nested": [1, "two"]}}]}},
        "replicas": 2,
        "serviceAccount": "virtual",
        "serviceType": "NodePort",
        "sessionAffinity": "None",
        "sessionStorage": session_storage(),
        "telemetryConfigRef": {"name": "telemetry", "serviceName": "virtual"},
    })
}

fn config() -> Value {
    json!({
        "aggregation": {
            "conflictResolution": "priority",
            "conflictResolutionConfig": {"prefixFormat": "{workload}.", "priorityOrder": ["github"]},
            "defaultToolVisibility": "deny",
            "excludeAllTools": false,
            "tools": [{
                "excludeAll": false,
                "filter": ["search"],
                "overrides": {"query": {"annotations": hints(), "description": "Searches.", "name": "search"}},
                "toolConfigRef": {"name": "tools"},
                "workload": "github",
            }],
        },
        "audit": {
            "component": "virtual", "detectApplicationErrors": false, "enabled": true, "eventTypes": ["tool_call"],
            "excludeEventTypes": ["ping"], "includeRequestData": true, "includeResponseData": true,
            "logFile": "/var/log/audit", "maxDataSize": 2048, "maxDelegationDepth": 5,
        },
        "backends": [{
            "caBundlePath": "/ca/ca.crt", "metadata": {"team": "a"}, "name": "legacy", "transport": "sse",
            "type": "entry", "url": "https://legacy.example",
        }],
        "codeMode": {"enabled": true, "parallelMaxConcurrency": 5, "stepLimit": 1000, "toolCallTimeout": "10s"},
        "compositeToolRefs": [{"name": "deploy"}],
        "compositeTools": [composite_tool()],
        "groupRef": "group",
        "incomingAuth": {
            "authz": {
                "entitiesJson": "[]", "groupClaimName": "groups", "groupEntityType": "Team", "policies": ["permit;"],
                "primaryUpstreamProvider": "idp", "roleClaimName": "roles", "type": "cedar",
            },
            "oidc": {
                "audience": "virtual", "caBundlePath": "/ca/ca.crt", "clientId": "virtual",
                "clientSecretEnv": "SECRET", "insecureAllowHttp": true,
                "introspectionUrl": "https://idp.example/introspect", "issuer": "https://idp.example",
                "jwksAllowPrivateIp": true, "jwksUrl": "https://idp.example/keys",
                "protectedResourceAllowPrivateIp": true, "resource": "https://virtual.example", "scopes": ["openid"],
            },
            "type": "oidc",
        },
        "metadata": {"team": "a"},
        "name": "virtual",
        "operational": {
            "failureHandling": {
                "circuitBreaker": {"enabled": true, "failureThreshold": 3, "timeout": "30s"},
                "healthCheckInterval": "1m", "healthCheckTimeout": "5s", "partialFailureMode": "best_effort",
                "statusReportingInterval": "1m", "unhealthyThreshold": 2,
            },
            "listChanged": {"disabledWorkloads": ["legacy"], "enabled": true},
            "logLevel": "debug",
            "timeouts": {"backendInit": "5s", "default": "20s", "perWorkload": {"github": "10s"}},
        },
        "optimizer": {
            "embeddingModel": "small", "embeddingProvider": "tei", "embeddingService": "http://embeddings",
            "embeddingServiceTimeout": "5s", "hybridSearchSemanticRatio": "0.5", "maxToolsToReturn": 8,
            "semanticDistanceThreshold": "1.0",
        },
        "outgoingAuth": {"source": "inline", "backends": {"github": strategy()}, "default": strategy()},
        "passthroughHeaders": ["X-Request-Id"],
        "rateLimiting": rate_limiting(),
        "sessionStorage": {"address": "redis:6379", "db": 1, "keyPrefix": "virtual", "provider": "redis"},
        "telemetry": {
            "caCertPath": "/ca/ca.crt", "customAttributes": {"team": "a"}, "enablePrometheusMetricsPath": true,
            "endpoint": "collector:4318", "environmentVariables": ["NODE"], "headers": {"X-Tenant": "a"},
            "insecure": true, "metricsEnabled": true, "metricsOnTransportPort": true, "prometheusPort": 9090,
            "samplingRate": "0.1", "serviceName": "virtual", "serviceVersion": "1", "tracingEnabled": true,
            "useLegacyAttributes": false,
        },
    })
}

fn composite_tool() -> Value {
    json!({
        "annotations": hints(),
        "description": "Deploys.",
        "name": "deploy",
        "output": {
            "properties": {"url": {
                "default": "none", "description": "Where it runs.", "properties": {"host": {"type": "string"}},
                "type": "string", "value": "{{.steps.run.output}}",
            }},
            "required": ["url"],
        },
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
        "steps": [{
            "arguments": {"name": "{{.params.name}}"}, "collection": "{{.params.names}}", "condition": "true",
            "defaultResults": {"ok": false}, "dependsOn": ["build"], "id": "run", "itemVar": "item",
            "maxIterations": 10, "maxParallel": 2, "message": "Go on?", "onCancel": {"action": "continue"},
            "onDecline": {"action": "skip_remaining"},
            "onError": {"action": "retry", "retryCount": 3, "retryDelay": "1s"},
            "schema": {"type": "object"}, "step": {"id": "inner", "tool": "github.create"}, "timeout": "1m",
            "tool": "github.deploy", "type": "forEach",
        }],
        "timeout": "5m",
    })
}

fn hints() -> Value {
    json!({
        "destructiveHint": false, "idempotentHint": true, "openWorldHint": false, "readOnlyHint": true,
        "title": "Search",
    })
}

/// A strategy with every member; which of them counts is not the schema's to say.
fn strategy() -> Value {
    json!({
        "awsSts": {
            "fallbackRoleArn": "arn:aws:iam::1:role/a", "region": "eu-west-1", "roleClaim": "groups",
            "roleMappings": [{"claim": "staff", "matcher": "true", "priority": 1, "roleArn": "arn:aws:iam::1:role/b"}],
            "service": "aws-mcp", "sessionDuration": 3600, "sessionNameClaim": "sub", "subjectProviderName": "idp",
        },
        "headerInjection": {"headerName": "X-Api-Key", "headerValue": "a", "headerValueEnv": "KEY"},
        "obo": {
            "audience": "a", "cacheSkewSeconds": 30, "clientId": "virtual", "clientSecret": "a",
            "clientSecretEnv": "SECRET", "scopes": ["read"], "subjectTokenProviderName": "idp",
            "tokenUrl": "https://idp.example/token",
        },
        "tokenExchange": {
            "audience": "a", "clientId": "virtual", "clientSecret": "a", "clientSecretEnv": "SECRET",
            "scopes": ["read"], "subjectProviderName": "idp", "subjectTokenType": "jwt",
            "tokenUrl": "https://idp.example/token",
        },
        "type": "token_exchange",
        "upstreamInject": {"providerName": "idp"},
        "xaa": {
            "idpClientId": "virtual", "idpClientSecret": "a", "idpClientSecretEnv": "SECRET",
            "idpTokenUrl": "https://idp.example/token", "insecureTargetTokenUrl": true, "scopes": ["read"],
            "subjectProviderName": "idp", "subjectTokenType": "id_token", "targetAudience": "https://target.example",
            "targetClientId": "virtual", "targetClientSecret": "a", "targetClientSecretEnv": "SECRET",
            "targetResource": "https://target.example/mcp", "targetTokenUrl": "https://target.example/token",
        },
    })
}

fn discovered_backend() -> Value {
    json!({
        "authConfigRef": "github", "authType": "token_exchange", "circuitBreakerState": "half-open",
        "circuitLastChanged": "2026-01-02T03:04:05Z", "consecutiveFailures": 2,
        "lastHealthCheck": "2026-01-02T03:04:05Z", "mcpRevision": "2025-11-25", "message": "it answers",
        "name": "github", "status": "ready", "url": "http://github.example",
    })
}
