//! X1–X8: certificate, key and bundles fit together.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::rotation::{self, PairData};
use portcullis_pki::{Certificate, PairProblem, bundle_fingerprints};

use super::{Note, fail, fine, unseen, warn};
use crate::configuration::Entry;
use crate::parts::View;
use crate::snapshot::{Reached, Served, Stored};
use crate::subject::Subject;
use crate::trust::{Pair, SOON, day, pair, span};
use portcullis_certificates::ca_data;
use portcullis_manifest::CertificateMode;

/// A replica takes up a new Secret within this time.
const TAKEN_UP: SignedDuration = SignedDuration::from_mins(3);

/// The fix that creates a pair again, as text.
fn renew(subject: &Subject) -> String {
    let (namespace, secret) = (subject.namespace(), &subject.installation.secret);
    match subject.installation.certificates {
        CertificateMode::Automatic => {
            format!("a running operator repairs it; without one: {}", subject.command("certs ensure"))
        }
        CertificateMode::Hooks => {
            format!("the hooks of the next upgrade repair it; without a chart: {}", subject.command("certs ensure"))
        }
        CertificateMode::CertManager => format!(
            "let cert-manager issue it again: kubectl -n {namespace} delete secret {secret} (see X11 when it does not come back)"
        ),
        CertificateMode::External => format!(
            "kubectl -n {namespace} create secret generic {secret} --type=kubernetes.io/tls --from-file=tls.crt --from-file=tls.key \
             --from-file=ca.crt --dry-run=client -o yaml | kubectl apply -f -"
        ),
    }
}

/// The fix that puts the bundle of an entry right, as text.
pub(super) fn bundle_fix(subject: &Subject, entry: &Entry) -> String {
    match subject.installation.certificates {
        CertificateMode::Automatic => {
            format!("a running operator publishes it; without one: {}", subject.command("certs publish"))
        }
        CertificateMode::Hooks => {
            format!("the hooks of the next upgrade publish it; without a chart: {}", subject.command("certs publish"))
        }
        CertificateMode::CertManager => "see X11: cert-manager's cainjector publishes it".to_owned(),
        CertificateMode::External => subject.restore(entry),
    }
}

/// The pair, unless X1 names what is missing of it.
fn stored(view: View<'_>) -> Option<Pair<'_>> {
    pair(view.secret().as_ref()?).ok()
}

/// Its leaf, unless X1 says that it does not read.
fn leaf(pair: Pair<'_>) -> Option<Certificate> {
    Certificate::from_pem(pair.cert).ok()
}

/// The damage to the stored authorities.
fn authorities(stored: &Stored, now: Timestamp) -> Vec<String> {
    let read = rotation::Stored::read(&ca_data(Some(&stored.0)), &PairData::default(), &[], now);
    read.authorities.err().map(|lost| lost.problem).into_iter().chain(read.damage).collect()
}

/// X1
pub(super) fn keys(view: View<'_>) -> Vec<Note> {
    let (subject, now) = (view.subject, view.snapshot.now);
    let (namespace, name) = (subject.namespace(), &subject.installation.secret);
    let Some(stored) = view.secret() else {
        return vec![fail(format!("Secret {namespace}/{name} not found"), renew(subject))];
    };
    let mut notes: Vec<Note> = match pair(stored) {
        Err(missing) => {
            let missing = missing.into_iter();
            missing.map(|key| fail(format!("Secret {namespace}/{name} is missing key {key}"), renew(subject))).collect()
        }
        Ok(pair) => {
            let read = |key, pem| {
                let problem = Certificate::all_from_pem(pem).err()?;
                Some(fail(format!("Secret {namespace}/{name}: {key} cannot be read: {problem}"), renew(subject)))
            };
            [read("tls.crt", pair.cert), read("ca.crt", pair.ca)].into_iter().flatten().collect()
        }
    };
    if subject.installation.certificates == CertificateMode::Automatic {
        let name = subject.installation.ca_secret();
        let lost =
            || vec![fail(format!("Secret {namespace}/{name} not found: nothing can be renewed"), renew(subject))];
        let damaged = |ca| {
            let problems = authorities(ca, now).into_iter();
            problems.map(|problem| fail(format!("Secret {namespace}/{name}: {problem}"), renew(subject))).collect()
        };
        notes.extend(view.ca_secret().as_ref().map_or_else(lost, damaged));
    }
    notes
}

/// X2
pub(super) fn dates(view: View<'_>) -> Vec<Note> {
    let (subject, now) = (view.subject, view.snapshot.now);
    let Some(leaf) = stored(view).and_then(leaf) else { return vec![fine("see X1")] };
    let left = leaf.not_after.duration_since(now);
    let message = if now < leaf.not_before {
        fail(format!("the serving certificate is not valid before {} (clock skew?)", leaf.not_before), renew(subject))
    } else if left.is_negative() {
        fail(format!("the serving certificate expired {}", day(leaf.not_after)), renew(subject))
    } else if left <= SOON && left.as_secs() * 3 < leaf.not_after.duration_since(leaf.not_before).as_secs() {
        // Certificates that are short-lived by intention are not warned of all their life.
        warn(format!("the serving certificate ends {}: {} left", day(leaf.not_after), span(left)), renew(subject))
    } else {
        return Vec::new();
    };
    vec![message]
}

/// X3
pub(super) fn names(view: View<'_>) -> Vec<Note> {
    let (subject, now) = (view.subject, view.snapshot.now);
    let Some(pair) = stored(view) else { return vec![fine("see X1")] };
    let Some(leaf) = leaf(pair) else { return vec![fine("see X1")] };
    let name = subject.installation.server_name();
    // Names are looked at before the chain, and after the dates: at a time when it is valid.
    let at = now.clamp(leaf.not_before, leaf.not_after);
    match pair.problem(pair.ca, std::slice::from_ref(&name), at) {
        Some(PairProblem::MissingName { has, .. }) => {
            let has = if has.is_empty() { "no name".to_owned() } else { has.join(", ") };
            vec![fail(format!("the serving certificate is valid for {has}, not {name}"), renew(subject))]
        }
        _ => Vec::new(),
    }
}

/// X4
pub(super) fn key(view: View<'_>) -> Vec<Note> {
    let (subject, now) = (view.subject, view.snapshot.now);
    let Some(pair) = stored(view) else { return vec![fine("see X1")] };
    match pair.problem(pair.ca, &[], now) {
        Some(PairProblem::KeyMismatch) => vec![fail("the key does not match the certificate", renew(subject))],
        Some(PairProblem::Key(why)) => vec![fail(format!("the key cannot be read: {why}"), renew(subject))],
        _ => Vec::new(),
    }
}

/// X5
pub(super) fn bundles(view: View<'_>) -> Vec<Note> {
    let (subject, now) = (view.subject, view.snapshot.now);
    let Some(pair) = stored(view) else { return vec![fine("see X1")] };
    let mut notes = Vec::new();
    if pair.trusted_by(pair.ca, now) == Some(false) {
        let message = format!("ca.crt of Secret {} does not sign the serving certificate", subject.installation.secret);
        notes.push(fail(message, renew(subject)));
    }
    for (label, entry) in view.ours() {
        // An empty one is W3's.
        let Some(bundle) = entry.bundle() else { continue };
        if Certificate::all_from_pem(bundle).is_ok() && pair.trusted_by(bundle, now) == Some(false) {
            let message = format!(
                "{label}: caBundle does not sign the serving certificate (x509: certificate signed by unknown authority)"
            );
            notes.push(fail(message, bundle_fix(subject, &entry)));
        }
    }
    notes
}

/// The leaves that listeners show.
fn answered(view: View<'_>) -> impl Iterator<Item = (&str, &Served)> {
    view.listeners().iter().filter_map(|listener| match &listener.reached {
        Reached::Answered(served) => Some((listener.target.as_str(), &**served)),
        _ => None,
    })
}

fn short(fingerprint: &str) -> &str {
    fingerprint.get(..12).unwrap_or(fingerprint)
}

/// X6
pub(super) fn served(view: View<'_>) -> Vec<Note> {
    let (subject, now) = (view.subject, view.snapshot.now);
    if answered(view).next().is_none() {
        return unseen("no listener was called that answered, see C4");
    }
    let Some(stored_leaf) = stored(view).and_then(leaf) else { return vec![fine("see X1")] };
    let since = written(view).map(|at| now.duration_since(at));
    let mut notes = Vec::new();
    for (target, served) in answered(view).filter(|(_, served)| served.leaf.fingerprint != stored_leaf.fingerprint) {
        let since_text = since.map(|since| format!(", since {}", span(since))).unwrap_or_default();
        let message = format!(
            "{target} still serves certificate {}, the Secret has {}{since_text}",
            short(&served.leaf.fingerprint),
            short(&stored_leaf.fingerprint)
        );
        let fix = format!(
            "kubectl -n {} logs {} shows why",
            subject.namespace(),
            target.rsplit(' ').next().unwrap_or_default()
        );
        notes.push(if since.is_none_or(|since| since <= TAKEN_UP) { warn(message, fix) } else { fail(message, fix) });
    }
    notes
}

/// When the Secret was written last.
fn written(view: View<'_>) -> Option<Timestamp> {
    let stored = view.secret().as_ref()?;
    let fields = stored.0.metadata.managed_fields.iter().flatten();
    fields.filter_map(|entry| entry.time.as_ref().map(|time| time.0)).max()
}

/// X8
pub(super) fn same(view: View<'_>) -> Vec<Note> {
    let mut seen: Vec<(BTreeSet<String>, Vec<String>)> = Vec::new();
    for (label, entry) in view.ours() {
        let Some(bundle) = entry.bundle().and_then(|bundle| bundle_fingerprints(bundle).ok()) else { continue };
        match seen.iter_mut().find(|(known, _)| *known == bundle) {
            Some((_, labels)) => labels.push(label),
            None => seen.push((bundle, vec![label])),
        }
    }
    seen.sort_by_key(|(_, labels)| std::cmp::Reverse(labels.len()));
    let Some(((_, most), others)) = seen.split_first() else { return Vec::new() };
    let others: Vec<_> = others.iter().flat_map(|(_, labels)| labels).map(String::as_str).collect();
    if others.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "{} has another caBundle than {} (a patch by index, or a rotation under way)",
        others.join(", "),
        most.first().map(String::as_str).unwrap_or_default()
    );
    vec![warn(message, view.subject.command("certs show"))]
}
