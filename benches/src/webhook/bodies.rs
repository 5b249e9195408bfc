//! Reviews as the API server writes them, with a place for the uid of each call.

use serde_json::Value;

/// Stands for the uid in a template; as long as one.
const UID: &str = "@@@@@@@@-@@@@-@@@@-@@@@-@@@@@@@@@@@@";

/// A body that lacks the uid of the call.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    place: usize,
}

impl Template {
    fn new(text: String) -> Self {
        let place = text.find(UID).unwrap_or_default();
        Self { bytes: text.into_bytes(), place }
    }

    /// The body for the call with this uid, which is 36 bytes long.
    pub fn body(&self, uid: &str) -> Vec<u8> {
        let mut body = self.bytes.clone();
        body[self.place..self.place + UID.len()].copy_from_slice(uid.as_bytes());
        body
    }
}

/// The uid of call `number`.
pub fn uid(number: u64) -> String {
    format!("{:08x}-6e2b-4c0b-8f6f-{number:012x}", number.wrapping_mul(0x9e37_79b9) & 0xffff_ffff)
}

/// An admission review of a create, or of an update where there is an old object.
pub fn admission(object: &Value, old: Option<&Value>) -> Template {
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let options = if old.is_some() { "UpdateOptions" } else { "CreateOptions" };
    let old = old.map_or("null".to_owned(), Value::to_string);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let kind = r#"{"group":"entity.example.com","version":"v3","kind":"Entity"}"#;
    let resource = r#"{"group":"entity.example.com","version":"v3","resource":"entities"}"#;
    let user = r#"{"username":"system:serviceaccount:argocd:argocd-application-controller","uid":"6d0b5bb4-2e2b-4c0b-8f6f-2a5a2f4b9f10","groups":["system:serviceaccounts","system:serviceaccounts:argocd","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["JTI=1d4cf8ce-62ac-4be2-9d7a-0d2b7d3b3a11"],"authentication.kubernetes.io/node-name":["worker-3"],"authentication.kubernetes.io/pod-name":["argocd-application-controller-0"]}}"#;
    Template::new(format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","kind":{kind},"resource":{resource},"requestKind":{kind},"requestResource":{resource},"name":"{name}","namespace":"default","operation":"{operation}","userInfo":{user},"object":{object},"oldObject":{old},"dryRun":false,"options":{{"kind":"{options}","apiVersion":"meta.k8s.io/v1","fieldManager":"argocd-controller","fieldValidation":"Strict"}}}}}}"#
    ))
}

/// A conversion review.
pub fn conversion(desired: &str, objects: &[Value]) -> Template {
    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
    Template::new(format!(
        r#"{{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{{"uid":"{UID}","desiredAPIVersion":"entity.example.com/{desired}","objects":[{}]}}}}"#,
        objects.join(",")
    ))
}
