//! `generate operator` and `generate certificates`: what follows from the flags.

use serde_json::{Value, json};

use super::cluster::generate;
use super::process::{fails, output};

const IMAGE: [&str; 2] = ["--image", "op:1"];

async fn operator(flags: &[&str]) -> Vec<Value> {
    generate(&[&["operator"], &IMAGE[..], flags].concat()).await
}

fn args(objects: &[Value]) -> Value {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone()
}

// Issues 8 and 22: names and places are in the process's own arguments, and the process is started as it was generated.
#[tokio::test]
async fn the_deployment_has_the_non_default_flags_and_own_arguments() {
    let cases: [(&[&str], &[&str]); 5] = [
        (
            &["--bind", "[::]:10250", "--health-bind", "0.0.0.0:8081", "--think=5"],
            &["run", "--bind=[::]:10250", "--think=5"],
        ),
        (&[], &["run"]),
        (&["--service-port", "443", "--webhooks", "on", "--cluster-domain", "cluster.local"], &["run"]),
        (
            &[
                "--release",
                "blue",
                "--namespace",
                "here",
                "--restrict-to-namespace",
                "team",
                "--forbid",
                "a b",
                "--think=5",
            ],
            &["run", "--release=blue", "--restrict-to-namespace=team", "--forbid=a b", "--think=5"],
        ),
        (
            &[
                "--service-name",
                "hooks",
                "--service-port",
                "8443",
                "--cluster-domain",
                "corp.example",
                "--certificates",
                "external",
                "--certificate-secret",
                "mine.tls",
            ],
            &[
                "run",
                "--service-name=hooks",
                "--service-port=8443",
                "--cluster-domain=corp.example",
                "--certificates=external",
                "--certificate-secret=mine.tls",
            ],
        ),
    ];
    for (flags, expected) in cases {
        let objects = operator(flags).await;
        assert_eq!(args(&objects), json!(expected), "{flags:?}");
        // Which is a command line that parses.
        let words: Vec<&str> = expected.iter().copied().chain(["--help"]).collect();
        assert!(output(&words).await.status.success(), "{words:?}");
    }
}

#[tokio::test]
async fn container_service_probes_and_policy_have_the_chosen_ports() {
    let objects = operator(&["--bind", "0.0.0.0:10250", "--health-bind", "[::]:8082"]).await;
    let of = |kind: &str, place: &str| -> Value {
        let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
        object.pointer(place).unwrap().clone()
    };
    let container = of("Deployment", "/spec/template/spec/containers/0");
    let ports = [("webhooks", 10250), ("health", 8082)];
    let ports = ports.map(|(name, port)| json!({ "name": name, "containerPort": port, "protocol": "TCP" }));
    assert_eq!(container["ports"], json!(ports));
    // The others call them by name.
    assert_eq!(of("Service", "/spec/ports/0/targetPort"), "webhooks");
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "health");
    }
    let policy = of("NetworkPolicy", "/spec/ingress/0/ports");
    assert_eq!([&policy[0]["port"], &policy[1]["port"]], ["webhooks", "health"]);
}

#[tokio::test]
async fn addresses_that_a_pod_cannot_be_called_at_are_refused() {
    for (flags, problem) in [
        ("--bind=0.0.0.0:0", "--bind 0.0.0.0:0: give the port that the Service and the probes are to call"),
        ("--health-bind=[::]:0", "--health-bind [::]:0: give the port"),
        (
            "--bind=127.0.0.1:9443",
            "--bind 127.0.0.1:9443: no caller outside of the Pod could reach it; give 0.0.0.0 or [::]",
        ),
        ("--health-bind=[::1]:8081", "--health-bind [::1]:8081: no caller outside"),
        ("--bind=[::]:8081", "--bind and --health-bind have the port 8081; give another one to one of the two"),
    ] {
        let said = fails(&[&["generate", "operator", flags], &IMAGE[..]].concat(), 1).await;
        assert!(said.starts_with(&format!("error: {problem}")), "{said}");
    }
}

// D6, and the guide's names.
#[tokio::test]
async fn a_restricted_operator_has_namespaced_rights_and_no_crds() {
    let objects = operator(&["--release", "blue", "--namespace", "here", "--restrict-to-namespace", "team"]).await;
    let named = |kind: &str| -> Vec<(Value, Value)> {
        let found = objects.iter().filter(|object| object["kind"] == kind);
        found.map(|object| (object["metadata"]["namespace"].clone(), object["metadata"]["name"].clone())).collect()
    };
    assert_eq!(named("CustomResourceDefinition"), []);
    assert_eq!(named("ValidatingWebhookConfiguration"), [(Value::Null, json!("blue-validating-team"))]);
    assert_eq!(named("MutatingWebhookConfiguration"), [(Value::Null, json!("blue-mutating-team"))]);
    assert_eq!(named("ClusterRole"), [(Value::Null, json!("blue:here"))]);
    let blue = json!("blue");
    assert_eq!(named("ServiceAccount"), [(json!("here"), blue.clone())]);
    assert_eq!(
        named("Role"),
        [(json!("here"), blue.clone()), (json!("team"), blue)],
        "certificates; what the controller does, and leases"
    );
    assert_eq!(named("Deployment"), [(json!("here"), json!("blue"))]);
    // The policy that hands the namespace over asks for a right on the whole cluster, which no user of a namespace can
    // grant.
    let policy = json!("entity-operator-namespace-scope.team");
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        assert_eq!(named(kind), [(Value::Null, policy.clone())]);
    }
    let held = json!({
        "apiGroups": ["portcullis.dev"], "resources": ["namespacescopes"], "resourceNames": [policy], "verbs": ["hold"],
    });
    let configurations = objects.iter().filter(|object| object.get("webhooks").is_some());
    for webhook in configurations.flat_map(|object| object["webhooks"].as_array().unwrap()) {
        assert_eq!(webhook["namespaceSelector"], json!({ "matchLabels": { "kubernetes.io/metadata.name": "team" } }));
        assert_eq!(webhook["clientConfig"]["service"]["namespace"], "here");
    }
    let everywhere = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    assert!(everywhere["rules"].as_array().unwrap().contains(&held), "{everywhere}");
    for rule in everywhere["rules"].as_array().unwrap() {
        assert_ne!(rule["apiGroups"], json!(["demo.example"]), "entities of others are none of its business");
    }
}

#[tokio::test]
async fn each_certificate_source_has_its_manifests_and_minimal_rights() {
    let kinds = |objects: &[Value]| -> Vec<String> {
        objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    };
    let secrets = |objects: &[Value]| -> Vec<Value> {
        let rules = objects.iter().filter_map(|object| object["rules"].as_array()).flatten();
        rules.filter(|rule| rule["resources"] == json!(["secrets"])).map(|rule| rule["verbs"].clone()).collect()
    };
    let managed = operator(&["--certificates", "cert-manager", "--issuer", "ClusterIssuer/corp"]).await;
    assert_eq!(secrets(&managed), [json!(["get", "list", "watch"])]);
    let certificate = managed.iter().find(|object| object["kind"] == "Certificate").unwrap();
    assert_eq!(certificate["spec"]["issuerRef"]["name"], "corp");
    let annotated = "entity-operator-system/entity-operator-webhook-tls";
    for object in managed.iter().filter(|object| object.get("webhooks").is_some()) {
        assert_eq!(object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], annotated);
    }
    let off = operator(&["--webhooks", "off", "--certificates", "cert-manager"]).await;
    for absent in ["Service", "Certificate", "Issuer", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"]
    {
        assert!(!kinds(&off).iter().any(|kind| kind == absent), "{absent}");
    }
    assert_eq!(secrets(&off), [Value::Null; 0]);
    assert_eq!(kinds(&generate(&["certificates", "--certificates", "external"]).await), ["Secret"]);
    let nothing = output(&["generate", "certificates"]).await;
    let said = String::from_utf8(nothing.stdout).unwrap();
    assert!(
        said.contains("# Nothing to apply: the operator makes the Secrets entity-operator-webhook-tls and"),
        "{said}"
    );
}

// Issues 2 and 3: a leaf, or what was encoded already, is no bundle.
#[tokio::test]
async fn a_useless_bundle_is_refused_with_the_fix() {
    use portcullis_pki::{Ca, CertificateParams, Usage};
    let (from, to) = (jiff::Timestamp::UNIX_EPOCH, jiff::Timestamp::from_second(4_000_000_000).unwrap());
    let ca = Ca::generate("authority", from, to).unwrap();
    let wanted = CertificateParams {
        common_name: "hooks",
        organizations: &[],
        dns_names: &["hooks.demo.svc".to_owned()],
        ip_addresses: &[],
        not_before: from,
        not_after: to,
        usage: Usage::Server,
    };
    let leaf = ca.issue(&wanted).unwrap();
    let encoded = serde_json::to_value(k8s_openapi::ByteString(ca.cert_pem().as_bytes().to_vec())).unwrap();
    let cases = [
        (leaf.cert_pem.clone(), "'hooks' is a server's certificate: give that of the authority which issued it"),
        (format!("{}{}", ca.cert_pem(), leaf.cert_pem), "'hooks' is a server's certificate"),
        (
            encoded.as_str().unwrap().to_owned(),
            "holds no certificate; give the certificates as PEM, as they are in ca.crt, not encoded once more",
        ),
        (String::new(), "holds no certificate; "),
        (
            format!("{}{}", ca.cert_pem(), ca.key_pem()),
            "holds a private key: give the certificates of the authorities alone",
        ),
    ];
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let command = ["generate", "webhooks", "--certificates", "external", "--ca-bundle", path];
    for (text, problem) in cases {
        std::fs::write(file.path(), &text).unwrap();
        let said = fails(&command, 1).await;
        assert!(said.starts_with(&format!("error: --ca-bundle {path}: {problem}")), "{said}");
    }
    std::fs::write(file.path(), ca.cert_pem()).unwrap();
    for object in generate(&command[1..]).await {
        assert_eq!(object["webhooks"][0]["clientConfig"]["caBundle"], encoded, "as it was given, encoded once");
    }
    let endless = ["generate", "webhooks", "--certificates", "external", "--ca-bundle", "/dev/zero"];
    assert_eq!(fails(&endless, 1).await, "error: cannot read /dev/zero: it is larger than 1048576 bytes\n");
    let said = fails(&["generate", "webhooks", "--ca-bundle", path], 1).await;
    assert_eq!(said, "error: --ca-bundle is for --certificates external: give both or neither\n");
    let said = fails(&["generate", "webhooks", "--issuer", "a"], 1).await;
    assert_eq!(said, "error: --issuer is for --certificates cert-manager: give both or neither\n");
    fails(&[&["generate", "operator", "--format", "kustomize"], &IMAGE[..]].concat(), 2).await;
}

// K5, and issue 23 of docs/src/reference/issues.md: nothing is left to be filled in or rewritten.
#[tokio::test]
async fn a_kustomization_lists_each_file_and_the_check_knows_them_all() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().to_str().unwrap();
    let command = [&["generate", "operator", "--format", "kustomize", "--out", out], &IMAGE[..]].concat();
    assert!(output(&command).await.status.success());
    let text = std::fs::read_to_string(home.path().join("kustomization.yaml")).unwrap();
    let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
    let members: Vec<_> = kustomization.as_object().unwrap().keys().collect();
    assert_eq!(members, ["apiVersion", "kind", "resources"], "no prefix, no namespace, no patch");
    assert_eq!(
        kustomization["resources"],
        json!(["entities.demo.example.yaml", "rbac.yaml", "operator.yaml", "webhooks.yaml"])
    );
    let mut listed = Vec::new();
    for file in kustomization["resources"].as_array().unwrap() {
        let text = std::fs::read_to_string(home.path().join(file.as_str().unwrap())).unwrap();
        listed.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
    }
    assert_eq!(listed, operator(&[]).await, "the same objects as without kustomize, in the same order");
    let check = [&command[..], &["--check"]].concat();
    assert!(output(&check).await.status.success());
    // Another source of certificates leaves a file behind that is not generated any more.
    assert!(output(&[&command[..], &["--certificates", "cert-manager"]].concat()).await.status.success());
    let said = fails(&check, 1).await;
    assert!(said.contains("certificates.yaml (not generated any more)"), "{said}");
}

// Applied, it would turn the cluster-wide installation into a restricted one.
#[tokio::test]
async fn a_restricted_installation_under_the_default_names_is_refused() {
    for what in ["operator", "rbac"] {
        let words = ["generate", what, "--image", "op:1", "--restrict-to-namespace", "team"];
        let said = fails(&words, 1).await;
        assert!(said.contains("would replace the cluster-wide one") && said.contains("--release NAME"), "{said}");
    }
}

#[tokio::test]
async fn external_certificates_without_a_bundle_are_a_warning() {
    for what in ["operator", "webhooks", "crds"] {
        let generated = output(&["generate", what, "--image", "op:1", "--certificates", "external"]).await;
        let said = String::from_utf8(generated.stderr).unwrap();
        assert!(generated.status.success() && said.contains("warning: no --ca-bundle FILE"), "{what}: {said}");
    }
}

#[tokio::test]
async fn manifests_of_an_operator_need_an_image() {
    let said = fails(&["generate", "operator"], 1).await;
    assert!(said.starts_with("error: generate operator needs --image IMAGE"), "{said}");
}
