//! Refusals of changes of the annotation in which a conversion keeps what a version cannot say.

use std::sync::Arc;

use portcullis_convert::{STASH, same_stash};
use portcullis_manifest::MatchPolicy;
use portcullis_review::Verdict;
use serde_json::Value;

use super::KnownScope;
use super::admit::AdmissionObject;
use super::target::{Subject, Target};
use super::{Context, Validate};

/// Builds a webhook that denies updates which change the annotation [`STASH`] of a kind with several versions, whatever
/// version they are written in.
///
/// The API server validates a write only with the schema and the CEL rules of the version in which it is written. So a
/// rule of version 2, such as `self == oldSelf`, applies to writers of version 2; writers of version 1 find data that
/// only version 2 has in this annotation, and could change it there. This webhook denies that. The API server calls it
/// only for updates that change the annotation, also of objects that are being deleted; all others succeed while it is
/// down.
///
/// It denies removing the annotation as well: a client that replaces a whole object has to keep the annotations that it
/// has read. A new object may have one, as when a backup is restored. To validate values for all writers, add a webhook
/// for the hub version.
///
/// ```
/// use kube::CustomResource;
/// use portcullis_webhook::{Webhooks, immutable_stash};
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "demo.example", version = "v2", kind = "Volume", namespaced)]
/// struct VolumeSpec {
///     size: String,
/// }
///
/// let webhooks = Webhooks::new().validate(immutable_stash::<Volume>("stash"));
/// assert_eq!(webhooks.manifests()?[0].rules[0].versions, ["*"]);
/// # Ok::<(), portcullis_webhook::RegistrationError>(())
/// ```
pub fn immutable_stash<K: AdmissionObject>(name: impl Into<String>) -> Validate<Value> {
    let target = Target {
        groups: vec![K::group(&()).into_owned()],
        versions: vec!["*".to_owned()],
        resources: vec![K::plural(&()).into_owned()],
        scope: <K::Scope as KnownScope>::SCOPE,
    };
    Validate::new(name, Subject::dynamic(target)).on_update(update).match_policy(MatchPolicy::Exact).of_stash_changes()
}

async fn update(old: Arc<Value>, new: Arc<Value>, context: Context) -> Verdict {
    // As the conversion reads it: what it cannot read, for it is not there.
    if same_stash(stash(&old), stash(&new)) {
        return Verdict::allow();
    }
    let version = &context.kind.version;
    Verdict::deny(format!(
        "annotation {STASH} holds what {version} cannot say of this object, and may not be changed: \
         read the object again, and leave the annotation as it is"
    ))
    .code(422)
    .cause(format!("metadata.annotations[{STASH}]"), "may not be changed")
}

fn stash(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][STASH].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_manifest::MatchCondition;

    #[test]
    fn the_match_condition_is_about_the_annotation_of_the_conversion() {
        assert_eq!(MatchCondition::stash_changes().expression.matches(STASH).count(), 4);
    }
}
