//! Refusals and warnings at `kubectl apply` of an MCPTelemetryConfig.

use serde_json::json;

use super::{
    Gate, fields,
    support::{labelled, telemetry_config},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_telemetry_config_that_cannot_work_is_refused() {
    let gate = Gate::new("telemetry").await;
    let _operator = gate.serving(&[]).await;
    let secret = json!({"name": "otel", "key": "token"});
    let header = |name: &str| json!({"sensitiveHeaders": [{"name": name, "secretKeyRef": secret}]});
    for (collector, field) in [
        (json!({"tracing": null}), "spec.openTelemetry.endpoint"),
        (json!({"endpoint": "grpc://otel:4317"}), "spec.openTelemetry.endpoint"),
        (header("x_api_key"), "spec.openTelemetry.sensitiveHeaders[0].name"),
        (
            json!({"insecure": true, "caBundleRef": {"configMapRef": {"name": "ca", "key": ""}}}),
            "spec.openTelemetry.caBundleRef",
        ),
    ] {
        let answer = gate.objects.post(telemetry_config("traces", collector.clone()), false).await;
        assert_eq!(answer.code, 422, "{collector}: {}", answer.body);
        assert!(fields(&answer.body).contains(&field), "{field} not in {}", answer.body);
    }
    let later = "until then the workloads that refer to this stay as they are";
    for (object, warnings) in [
        (telemetry_config("traces", json!({})), vec![]),
        (
            telemetry_config("headers", header("X-Api-Key")),
            vec![format!(
                "spec.openTelemetry.sensitiveHeaders[0].secretKeyRef: Secret \"otel\" does not exist yet; {later}"
            )],
        ),
        (labelled("found", json!({"telemetryConfigRef": {"name": "traces"}})), vec![]),
        (
            labelled("missing", json!({"telemetryConfigRef": {"name": "absent"}})),
            vec![
                "spec.telemetryConfigRef: MCPTelemetryConfig \"absent\" does not exist yet; until then no proxy is made, and one that runs stays as it is"
                    .to_owned(),
            ],
        ),
    ] {
        let answer = gate.objects.post(object, false).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        let said: Vec<_> = warnings.iter().map(|warning| format!("299 - \"{warning}\"")).collect();
        assert_eq!(answer.warnings, said);
    }
}
