//! Fields of ToolHive's newest contract, and manifests that say more than this version knows.

use mcp_operator::subject::Subject as _;
use portcullis::controller::EventType;
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use serde_json::{Value, json};

use super::world::{Plan, World, condition, config, deployment, stateful_set};

const IGNORED: &str = "is not a field of a pod that this version knows, and has no effect";

fn with(change: Value) -> World {
    let mut spec = json!({"image": "x:1", "transport": "streamable-http"});
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    World::of(spec)
}

fn phase(plan: &Plan) -> &str {
    plan.status.phase.unwrap().as_str()
}

#[test]
fn a_permission_profile_is_ignored_and_said_to_be_once_per_generation() {
    let profiles =
        [json!({"type": "builtin", "name": "network"}), json!({"type": "configmap", "name": "p", "key": "p.json"})];
    for profile in profiles {
        let mut world = with(json!({"permissionProfile": profile}));
        let told = |plan: &Plan| {
            let events = plan.events.iter().filter(|event| event.reason == "PermissionProfileUnsupported");
            events.filter(|event| event.type_ == EventType::Warning && event.note.contains("permissionProfile")).count()
        };
        let first = world.plan();
        assert_eq!(told(&first), 1);
        assert_eq!(first.children, with(json!({})).plan().children, "{profile} has no effect");
        world.applied(&first);
        assert_eq!(told(&world.plan()), 0, "generation {:?} was observed", world.workload.metadata.generation);
        world.workload.metadata.generation = Some(4);
        assert_eq!(told(&world.plan()), 1);
        world.workload.spec.permission_profile = None;
        assert_eq!(told(&world.plan()), 0);
    }
    let warnings = |world: &World| world.workload.warnings(&world.settings);
    let said = warnings(&with(json!({"permissionProfile": {"type": "builtin", "name": "none"}})));
    assert!(said.iter().any(|warning| warning.contains("spec.permissionProfile")), "{said:?}");
    assert!(warnings(&with(json!({}))).is_empty());
}

#[test]
fn members_of_a_pod_template_that_are_not_known_are_kept_out_and_named() {
    let template = json!({
        "metadata": {"labels": {"team": "a"}, "labelz": {"b": "c"}},
        "spec": {
            "nodeSelecter": {"a": "b"}, "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "mcp", "resources": {"limit": {"cpu": "1"}, "requests": {"cpu": "1"}}}],
        },
    });
    let world = with(json!({"podTemplateSpec": template}));
    let plan = world.plan();
    let fields = [
        "spec.podTemplateSpec.metadata.labelz",
        "spec.podTemplateSpec.spec.nodeSelecter",
        "spec.podTemplateSpec.spec.containers[0].resources.limit",
    ];
    let (reason, message) = condition(&plan, "PodTemplateValid", "True").unwrap();
    let warnings = world.workload.warnings(&world.settings);
    assert_eq!(reason, "ValidPodTemplateSpec");
    for field in fields {
        assert!(message.contains(field), "{field}: {message}");
        assert!(warnings.iter().any(|warning| warning.contains(field) && warning.contains(IGNORED)), "{warnings:?}");
    }
    let pods = stateful_set(&plan)["spec"]["template"].clone();
    assert_eq!(
        (&pods["spec"]["nodeSelector"], &pods["metadata"]["labels"]["team"]),
        (&json!({"disk": "ssd"}), &json!("a"))
    );
    assert_eq!(pods["spec"]["containers"][0]["resources"], json!({"requests": {"cpu": "1"}}));
    assert_eq!((pods["spec"].get("nodeSelecter"), pods["metadata"].get("labelz")), (None, None));

    let known = with(json!({"podTemplateSpec": {"spec": {"nodeSelector": {"disk": "ssd"}}}}));
    let message = condition(&known.plan(), "PodTemplateValid", "True").unwrap().1;
    assert_eq!(message, "PodTemplateSpec is valid");
    assert!(known.workload.warnings(&known.settings).is_empty());
}

#[test]
fn a_pod_template_that_cannot_be_read_is_not_valid_and_what_runs_is_left() {
    let cases = [
        (json!({"spec": {"nodeSelector": 3}}), "spec.podTemplateSpec.spec.nodeSelector"),
        (json!({"spec": {"$patch": "replace"}}), "spec.podTemplateSpec.spec.$patch"),
        (json!({"spec": {"containers": [{"image": "x"}]}}), "spec.podTemplateSpec.spec.containers[0].name"),
    ];
    for (template, field) in cases {
        let mut world = with(json!({}));
        world.applied(&world.plan());
        world.workload.spec = with(json!({"podTemplateSpec": template})).workload.spec;
        let plan = world.plan();
        let (reason, message) = condition(&plan, "PodTemplateValid", "False").unwrap();
        // ToolHive's words.
        let parse = format!("Failed to parse PodTemplateSpec: {field}");
        assert!(reason == "InvalidPodTemplateSpec" && message.starts_with(&parse), "{reason}: {message}");
        assert!(message.ends_with(". Deployment blocked until fixed."), "{message}");
        let message = plan.status.message.clone().unwrap();
        assert!(message.starts_with(&format!("Invalid PodTemplateSpec: {field}")), "{message}");
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{field}");
        assert_eq!(phase(&plan), "Failed", "{field}");
        assert_eq!(world.workload.problems()[0].field, field);
    }
}

#[test]
fn what_places_the_proxy_places_the_proxy_alone() {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}});
    let toleration = json!([{"key": "mcp", "operator": "Exists", "effect": "NoSchedule"}]);
    let plan = with(json!({
        "resourceOverrides": {"proxyDeployment": {
            "affinity": affinity, "nodeSelector": {"disk": "ssd"}, "tolerations": toleration}},
        "podTemplateSpec": {"spec": {"nodeSelector": {"gpu": "yes"}}},
    }))
    .plan();
    let proxy = &deployment(&plan)["spec"]["template"]["spec"];
    assert_eq!(
        (&proxy["affinity"], &proxy["nodeSelector"], &proxy["tolerations"]),
        (&affinity, &json!({"disk": "ssd"}), &toleration)
    );
    let server = &stateful_set(&plan)["spec"]["template"]["spec"];
    assert_eq!((server.get("affinity"), server.get("tolerations")), (None, None));
    assert_eq!(server["nodeSelector"], json!({"gpu": "yes"}));

    let plan = with(json!({"resourceOverrides": {"proxyDeployment": {"nodeSelector": {}, "tolerations": []}}})).plan();
    let proxy = &deployment(&plan)["spec"]["template"]["spec"];
    assert_eq!((proxy.get("nodeSelector"), proxy.get("tolerations")), (None, None), "what is empty is not sent");
}

/// A certificate authority, two client certificates of it and their keys.
struct Pems {
    ca: String,
    one: Pair,
    other: Pair,
}

fn pems() -> Pems {
    let (from, until) = ("2026-01-01T00:00:00Z".parse().unwrap(), "2036-01-01T00:00:00Z".parse().unwrap());
    let ca = Ca::generate("a CA", from, until).unwrap();
    let issue = || {
        let wanted = CertificateParams {
            common_name: "client",
            organizations: &[],
            dns_names: &["client.example".to_owned()],
            ip_addresses: &[],
            not_before: from,
            not_after: until,
            usage: Usage::Client,
        };
        ca.issue(&wanted).unwrap()
    };
    Pems { one: issue(), other: issue(), ca: ca.cert_pem().to_owned() }
}

#[test]
fn a_webhooks_secret_that_its_proxy_could_not_use_reaches_no_proxy() {
    let Pems { ca, one, other } = pems();
    let key = |key: &str| json!({"name": "tls", "key": key});
    let tls = json!({"caSecretRef": key("ca"), "clientCertSecretRef": key("crt"), "clientKeySecretRef": key("key")});
    let guard = config(
        "gates",
        json!({"validating": [
        {"name": "p", "url": "https://p/", "tlsConfig": tls, "hmacSecretRef": key("hmac")}]}),
    );
    let with_secrets = |values: [(&str, &str); 4]| {
        let mut world = World::gated();
        world.has(guard.clone());
        for (key, value) in values {
            world.secret("tls", key, value);
        }
        world
    };
    let good = [("ca", &*ca), ("crt", &*one.cert_pem), ("key", &*one.key_pem), ("hmac", "secret")];
    let running = {
        let mut world = with_secrets(good);
        world.applied(&world.plan());
        world
    };
    assert!(condition(&running.plan(), "WebhookConfigValidated", "True").is_some());
    let two_certificates = format!("{ca}{}", one.cert_pem);
    let chain = format!("{}{ca}", one.cert_pem);
    for (key, value) in [("ca", &two_certificates), ("crt", &chain)] {
        let values = good.map(|(at, old)| (at, if at == key { &**value } else { old }));
        assert!(!with_secrets(values).plan().children.is_empty(), "a bundle in {key}");
    }
    let torn = one.cert_pem.replace("MII", "AAA");
    let cases = [
        ("ca", "CA", "Secret tls/ca holds no PEM certificate"),
        ("ca", "", "Secret tls/ca is empty"),
        ("ca", &one.key_pem, "Secret tls/ca holds no PEM certificate"),
        ("ca", &torn, "Secret tls/ca "),
        ("crt", &one.key_pem, "Secret tls/crt holds no PEM certificate"),
        ("key", &other.key_pem, "Secret tls/key is not the key of the certificate in Secret tls/crt"),
        ("crt", &other.cert_pem, "Secret tls/key is not the key of the certificate in Secret tls/crt"),
        ("key", &one.cert_pem, "Secret tls/key holds no PEM private key"),
        ("key", "KEY", "Secret tls/key holds no PEM private key"),
        ("hmac", "", "Secret tls/hmac is empty"),
    ];
    for (key, value, words) in cases {
        let values = good.map(|(at, old)| (at, if at == key { value } else { old }));
        let plan = with_secrets(values).plan();
        let (reason, message) = condition(&plan, "WebhookConfigValidated", "False").unwrap();
        assert!(reason == "WebhookSecretNotValid" && message.contains(words), "{words}: {reason}: {message}");
        assert!(plan.children.is_empty(), "{words}");
        assert_eq!(phase(&plan), "Failed", "{words}");
        assert!(!message.contains(value.trim()) || value.len() < 4, "{words}: no value is told");

        let mut world = running.clone();
        world.data = with_secrets(values).data;
        let plan = world.plan();
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{words}: what runs is left");
        assert!(plan.status.message.as_deref().unwrap().ends_with("what runs already is left as it is"), "{words}");
    }
}
