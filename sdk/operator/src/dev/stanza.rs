//! The conversion stanza of a CRD, lent and given back.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, WebhookClientConfig, WebhookConversion,
};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entries::Target;
use super::session_mark::{EXPIRES, OF, OWNER, SessionMark};
use portcullis_manifest::names::DEV_SESSION;

/// What the CRD had before, and what it was given: by the second it is known whether somebody has changed it since.
const FORMER: &str = "portcullis.dev/dev-former-conversion";

#[derive(Serialize, Deserialize)]
struct Loan {
    former: Option<CustomResourceConversion>,
    url: String,
}

/// A merge patch that has the objects converted by `target`, and keeps what was there.
pub(super) fn lend(
    crd: &CustomResourceDefinition,
    path: &str,
    target: &Target,
    mark: &SessionMark,
) -> Result<Value, serde_json::Error> {
    let client_config = target.client_config(path);
    let loan = Loan { former: crd.spec.conversion.clone(), url: client_config.url.clone().unwrap_or_default() };
    let loan = serde_json::to_string(&loan)?;
    let ours = CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            // The same as admission's, under the name that it has in the group of CRDs.
            client_config: Some(WebhookClientConfig {
                ca_bundle: client_config.ca_bundle,
                service: None,
                url: client_config.url,
            }),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    };
    let mut annotations = mark.whole();
    annotations.insert(FORMER.to_owned(), loan);
    Ok(json!({
        "metadata": { "resourceVersion": crd.resource_version(), "annotations": annotations },
        "spec": { "conversion": whole(Some(&ours)) },
    }))
}

/// What gives back to a CRD what it had.
#[derive(Debug, PartialEq)]
pub(super) enum GiveBack {
    /// A merge patch.
    Former(Value),
    /// Somebody has changed the stanza since: only the annotations are taken out, by this patch.
    Leave(Value),
    /// What is written there does not read.
    Unreadable(Value),
}

pub(super) fn give_back(crd: &CustomResourceDefinition) -> GiveBack {
    let none: serde_json::Map<_, _> =
        [OF, OWNER, EXPIRES, DEV_SESSION, FORMER].map(|key| (key.to_owned(), Value::Null)).into_iter().collect();
    let metadata = json!({ "resourceVersion": crd.resource_version(), "annotations": none });
    let loan = crd.annotations().get(FORMER).and_then(|loan| serde_json::from_str::<Loan>(loan).ok());
    let Some(loan) = loan else { return GiveBack::Unreadable(json!({ "metadata": metadata })) };
    let webhook = crd.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
    let url = webhook.and_then(|webhook| webhook.client_config.as_ref()?.url.as_ref());
    // The URL alone decides: whoever wrote another bundle beside it, it still calls a session that ends.
    if url != Some(&loan.url) {
        return GiveBack::Leave(json!({ "metadata": metadata }));
    }
    GiveBack::Former(json!({ "metadata": metadata, "spec": { "conversion": whole(loan.former.as_ref()) } }))
}

/// Manager entries but those of a manager. Giving a field back leaves one behind, which would dispute the field with
/// whoever applies the CRD next.
pub(super) fn managed_without(crd: &CustomResourceDefinition, manager: &str) -> Option<Value> {
    let (ours, others): (Vec<_>, Vec<_>) =
        crd.managed_fields().iter().partition(|entry| entry.manager.as_deref() == Some(manager));
    (!ours.is_empty() && !others.is_empty())
        .then(|| json!({ "metadata": { "resourceVersion": crd.resource_version(), "managedFields": others } }))
}

/// A stanza with `null` for what it has not, so that a merge patch takes that out.
fn whole(conversion: Option<&CustomResourceConversion>) -> Value {
    let Some(conversion) = conversion else { return json!({ "strategy": "None", "webhook": null }) };
    let mut value = json!(conversion);
    if value["webhook"].is_null() {
        value["webhook"] = Value::Null;
    } else if let Some(client) = value.pointer_mut("/webhook/clientConfig").and_then(Value::as_object_mut) {
        for field in ["url", "service", "caBundle"] {
            client.entry(field).or_insert(Value::Null);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(conversion: &Value) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "metadata": { "name": "things.demo.example", "resourceVersion": "7", "annotations": { "a": "b" } },
            "spec": {
                "group": "demo.example", "scope": "Namespaced", "names": { "kind": "Thing", "plural": "things" },
                "versions": [], "conversion": conversion,
            },
        }))
        .unwrap()
    }

    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(members) = patch else { return *target = patch.clone() };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in members {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(key);
            } else {
                merge(&mut target[key], value);
            }
        }
    }

    fn patched(crd: &CustomResourceDefinition, patch: &Value) -> CustomResourceDefinition {
        let mut value = json!(crd);
        merge(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    fn lent(former: &Value, bundle: Option<&str>) -> CustomResourceDefinition {
        let target = Target { url: "https://here:9443".into(), ca_pem: bundle.map(Into::into) };
        let mark = SessionMark { of: "op".into(), owner: "ann".into(), session: "s".into(), expires: None };
        let before = crd(former);
        let after = patched(&before, &lend(&before, "/convert/things", &target, &mark).unwrap());
        assert_eq!(SessionMark::of(&after.metadata), Some(mark));
        let conversion = json!(after.spec.conversion);
        assert_eq!(conversion["webhook"]["clientConfig"]["url"], "https://here:9443/convert/things");
        assert_eq!(conversion["webhook"]["clientConfig"].get("service"), None);
        after
    }

    // K6
    #[test]
    fn a_crd_has_again_what_it_had_whatever_it_was() {
        let service = json!({ "name": "w", "namespace": "n", "path": "/convert", "port": 443 });
        for former in [
            json!({ "strategy": "None" }),
            json!({ "strategy": "Webhook", "webhook": {
                "clientConfig": { "service": service, "caBundle": "UEVN" }, "conversionReviewVersions": ["v1"],
            } }),
            json!({ "strategy": "Webhook", "webhook": {
                "clientConfig": { "url": "https://elsewhere" }, "conversionReviewVersions": ["v1", "v1beta1"],
            } }),
        ] {
            for bundle in [None, Some("PEM")] {
                let GiveBack::Former(patch) = give_back(&lent(&former, bundle)) else { panic!("{former}") };
                assert_eq!(patched(&lent(&former, bundle), &patch), crd(&former), "{former}");
            }
        }
    }

    #[test]
    fn a_stanza_that_somebody_changed_since_is_left_and_another_bundle_is_no_change() {
        let former = json!({ "strategy": "None" });
        let mut bundled = lent(&former, Some("PEM"));
        let client = bundled.spec.conversion.as_mut().unwrap().webhook.as_mut().unwrap().client_config.as_mut();
        client.unwrap().ca_bundle = None;
        assert!(matches!(give_back(&bundled), GiveBack::Former(_)));

        let mut changed = lent(&former, None);
        changed.spec.conversion = Some(serde_json::from_value(json!({ "strategy": "None" })).unwrap());
        let GiveBack::Leave(patch) = give_back(&changed) else { panic!() };
        let left = patched(&changed, &patch);
        assert_eq!((left.annotations().len(), left.spec), (1, changed.spec));

        let mut damaged = lent(&former, None);
        damaged.annotations_mut().insert(FORMER.to_owned(), "{".to_owned());
        assert!(matches!(give_back(&damaged), GiveBack::Unreadable(_)));
    }

    #[test]
    fn nobody_is_left_as_manager_of_what_was_given_back() {
        let mut crd = crd(&json!({ "strategy": "None" }));
        assert_eq!(managed_without(&crd, "op-dev"), None);
        let entry = |manager: &str| serde_json::from_value(json!({ "manager": manager })).unwrap();
        crd.metadata.managed_fields = Some(vec![entry("helm"), entry("op-dev")]);
        let patch = managed_without(&crd, "op-dev").unwrap();
        assert_eq!(patch["metadata"]["managedFields"], json!([{ "manager": "helm" }]));
    }
}
