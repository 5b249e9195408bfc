//! X10, H1 and H7: the Jobs of an installation.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;

use super::{Note, fail, fine, warn};
use crate::lookups::publishes;
use crate::parts::View;
use crate::report::Verdict;
use crate::trust::span;

/// A Job that has not ended after this many seconds hangs.
const LONG: i64 = 600;

/// The way in which it failed, if it did.
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
pub(super) fn publishing(view: View<'_>) -> Vec<Note> {
    let jobs = view.hooks().into_iter().filter(|job| publishes(job));
    let Some(job) = jobs.max_by_key(|job| job.metadata.creation_timestamp.clone().map(|at| at.0)) else {
        return vec![fine("no Job publishes the CA")];
    };
    let (subject, name) = (view.subject, job.name_any());
    let fix = format!("kubectl -n {} logs job/{name}; then: {}", subject.namespace(), subject.command("certs publish"));
    if let Some(failed) = failure(job) {
        return vec![fail(format!("CA injection job {name} {failed}"), fix)];
    }
    if job.status.as_ref().and_then(|status| status.completion_time.as_ref()).is_none() {
        return vec![warn(format!("CA injection job {name} has not ended"), fix)];
    }
    Vec::new()
}

/// H1
pub(super) fn jobs(view: View<'_>) -> Vec<Note> {
    let mut notes = Vec::new();
    for job in view.hooks() {
        let (name, namespace) = (job.name_any(), view.subject.namespace());
        let fix = format!("kubectl -n {namespace} describe job {name}; kubectl -n {namespace} logs job/{name}");
        let succeeded = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default();
        let age = job.metadata.creation_timestamp.as_ref().map(|at| view.snapshot.now.duration_since(at.0));
        if let Some(failed) = failure(job) {
            notes.push(fail(format!("job {name} {failed}"), fix));
        } else if succeeded == 0
            && let Some(age) = age.filter(|age| age.as_secs() > LONG)
        {
            notes.push(warn(format!("job {name} has not ended for {}", span(age)), fix));
        }
    }
    notes
}

/// H7
pub(super) fn cleanup(view: View<'_>) -> Vec<Note> {
    let failed = view.hooks().into_iter().filter(|job| failure(job).is_some());
    let names: Vec<_> = failed.map(kube::ResourceExt::name_any).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let namespace = view.subject.namespace();
    let fix = format!("kubectl -n {namespace} delete job {}; then run the installation again", names.join(" "));
    vec![Note::new(Verdict::Info, format!("{} failed Job(s) can be deleted", names.len()), Some(fix))]
}
