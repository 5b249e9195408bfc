//! X10 and H: the Jobs of an installation, and the rights that it was given.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::rbac::v1::Subject as Bound;
use kube::ResourceExt as _;

use super::cut::missing;
use super::rollout::state;
use super::trusted::renew;
use super::{Said, View, fail, fine, info, no_namespace, note, unseen, warn};
use crate::lookups::publishes;
use crate::report::Verdict;
use crate::snapshot::Right;
use crate::trust::span;

/// A Job that has not ended by then hangs.
const LONG: i64 = 600;
/// What logs of Jobs say when they cannot make certificates, and what it means.
const TOOLS: [(&str, &str); 4] = [
    ("openssl: not found", "the image has no openssl: use the operator's own image and 'certs ensure'"),
    ("openssl: command not found", "the image has no openssl: use the operator's own image and 'certs ensure'"),
    (
        "string too long",
        "the Service's name is longer than the 64 characters of a common name: 'certs ensure' leaves it out",
    ),
    ("inner_evp_generic_fetch", "openssl has no provider that it may use (FIPS): use 'certs ensure', which needs none"),
];

/// How it failed, when it did.
fn failure(job: &Job) -> Option<String> {
    let status = job.status.as_ref()?;
    let failed = status.conditions.iter().flatten().find(|one| one.type_ == "Failed" && one.status == "True");
    let times = status.failed.unwrap_or_default();
    let reason = failed
        .map(|one| [one.reason.clone(), one.message.clone()].into_iter().flatten().collect::<Vec<_>>().join(", "));
    match (reason, times) {
        (Some(reason), times) => Some(format!("failed {times}×: {reason}")),
        (None, 0) => None,
        (None, times) if status.succeeded.unwrap_or_default() == 0 => Some(format!("failed {times}× so far")),
        (None, _) => None,
    }
}

/// X10
pub(super) fn publishing(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.jobs.known()?;
    let jobs = snapshot.hooks(subject).into_iter().filter(|job| publishes(job));
    let Some(job) = jobs.max_by_key(|job| job.metadata.creation_timestamp.clone().map(|at| at.0)) else {
        return Ok(vec![fine("no Job publishes the CA")]);
    };
    let name = job.name_any();
    let fix = format!("kubectl -n {} logs job/{name}; then: {}", subject.namespace(), subject.command("certs publish"));
    if let Some(how) = failure(job) {
        return Ok(vec![fail(format!("CA injection job {name} {how}"), fix)]);
    }
    let ended = job.status.as_ref().and_then(|status| status.completion_time.clone()).map(|at| at.0);
    let Some(ended) = ended else {
        return Ok(vec![warn(format!("CA injection job {name} has not ended"), fix)]);
    };
    let secret = snapshot.secret.known()?.as_ref();
    let fields = secret.into_iter().flat_map(|stored| stored.0.metadata.managed_fields.iter().flatten());
    let written = fields.filter_map(|entry| entry.time.as_ref().map(|time| time.0)).max();
    if written.is_some_and(|written| written > ended) {
        let message =
            format!("CA injection job {name} ended before the Secret was written last: see X5 for whether it matters");
        return Ok(vec![note(Verdict::Info, message, Some(fix))]);
    }
    Ok(Vec::new())
}

/// H1
pub(super) fn jobs(view: &View<'_>) -> Said {
    let View { subject, snapshot, now, .. } = *view;
    snapshot.jobs.known()?;
    let mut notes = Vec::new();
    for job in snapshot.hooks(subject) {
        let name = job.name_any();
        let fix = format!("kubectl -n {0} describe job {name}; kubectl -n {0} logs job/{name}", subject.namespace());
        let status = job.status.clone().unwrap_or_default();
        let age = job.metadata.creation_timestamp.as_ref().map(|at| now.duration_since(at.0));
        if let Some(how) = failure(job) {
            notes.push(fail(format!("job {name} {how}"), fix));
        } else if status.succeeded.unwrap_or_default() == 0
            && let Some(age) = age.filter(|age| age.as_secs() > LONG)
        {
            notes.push(warn(format!("job {name} has not ended for {}", span(age)), fix));
        }
    }
    Ok(notes)
}

/// H2
pub(super) fn pods(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.jobs.known()?;
    snapshot.pods.known()?;
    let mut notes = Vec::new();
    for pod in snapshot.job_pods(subject) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if matches!(phase, "Pending" | "Failed") {
            let image = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone()).unwrap_or_default();
            let name = pod.name_any();
            let message = format!("pod {name} of a Job does not run: {} (image {image})", state(pod));
            notes.push(fail(message, format!("kubectl -n {} describe pod {name}", subject.namespace())));
        }
    }
    // A Job whose pods are not admitted has none.
    let events = &snapshot.events.known()?.items;
    for job in snapshot.hooks(subject) {
        let name = job.name_any();
        let of_job = |event: &&k8s_openapi::api::core::v1::Event| {
            event.involved_object.name.as_deref() == Some(&name) && event.reason.as_deref() == Some("FailedCreate")
        };
        if let Some(event) = events.iter().find(of_job) {
            let message = format!("pods of job {name} are refused: {}", event.message.clone().unwrap_or_default());
            notes.push(fail(message, format!("kubectl -n {} describe job {name}", subject.namespace())));
        }
    }
    Ok(notes)
}

/// H3
pub(super) fn bindings(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    if snapshot.is_external(subject) && snapshot.deployment(subject).is_none() {
        return Ok(vec![info(
            "the operator runs outside of the cluster: its rights are not those of a ServiceAccount",
        )]);
    }
    if let Some(missing) = no_namespace(view) {
        return if subject.is_called() { unseen("there is no namespace, see C1") } else { Ok(vec![missing]) };
    }
    let (namespace, account) = (subject.namespace(), snapshot.account(subject));
    let accounts = snapshot.accounts.known()?;
    let mut notes = Vec::new();
    if !accounts.items.iter().any(|one| one.name_any() == account) {
        let none = fail(format!("ServiceAccount {namespace}/{account} not found"), subject.apply("rbac"));
        notes.push(missing(accounts, "ServiceAccounts", none));
    }
    let ours = |bound: &Bound| {
        bound.kind == "ServiceAccount" && bound.name == account && bound.namespace.as_deref() == Some(namespace)
    };
    let elsewhere = |subjects: &Option<Vec<Bound>>| {
        let accounts = subjects.iter().flatten().filter(|bound| bound.kind == "ServiceAccount");
        accounts.map(|bound| format!("{}/{}", bound.namespace.as_deref().unwrap_or_default(), bound.name)).next()
    };
    if !subject.rights.cluster.is_empty() {
        let role = subject.installation.role();
        match snapshot.cluster_binding.known()? {
            None => notes.push(fail(format!("ClusterRoleBinding {role} not found"), subject.apply("rbac"))),
            Some(binding) if !binding.subjects.iter().flatten().any(ours) => {
                let other = elsewhere(&binding.subjects).unwrap_or_else(|| "nobody".to_owned());
                let message = format!(
                    "ClusterRoleBinding {role} points to {other} and not to {namespace}/{account}: two installations under one name?"
                );
                notes.push(fail(message, format!("give one of them another --release; {}", subject.apply("rbac"))));
            }
            Some(_) => {}
        }
    }
    if !subject.rights.own_namespace.is_empty() {
        let bindings = snapshot.role_bindings.known()?;
        if !bindings.items.iter().any(|binding| binding.subjects.iter().flatten().any(ours)) {
            let message = format!("no RoleBinding in namespace {namespace} binds ServiceAccount {account}");
            notes.push(missing(bindings, "RoleBindings", fail(message, subject.apply("rbac"))));
        }
    }
    Ok(notes)
}

/// H4
pub(super) fn rights(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    if snapshot.is_external(subject) && snapshot.deployment(subject).is_none() {
        return Ok(vec![info(
            "the operator runs outside of the cluster: its rights are not those of a ServiceAccount",
        )]);
    }
    let rights = &snapshot.rights.known()?.items;
    let refused = |rights: &[Right]| {
        let verbs: Vec<_> = rights.iter().filter(|right| !right.allowed).map(|right| right.verb.as_str()).collect();
        let on = &rights.first()?.on;
        (!verbs.is_empty()).then(|| format!("{} {on}", verbs.join(", ")))
    };
    let refused: Vec<_> = rights.chunk_by(|one, next| one.on == next.on).filter_map(refused).collect();
    if refused.is_empty() {
        return Ok(Vec::new());
    }
    // They come from one manifest: one finding, however many are missing.
    let message = format!("ServiceAccount {} cannot {}", snapshot.account(subject), refused.join("\ncannot "));
    Ok(vec![fail(message, subject.apply("rbac"))])
}

/// Why nothing can be said from the Jobs' logs.
const SILENT: &str = "there is no log of a Job that did not succeed";

/// The lines of the Jobs' logs.
fn said<'a>(view: &View<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let logs = view.snapshot.logs.iter().filter_map(|(pod, log)| Some((pod.as_str(), log.seen()?)));
    let of_jobs = logs.filter(|(_, log)| !log.of_operator);
    of_jobs.flat_map(|(pod, log)| log.lines.iter().map(move |line| (pod, line.as_str())))
}

/// H5
pub(super) fn secret(view: &View<'_>) -> Said {
    let missing = said(view)
        .find(|(_, line)| line.contains("not found after") || line.contains("NotFound") && line.contains("secrets"));
    if said(view).next().is_none() {
        return unseen(SILENT);
    }
    let Some((pod, line)) = missing else { return Ok(Vec::new()) };
    let message = format!("{pod} says: {line}: what should have made the Secret did not");
    Ok(vec![fail(message, renew(view.subject))])
}

/// H6
pub(super) fn tools(view: &View<'_>) -> Said {
    if said(view).next().is_none() {
        return unseen(SILENT);
    }
    let mut notes = Vec::new();
    for (sign, meaning) in TOOLS {
        if let Some((pod, line)) = said(view).find(|(_, line)| line.contains(sign)) {
            notes.push(fail(format!("{pod} says: {line}"), meaning));
        }
    }
    Ok(notes)
}

/// H7
pub(super) fn cleanup(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let failed = snapshot.hooks(subject).into_iter().filter(|job| failure(job).is_some());
    let names: Vec<_> = failed.map(kube::ResourceExt::name_any).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let fix =
        format!("kubectl -n {} delete job {}; then run the installation again", subject.namespace(), names.join(" "));
    Ok(vec![note(Verdict::Info, format!("{} failed Job(s) can be deleted", names.len()), Some(fix))])
}
