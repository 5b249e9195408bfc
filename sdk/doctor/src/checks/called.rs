//! W: is the webhook called at all?

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use portcullis_manifest::{FailurePolicy, MatchPolicy, ServiceRef, WebhookKind};
use portcullis_pki::Certificate;

use super::trusted::publish;
use super::{Said, View, fail, fine, info, warn};
use crate::configuration::{Configuration, conversion, selects, shown};
use crate::report::Verdict;
use crate::rules::{Asked, missing};
use crate::snapshot::Look;
use crate::trust::day;

const KINDS: [WebhookKind; 2] = [WebhookKind::Validating, WebhookKind::Mutating];

/// W1
pub(super) fn configurations(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let mut notes = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| subject.webhooks_of(*kind).next().is_some()) {
        let name = subject.configuration(kind);
        if snapshot.configuration(subject, kind).is_some() {
            continue;
        }
        let family = snapshot.family(subject).filter(|one| one.kind == kind);
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
    Ok(notes)
}

/// W2
pub(super) fn rules(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let mut notes = Vec::new();
    for kind in &subject.kinds {
        let Some(look) = snapshot.crds.get(&kind.crd) else { continue };
        let Some(crd) = look.known()? else {
            notes.push(fail(format!("the CRD {} is not installed", kind.crd), subject.apply("crds")));
            continue;
        };
        let converts = subject.conversions.iter().any(|(converted, _)| *converted == kind.crd);
        if converts && conversion(crd).is_none() {
            let message = format!("{}: its conversion strategy is not Webhook, so no version is converted", kind.crd);
            notes.push(fail(message, subject.apply("crds")));
        }
    }
    snapshot.configurations.known()?;
    for webhook in &subject.webhooks {
        let Some(configuration) = snapshot.configuration(subject, webhook.kind) else { continue };
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
    Ok(notes)
}

/// W3
pub(super) fn bundles(view: &View<'_>) -> Said {
    let View { subject, snapshot, now, .. } = *view;
    snapshot.configurations.known()?;
    let mut notes = Vec::new();
    for (label, entry) in snapshot.ours(subject) {
        let Some(bundle) = entry.bundle() else {
            notes.push(fail(format!("{label}: caBundle is empty"), publish(subject, &entry)));
            continue;
        };
        let publish = publish(subject, &entry);
        match Certificate::all_from_pem(bundle) {
            Err(why) => notes.push(fail(format!("{label}: caBundle is not PEM: {why}"), publish)),
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
                notes.push(if all { fail(message, publish) } else { warn(message, publish) });
            }
        }
    }
    Ok(notes)
}

/// W4
pub(super) fn services(view: &View<'_>) -> Said {
    let View { subject, given_port, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let installation = &subject.installation;
    let mut notes = Vec::new();
    if given_port != installation.service.port {
        let ServiceRef { namespace, name, port } = &installation.service;
        let message = format!(
            "the API server calls port {port} of Service {namespace}/{name}, while --service-port is {given_port}: what \
             is said here is about port {port}"
        );
        notes.push(warn(message, format!("give every command of this installation --service-port={port}")));
    }
    for (label, entry) in snapshot.ours(subject) {
        let Some(place) = entry.service() else {
            let url = entry.client.url.as_deref().unwrap_or("nothing");
            let message = format!("{label}: calls {url} and not the Service of this installation");
            notes.push(warn(message, subject.restore(&entry)));
            continue;
        };
        let (namespace, name) = &place;
        if place != subject.place() {
            let message = format!(
                "{label}: calls Service {namespace}/{name}, this installation's is {}/{}",
                installation.service.namespace, installation.service.name
            );
            notes.push(warn(message, format!("{}; or give --namespace and --service-name", subject.restore(&entry))));
        }
        let Some(look) = snapshot.services.get(&place) else { continue };
        let Some(service) = look.known()? else {
            notes.push(fail(format!("{label}: Service {namespace}/{name} not found"), subject.apply("operator")));
            continue;
        };
        let spec = service.spec.clone().unwrap_or_default();
        let ports = spec.ports.unwrap_or_default();
        let port = entry.port();
        if spec.type_.as_deref() != Some("ExternalName") && !ports.iter().any(|one| one.port == port) {
            let has: Vec<_> = ports.iter().map(|one| one.port.to_string()).collect();
            let message = format!("{label}: Service {namespace}/{name} has no port {port} (it has {})", has.join(", "));
            notes.push(fail(message, format!("{}; or give --service-port", subject.apply("operator"))));
        }
    }
    Ok(notes)
}

/// W5
pub(super) fn paths(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let served = subject.paths();
    let mut notes = Vec::new();
    for (label, entry) in snapshot.ours(subject) {
        let path = entry.path();
        let wanted =
            subject.webhooks.iter().find(|webhook| webhook.name == entry.name).map(|webhook| webhook.path.as_str());
        if !served.contains(&path) {
            let message = format!("{label}: path {path} is not served; the server answers 404");
            notes.push(fail(message, subject.restore(&entry)));
        } else if wanted.is_some_and(|wanted| wanted != path) {
            let message = format!("{label}: calls path {path} of another webhook");
            notes.push(fail(message, subject.apply("webhooks")));
        }
    }
    for listener in &snapshot.listeners {
        let crate::snapshot::Reached::Answered(answered) = &listener.reached else { continue };
        for answer in
            answered.answers.iter().filter(|answer| answer.status == Ok(404) && served.contains(&&*answer.path))
        {
            let message = format!(
                "{}: path {} is registered and not served; the server answers 404: an older version of the operator runs",
                listener.target, answer.path
            );
            notes.push(fail(message, format!("kubectl -n {} get pods -o wide", subject.namespace())));
        }
    }
    Ok(notes)
}

/// W6
pub(super) fn selected(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let Some(asked) = snapshot.in_namespace.as_ref().or(subject.installation.restricted_to.as_ref()) else {
        return Ok(vec![fine("give --in-namespace to know whether a namespace is selected")]);
    };
    let Some(look) = snapshot.namespaces.get(asked) else { return Ok(Vec::new()) };
    let Some(namespace) = look.known()? else {
        return Ok(vec![warn(format!("there is no namespace {asked}"), format!("kubectl create namespace {asked}"))]);
    };
    let labels = labels(namespace);
    let mut notes = Vec::new();
    for (label, entry) in snapshot.ours(subject) {
        if !selects(entry.namespaces.as_ref(), &labels) {
            let selector = shown(entry.namespaces.as_ref());
            let message = format!("namespace {asked} is not matched by {label} (selector {selector})");
            let fix = format!("kubectl get namespace {asked} --show-labels, then label it, or change the registration");
            notes.push(warn(message, fix));
        }
    }
    Ok(notes)
}

/// The labels that the API server selects by: it adds the name itself.
fn labels(namespace: &Namespace) -> std::collections::BTreeMap<String, String> {
    let mut labels = namespace.labels().clone();
    labels.insert(portcullis_manifest::NAMESPACE_NAME.to_owned(), namespace.name_any());
    labels
}

/// W8
pub(super) fn policies(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let mut notes = Vec::new();
    for (label, entry) in snapshot.ours(subject).into_iter().filter(|(_, entry)| !entry.fails_closed) {
        let wanted = subject.webhooks.iter().find(|webhook| webhook.name == entry.name);
        if wanted.is_some_and(|webhook| webhook.failure_policy == FailurePolicy::Ignore) {
            notes.push(info(format!(
                "{label} fails open, as registered or chosen; calls that fail are silently accepted"
            )));
        } else {
            let message = format!("{label} fails open (failurePolicy Ignore); calls that fail are silently accepted");
            notes.push(warn(message, subject.apply("webhooks")));
        }
    }
    let [before, later] = [&snapshot.calls, &snapshot.calls_later].map(|calls| calls.as_ref().and_then(Look::seen));
    let counted = later.or(before).into_iter().flat_map(|calls| &calls.failed_open).filter(|(_, count)| **count > 0);
    for (webhook, count) in counted {
        let known = before.and_then(|before| before.failed_open.get(webhook)).copied().unwrap_or_default();
        let during = later.and_then(|_| count.checked_sub(known)).filter(|during| *during > 0);
        notes.push(match during {
            Some(during) => warn(
                format!("{webhook}: {during} calls failed and were let pass while they were watched"),
                "see the C and X checks for why they fail",
            ),
            // What is counted since the API server's start says little of today.
            None => super::note(
                Verdict::Info,
                format!("{webhook}: {count} calls failed and were let pass since the API server's start"),
                Some(format!("whether they still do, says: {}", subject.command("doctor --watch 1m"))),
            ),
        });
    }
    Ok(notes)
}

/// W11
pub(super) fn subresources(view: &View<'_>) -> Said {
    let View { subject, .. } = *view;
    view.snapshot.configurations.known()?;
    let mut notes = Vec::new();
    for kind in &subject.kinds {
        let ours: Vec<_> = view.snapshot.ours(subject).into_iter().map(|(_, entry)| entry).collect();
        let covered = |resource: &str| {
            let asked = Asked { operation: "UPDATE", group: &kind.group, version: None, resource };
            ours.iter().any(|entry| entry.covers(asked))
        };
        let open = kind.subresources.iter().map(|sub| format!("{}/{sub}", kind.plural));
        let open: Vec<_> = open.filter(|resource| covered(&kind.plural) && !covered(resource)).collect();
        if !open.is_empty() {
            notes.push(info(format!("writes to {} are not validated: no rule names them", open.join(" and "))));
        }
    }
    Ok(notes)
}
