//! The operator's workload, and the Certificates for cert-manager.

use portcullis_manifest::{
    ALLOCATOR_ENV, IssuedCertificate, IssuerRef, Labels, ServiceRef, Trust, Workload, kustomization,
};
use serde_json::{Value, json};

fn labels(version: &str) -> Labels {
    Labels { operator: "op".into(), release: "blue".into(), version: Some(version.into()) }
}

fn workload(webhooks: bool) -> Workload {
    let service = ServiceRef { namespace: "demo".into(), name: "hooks".into(), port: 8443 };
    Workload {
        name: "blue".into(),
        namespace: "demo".into(),
        labels: labels("1.2.3"),
        service_account: "blue".into(),
        image: "op:1.2.3".into(),
        args: vec!["run".into(), "--release=blue".into()],
        replicas: 2,
        health_port: 8081,
        webhooks: webhooks.then_some((9443, service)),
        grace_seconds: 30,
    }
}

fn kind<'a>(manifests: &'a [Value], kind: &str) -> &'a Value {
    manifests.iter().find(|manifest| manifest["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

// Issue 4: containerPort 0. All ports follow from one value, and are found by name.
#[test]
fn ports_are_those_of_the_process_and_have_names() {
    let manifests = workload(true).manifests();
    let container = &kind(&manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["ports"],
        json!([
            { "name": "webhooks", "containerPort": 9443, "protocol": "TCP" },
            { "name": "health", "containerPort": 8081, "protocol": "TCP" },
        ])
    );
    assert_eq!(container["readinessProbe"]["httpGet"], json!({ "path": "/readyz", "port": "health" }));
    assert_eq!(container["livenessProbe"]["httpGet"], json!({ "path": "/healthz", "port": "health" }));
    let service = kind(&manifests, "Service");
    assert_eq!(service["metadata"]["name"], "hooks");
    assert_eq!(
        service["spec"]["ports"][0],
        json!({ "name": "webhooks", "port": 8443, "targetPort": "webhooks", "protocol": "TCP" })
    );
    let policy = kind(&manifests, "NetworkPolicy");
    assert_eq!(
        policy["spec"]["ingress"][0]["ports"],
        json!([{ "port": "webhooks", "protocol": "TCP" }, { "port": "health", "protocol": "TCP" }])
    );
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]), "what goes out is not cut off");
}

#[test]
fn without_webhooks_nothing_is_called() {
    let manifests = workload(false).manifests();
    let kinds: Vec<_> = manifests.iter().map(|manifest| manifest["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Deployment", "PodDisruptionBudget", "NetworkPolicy"]);
    assert!(!manifests.iter().any(|manifest| manifest.to_string().contains("9443")));
}

// Issues 24, K8: a rollout or a drained node never takes the last one that is ready.
#[test]
fn replicas_are_replaced_one_at_a_time_and_spread() {
    let manifests = workload(true).manifests();
    let deployment = kind(&manifests, "Deployment");
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"], json!({ "maxUnavailable": 0, "maxSurge": 1 }));
    assert_eq!(kind(&manifests, "PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    let pods = &deployment["spec"]["template"]["metadata"]["labels"];
    let terms = &deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let selectors = [
        &deployment["spec"]["selector"]["matchLabels"],
        &kind(&manifests, "Service")["spec"]["selector"],
        &kind(&manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &kind(&manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        &terms[0]["podAffinityTerm"]["labelSelector"]["matchLabels"],
    ];
    for selector in selectors {
        assert_eq!(*selector, json!({ "app.kubernetes.io/name": "op", "app.kubernetes.io/instance": "blue" }));
        for (name, value) in selector.as_object().unwrap() {
            assert_eq!(pods[name], *value, "the Pods are found");
        }
    }
}

#[test]
fn a_pod_gets_its_namespace_and_its_name() {
    let manifests = workload(true).manifests();
    let env = &kind(&manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"];
    let fields = env.as_array().unwrap().iter().filter(|one| one.get("valueFrom").is_some());
    let fields: Vec<_> = fields.map(|one| (&one["name"], &one["valueFrom"]["fieldRef"]["fieldPath"])).collect();
    assert_eq!(
        fields,
        [(&json!("POD_NAMESPACE"), &json!("metadata.namespace")), (&json!("POD_NAME"), &json!("metadata.name"))]
    );
}

// glibc keeps what large reviews took, and the container is limited.
#[test]
fn the_allocator_is_set_to_return_memory() {
    let manifests = workload(true).manifests();
    let env = &kind(&manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"];
    let values = env.as_array().unwrap().iter().filter_map(|one| Some((one["name"].as_str()?, one["value"].as_str()?)));
    assert_eq!(values.collect::<Vec<_>>(), ALLOCATOR_ENV);
}

#[test]
fn labels_are_the_recommended_ones_and_valid() {
    for manifest in workload(true).manifests() {
        let found = &manifest["metadata"]["labels"];
        assert_eq!(found["app.kubernetes.io/instance"], "blue");
        assert_eq!(found["app.kubernetes.io/version"], "1.2.3");
    }
    for (version, label) in
        [("1.2.3-rc.1", true), ("1.2.3+build", false), ("", false), ("-1", false), (&"1".repeat(64), false)]
    {
        assert_eq!(labels(version).all("x").contains_key("app.kubernetes.io/version"), label, "{version:?}");
    }
    let mut object = json!({ "metadata": { "labels": { "app.kubernetes.io/version": "mine" } } });
    labels("1").add_to(&mut object, "x");
    assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/version"], "mine");
}

fn certificate(issuer: Option<&str>) -> IssuedCertificate {
    IssuedCertificate {
        name: "tls".into(),
        namespace: "demo".into(),
        dns_names: vec!["hooks.demo.svc".into()],
        issuer: issuer.map(|issuer| issuer.parse().unwrap()),
    }
}

#[test]
fn an_authority_is_made_unless_there_is_an_issuer() {
    let made = certificate(None).manifests();
    let names: Vec<_> =
        made.iter().map(|m| (m["kind"].as_str().unwrap(), m["metadata"]["name"].as_str().unwrap())).collect();
    assert_eq!(
        names,
        [("Issuer", "tls-selfsigned"), ("Certificate", "tls-root"), ("Issuer", "tls-root"), ("Certificate", "tls")]
    );
    assert_eq!(
        made[3]["spec"]["issuerRef"],
        json!({ "group": "cert-manager.io", "kind": "Issuer", "name": "tls-root" })
    );
    assert_eq!(made[3]["spec"]["dnsNames"], json!(["hooks.demo.svc"]));
    for (issuer, kind, name) in
        [("a", "Issuer", "a"), ("Issuer/a", "Issuer", "a"), ("ClusterIssuer/corp.ca", "ClusterIssuer", "corp.ca")]
    {
        let manifests = certificate(Some(issuer)).manifests();
        assert_eq!(manifests.len(), 1);
        assert_eq!(
            manifests[0]["spec"]["issuerRef"],
            json!({ "group": "cert-manager.io", "kind": kind, "name": name })
        );
    }
    for wrong in ["", "Issuer/", "Secret/a", "A", "a/b/c", "ClusterIssuer/a b"] {
        wrong.parse::<IssuerRef>().unwrap_err();
    }
}

// cert-manager#2478: a leaf is not issued again when its authority is renewed.
#[test]
fn the_authority_is_renewed_before_a_leaf_outlives_it() {
    let made = certificate(None).manifests();
    let hours = |value: &Value| value.as_str().unwrap().trim_end_matches('h').parse::<u32>().unwrap();
    assert!(hours(&made[1]["spec"]["renewBefore"]) > hours(&made[3]["spec"]["duration"]));
    assert_eq!(made[1]["spec"]["privateKey"]["rotationPolicy"], "Never");
}

// Issues 2 and 3: the bundle is what was given, encoded once.
#[test]
fn a_bundle_is_encoded_once_and_goes_to_each_that_is_called() {
    let pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
    let encoded = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    let configuration = json!({ "metadata": {}, "webhooks": [{ "clientConfig": {} }, { "clientConfig": {} }] });
    let crd = json!({ "metadata": {}, "spec": { "conversion": { "webhook": { "clientConfig": {} } } } });
    let other = json!({ "metadata": {}, "spec": {} });
    let with = |trust: &Trust, object: &Value| {
        let mut object = object.clone();
        trust.add_to(&mut object);
        object
    };
    let given = Trust::Given(pem.into());
    let called = with(&given, &configuration);
    assert_eq!(
        called["webhooks"],
        json!([{ "clientConfig": { "caBundle": encoded } }, { "clientConfig": { "caBundle": encoded } }])
    );
    assert_eq!(with(&given, &crd)["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"], encoded);
    let injected = Trust::Injected("demo/tls".into());
    for object in [&configuration, &crd] {
        assert_eq!(with(&injected, object)["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], "demo/tls");
        assert_eq!(with(&Trust::Published, object), *object);
    }
    for trust in [given, injected] {
        assert_eq!(with(&trust, &other), other, "it is not called");
    }
}

#[test]
fn a_kustomization_names_the_files_and_rewrites_nothing() {
    let expected = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["b.yaml", "a.yaml"],
    });
    assert_eq!(kustomization(["b.yaml", "a.yaml"]), expected);
}
