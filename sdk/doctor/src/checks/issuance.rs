//! X11: cert-manager, where the certificates come from it.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use portcullis_manifest::{INJECT_CA_FROM, WebhookKind};
use serde_json::Value;

use super::{Note, absent, fail, info};
use crate::parts::View;
use crate::snapshot::Issuance;

/// The reason why it is not Ready, if it is not.
fn unready(object: &DynamicObject) -> Option<String> {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let Some(ready) = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready") else {
        return Some("it says nothing about itself: do cert-manager's controllers run?".to_owned());
    };
    (ready["status"] != "True").then(|| ready["message"].as_str().unwrap_or_default().to_owned())
}

/// X11
pub(super) fn issuance(view: View<'_>) -> Vec<Note> {
    if !view.issuance().installed {
        let message = "cert-manager is not installed, and certificates should come from it";
        let automatic = view.subject.automatic().apply("operator");
        return vec![fail(message, format!("install cert-manager, or let the operator make them: {automatic}"))];
    }
    let mut notes = issued(view);
    notes.extend(injected(view));
    notes.extend(injector(view));
    notes
}

/// The Certificate that writes the Secret, and its issuer.
fn issued(view: View<'_>) -> Vec<Note> {
    let Issuance { certificates, issuers, .. } = view.issuance();
    let (namespace, secret) = (view.subject.namespace(), view.subject.installation.secret.as_str());
    let text =
        |one: &DynamicObject, pointer: &str| one.data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let Some(certificate) = certificates.iter().find(|one| text(one, "/spec/secretName").as_deref() == Some(secret))
    else {
        let message = format!("no Certificate in namespace {namespace} writes Secret {secret}");
        return vec![absent(message, view.subject.apply("certificates"))];
    };
    let mut notes = Vec::new();
    if let Some(why) = unready(certificate) {
        let name = certificate.name_any();
        let fix = format!("kubectl -n {namespace} describe certificate {name}");
        notes.push(fail(format!("Certificate {name} is not Ready: {why}"), fix));
    }
    let kind = text(certificate, "/spec/issuerRef/kind").unwrap_or_else(|| "Issuer".to_owned());
    let place = (kind, text(certificate, "/spec/issuerRef/name").unwrap_or_default());
    let why = issuers.get(&place).and_then(|issuer| match issuer {
        None => Some("it does not exist".to_owned()),
        Some(issuer) => unready(issuer),
    });
    if let Some(why) = why {
        let (kind, name) = place;
        let fix = format!("kubectl -n {namespace} describe {} {name}", kind.to_lowercase());
        notes.push(fail(format!("{kind} {name} is not Ready: {why}"), fix));
    }
    notes
}

/// The annotations by which cainjector knows whose bundle to write.
fn injected(view: View<'_>) -> Vec<Note> {
    let (subject, namespace) = (view.subject, view.subject.namespace());
    let kinds = [WebhookKind::Validating, WebhookKind::Mutating];
    let configurations = kinds.into_iter().filter_map(|kind| view.configuration(kind));
    let objects = configurations.map(|one| (one.name().to_owned(), &one.metadata, "webhooks"));
    let converted = |name: &String| subject.conversions.iter().any(|(crd, _)| crd == name);
    let crds = view.crds().iter().map(|crd| (crd.name_any(), &crd.metadata, "crds"));
    let mut notes = Vec::new();
    for (object, metadata, what) in objects.chain(crds.filter(|(name, ..)| converted(name))) {
        let from = metadata.annotations.as_ref().and_then(|annotations| annotations.get(INJECT_CA_FROM));
        let Some(from) = from else {
            let message = format!("{object} has no annotation {INJECT_CA_FROM}: nothing fills its caBundle");
            notes.push(fail(message, subject.apply(what)));
            continue;
        };
        let known = from.split_once('/').is_some_and(|(place, name)| {
            place != namespace || view.issuance().certificates.iter().any(|one| one.name_any() == name)
        });
        if !known {
            let message = format!("{object}: annotation {INJECT_CA_FROM} references Certificate {from}, not found");
            // The generated annotation names the generated Certificate: one of them is missing.
            let generated = *from == format!("{namespace}/{}", subject.installation.secret);
            notes.push(absent(message, subject.apply(if generated { "certificates" } else { what })));
        }
    }
    notes
}

/// The Deployment of cainjector: not every user installs it by its own chart, and not every user may see where.
fn injector(view: View<'_>) -> Option<Note> {
    let injectors = view.issuance().injectors.as_ref()?;
    if injectors.is_empty() {
        return Some(info("no Deployment of cainjector was found by its label: whether it runs is not known"));
    }
    let replicas = |one: &k8s_openapi::api::apps::v1::Deployment| one.status.as_ref()?.ready_replicas;
    let runs = injectors.iter().any(|one| replicas(one).unwrap_or_default() > 0);
    let message = "cainjector has no ready pod: nothing fills caBundles";
    (!runs).then(|| fail(message, "kubectl get pods --all-namespaces -l app.kubernetes.io/name=cainjector"))
}
