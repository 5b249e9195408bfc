//! What is said at `kubectl apply`.

use std::time::{Duration, Instant};

use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Gate, fields,
    support::{DEADLINE, labelled, minimal, remote_proxy, tool_config, webhook_config},
};

/// What can never work: name, object, field, and words of the message.
fn never_works() -> Vec<(Value, &'static str, &'static str)> {
    let pod = |spec: Value| json!({"podTemplateSpec": {"spec": spec}});
    let pair = |half: &str| json!({"tlsConfig": {half: {"name": "keys", "key": "tls"}}});
    let limits = |list: Value| json!({"resources": {"limits": list}});
    let mut mutating = webhook_config("c-mutating", json!({}));
    mutating["spec"]["mutating"] = json!([{"name": "m", "url": "http://plain.example"}]);
    let mut v1alpha1 = labelled("s-v1alpha1", json!({"image": "a b"}));
    v1alpha1["apiVersion"] = json!("toolhive.stacklok.dev/v1alpha1");
    let annotated = |name: &str, key: &str, value: &str, spec: Value| {
        let mut server = labelled(name, spec);
        server["metadata"]["annotations"] = json!({format!("portcullis.dev/{key}"): value});
        server
    };
    let limited = |period: &str| {
        let redis = json!({"provider": "redis", "address": "redis:6379"});
        json!({"rateLimiting": {"shared": {"maxTokens": 1, "refillPeriod": period}}, "sessionStorage": redis})
    };
    let (paths, origins) = ("metadata.annotations[portcullis.dev/open-paths]", "allowed-origins");
    vec![
        (annotated("s-open", "open-paths", "/docs,/mcp/*", json!({})), paths, "covers /mcp"),
        (annotated("s-stdio", "open-paths", "/docs", json!({"transport": "stdio"})), paths, "serves MCP alone"),
        (
            annotated("s-path", "mcp-paths", "api", json!({})),
            "metadata.annotations[portcullis.dev/mcp-paths]",
            "begins with a slash",
        ),
        (
            annotated("s-origin", origins, "*", json!({})),
            "metadata.annotations[portcullis.dev/allowed-origins]",
            "is no origin",
        ),
        (
            annotated("s-closed", "rate-limits-fail-closed", "yes", limited("1m")),
            "metadata.annotations[portcullis.dev/rate-limits-fail-closed]",
            "neither",
        ),
        (labelled("s-period", limited("1 day")), "spec.rateLimiting.shared.refillPeriod", "1 day"),
        (labelled("s-never", limited("0s")), "spec.rateLimiting.shared.refillPeriod", "no period"),
        (webhook_config("c-scheme", json!({"url": "ftp://x.example"})), "spec.validating[0].url", "http"),
        (webhook_config("c-plain", json!({"url": "http://x.example"})), "spec.validating[0].url", "https"),
        (mutating, "spec.mutating[0].url", "https"),
        (webhook_config("c-long", json!({"timeout": "31s"})), "spec.validating[0].timeout", "30"),
        (
            webhook_config("c-match", json!({"match": {"tools": ["deploy[12]"]}})),
            "spec.validating[0].match.tools",
            "write * for any characters",
        ),
        (
            webhook_config("c-never", json!({"match": {"tools": ["*"], "methods": ["prompts/get"]}})),
            "spec.validating[0].match.methods",
            "would never be asked",
        ),
        (webhook_config("c-short", json!({"timeout": "500ms"})), "spec.validating[0].timeout", "1"),
        (
            webhook_config("c-cert", pair("clientCertSecretRef")),
            "spec.validating[0].tlsConfig.clientKeySecretRef",
            "both or neither",
        ),
        (
            webhook_config("c-key", pair("clientKeySecretRef")),
            "spec.validating[0].tlsConfig.clientCertSecretRef",
            "both or neither",
        ),
        (labelled("s-patch", pod(json!({"$patch": "replace"}))), "spec.podTemplateSpec.spec.$patch", "$patch"),
        (labelled("s-type", pod(json!({"nodeSelector": 3}))), "spec.podTemplateSpec.spec.nodeSelector", ""),
        (labelled("s-memory", limits(json!({"memory": "lots"}))), "spec.resources.limits.memory", "lots"),
        (labelled("s-cpu", limits(json!({"cpu": "-1"}))), "spec.resources.limits.cpu", "negative"),
        (labelled("s-image", json!({"image": "a b"})), "spec.image", "image"),
        (labelled("s-option", json!({"image": "--backend=http://169.254.169.254"})), "spec.image", "image"),
        (v1alpha1, "spec.image", "image"),
        (minimal(&format!("s{}", "x".repeat(60))), "metadata.name", "50"),
    ]
}

/// M1, K1: refused with 422, the field as a cause, and a sentence; nothing is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_never_work_is_refused_with_its_field() {
    let gate = Gate::new("deny").await;
    // It was stored before the rule that it breaks.
    let body = |bytes: u64| json!({"maxRequestBodySize": bytes});
    gate.objects.create(labelled("s-stored", body(1 << 40))).await;
    let operator = gate.serving(&[]).await;
    for (object, field, words) in never_works() {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let answer = gate.objects.post(object, false).await;
        assert_eq!(answer.code, 422, "{name}: {}", answer.body);
        assert!(fields(&answer.body).contains(&field), "{name}: {field} not in {}", answer.body);
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.contains(field) && message.contains(words), "{name}: {message}");
    }
    // D11: each refusal is in the log with kind, namespace, name and reason.
    let log = operator.log();
    let line = log.lines().find(|line| line.contains("s-memory")).expect("the refusal is logged");
    for word in ["MCPServer", gate.objects.namespace.as_str(), "lots"] {
        assert!(line.contains(word), "{word} not in {line}");
    }
    // A limit of bodies above the bound is refused where it is new (MISSION P8).
    let made = gate.objects.post(labelled("s-body", body((256 << 20) + 1)), false).await;
    let changed = gate.objects.patch("MCPServer", "s-stored", json!({"spec": body(1 << 39)})).await;
    for refused in [made, changed] {
        assert_eq!((refused.code, fields(&refused.body)), (422, vec!["spec.maxRequestBodySize"]), "{}", refused.body);
    }
    let passed = gate.objects.patch("MCPServer", "s-stored", json!({"spec": {"args": ["a"]}})).await;
    assert_eq!(passed.code, 200, "{}", passed.body);
    // An update is held to the same, and one that leaves the spec alone is not judged.
    gate.objects.create(minimal("s-good")).await;
    let refused = gate.objects.patch("MCPServer", "s-good", json!({"spec": {"image": "a b"}})).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    let passed = gate.objects.patch("MCPServer", "s-good", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(passed.code, 200, "{}", passed.body);
    let annotate = |paths: &str| json!({"metadata": {"annotations": {"portcullis.dev/mcp-paths": paths}}});
    let refused = gate.objects.patch("MCPServer", "s-good", annotate("/a//b")).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    let passed = gate.objects.patch("MCPServer", "s-good", annotate("/a/b")).await;
    assert_eq!(passed.code, 200, "{}", passed.body);
    let warned = "metadata.annotations[portcullis.dev/mcp-paths] has no effect";
    assert!(passed.warnings.iter().any(|warning| warning.contains(warned)), "{:?}", passed.warnings);
}

/// The bounds of selectors hold in the schema where it can say them, and in the webhook where it cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_list_of_a_selector_has_its_bounds() {
    let gate = Gate::new("selectors").await;
    let _operator = gate.serving(&[]).await;
    let globs = |number: usize| json!((0..number).map(|at| format!("a-{at}*")).collect::<Vec<_>>());
    for (at, (globs, words)) in [
        (globs(64), None),
        (globs(65), Some("must have at most 64 items")),
        (json!([]), Some("at least 1 items")),
        (json!(["x".repeat(256)]), None),
        (json!(["x".repeat(257)]), Some("may not be more than 256")),
        (json!(["\u{e9}".repeat(256)]), Some("has a glob of 512 bytes")),
        (json!([""]), Some("at least 1 chars long")),
        (json!([" a"]), Some("blanks around it")),
        (json!(["a*", "*"]), None),
        (json!(["a?"]), Some("write * for any characters")),
        (json!(["a[b]"]), Some("write * for any characters")),
        (json!(["{a,b}"]), Some("write * for any characters")),
        (json!(["a\\*"]), Some("write * for any characters")),
        (json!([7]), Some("must be of type string")),
        (json!("a"), Some("must be of type array")),
    ]
    .into_iter()
    .enumerate()
    {
        for list in ["methods", "principals", "tools"] {
            let config = webhook_config(&format!("{list}-{at}"), json!({"match": {list: globs.clone()}}));
            let answer = gate.objects.post(config, true).await;
            let message = answer.body["message"].as_str().unwrap_or_default();
            match words {
                None => assert_eq!(answer.code, 201, "{list} {globs}: {message}"),
                Some(words) => {
                    assert_eq!(answer.code, 422, "{list} {globs}: {message}");
                    let field = format!("spec.validating[0].match.{list}");
                    assert!(message.contains(&field) && message.contains(words), "{list} {globs}: {message}");
                }
            }
        }
    }
}

/// The same objects with `--admission=warn`: admitted, warned of, and then said in the status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_warn_the_same_is_admitted_with_warnings_and_said_in_the_status() {
    let gate = Gate::new("warn").await;
    let _operator = gate.serving(&["--admission", "warn"]).await;
    let mut seen = Vec::new();
    for (object, field, _) in never_works() {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let kind = object["kind"].as_str().unwrap().to_owned();
        let answer = gate.objects.post(object, false).await;
        assert_eq!(answer.code, 201, "{name}: {}", answer.body);
        assert!(answer.warnings.iter().any(|warning| warning.contains(field)), "{name}: {:?}", answer.warnings);
        seen.push((kind, name));
    }
    for (kind, name) in seen {
        if kind == "MCPServer" {
            gate.objects.phase(&name, "Failed").await;
        } else {
            gate.objects
                .config(&name, "Valid=False", |conditions| {
                    conditions.iter().any(|it| it.type_ == "Valid" && it.status == "False")
                })
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_of_ours_that_is_misspelt_is_warned_of() {
    let gate = Gate::new("deny").await;
    let _operator = gate.serving(&[]).await;
    let mut server = labelled("misspelt", json!({}));
    server["metadata"]["annotations"] = json!({"portcullis.dev/open_paths": "/docs", "example.com/open": "1"});
    let answer = gate.objects.post(server, true).await;
    let warned = |words: &str| answer.warnings.iter().any(|warning| warning.contains(words));
    assert!(warned("portcullis.dev/open_paths") && !warned("example.com"), "{:?}", answer.warnings);
}

/// A reference to what does not exist yet only warns, in both modes: manifests are applied in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_that_does_not_exist_yet_only_warns_in_both_modes() {
    let gate = Gate::new("missing").await;
    for admission in ["deny", "warn"] {
        let operator = gate.serving(&["--admission", admission]).await;
        let name = |suffix: &str| format!("{admission}-{suffix}");
        // ToolHive's operator takes it and does nothing with it.
        let profile = json!({"permissionProfile": {"type": "configmap", "name": "absent-profile", "key": "p.json"}});
        let secret = json!({"secrets": [{"name": "absent-secret", "key": "k"}]});
        let reference = json!({"name": "absent-secret", "key": "k"});
        let cases = [
            (labelled(&name("ref"), json!({"webhookConfigRef": {"name": "absent"}})), "MCPWebhookConfig \"absent\""),
            (
                remote_proxy(&name("far"), json!({"webhookConfigRef": {"name": "absent"}})),
                "MCPWebhookConfig \"absent\"",
            ),
            (labelled(&name("secret"), secret), "Secret \"absent-secret\""),
            (labelled(&name("profile"), profile), "it has no effect"),
            (webhook_config(&name("hmac"), json!({"hmacSecretRef": reference})), "Secret \"absent-secret\""),
            (labelled(&name("guard"), json!({"externalAuthConfigRef": {"name": "e"}})), "spec.externalAuthConfigRef"),
            (labelled(&name("login"), json!({"oidcConfigRef": {"name": "o", "audience": "a"}})), "MCPOIDCConfig \"o\""),
        ];
        for (object, words) in cases {
            let answer = gate.objects.post(object, false).await;
            assert_eq!(answer.code, 201, "{}", answer.body);
            assert!(answer.warnings.iter().any(|it| it.contains(words)), "{words} not in {:?}", answer.warnings);
        }
        let fine = gate.objects.post(minimal(&name("fine")), false).await;
        assert_eq!((fine.code, fine.warnings), (201, Vec::new()));
        operator.terminate().await;
    }
}

/// One `kubectl apply` of a file makes a server right after what it refers to: the watch need not have brought that yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_a_moment_ago_is_not_said_to_be_missing() {
    let gate = Gate::new("moment").await;
    let _operator = gate.serving(&[]).await;
    for round in 0..25 {
        let name = format!("config-{round}");
        gate.objects.create(tool_config(&name, json!({"toolsFilter": ["a"]}))).await;
        let answer = gate.objects.post(labelled("web", json!({"toolConfigRef": {"name": name}})), true).await;
        assert_eq!((answer.code, answer.warnings), (201, Vec::new()), "round {round}");
    }
}

/// After SIGTERM webhooks are called for a while: what they judge by has to outlive that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_ends_still_knows_what_is_stored_while_it_is_called() {
    let gate = Gate::new("ending").await;
    let operator = gate.serving(&["--drain-delay", "15s"]).await;
    operator.ask_to_end().await;
    operator.logged("SIGTERM: shutting down").await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let refers = labelled("late", json!({"webhookConfigRef": {"name": "absent"}}));
        let answer = gate.objects.post(refers, true).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        assert!(!answer.warnings.is_empty(), "what does not exist goes unseen");
    }
    operator.kill().await;
}

/// Every replica serves webhooks, and one leads: the others know what is stored all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_does_not_lead_knows_what_its_webhooks_judge_by() {
    let gate = Gate::new("follower").await;
    let config = gate.objects.post(webhook_config("stored", json!({"url": "https://example.com/"})), false).await;
    assert_eq!(config.code, 201, "{}", config.body);
    let leader = gate.start(&["--leader-elect", "on", "--identity", "first"]);
    leader.reconciles().await;
    let follower = gate.start(&["--leader-elect", "on", "--identity", "second"]);
    gate.install(&follower).await;
    let refers = |name: &str, config: &str| labelled(name, json!({"webhookConfigRef": {"name": config}}));
    let known = gate.objects.post(refers("known", "stored"), true).await;
    assert_eq!((known.code, known.warnings), (201, Vec::new()));
    let unknown = gate.objects.post(refers("unknown", "absent"), true).await;
    assert!(unknown.warnings.iter().any(|it| it.contains("\"absent\" does not exist")), "{:?}", unknown.warnings);
    // What is made later is known too, and this one has not begun to lead meanwhile.
    gate.objects.create(webhook_config("later", json!({"url": "https://example.com/"}))).await;
    wait_until("the follower to learn of it", DEADLINE, || async {
        gate.objects.post(refers("later", "later"), true).await.warnings.is_empty().then_some(())
    })
    .await;
    assert!(!follower.log().contains("reconciling"), "{}", follower.log());
    leader.terminate().await;
    follower.reconciles().await;
}
