//! What the types make of stored objects, and what they write.

use mcp_api::{
    v1alpha1::{FailurePolicy, MCPWebhookConfig, MCPWebhookConfigStatus},
    v1beta1::{
        ConfigStatus, ExternalAuthSpec, MCPAuthzConfig, MCPAuthzConfigSpec, MCPExternalAuthConfig, MCPOIDCConfig,
        MCPOIDCConfigSpec, MCPRemoteProxy, MCPRemoteProxySpec, MCPServer, MCPServerSpec, MCPServerStatus,
        MCPTelemetryConfig, MCPTelemetryConfigSpec, MCPToolConfig, MCPToolConfigSpec, Phase, ProxyMode,
        SessionAffinity, Transport, VirtualMCPServer, VirtualMCPServerSpec, VirtualServerPhase, WorkloadRef,
    },
};
use serde_json::{Value, json};

fn server(spec: &Value) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1",
        "kind": "MCPServer",
        "metadata": {"name": "fetch", "namespace": "demo"},
        "spec": spec,
    })
}

#[test]
fn an_object_without_a_spec_decodes_because_the_api_server_admits_it() {
    let mut object = server(&Value::Null);
    let null: MCPServer = serde_json::from_value(object.clone()).unwrap();
    object.as_object_mut().unwrap().remove("spec");
    let absent: MCPServer = serde_json::from_value(object).unwrap();
    for server in [null, absent] {
        assert_eq!(server.spec, MCPServerSpec::default());
        assert_eq!(server.spec.image, "");
    }
    let config: MCPWebhookConfig = serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": {"name": "gate"},
    }))
    .unwrap();
    assert!(config.spec.mutating.is_none() && config.spec.validating.is_none());
    let tools: MCPToolConfig = serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig", "metadata": {"name": "tools"},
    }))
    .unwrap();
    assert_eq!(tools.spec, MCPToolConfigSpec::default());
    let telemetry: MCPTelemetryConfig = serde_json::from_value(bare("MCPTelemetryConfig")).unwrap();
    assert_eq!(telemetry.spec, MCPTelemetryConfigSpec::default());
    let authz: MCPAuthzConfig = serde_json::from_value(bare("MCPAuthzConfig")).unwrap();
    assert_eq!(authz.spec, MCPAuthzConfigSpec::default());
    let credential: MCPExternalAuthConfig = serde_json::from_value(bare("MCPExternalAuthConfig")).unwrap();
    assert_eq!(credential.spec, ExternalAuthSpec::default());
    let oidc: MCPOIDCConfig = serde_json::from_value(bare("MCPOIDCConfig")).unwrap();
    assert_eq!(oidc.spec, MCPOIDCConfigSpec::default());
    let proxy: MCPRemoteProxy = serde_json::from_value(bare("MCPRemoteProxy")).unwrap();
    assert_eq!(proxy.spec, MCPRemoteProxySpec::default());
    let virtual_server: VirtualMCPServer = serde_json::from_value(bare("VirtualMCPServer")).unwrap();
    assert_eq!(virtual_server.spec, VirtualMCPServerSpec::default());
}

fn bare(kind: &str) -> Value {
    json!({"apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind, "metadata": {"name": "bare"}})
}

#[test]
fn members_that_the_schema_of_a_virtual_server_s_config_does_not_know_are_kept() {
    let mut object = bare("VirtualMCPServer");
    let config = json!({
        "aggregation": {"conflictResolution": "prefix"}, "experimental": {"deep": [1, 2]}, "name": "all",
    });
    object["spec"] = json!({"groupRef": {"name": "g"}, "incomingAuth": {"type": "anonymous"}, "config": config});
    let server: VirtualMCPServer = serde_json::from_value(object).unwrap();
    assert_eq!(server.spec.config.as_ref().unwrap().unknown.keys().collect::<Vec<_>>(), ["experimental"]);
    assert_eq!(serde_json::to_value(&server.spec).unwrap()["config"], config);
}

#[test]
fn a_virtual_server_s_defaults_are_those_of_the_schema() {
    let mut object = bare("VirtualMCPServer");
    object["spec"] = json!({
        "groupRef": {"name": "g"}, "incomingAuth": {"type": "anonymous"},
        "config": {
            "audit": {}, "codeMode": {}, "optimizer": {}, "telemetry": {}, "aggregation": {},
            "operational": {"failureHandling": {"circuitBreaker": {}}, "timeouts": {}},
        },
    });
    object["status"] = json!({"phase": "Sleeping"});
    let server: VirtualMCPServer = serde_json::from_value(object).unwrap();
    assert_eq!(server.status.unwrap().phase, None::<VirtualServerPhase>);
    let spec = serde_json::to_value(&server.spec).unwrap();
    let expected = json!({
        "groupRef": {"name": "g"}, "incomingAuth": {"type": "anonymous"},
        "serviceType": "ClusterIP", "sessionAffinity": "ClientIP",
        "config": {
            "aggregation": {"conflictResolution": "prefix"},
            "audit": {
                "detectApplicationErrors": true, "enabled": false, "includeRequestData": false,
                "includeResponseData": false, "maxDataSize": 1024, "maxDelegationDepth": 10,
            },
            "codeMode": {"parallelMaxConcurrency": 10, "stepLimit": 100_000, "toolCallTimeout": "30s"},
            "operational": {
                "failureHandling": {
                    "circuitBreaker": {"enabled": false, "failureThreshold": 5, "timeout": "60s"},
                    "healthCheckInterval": "30s", "healthCheckTimeout": "10s", "partialFailureMode": "fail",
                    "statusReportingInterval": "30s", "unhealthyThreshold": 3,
                },
                "timeouts": {"default": "30s"},
            },
            "optimizer": {"embeddingProvider": "tei", "embeddingServiceTimeout": "30s"},
            "telemetry": {
                "enablePrometheusMetricsPath": false, "insecure": false, "metricsEnabled": false,
                "samplingRate": "0.05", "tracingEnabled": false, "useLegacyAttributes": true,
            },
        },
    });
    assert_eq!(spec, expected);
}

#[test]
fn the_defaults_of_credentials_of_aws_are_those_of_the_schema() {
    let mut object = bare("MCPExternalAuthConfig");
    object["spec"] = json!({"type": "awsSts", "awsSts": {"region": "eu-central-1"}});
    let config: MCPExternalAuthConfig = serde_json::from_value(object).unwrap();
    let expected = json!({"type": "awsSts", "awsSts": {
        "region": "eu-central-1", "roleClaim": "groups", "service": "aws-mcp", "sessionDuration": 3600,
        "sessionNameClaim": "sub",
    }});
    assert_eq!(serde_json::to_value(&config.spec).unwrap(), expected);
}

#[test]
fn a_telemetry_configuration_s_defaults_are_those_of_the_schema() {
    let mut object = bare("MCPTelemetryConfig");
    object["spec"] = json!({"openTelemetry": {"tracing": {}, "metrics": {}}, "prometheus": {}});
    let config: MCPTelemetryConfig = serde_json::from_value(object).unwrap();
    let expected = json!({
        "openTelemetry": {
            "enabled": false, "insecure": false, "metrics": {"enabled": false},
            "tracing": {"enabled": false, "samplingRate": "0.05"}, "useLegacyAttributes": true,
        },
        "prometheus": {"enabled": false},
    });
    assert_eq!(serde_json::to_value(&config.spec).unwrap(), expected);
}

#[test]
fn a_spec_that_is_there_has_to_be_right() {
    let missing = serde_json::from_value::<MCPServer>(server(&json!({}))).unwrap_err();
    assert!(missing.to_string().contains("missing field `image`"), "{missing}");
    let wrong = serde_json::from_value::<MCPServer>(server(&json!({"image": "i", "transport": "smoke"}))).unwrap_err();
    assert!(wrong.to_string().contains("unknown variant `smoke`"), "{wrong}");
}

#[test]
fn a_failure_policy_is_read_in_any_case_and_written_in_lower_case() {
    let config = |policy: &str| {
        serde_json::from_value::<MCPWebhookConfig>(json!({
            "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": {"name": "gate"},
            "spec": {"mutating": [{"name": "m", "url": "https://m.example", "failurePolicy": policy}]},
        }))
    };
    for (text, policy) in [
        ("fail", FailurePolicy::Fail),
        ("Fail", FailurePolicy::Fail),
        ("FAIL", FailurePolicy::Fail),
        ("ignore", FailurePolicy::Ignore),
        ("Ignore", FailurePolicy::Ignore),
        ("IGNORE", FailurePolicy::Ignore),
    ] {
        let webhook = config(text).unwrap().spec.mutating.unwrap().remove(0);
        assert_eq!(webhook.failure_policy, policy, "{text}");
        assert_eq!(serde_json::to_value(webhook).unwrap()["failurePolicy"], text.to_ascii_lowercase());
    }
    for text in ["", "open", "fail "] {
        let error = config(text).unwrap_err().to_string();
        assert!(error.contains("expected `fail` or `ignore`"), "{text:?}: {error}");
    }
}

#[test]
fn a_phase_that_another_operator_wrote_does_not_keep_a_server_from_being_reconciled() {
    for (text, phase) in [("Running", None), ("", None), ("Ready", Some(Phase::Ready))] {
        let mut object = server(&json!({"image": "i"}));
        object["status"] = json!({"phase": text, "message": "kept"});
        let status = serde_json::from_value::<MCPServer>(object).unwrap().status.unwrap();
        assert_eq!((status.phase, status.message.as_deref()), (phase, Some("kept")), "{text:?}");
    }
}

#[test]
fn referring_workloads_sort_by_kind_and_then_by_name() {
    let workload = |kind: &str, name: &str| WorkloadRef { kind: kind.into(), name: name.into() };
    let mut workloads = vec![workload("VirtualMCPServer", "a"), workload("MCPServer", "b"), workload("MCPServer", "a")];
    workloads.sort();
    let status = ConfigStatus { referencing_workloads: Some(workloads), ..ConfigStatus::default() };
    let expected = json!({"referencingWorkloads": [
        {"kind": "MCPServer", "name": "a"}, {"kind": "MCPServer", "name": "b"}, {"kind": "VirtualMCPServer", "name": "a"},
    ]});
    assert_eq!(serde_json::to_value(status).unwrap(), expected);
}

#[test]
fn absent_members_have_the_schema_s_defaults() {
    let server: MCPServer = serde_json::from_value(server(&json!({
        "image": "i",
        "permissionProfile": {"name": "none"},
        "authzConfig": {"configMap": {"name": "policies"}},
        "volumes": [{"name": "data", "hostPath": "/srv", "mountPath": "/data"}],
    })))
    .unwrap();
    let expected = MCPServerSpec { image: "i".into(), ..MCPServerSpec::default() };
    assert_eq!(
        (server.spec.transport, server.spec.proxy_mode, server.spec.proxy_port, server.spec.session_affinity),
        (Transport::Stdio, ProxyMode::StreamableHttp, 8080, SessionAffinity::ClientIp)
    );
    assert_eq!(
        (server.spec.transport, server.spec.proxy_mode, server.spec.proxy_port, server.spec.session_affinity),
        (expected.transport, expected.proxy_mode, expected.proxy_port, expected.session_affinity)
    );
    let spec = serde_json::to_value(&server.spec).unwrap();
    assert_eq!(spec["permissionProfile"]["type"], "builtin");
    assert_eq!(spec["authzConfig"]["type"], "configMap");
    assert_eq!(spec["authzConfig"]["configMap"]["key"], "authz.json");
    assert_eq!(spec["volumes"][0]["readOnly"], false);

    let config: MCPWebhookConfig = serde_json::from_value(json!({
        "metadata": {"name": "gate"},
        "apiVersion": "toolhive.stacklok.dev/v1alpha1",
        "kind": "MCPWebhookConfig",
        "spec": {"validating": [{"name": "v", "url": "https://v.example"}]},
    }))
    .unwrap();
    assert_eq!(config.spec.validating.unwrap()[0].failure_policy, FailurePolicy::Fail);
}

#[test]
fn members_of_older_manifests_are_passed_over() {
    let spec = json!({"image": "i", "port": 8080, "targetPort": 8080, "oidcConfig": {"type": "kubernetes"}});
    let server: MCPServer = serde_json::from_value(server(&spec)).unwrap();
    assert_eq!(server.spec.image, "i");
}

#[test]
fn nothing_absent_is_written_so_that_an_apply_claims_only_what_was_set() {
    let spec = serde_json::to_value(MCPServerSpec { image: "i".into(), ..MCPServerSpec::default() }).unwrap();
    let expected = json!({
        "image": "i", "proxyMode": "streamable-http", "proxyPort": 8080, "sessionAffinity": "ClientIP",
        "transport": "stdio", "trustProxyHeaders": false,
    });
    assert_eq!(spec, expected, "the values that the API server would default, and no others");
    assert_eq!(serde_json::to_value(MCPServerStatus::default()).unwrap(), json!({}));
    assert_eq!(serde_json::to_value(MCPWebhookConfigStatus::default()).unwrap(), json!({}));
    assert_eq!(serde_json::to_value(MCPToolConfigSpec::default()).unwrap(), json!({}));
    assert_eq!(serde_json::to_value(ConfigStatus::default()).unwrap(), json!({}));
}

#[test]
fn the_text_of_an_enum_is_what_manifests_hold() {
    for transport in [Transport::Stdio, Transport::StreamableHttp, Transport::Sse] {
        assert_eq!(serde_json::to_value(transport).unwrap(), transport.as_str());
        assert_eq!(transport.to_string(), transport.as_str());
    }
}
