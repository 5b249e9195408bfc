//! No secret of a credential is in anything that a proxy says of itself: its log, events of audit, spans, metrics and answers.

use portcullis_identity::{EXCHANGE_CLIENT, Provider};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Collector, Echo, Protocol, Runner, eventually, spans, within};

const RESOURCE: &str = "http://weather.example/mcp";
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{"text":"seen"}}}"#;

/// A credential: the members of the document, the variables of the process, and what must not be shown.
struct Credential {
    name: &'static str,
    members: Value,
    environment: Vec<(&'static str, String)>,
    secrets: Vec<String>,
    /// The status of a call.
    status: u16,
}

/// Looks at everything that a proxy with this credential says about one call.
async fn tells_nothing(credential: &Credential, provider: &Provider, caller: &str) {
    let (server, mut collector) = (Echo::start().await, Collector::start(Protocol::Http).await);
    let telemetry = json!({
        "endpoint": collector.address.to_string(), "serviceName": "demo", "tracingEnabled": true,
        "metricsEnabled": true, "samplingRate": "1", "insecure": true, "enablePrometheusMetricsPath": true,
    });
    let login = json!({"Issuer": provider.issuer(), "Audience": RESOURCE, "InsecureAllowHTTP": true});
    // Behind policies, credentials are got inside of the span.
    let cedar = json!({"policies": ["permit(principal, action, resource);"], "entities_json": "[]"});
    let mut document = json!({
        "authz_config": {"version": "1.0", "type": "cedarv1", "cedar": cedar}, "remote_url": format!("{}/mcp", server.url()), "oidc_config": login, "middleware_configs": [],
        "telemetry_config": telemetry, "audit_config": {"includeRequestData": true, "includeResponseData": true},
    });
    document.as_object_mut().unwrap().extend(credential.members.as_object().unwrap().clone());
    let mut environment = vec![
        ("RUST_LOG", "debug"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
        ("TOOLHIVE_SECRETS_PROVIDER", "environment"),
    ];
    environment.extend(credential.environment.iter().map(|(name, value)| (*name, &**value)));
    let flags = ["--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    let runner = Runner::start("streamable-http", &document, &flags, &environment).await;
    let answer = runner.post(&[("authorization", &format!("Bearer {caller}"))], CALL).await;
    let name = credential.name;
    assert_eq!(answer.status, credential.status, "{name}: {answer:?}\n{}", runner.log());
    let (traces, _) = collector.traces().await;
    assert_eq!(spans(&traces).count(), 1, "{name}");
    // An export may be older than the call.
    let metrics = within("the call to be measured", async {
        loop {
            let metrics = format!("{:?}", collector.metrics().await.0);
            if metrics.contains("say") {
                return metrics;
            }
        }
    })
    .await;
    eventually("the event", || async { runner.output().contains("\"say\"").then_some(()) }).await;
    let report = runner.get("/metrics").await.body;
    let shown =
        server.got("authorization").into_iter().flatten().find_map(|it| it.strip_prefix("Bearer ").map(str::to_owned));
    assert_eq!(shown.is_some(), credential.status == 200, "{name}");
    let said = [runner.log(), runner.output(), format!("{traces:?}"), metrics, report, format!("{answer:?}")];
    // Each of them would show a secret: it shows what is none.
    for (place, mark) in [(0, "127.0.0.1"), (1, "seen"), (2, "seen"), (3, "say"), (4, "say")] {
        assert!(said[place].contains(mark), "{name}: {mark} is not in {}", said[place]);
    }
    let secrets = credential.secrets.iter().cloned().chain(shown).chain([caller.to_owned()]);
    for (secret, text) in secrets.flat_map(|secret| said.iter().map(move |text| (secret.clone(), text))) {
        assert!(!text.contains(&secret), "{name}: {secret} is in {text}");
    }
}

#[tokio::test]
async fn no_secret_of_a_credential_is_told() {
    let (provider, folder) = (Provider::zitadel().await.unwrap(), TempDir::new().unwrap());
    let endpoint = provider.discovery().await.unwrap()["token_endpoint"].clone();
    let caller = provider.token(RESOURCE).await.unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{content}\n")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let exchange = json!({"token_exchange_config": {
        "token_url": endpoint, "client_id": EXCHANGE_CLIENT.id, "audience": "http://backend.example/mcp",
    }});
    let by_client = |members: Value| {
        let mut config = json!({"client_id": "sid1", "token_url": endpoint});
        config.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!({"remote_auth_config": config})
    };
    let secret = |name: &'static str, value: &str| vec![(name, value.to_owned())];
    for credential in [
        Credential {
            name: "an exchange",
            members: exchange.clone(),
            environment: secret("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", EXCHANGE_CLIENT.secret),
            secrets: vec![EXCHANGE_CLIENT.secret.to_owned()],
            status: 200,
        },
        Credential {
            name: "an exchange that is refused",
            members: exchange,
            environment: secret("PORTCULLIS_TOKEN_EXCHANGE_CLIENT_SECRET_FILE", &file("exchange", "wr0ng-secret")),
            secrets: vec!["wr0ng-secret".to_owned()],
            status: 502,
        },
        Credential {
            name: "a bearer token",
            members: json!({"remote_auth_config": {"bearer_token": "up,target=bearer_token"}}),
            environment: secret("TOOLHIVE_SECRET_up", "b3arer"),
            secrets: vec!["b3arer".to_owned()],
            status: 200,
        },
        Credential {
            name: "a bearer token in a file",
            members: json!({"remote_auth_config": {"bearer_token_file": file("bearer", "b3arer")}}),
            environment: Vec::new(),
            secrets: vec!["b3arer".to_owned()],
            status: 200,
        },
        Credential {
            name: "client credentials",
            members: by_client(json!({"client_secret_file": file("client", "verysecret")})),
            environment: Vec::new(),
            secrets: vec!["verysecret".to_owned()],
            status: 200,
        },
        Credential {
            name: "client credentials that are refused",
            members: by_client(json!({"client_secret": "c,target=secret"})),
            environment: secret("TOOLHIVE_SECRET_c", "wr0ng-secret"),
            secrets: vec!["wr0ng-secret".to_owned()],
            status: 502,
        },
    ] {
        tells_nothing(&credential, &provider, &caller).await;
    }
}
