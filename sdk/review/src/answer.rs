//! The response, as the API server reads it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::envelope::Review;
use crate::patch::Patch;
use crate::verdict::{Denial, Verdict};

/// Characters of one warning that Kubernetes keeps once there are too many.
const WARNING_LENGTH: usize = 256;
/// Characters of all warnings of a response together that Kubernetes keeps.
const WARNINGS_LENGTH: usize = 4096;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Status<'a> {
    #[serde(rename = "status")]
    outcome: &'static str,
    message: &'a str,
    reason: &'static str,
    code: u16,
    // Absent without causes: kubectl shows a 422 that has details by its causes alone and drops the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
}

#[derive(Serialize)]
struct Details<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    kind: &'a str,
    causes: Vec<StatusCause<'a>>,
}

#[derive(Serialize)]
struct StatusCause<'a> {
    reason: &'static str,
    message: &'a str,
    field: &'a str,
}

impl Review<'_> {
    /// Encodes the response to this review, with the same `apiVersion` and `uid`.
    ///
    /// The patch is omitted from a denial, and for a request without an object (DELETE): the API server treats either
    /// as an error, whatever the failure policy.
    pub fn answer(&self, verdict: &Verdict, patch: Option<&Patch>) -> Vec<u8> {
        let request = &self.request;
        let patch = patch.filter(|_| verdict.is_allowed() && request.object.is_some());
        let answer = Answer {
            api_version: self.version.api_version(),
            kind: "AdmissionReview",
            response: Response {
                uid: &request.uid,
                allowed: verdict.is_allowed(),
                status: verdict.denial.as_ref().map(|denial| self.status(denial)),
                patch: patch.map(|patch| STANDARD.encode(patch.as_json())),
                patch_type: patch.map(|_| "JSONPatch"),
                warnings: fit(&verdict.warnings),
                audit_annotations: &verdict.audit,
            },
        };
        // Strings, maps with string keys and numbers: there is nothing in an answer that JSON cannot hold.
        serde_json::to_vec(&answer).unwrap_or_default()
    }

    fn status<'v>(&'v self, denial: &'v Denial) -> Status<'v> {
        let request = &self.request;
        let causes: Vec<StatusCause<'v>> = denial
            .causes
            .iter()
            .map(|cause| StatusCause { reason: cause.reason, message: &cause.message, field: &cause.field })
            .collect();
        let details = (!causes.is_empty()).then(|| Details {
            name: &request.name,
            group: &request.kind.group,
            kind: &request.kind.kind,
            causes,
        });
        Status { outcome: "Failure", message: &denial.message, reason: denial.reason(), code: denial.code, details }
    }
}

/// Warnings travel in an HTTP header: the API server drops one that is empty or holds a control character without a
/// word, and cuts and drops what is too long (k8s.io/apiserver, endpoints/filters/warning.go). What is cut or left out
/// here is so in a way that the reader can see.
fn fit(warnings: &[String]) -> Vec<Cow<'_, str>> {
    let mut fitted: Vec<_> = warnings.iter().map(|warning| clean(warning)).filter(|text| !text.is_empty()).collect();
    let lengths: Vec<usize> = fitted.iter().map(|text| text.chars().count()).collect();
    if lengths.iter().sum::<usize>() <= WARNINGS_LENGTH {
        return fitted;
    }
    let mut left = WARNINGS_LENGTH - and_more(fitted.len()).chars().count();
    let kept = lengths.iter().take_while(|length| left.checked_sub(**length).map(|rest| left = rest).is_some()).count();
    let more = fitted.len() - kept;
    fitted.truncate(kept);
    fitted.push(and_more(more).into());
    fitted
}

/// The last warning where some were left out.
fn and_more(left_out: usize) -> String {
    format!("… and {left_out} more warning{}", if left_out == 1 { "" } else { "s" })
}

/// One warning without control characters, within its length.
fn clean(warning: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(warning);
    if warning.contains(char::is_control) {
        text = warning.replace(char::is_control, " ").into();
    }
    let trimmed = text.trim();
    if trimmed.chars().nth(WARNING_LENGTH).is_some() {
        return trimmed.chars().take(WARNING_LENGTH - 1).chain(['…']).collect::<String>().into();
    }
    if trimmed.len() == text.len() { text } else { Cow::Owned(trimmed.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_cut_to_the_lengths_that_kubernetes_keeps() {
        let long = [String::from("ä").repeat(300), "two\nlines".into(), "\t".into(), String::new(), " x ".into()];
        let fitted = fit(&long);
        assert_eq!(fitted.len(), 3, "empty warnings would be dropped by the API server without a word");
        assert_eq!(fitted[0].chars().count(), 256);
        assert!(fitted[0].ends_with('…'));
        assert_eq!(&fitted[1..], ["two lines", "x"]);
    }

    #[test]
    fn warnings_that_are_left_out_are_counted() {
        // (length of each, how many there are, how many are reported, the last one)
        let w = |n: usize| "w".repeat(n);
        let cases = [
            (200, 20, 20, w(200)),
            (200, 21, 21, "… and 1 more warning".to_owned()),
            (200, 40, 21, "… and 20 more warnings".to_owned()),
            (256, 16, 16, w(256)),
            (300, 17, 16, "… and 2 more warnings".to_owned()),
            (1, 4096, 4096, w(1)),
        ];
        for (length, count, told, last) in cases {
            let many = vec![w(length); count];
            let fitted = fit(&many);
            let total: usize = fitted.iter().map(|w| w.chars().count()).sum();
            assert!(total <= WARNINGS_LENGTH, "{total}");
            assert_eq!((fitted.len(), &*fitted[fitted.len() - 1]), (told, last.as_str()), "{count} of {length}");
        }
    }
}
