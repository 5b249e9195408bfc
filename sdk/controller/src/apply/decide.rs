//! Decides whether a child has to be written, from what the store keeps of the live object.

use serde_json::Value;

use super::{Desired, Live, digest, fields};

/// The decision about one child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The live object is as it was applied last, and the desired document is the same.
    Keep,
    /// Send the document.
    Apply(Reason),
    /// The live object, ours or not, is being deleted: its name will be free.
    Wait,
    /// An object of that name exists and is not ours to change.
    Refuse(Refusal),
}

/// The reason why a child is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// There is no such object.
    Absent,
    /// The desired document is another one than was applied last.
    Changed,
    /// A foreign client changed or removed the value at this path.
    Taken(String),
    /// A foreign client added fields that it must not hold; the digest of the patches that remove them.
    Foreign(String),
}

/// The reason why an existing object with the name of a child is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another object controls it.
    ControlledByOther,
    /// It has no controlling owner, and nothing shows that this operator created it.
    NotOurs,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ControlledByOther => "an object of this name is controlled by another owner; rename one of them",
            Self::NotOurs => "an object of this name exists and was not made by this operator; rename one of them",
        })
    }
}

/// Returns why `live`, which has the name of a child that `manager` applies for the object with uid `owner`, must not
/// be written or deleted; `None` if it is that child.
pub fn refusal(live: &Live, owner: &str, manager: &str) -> Option<Refusal> {
    match live.controller.as_deref() {
        Some(controller) if controller != owner => Some(Refusal::ControlledByOther),
        None if live.field_manager.as_deref() != Some(manager) => Some(Refusal::NotOurs),
        _ => None,
    }
}

/// Decides about `desired`, a child that `manager` applies for the object with uid `owner`.
pub(super) fn decide(live: Option<&Live>, desired: &Desired, owner: &str, manager: &str) -> Decision {
    let Some(live) = live else {
        return Decision::Apply(Reason::Absent);
    };
    if live.deleting {
        return Decision::Wait;
    }
    if let Some(refusal) = refusal(live, owner, manager) {
        return Decision::Refuse(refusal);
    }
    if live.digest.as_deref() != Some(desired.digest()) {
        return Decision::Apply(Reason::Changed);
    }
    let held =
        live.owned_fields.as_deref().and_then(|held| serde_json::from_str::<Value>(held).ok()).unwrap_or_default();
    match fields::first_missing(&held, desired.document()) {
        Some(path) => Decision::Apply(Reason::Taken(path)),
        None if !live.foreign.is_empty() => {
            Decision::Apply(Reason::Foreign(digest::of(&live.foreign.as_slice().into())))
        }
        None => Decision::Keep,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ApiResource;
    use serde_json::json;

    use super::*;
    use crate::apply::FieldManager;

    fn desired() -> Desired {
        let document = json!({
            "metadata": {"name": "c", "namespace": "n", "ownerReferences": [{"uid": "owner", "controller": true}]},
            "data": {"k": "v"}
        });
        Desired::new(&ApiResource::erase::<ConfigMap>(&()), document, &FieldManager::new("test")).unwrap()
    }

    fn live() -> Live {
        let held = json!({
            "f:data": {"f:k": {}},
            "f:metadata": {
                "f:annotations": {format!("f:{}", FieldManager::DIGEST): {}},
                "f:ownerReferences": {"k:{\"uid\":\"owner\"}": {}}
            }
        });
        Live {
            uid: "u".into(),
            version: 7,
            digest: Some(desired().digest().to_owned()),
            controller: Some("owner".into()),
            field_manager: None,
            deleting: false,
            owned_fields: Some(held.to_string().into_boxed_str()),
            foreign: Vec::new(),
        }
    }

    /// R3: a child is written for these reasons and for no other.
    #[test]
    fn a_child_is_written_only_when_absent_changed_or_taken() {
        let taken = r#"{"f:data":{},"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"owner\"}":{}}}}"#;
        let cases: Vec<(&str, Option<Live>, Decision)> = vec![
            ("absent", None, Decision::Apply(Reason::Absent)),
            ("as applied", Some(live()), Decision::Keep),
            ("another document", Some(Live { digest: Some("old".into()), ..live() }), Decision::Apply(Reason::Changed)),
            ("no digest", Some(Live { digest: None, ..live() }), Decision::Apply(Reason::Changed)),
            (
                "a path taken",
                Some(Live { owned_fields: Some(taken.into()), ..live() }),
                Decision::Apply(Reason::Taken("metadata.annotations".into())),
            ),
            (
                "managedFields cleared",
                Some(Live { owned_fields: None, ..live() }),
                Decision::Apply(Reason::Taken("data".into())),
            ),
            (
                "fields of others that only we may hold",
                Some(Live { foreign: vec![json!({"spec": null})], ..live() }),
                Decision::Apply(Reason::Foreign(digest::of(&json!([{"spec": null}])))),
            ),
            ("being deleted", Some(Live { deleting: true, digest: None, ..live() }), Decision::Wait),
            (
                "another's child",
                Some(Live { controller: Some("else".into()), ..live() }),
                Decision::Refuse(Refusal::ControlledByOther),
            ),
            (
                "a user's own object",
                Some(Live { controller: None, digest: None, owned_fields: None, ..live() }),
                Decision::Refuse(Refusal::NotOurs),
            ),
            (
                "owner reference stripped",
                Some(Live { controller: None, field_manager: Some("test".into()), ..live() }),
                Decision::Keep,
            ),
            (
                "owner reference stripped of another controller's child",
                Some(Live { controller: None, field_manager: Some("else".into()), owned_fields: None, ..live() }),
                Decision::Refuse(Refusal::NotOurs),
            ),
        ];
        for (case, live, expected) in cases {
            let decision = decide(live.as_ref(), &desired(), "owner", "test");
            match (&decision, &expected) {
                (Decision::Apply(Reason::Taken(_)), Decision::Apply(Reason::Taken(_))) => {}
                _ => assert_eq!(decision, expected, "{case}"),
            }
        }
    }
}
