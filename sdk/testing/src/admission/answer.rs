//! Answers, and what a test says about them.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The answer of a webhook. Assertions return it, so that they can be chained, and show all of it when they fail.
#[derive(Clone, Debug)]
#[must_use = "an answer that is not looked at tests nothing"]
pub struct Answer {
    asked: String,
    said: Said,
}

#[derive(Clone, Debug)]
enum Said {
    /// Left to the webhook's failure policy.
    HttpError {
        code: u16,
        text: String,
    },
    Review(Box<Reviewed>),
}

#[derive(Clone, Debug)]
struct Reviewed {
    response: Response,
    patch: Option<json_patch::Patch>,
    sent: Option<Value>,
    patched: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Review {
    api_version: String,
    kind: String,
    response: Response,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(default)]
    status: Status,
    patch: Option<String>,
    patch_type: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    audit_annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
    code: u16,
    details: Details,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<AnswerCause>,
}

/// One entry of `status.details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AnswerCause {
    /// Path of the field, such as `spec.ports[0].name`.
    pub field: String,
    /// The problem with it.
    pub message: String,
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldValueForbidden`.
    pub reason: String,
}

impl Answer {
    pub(super) fn http_error(asked: String, code: u16, text: &str) -> Self {
        Self { asked, said: Said::HttpError { code, text: text.to_owned() } }
    }

    /// Reads an answer by the rules that the API server holds it to; the error says which one is broken.
    pub(super) fn read(asked: String, request: &Value, body: &[u8]) -> Result<Self, String> {
        let broken = |what: String| format!("the answer of {asked} breaks the API server's rules: {what}");
        let review: Review = serde_json::from_slice(body).map_err(|error| broken(error.to_string()))?;
        let response = review.response;
        let found = format!("{} {}", review.api_version, review.kind);
        let denied_well = response.allowed || (400..600).contains(&response.status.code);
        let rules = [
            (found == "admission.k8s.io/v1 AdmissionReview", format!("it is a {found}")),
            (request["uid"] == response.uid.as_str(), format!("uid {:?} is not the request's", response.uid)),
            (response.patch.is_some() == response.patch_type.is_some(), "patch and patchType go together".to_owned()),
            (
                response.patch_type.as_deref().is_none_or(|kind| kind == "JSONPatch"),
                "patchType is no JSONPatch".to_owned(),
            ),
            (response.patch.is_none() || response.allowed, "a denial has a patch".to_owned()),
            (denied_well, format!("a denial has code {}", response.status.code)),
        ];
        if let Some((_, what)) = rules.into_iter().find(|(kept, _)| !kept) {
            return Err(broken(what));
        }
        let sent = Some(request["object"].clone()).filter(|object| !object.is_null());
        let patch = response.patch.as_ref().map(|encoded| {
            let json = STANDARD.decode(encoded).map_err(|error| broken(format!("patch is not base64: {error}")))?;
            serde_json::from_slice::<json_patch::Patch>(&json)
                .map_err(|error| broken(format!("patch is no JSON patch: {error}")))
        });
        let patch = patch.transpose()?;
        let patched = match (&sent, &patch) {
            (None, Some(_)) => return Err(broken("there is a patch and no object".to_owned())),
            (Some(sent), Some(patch)) => {
                let mut object = sent.clone();
                json_patch::patch(&mut object, patch)
                    .map_err(|error| broken(format!("the patch does not apply: {error}")))?;
                Some(object)
            }
            (sent, None) => sent.clone(),
        };
        Ok(Self { asked, said: Said::Review(Box::new(Reviewed { response, patch, sent, patched })) })
    }

    /// Asserts that the request is allowed.
    ///
    /// # Panics
    /// When it is not, showing the answer, as all assertions do.
    #[track_caller]
    pub fn assert_allowed(&self) -> &Self {
        self.expect(self.is_allowed(), "the request to be allowed")
    }

    /// Asserts that the request is denied with this code and exactly this message.
    #[track_caller]
    pub fn assert_denied(&self, code: u16, message: &str) -> &Self {
        let denied = self.review().is_some_and(|review| {
            let status = &review.response.status;
            !review.response.allowed && status.code == code && status.message == message
        });
        self.expect(denied, &format!("a denial with {code}: {message}"))
    }

    /// Asserts that a cause of the denial names this field.
    #[track_caller]
    pub fn assert_cause(&self, field: &str) -> &Self {
        self.expect(self.causes().iter().any(|cause| cause.field == field), &format!("a cause for the field {field}"))
    }

    /// Asserts that one of the warnings contains this text.
    #[track_caller]
    pub fn assert_warning(&self, text: &str) -> &Self {
        self.expect(self.warnings().iter().any(|warning| warning.contains(text)), &format!("a warning with '{text}'"))
    }

    /// Asserts that the request is allowed and the object unchanged.
    #[track_caller]
    pub fn assert_unchanged(&self) -> &Self {
        let same = self.review().is_some_and(|review| review.response.allowed && review.sent == review.patched);
        self.expect(same, "the object to be allowed as it was sent")
    }

    /// Asserts that the request is allowed with exactly this JSON patch (RFC 6902).
    #[track_caller]
    pub fn assert_patch(&self, patch: &Value) -> &Self {
        let same = self.patch().is_some_and(|answered| answered == *patch);
        self.expect(same, &format!("the patch {patch}"))
    }

    /// Asserts that the answer is this HTTP error, so that the failure policy decides.
    #[track_caller]
    pub fn assert_http_error(&self, code: u16) -> &Self {
        let failed = matches!(&self.said, Said::HttpError { code: answered, .. } if *answered == code);
        self.expect(failed, &format!("the HTTP error {code}"))
    }

    /// Whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        self.review().is_some_and(|review| review.response.allowed)
    }

    /// The message to the user: that of the denial, or the text of an HTTP error; empty when allowed.
    pub fn message(&self) -> &str {
        match &self.said {
            Said::HttpError { text, .. } => text,
            Said::Review(review) => &review.response.status.message,
        }
    }

    /// The causes of a denial.
    pub fn causes(&self) -> &[AnswerCause] {
        self.review().map_or(&[], |review| &review.response.status.details.causes)
    }

    /// The warnings, as they are sent: cut to Kubernetes' lengths.
    pub fn warnings(&self) -> &[String] {
        self.review().map_or(&[], |review| &review.response.warnings)
    }

    /// The audit annotation under this key, without the prefix of the webhook's name.
    pub fn audit(&self, key: &str) -> Option<&str> {
        self.review().and_then(|review| review.response.audit_annotations.get(key)).map(String::as_str)
    }

    /// The JSON patch, if there is one.
    pub fn patch(&self) -> Option<Value> {
        let patch = self.review()?.patch.as_ref()?;
        serde_json::to_value(patch).ok()
    }

    /// The object with the patch applied.
    ///
    /// # Panics
    /// When the request is refused or has no object.
    #[track_caller]
    pub fn patched(&self) -> Value {
        match self.review() {
            Some(Reviewed { response: Response { allowed: true, .. }, patched: Some(object), .. }) => object.clone(),
            _ => panic!("expected an object that goes on\n{self}"),
        }
    }

    /// The object with the patch applied, decoded.
    ///
    /// # Panics
    /// As [`patched`](Self::patched), and when it does not decode.
    #[track_caller]
    pub fn patched_as<K: DeserializeOwned>(&self) -> K {
        serde_json::from_value(self.patched())
            .unwrap_or_else(|error| panic!("expected an object of its type: {error}\n{self}"))
    }

    fn review(&self) -> Option<&Reviewed> {
        match &self.said {
            Said::Review(review) => Some(review),
            Said::HttpError { .. } => None,
        }
    }

    #[track_caller]
    fn expect(&self, holds: bool, what: &str) -> &Self {
        assert!(holds, "expected {what}\n{self}");
        self
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} answered:", self.asked)?;
        let review = match &self.said {
            Said::HttpError { code, text } => return writeln!(f, "  HTTP error {code}: {text}"),
            Said::Review(review) => review,
        };
        let Response { allowed, status, warnings, audit_annotations, .. } = &review.response;
        if *allowed {
            let how = if review.sent == review.patched { "allowed as it was sent" } else { "allowed, changed" };
            writeln!(f, "  {how}")?;
        } else {
            writeln!(f, "  denied with {} ({}): {}", status.code, status.reason, status.message)?;
        }
        for AnswerCause { field, message, reason } in &status.details.causes {
            writeln!(f, "  cause: {field}: {message} ({reason})")?;
        }
        for warning in warnings {
            writeln!(f, "  warning: {warning}")?;
        }
        for (key, value) in audit_annotations {
            writeln!(f, "  audit: {key}: {value}")?;
        }
        for operation in review.patch.iter().flat_map(|patch| &patch.0) {
            writeln!(f, "  patch: {operation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// K1: whatever breaks these rules fails the call in a cluster, and so it does here.
    #[test]
    fn an_answer_that_the_api_server_would_not_take_is_no_answer() {
        let request = json!({"uid": "u-1", "object": {"a": 1}});
        let fine = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "u-1", "allowed": true}});
        let with = |pointer: &str, value: Value| {
            let mut answer = fine.clone();
            let (parent, member) = pointer.rsplit_once('/').unwrap();
            answer.pointer_mut(parent).unwrap()[member] = value;
            answer
        };
        let patched = |operations: &str, allowed: bool| {
            let mut answer = with("/response/patch", json!(STANDARD.encode(operations)));
            answer["response"]["patchType"] = json!("JSONPatch");
            answer["response"]["allowed"] = json!(allowed);
            answer["response"]["status"] = json!({"code": 400});
            answer
        };
        let read = |answer: &Value| Answer::read("it".into(), &request, answer.to_string().as_bytes());
        read(&fine).unwrap().assert_unchanged();
        let changed = read(&patched(r#"[{"op": "add", "path": "/b", "value": 2}]"#, true)).unwrap();
        assert_eq!(changed.patched(), json!({"a": 1, "b": 2}));
        let cases = [
            (with("/response/uid", json!("u-2")), "uid \"u-2\" is not the request's"),
            (with("/apiVersion", json!("admission.k8s.io/v1beta1")), "it is a admission.k8s.io/v1beta1"),
            (with("/response/patchType", json!("JSONPatch")), "patch and patchType go together"),
            (with("/response/patch", json!("W10=")), "patch and patchType go together"),
            (with("/response/allowed", json!(false)), "a denial has code 0"),
            (with("/response/allow", json!(true)), "unknown field"),
            (patched("[]", false), "a denial has a patch"),
            (patched("[{]", true), "patch is no JSON patch"),
            (patched(r#"[{"op": "remove", "path": "/b"}]"#, true), "the patch does not apply"),
        ];
        for (answer, said) in cases {
            let error = read(&answer).unwrap_err();
            assert!(error.contains(said), "{said}: {error}");
        }
        let deletion = json!({"uid": "u-1", "object": null});
        let answer = patched(r#"[{"op": "add", "path": "/b", "value": 2}]"#, true).to_string();
        assert!(Answer::read("it".into(), &deletion, answer.as_bytes()).unwrap_err().contains("no object"));
    }
}
