//! W: whether the webhooks are called.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use portcullis_manifest::{FailurePolicy, MatchPolicy, WebhookKind};
use portcullis_pki::Certificate;

use super::trusted::bundle_fix;
use super::{Note, fail, info, warn};
use crate::configuration::{Configuration, Entry, conversion, selects, shown};
use crate::lookups::is_external_name;
use crate::parts::View;
use crate::rules::missing;
use crate::trust::day;

const KINDS: [WebhookKind; 2] = [WebhookKind::Validating, WebhookKind::Mutating];

/// W1
pub(super) fn configurations(view: View<'_>) -> Vec<Note> {
    let subject = view.subject;
    let mut notes = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| subject.webhooks_of(*kind).next().is_some()) {
        let name = subject.configuration(kind);
        if view.configuration(kind).is_some() {
            continue;
        }
        let family = view.family().filter(|one| one.kind == kind);
        let others: Vec<_> = family.map(Configuration::name).collect();
        let others = if others.is_empty() {
            String::new()
        } else {
            format!(
                "; there is {} of another installation: is it that one (--release, --restrict-to-namespace)?",
                others.join(", ")
            )
        };
        notes.push(fail(
            format!("no {kind}WebhookConfiguration {name}: nothing is called{others}"),
            subject.apply("webhooks"),
        ));
    }
    notes
}

/// W2
pub(super) fn rules(view: View<'_>) -> Vec<Note> {
    let subject = view.subject;
    let mut notes = Vec::new();
    for kind in &subject.kinds {
        let Some(crd) = view.crds().iter().find(|crd| crd.name_any() == kind.crd) else {
            notes.push(fail(format!("the CRD {} is not installed", kind.crd), subject.apply("crds")));
            continue;
        };
        let converts = subject.conversions.iter().any(|(converted, _)| *converted == kind.crd);
        if converts && conversion(crd).is_none() {
            let message = format!("{}: its conversion strategy is not Webhook, so no version is converted", kind.crd);
            notes.push(fail(message, subject.apply("crds")));
        }
    }
    for webhook in &subject.webhooks {
        let Some(configuration) = view.configuration(webhook.kind) else { continue };
        let (name, fix) = (configuration.name(), subject.apply("webhooks"));
        let Some(entry) = configuration.entries.iter().find(|entry| entry.name == webhook.name) else {
            notes.push(fail(format!("{name}: no webhook {}", webhook.name), fix));
            continue;
        };
        for (resource, operation, versions) in missing(&webhook.rules, entry) {
            let versions = versions.join(", ");
            let message = format!("{name}/{}: no rule for {resource} {operation} (apiVersions {versions})", entry.name);
            notes.push(fail(message, fix.clone()));
        }
        if entry.exact && webhook.match_policy == MatchPolicy::Equivalent {
            let message =
                format!("{name}/{}: matchPolicy Exact hides requests in other versions of a kind", entry.name);
            notes.push(warn(message, fix));
        }
    }
    notes
}

/// W3
pub(super) fn bundles(view: View<'_>) -> Vec<Note> {
    let (subject, now) = (view.subject, view.snapshot.now);
    let mut notes = Vec::new();
    for (label, entry) in view.ours() {
        let Some(bundle) = entry.bundle() else {
            notes.push(fail(format!("{label}: caBundle is empty"), bundle_fix(subject, &entry)));
            continue;
        };
        let fix = bundle_fix(subject, &entry);
        match Certificate::all_from_pem(bundle) {
            Err(why) => notes.push(fail(format!("{label}: caBundle is not PEM: {why}"), fix)),
            Ok(found) => {
                let expired = found.iter().find(|certificate| certificate.not_after < now);
                let all = found.iter().all(|certificate| certificate.not_after < now);
                let Some(expired) = expired else { continue };
                let message = format!(
                    "{label}: caBundle: certificate {} expired {}",
                    expired.common_name,
                    day(expired.not_after)
                );
                // Another one may still vouch.
                notes.push(if all { fail(message, fix) } else { warn(message, fix) });
            }
        }
    }
    notes
}

/// W4
pub(super) fn services(view: View<'_>) -> Vec<Note> {
    let subject = view.subject;
    let own = &subject.installation.service;
    let mut notes = Vec::new();
    for (label, entry) in view.ours() {
        let Some(place) = entry.service() else {
            let url = entry.client.url.as_deref().unwrap_or("nothing");
            let message = format!("{label}: calls {url} and not the Service of this installation");
            notes.push(warn(message, subject.restore(&entry)));
            continue;
        };
        let ((namespace, name), port) = (&place, entry.port());
        let is_own = place == subject.place();
        if !is_own || port != i32::from(own.port) {
            let message = format!(
                "{label}: calls port {port} of Service {namespace}/{name}, this installation's is port {} of {}/{}",
                own.port, own.namespace, own.name
            );
            let flags =
                if is_own { format!("--service-port={port}") } else { "--namespace and --service-name".to_owned() };
            notes.push(warn(message, format!("give every command {flags}; or {}", subject.restore(&entry))));
        }
        let Some(found) = view.service_at(&place) else { continue };
        let Some(service) = found else {
            notes.push(fail(format!("{label}: Service {namespace}/{name} not found"), subject.apply("operator")));
            continue;
        };
        let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
        if !is_external_name(service) && !ports.iter().any(|one| one.port == port) {
            let has: Vec<_> = ports.iter().map(|one| one.port.to_string()).collect();
            let message = format!("{label}: Service {namespace}/{name} has no port {port} (it has {})", has.join(", "));
            notes.push(fail(message, format!("{}; or give --service-port", subject.apply("operator"))));
        }
    }
    notes
}

/// W5
pub(super) fn paths(view: View<'_>) -> Vec<Note> {
    let subject = view.subject;
    let mut notes = Vec::new();
    for (label, entry) in view.ours() {
        let path = entry.path();
        let wanted = subject.webhooks.iter().find(|webhook| webhook.name == entry.name);
        if !subject.paths().contains(&path) {
            let message = format!("{label}: path {path} is not served; the server answers 404");
            notes.push(fail(message, subject.restore(&entry)));
        } else if wanted.is_some_and(|wanted| wanted.path != path) {
            let message = format!("{label}: calls path {path} of another webhook");
            notes.push(fail(message, subject.apply("webhooks")));
        }
    }
    notes
}

/// W6
pub(super) fn selected(view: View<'_>) -> Vec<Note> {
    let asked = view.asked_namespace_name().unwrap_or_default();
    let Some(namespace) = view.asked_namespace() else {
        return vec![warn(format!("there is no namespace {asked}"), format!("kubectl create namespace {asked}"))];
    };
    let labels = labels(namespace);
    let left_out = view.ours().into_iter().filter(|(_, entry)| !selects(entry.namespaces.as_ref(), &labels));
    let note = |(label, entry): (String, Entry)| {
        let selector = shown(entry.namespaces.as_ref());
        let message = format!("namespace {asked} is not matched by {label} (selector {selector})");
        let fix = format!("kubectl get namespace {asked} --show-labels, then label it, or change the registration");
        warn(message, fix)
    };
    left_out.map(note).collect()
}

/// The labels that the API server selects by: it adds the name itself.
fn labels(namespace: &Namespace) -> std::collections::BTreeMap<String, String> {
    let mut labels = namespace.labels().clone();
    labels.insert(portcullis_manifest::NAMESPACE_NAME.to_owned(), namespace.name_any());
    labels
}

/// W8
pub(super) fn policies(view: View<'_>) -> Vec<Note> {
    let subject = view.subject;
    let note = |(label, entry): (String, Entry)| {
        let wanted = subject.webhooks.iter().find(|webhook| webhook.name == entry.name);
        if wanted.is_some_and(|webhook| webhook.failure_policy == FailurePolicy::Ignore) {
            return info(format!("{label} fails open, as registered or chosen; calls that fail are silently accepted"));
        }
        let message = format!("{label} fails open (failurePolicy Ignore); calls that fail are silently accepted");
        warn(message, subject.apply("webhooks"))
    };
    view.ours().into_iter().filter(|(_, entry)| !entry.fails_closed).map(note).collect()
}
