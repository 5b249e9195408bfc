//! Whether an answer is right: the first ones of each window are read in full, the others have to be of the same length, with
//! their own uid in the same place.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::workload::{Expected, Workload};

/// The form of a right answer of one server to one kind of call. Only the uid differs between two of them.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    length: usize,
    uid: usize,
}

impl Shape {
    /// Reads an answer in full. `floor` says that the server is the floor, which decides nothing.
    pub fn of(answer: &[u8], uid: &str, workload: &Workload, floor: bool) -> Result<Self> {
        check(answer, uid, &workload.expected, floor).with_context(|| {
            let shown = String::from_utf8_lossy(&answer[..answer.len().min(600)]);
            format!("wrong answer to {}: {shown}", workload.name)
        })?;
        let uid = find(answer, uid.as_bytes()).context("the answer lacks the uid of its call")?;
        Ok(Self { length: answer.len(), uid })
    }

    /// Whether a later answer is like it.
    pub fn fits(self, answer: &[u8], uid: &str) -> bool {
        answer.len() == self.length && answer.get(self.uid..self.uid + uid.len()) == Some(uid.as_bytes())
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn check(answer: &[u8], uid: &str, expected: &Expected, floor: bool) -> Result<()> {
    let answer: Value = serde_json::from_slice(answer).context("the answer is no JSON")?;
    let response = &answer["response"];
    ensure!(response["uid"] == uid, "the uid is {}, not {uid}", response["uid"]);
    if let Expected::Converted(objects) = expected {
        ensure!(
            answer["apiVersion"] == "apiextensions.k8s.io/v1" && answer["kind"] == "ConversionReview",
            "wrong kind"
        );
        ensure!(response["result"]["status"] == "Success", "not a success");
        let converted = response["convertedObjects"].as_array().context("no objects")?;
        ensure!(converted.len() == objects.len(), "{} objects for {}", converted.len(), objects.len());
        let different = converted.iter().zip(objects).find(|(is, wanted)| !floor && is != wanted);
        if let Some((is, wanted)) = different {
            anyhow::bail!("an object is {}", difference(is, wanted, "").unwrap_or_default());
        }
        return Ok(());
    }
    ensure!(answer["apiVersion"] == "admission.k8s.io/v1" && answer["kind"] == "AdmissionReview", "wrong kind");
    let allowed = response["allowed"].as_bool().context("neither allowed nor refused")?;
    let patch = patch(response)?;
    match expected {
        Expected::Allowed => ensure!(allowed && patch.0.is_empty(), "not allowed as it is"),
        Expected::Refused => {
            let code = response["status"]["code"].as_u64();
            ensure!(!allowed && matches!(code, None | Some(403)), "not refused with 403");
        }
        Expected::Patched { before, after } => {
            let mut object = before.clone();
            json_patch::patch(&mut object, &patch).context("the patch does not apply")?;
            ensure!(allowed && object == *after, "patched to {}", difference(&object, after, "").unwrap_or_default());
        }
        Expected::Converted(_) => {}
    }
    Ok(())
}

/// The patch of an answer; empty without one. kube writes it as an array of bytes, which Go reads as well as a string.
fn patch(response: &Value) -> Result<json_patch::Patch> {
    let bytes = match &response["patch"] {
        Value::Null => return Ok(json_patch::Patch::default()),
        Value::String(text) => STANDARD.decode(text)?,
        bytes => serde_json::from_value(bytes.clone())?,
    };
    ensure!(response["patchType"] == "JSONPatch", "a patch without its type");
    Ok(serde_json::from_slice(&bytes)?)
}

/// The first place where two values differ.
fn difference(is: &Value, wanted: &Value, path: &str) -> Option<String> {
    if is == wanted {
        return None;
    }
    if let (Value::Object(is), Value::Object(wanted)) = (is, wanted) {
        let keys = is.keys().chain(wanted.keys());
        return keys.into_iter().find_map(|key| {
            difference(
                is.get(key).unwrap_or(&Value::Null),
                wanted.get(key).unwrap_or(&Value::Null),
                &format!("{path}.{key}"),
            )
        });
    }
    Some(format!("{is} instead of {wanted} at {path}"))
}
