//! Bounds on what authors of these kinds may have of nodes, of the operator, and of the namespace: by the operator's flag, by its own rules at home, and
//! by what the page "Who may create these kinds" shows.

use k8s_openapi::api::{core::v1::Namespace, rbac::v1::PolicyRule};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{Grant, wait_until};
use serde_json::{Value, json};

use super::{
    Gate, fields,
    support::{DEADLINE, Objects, labelled, oidc_config, remote_proxy},
};

const PAGE: &str = include_str!("../../../../../docs/src/how-to/authors.md");

/// The label of the page's namespace by which Pod Security admission judges pods there.
const LEVEL: &str = "pod-security.kubernetes.io/enforce";

/// Asserts that each of these is refused with its field.
async fn are_refused(gate: &Gate, cases: Vec<(Value, String)>) {
    for (object, field) in cases {
        let answer = gate.objects.post(object.clone(), true).await;
        assert_eq!(answer.code, 422, "{object}: {}", answer.body);
        assert_eq!(fields(&answer.body), [field], "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_restricted_author_gets_the_node_or_an_account() {
    let gate = Gate::new("restricted").await;
    let operator = gate.serving(&[]).await;
    // An object that was stored without the restriction is no workload under it.
    gate.objects.create(labelled("before", json!({"podTemplateSpec": {"spec": {"hostPID": true}}}))).await;
    gate.objects.child(ChildKind::StatefulSet, "before", "to exist", |it| !it.is_null()).await;
    operator.terminate().await;

    let _operator = gate.serving(&["--restrict-workloads"]).await;
    let privileged = json!({"containers": [{"name": "more", "image": "y", "securityContext": {"privileged": true}}]});
    let mut cases = Vec::new();
    for (pod, field) in [
        (json!({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}), "volumes[0].hostPath"),
        (json!({"hostNetwork": true}), "hostNetwork"),
        (privileged, "containers[0].securityContext.privileged"),
        (json!({"serviceAccountName": "admin"}), "serviceAccountName"),
    ] {
        let template = json!({"podTemplateSpec": {"spec": pod}});
        let field = format!("spec.podTemplateSpec.spec.{field}");
        cases.push((labelled("web", template.clone()), field.clone()));
        if field.contains("volumes") || field.contains("containers") {
            cases.push((remote_proxy("far", template), field));
        }
    }
    let account = json!({"serviceAccount": "admin"});
    cases.push((labelled("web", account.clone()), "spec.serviceAccount".to_owned()));
    cases.push((remote_proxy("far", account), "spec.serviceAccount".to_owned()));
    are_refused(&gate, cases).await;
    let own = json!({"podTemplateSpec": {"spec": {"serviceAccountName": "web-sa", "priorityClassName": "low"}}});
    for object in [labelled("web", own), remote_proxy("far", json!({}))] {
        let answer = gate.objects.post(object, true).await;
        assert_eq!((answer.code, answer.warnings), (201, Vec::new()), "{}", answer.body);
    }

    for kind in [ChildKind::StatefulSet, ChildKind::Deployment] {
        gate.objects.child(kind, "before", "to go", Value::is_null).await;
    }
    let server = gate.objects.phase("before", "Failed").await;
    let conditions = server.status.unwrap().conditions.unwrap();
    let said = conditions.iter().find(|condition| condition.type_ == "PodsAllowed").unwrap();
    assert_eq!((&*said.status, &*said.reason), ("False", "PodsRefused"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_at_home_names_what_is_the_operators() {
    let gate = Gate::at_home("at-home").await;
    let _operator = gate.serving(&[]).await;
    let own = |name: &str| format!("{}{name}", gate.home);
    let mut cases = Vec::new();
    let account = json!({"serviceAccount": gate.home});
    cases.push((labelled("web", account.clone()), "spec.serviceAccount".to_owned()));
    cases.push((remote_proxy("far", account), "spec.serviceAccount".to_owned()));
    for secret in ["-webhook-tls", "-webhook-tls-ca", "-webhook-tls-root", "-digest"].map(own) {
        let key = json!({"name": secret, "key": "tls.key"});
        let volume = json!([{"name": "v", "secret": {"secretName": secret}}]);
        let header = json!([{"headerName": "X-Key", "valueSecretRef": key}]);
        cases.push((labelled("web", json!({"secrets": [key]})), "spec.secrets[0].name".to_owned()));
        cases.push((
            labelled("web", json!({"podTemplateSpec": {"spec": {"volumes": volume}}})),
            "spec.podTemplateSpec.spec.volumes[0].secret.secretName".to_owned(),
        ));
        cases.push((
            remote_proxy("far", json!({"headerForward": {"addHeadersFromSecret": header}})),
            "spec.headerForward.addHeadersFromSecret[0].valueSecretRef.name".to_owned(),
        ));
        let login = json!({"clientSecretRef": key, "introspectionUrl": "https://evil.example", "clientId": "c"});
        cases.push((oidc_config("idp", login), "spec.inline.clientSecretRef".to_owned()));
    }
    are_refused(&gate, cases).await;
    // ToolHive's quick start installs where the operator lives.
    let key = json!([{"name": "github-token", "key": "token", "targetEnvName": "TOKEN"}]);
    let template = json!({"spec": {"hostPID": true, "volumes": [{"name": "root", "hostPath": {"path": "/"}}]}});
    for spec in [
        json!({"secrets": key, "serviceAccount": "mine"}),
        json!({"podTemplateSpec": template}),
        json!({"resourceOverrides": {"proxyDeployment": {"imagePullSecrets": [{"name": "registry"}]}}}),
    ] {
        let answer = gate.objects.post(labelled("web", spec), true).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
    }
}

/// The documents of the page's manifests: namespaces, and the rest.
fn manifests() -> (Vec<Value>, Vec<Value>) {
    let blocks = PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let documents = blocks.flat_map(|block| serde_saphyr::from_multiple::<Value>(block).unwrap());
    documents.partition(|document| document["kind"] == "Namespace")
}

/// Gives the test's namespace those labels of the page's namespace that are called so.
async fn label_as_on_the_page(gate: &Gate, keys: &[&str]) {
    let labels = manifests().0.remove(0)["metadata"]["labels"].take();
    let labels: Value = keys.iter().map(|key| ((*key).to_owned(), labels[*key].clone())).collect();
    let namespaces: Api<Namespace> = Api::all(gate.cluster.admin());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    namespaces.patch(&gate.objects.namespace, &PatchParams::default(), &patch).await.unwrap();
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(|&it| it.to_owned()).collect()),
        verbs: verbs.iter().map(|&it| it.to_owned()).collect(),
        ..PolicyRule::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_policy_bounds_authors_as_the_page_says() {
    let gate = Gate::new("authors").await;
    let namespace = &*gate.objects.namespace;
    label_as_on_the_page(&gate, &["mcp-authors"]).await;
    gate.cluster.apply(&manifests().1).await;
    let kinds = rule("toolhive.stacklok.dev", &["*"], &["create", "patch"]);
    let all = [kinds.clone(), rule("", &["pods"], &["create"]), rule("", &["secrets"], &["get"])];
    let tenant = gate.cluster.user_with("tenant", &[Grant::Rules { namespace, rules: &[kinds] }]).await;
    let trusted = gate.cluster.user_with("trusted", &[Grant::Rules { namespace, rules: &all }]).await;
    let [tenant, trusted] = [tenant, trusted].map(|user| Objects::new(user.client, namespace));

    let key = |name: &str| json!({"name": name, "key": "k"});
    let header = |name: &str| json!({"addHeadersFromSecret": [{"headerName": "X-Key", "valueSecretRef": key(name)}]});
    let fine = [
        labelled("web", json!({"secrets": [key("mcp-token")]})),
        remote_proxy("far", json!({"headerForward": header("mcp-api")})),
        oidc_config("idp", json!({"clientSecretRef": key("mcp-idp")})),
        oidc_config("open", json!({})),
    ];
    let refused = [
        labelled("web", json!({"serviceAccount": "admin"})),
        labelled("web", json!({"podTemplateSpec": {"spec": {"serviceAccountName": "admin"}}})),
        labelled("web", json!({"volumes": [{"name": "root", "hostPath": "/", "mountPath": "/host"}]})),
        labelled("web", json!({"secrets": [key("mcp-token"), key("database")]})),
        remote_proxy("far", json!({"podTemplateSpec": {"spec": {}}})),
        remote_proxy("far", json!({"headerForward": header("database")})),
        oidc_config("idp", json!({"clientSecretRef": key("database")})),
    ];
    wait_until("the policy to be in force", DEADLINE, || async {
        (tenant.post(refused[0].clone(), true).await.code == 422).then_some(())
    })
    .await;
    for object in refused {
        let answer = tenant.post(object.clone(), true).await;
        assert_eq!(answer.code, 422, "{object}: {}", answer.body);
        assert!(answer.body["message"].as_str().unwrap().contains("mcp-authors"), "{}", answer.body);
        let answer = trusted.post(object.clone(), true).await;
        assert_eq!(answer.code, 201, "{object}: {}", answer.body);
    }
    for object in fine {
        let answer = tenant.post(object.clone(), true).await;
        assert_eq!(answer.code, 201, "{object}: {}", answer.body);
    }
    // An author that may not write such a spec may still label an object that has it.
    gate.objects.create(labelled("theirs", json!({"serviceAccount": "admin"}))).await;
    let label = json!({"metadata": {"labels": {"team": "a"}}});
    assert_eq!(tenant.patch("MCPServer", "theirs", label).await.code, 200);
    let edit = json!({"spec": {"image": "other:1"}});
    assert_eq!(tenant.patch("MCPServer", "theirs", edit).await.code, 422);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_security_admission_judges_the_pods_of_a_server() {
    let gate = Gate::new("pod-security").await;
    label_as_on_the_page(&gate, &[LEVEL]).await;
    let _operator = gate.start(&[]);
    let root = json!({"spec": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}});
    for (name, spec, code) in [("plain", json!({}), 201), ("root", json!({"podTemplateSpec": root}), 403)] {
        gate.objects.create(labelled(name, spec)).await;
        for (kind, code) in [(ChildKind::StatefulSet, code), (ChildKind::Deployment, 201)] {
            let child = gate.objects.child(kind, name, "to exist", |it| !it.is_null()).await;
            let mut pod = child["spec"]["template"].clone();
            pod["metadata"]["name"] = json!("tried");
            (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
            let answer = gate.objects.post(pod, true).await;
            assert_eq!(answer.code, code, "{name} {kind:?}: {}", answer.body);
            let said = answer.body["message"].as_str().unwrap_or_default();
            assert!(code == 201 || said.contains("violates PodSecurity \"restricted:latest\""), "{said}");
        }
    }
}
