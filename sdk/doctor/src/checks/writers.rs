//! X11–X14: who makes the certificates, and who writes the bundles?

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use portcullis_manifest::{INJECT_CA_FROM, WebhookKind};
use portcullis_pki::bundle_fingerprints;
use serde_json::Value;

use super::{Said, View, fail, fine, info, warn};
use crate::configuration::Configuration;
use crate::lookups::makes_certificates;
use crate::snapshot::{Issuance, Snapshot};
use crate::subject::Subject;
use crate::trust::{pair, value};
use portcullis_manifest::CertificateMode;

/// Status and message of a condition.
fn condition(object: &DynamicObject, wanted: &str) -> Option<(String, String)> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == wanted)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("message")))
}

/// Whether it is Ready; what is said about it otherwise.
fn unready(object: &DynamicObject) -> Option<String> {
    match condition(object, "Ready") {
        Some((status, _)) if status == "True" => None,
        Some((_, message)) => Some(message),
        None => Some("it says nothing about itself: do cert-manager's controllers run?".to_owned()),
    }
}

/// The configurations of this installation.
fn configurations<'a>(subject: &Subject, snapshot: &'a Snapshot) -> Vec<&'a Configuration> {
    let kinds = [WebhookKind::Validating, WebhookKind::Mutating];
    kinds.iter().filter_map(|kind| snapshot.configuration(subject, *kind)).collect()
}

/// X11
pub(super) fn issuance(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    if subject.installation.certificates != CertificateMode::CertManager {
        return Ok(vec![fine("certificates do not come from cert-manager")]);
    }
    let Issuance { installed, certificates, issuers, injectors } = snapshot.issuance.known()?;
    if !installed {
        let message = "cert-manager is not installed, and certificates should come from it";
        let fix =
            format!("install cert-manager, or let the operator make them: {}", subject.automatic().apply("operator"));
        return Ok(vec![fail(message, fix)]);
    }
    let (namespace, secret) = (subject.namespace(), &subject.installation.secret);
    let mut notes = Vec::new();
    let ours =
        certificates.iter().find(|one| one.data.pointer("/spec/secretName").and_then(Value::as_str) == Some(secret));
    match ours {
        None => {
            let message = format!("no Certificate in namespace {namespace} writes Secret {secret}");
            notes.push(fail(message, subject.apply("certificates")));
        }
        Some(certificate) => {
            let name = certificate.name_any();
            if let Some(why) = unready(certificate) {
                let fix = format!("kubectl -n {namespace} describe certificate {name}");
                notes.push(fail(format!("Certificate {name} is not Ready: {why}"), fix));
            }
            let text = |pointer: &str| certificate.data.pointer(pointer).and_then(Value::as_str);
            let place =
                (text("/spec/issuerRef/kind").unwrap_or("Issuer"), text("/spec/issuerRef/name").unwrap_or_default());
            let issuer = issuers.iter().find(|((kind, name), _)| (kind.as_str(), name.as_str()) == place);
            if let Some((_, issuer)) = issuer {
                let (kind, issuer_name) = place;
                let why = match issuer.known()? {
                    None => Some("it does not exist".to_owned()),
                    Some(issuer) => unready(issuer),
                };
                if let Some(why) = why {
                    let fix = format!("kubectl -n {namespace} describe {} {issuer_name}", kind.to_lowercase());
                    notes.push(fail(format!("{kind} {issuer_name} is not Ready: {why}"), fix));
                }
            }
        }
    }
    let crds = subject.conversions.iter().filter_map(|(crd, _)| snapshot.crds.get(crd)?.seen()?.as_ref());
    let objects =
        configurations(subject, snapshot).into_iter().map(|one| (one.name().to_owned(), &one.metadata, "webhooks"));
    for (object, metadata, what) in objects.chain(crds.map(|crd| (crd.name_any(), &crd.metadata, "crds"))) {
        let from = metadata.annotations.as_ref().and_then(|annotations| annotations.get(INJECT_CA_FROM));
        let Some(from) = from else {
            notes.push(fail(
                format!("{object} has no annotation {INJECT_CA_FROM}: nothing fills its caBundle"),
                subject.apply(what),
            ));
            continue;
        };
        let known = from.split_once('/').is_some_and(|(place, name)| {
            place != namespace || certificates.iter().any(|certificate| certificate.name_any() == name)
        });
        if !known {
            let message = format!("{object}: annotation {INJECT_CA_FROM} references Certificate {from}, not found");
            // The generated annotation names the generated Certificate: one of them is missing.
            let generated = *from == format!("{namespace}/{secret}");
            notes.push(fail(message, subject.apply(if generated { "certificates" } else { what })));
        }
    }
    // Not everybody installs it by its own chart, and not everybody may see where.
    if let Some(injectors) = injectors.seen() {
        let ready = |replicas: Option<i32>| replicas.unwrap_or_default() > 0;
        let runs =
            injectors.items.iter().any(|one| one.status.as_ref().is_some_and(|status| ready(status.ready_replicas)));
        if injectors.items.is_empty() {
            notes.push(info("no Deployment of cainjector was found by its label: whether it runs is not known"));
        } else if !runs {
            let message = "cainjector has no ready pod: nothing fills caBundles";
            notes.push(fail(message, "kubectl get pods --all-namespaces -l app.kubernetes.io/name=cainjector"));
        }
    }
    Ok(notes)
}

/// X12
pub(super) fn brought(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    if subject.installation.certificates != CertificateMode::External {
        return Ok(vec![fine("certificates are not brought by hand")]);
    }
    snapshot.configurations.known()?;
    let Some(stored) = snapshot.secret.known()? else { return Ok(vec![fine("see X1")]) };
    let Ok(pair) = pair(stored) else { return Ok(vec![fine("see X1")]) };
    let Ok(brought) = bundle_fingerprints(pair.ca) else { return Ok(vec![fine("see X1")]) };
    let mut notes = Vec::new();
    for (label, entry) in snapshot.ours(subject) {
        let Some(published) = entry.bundle().and_then(|bundle| bundle_fingerprints(bundle).ok()) else { continue };
        if published == brought {
            continue;
        }
        let message = format!("{label}: caBundle and ca.crt of Secret {} differ", subject.installation.secret);
        let fix = subject.restore(&entry);
        // While a CA is replaced, the old and the new are published together.
        notes.push(if published.is_superset(&brought) {
            info(format!("{message}: it trusts others too"))
        } else {
            fail(message, fix)
        });
    }
    Ok(notes)
}

/// X13
pub(super) fn owners(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let mode = subject.installation.certificates;
    let secret = &subject.installation.secret;
    let mut owners = BTreeSet::new();
    let issued = snapshot.issuance.seen().and_then(|issuance| {
        let writes =
            |one: &&DynamicObject| one.data.pointer("/spec/secretName").and_then(Value::as_str) == Some(secret);
        issuance.certificates.iter().find(writes)
    });
    if let Some(certificate) = issued {
        owners.insert(format!("cert-manager (Certificate {})", certificate.name_any()));
    }
    for configuration in configurations(subject, snapshot) {
        if configuration
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|annotations| annotations.contains_key(INJECT_CA_FROM))
        {
            owners.insert(format!("cert-manager's cainjector (annotation of {})", configuration.name()));
        }
    }
    let by_cert_manager = !owners.is_empty();
    if mode == CertificateMode::Automatic {
        owners.insert("the operator (--certificates automatic)".to_owned());
    }
    if mode == CertificateMode::Hooks {
        owners.insert("'certs ensure' (--certificates hooks)".to_owned());
    }
    let hooks: Vec<_> = snapshot.hooks(subject).into_iter().filter(|job| makes_certificates(job)).collect();
    if let Some(job) = hooks.first() {
        owners.insert(format!("Job {}", job.name_any()));
    }
    // Jobs that run the operator's own commands work together with it.
    if by_cert_manager && (matches!(mode, CertificateMode::Automatic | CertificateMode::Hooks) || !hooks.is_empty()) {
        let owners: Vec<_> = owners.into_iter().collect();
        let message = format!("two certificate owners: {}", owners.join(" and "));
        let fix = "choose one: give --certificates cert-manager to every command, or delete the Certificate and the annotation";
        return Ok(vec![warn(message, fix)]);
    }
    if mode == CertificateMode::External && by_cert_manager {
        let owners: Vec<_> = owners.into_iter().collect();
        return Ok(vec![info(format!("the Secret is filled by {}", owners.join(" and ")))]);
    }
    let managed = snapshot.secret.seen().and_then(Option::as_ref).filter(|stored| value(stored, "tls.crt").is_some());
    Ok(managed.is_none().then(|| fine("see X1")).into_iter().collect())
}

/// X14
pub(super) fn fights(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let mut notes = Vec::new();
    for configuration in configurations(subject, snapshot) {
        let ours = |name: &str| subject.webhooks_of(configuration.kind).any(|webhook| webhook.name == name);
        for entry in configuration.entries.iter().filter(|entry| ours(&entry.name)) {
            let label = format!("{}/{}", configuration.name(), entry.name);
            let writers = configuration.bundle_writers(&entry.name);
            let names = writers.iter().cloned().collect::<Vec<_>>().join(" and ");
            let fix = format!(
                "leave caBundle out of what {names} apply; see: kubectl get {} {} -o yaml --show-managed-fields",
                configuration.resource(),
                configuration.name()
            );
            if let Some(times) = rewritten(snapshot, configuration, &entry.name) {
                notes.push(fail(
                    format!("{label}: caBundle was rewritten while it was looked at ({times} writes), by {names}"),
                    fix,
                ));
            } else if writers.len() > 1 {
                notes.push(warn(format!("{label}: caBundle is owned by {names}"), fix));
            }
        }
    }
    Ok(notes)
}

/// How often the object was written between the two looks, when the bundle of this entry is another one.
fn rewritten(snapshot: &Snapshot, configuration: &Configuration, webhook: &str) -> Option<i64> {
    let later = snapshot.later.as_ref()?.seen()?;
    let later = later.items.iter().find(|one| one.kind == configuration.kind && one.name() == configuration.name())?;
    let bundle = |one: &Configuration| {
        one.entries.iter().find(|entry| entry.name == webhook).and_then(|entry| entry.bundle().map(<[u8]>::to_vec))
    };
    let times = later.metadata.generation? - configuration.metadata.generation?;
    (bundle(later) != bundle(configuration) || times > 1).then_some(times)
}
