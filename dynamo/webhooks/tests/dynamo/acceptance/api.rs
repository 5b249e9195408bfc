//! Cases as a user meets them: through an API server.

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use portcullis_testing::ControlPlane;
use serde_json::Value;

use crate::acceptance::cases::{Said, Stage, Vector};

/// An answer of the API server.
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

/// Asks for each of these objects in this namespace, as a dry run, and returns those that are answered otherwise than they say.
pub(crate) async fn answered_otherwise(cluster: &ControlPlane, namespace: &str, vectors: &[Vector]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, vector) in vectors.iter().enumerate() {
        let name = format!("case-{index}");
        let answer = asked(cluster, vector, namespace, &name).await;
        if let Err(problem) = compare(vector, &vector.said(namespace, &name), &answer) {
            let (kind, case) = (&vector.kind, &vector.case.name);
            wrong.push(format!("{kind} {case:?}: {problem}: {} {} {:?}", answer.code, answer.body, answer.warnings));
        }
    }
    wrong
}

async fn asked(cluster: &ControlPlane, vector: &Vector, namespace: &str, name: &str) -> Answer {
    let objects = format!("/apis/nvidia.com/v1alpha1/namespaces/{namespace}/{}s", vector.kind.to_lowercase());
    let (old, mut new) = vector.objects(namespace, name);
    let user = vector.case.user.as_deref();
    let Some(old) = old else { return send(cluster, Method::POST, &format!("{objects}?dryRun=All"), user, &new).await };
    let made = send(cluster, Method::POST, &objects, None, &old).await;
    assert_eq!(made.code, 201, "{:?}: {}", vector.case.name, made.body);
    new["metadata"]["resourceVersion"] = made.body["metadata"]["resourceVersion"].clone();
    send(cluster, Method::PUT, &format!("{objects}/{name}?dryRun=All"), user, &new).await
}

async fn send(cluster: &ControlPlane, method: Method, path: &str, user: Option<&str>, object: &Value) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if let Some(user) = user {
        request = request.header("impersonate-user", user).header("impersonate-group", "system:masters");
    }
    let request = request.body(Body::from(object.to_string().into_bytes())).unwrap();
    let (head, body) = cluster.admin().send(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let warnings = head.headers.get_all("warning").iter().map(|warning| {
        let text = warning.to_str().unwrap();
        let quoted = text.strip_prefix("299 - ").unwrap_or_else(|| panic!("no warning of an API server: {text}"));
        serde_json::from_str(quoted).unwrap()
    });
    let warnings = warnings.collect();
    Answer { code: head.status.as_u16(), body: serde_json::from_slice(&body).unwrap(), warnings }
}

fn compare(vector: &Vector, expected: &Said, answer: &Answer) -> Result<(), &'static str> {
    let Answer { code, body, warnings } = answer;
    match vector.case.stage {
        None if *code > 201 => return Err("refused"),
        None => {}
        Some(Stage::Webhook) => {
            let error = expected.error.as_deref().unwrap_or_default();
            let webhook = format!("v{}.kb.io", vector.kind.to_lowercase());
            if (*code, body["reason"].as_str()) != (403, Some("Forbidden")) {
                return Err("not refused as Go refuses");
            }
            if body["message"] != format!("admission webhook \"{webhook}\" denied the request: {error}") {
                return Err("refused in other words");
            }
        }
        Some(Stage::Schema | Stage::Cel) => {
            if *code != 422 {
                return Err("not refused by the schema");
            }
            // A message may begin with the value, as in `Invalid value: "object": must be even`.
            let error = expected.error.as_deref().unwrap_or_default();
            let says = |message: &str| message == error || message.ends_with(&format!(": {error}"));
            let mut causes = body["details"]["causes"].as_array().into_iter().flatten();
            let named = causes.any(|cause| {
                cause["field"].as_str() == vector.case.field.as_deref() && cause["message"].as_str().is_some_and(says)
            });
            if !named {
                return Err("refused for something else");
            }
        }
    }
    if *warnings == expected.warnings { Ok(()) } else { Err("warned otherwise") }
}
