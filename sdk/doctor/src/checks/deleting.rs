//! W10 and T: objects that are being deleted.

use jiff::SignedDuration;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use super::answers::unreachable;
use super::{Said, View, fail, info, warn};
use crate::configuration::Entry;
use crate::snapshot::Blind;
use crate::subject::Kind;
use crate::trust::span;

/// The API server's own finalizers, each with the check that knows about it.
const FOREGROUND: &str = "foregroundDeletion";
/// The most objects that one check names.
const NAMED: usize = 10;

/// Objects that are being deleted, each with its kind and for how long.
fn terminating<'a>(view: &View<'a>) -> Result<Vec<(&'a Kind, &'a DynamicObject, SignedDuration)>, Blind> {
    let mut found = Vec::new();
    for kind in &view.subject.kinds {
        let Some(objects) = view.snapshot.objects.get(&kind.crd) else { continue };
        for object in &objects.known()?.items {
            if let Some(at) = &object.metadata.deletion_timestamp {
                found.push((kind, object, view.now.duration_since(at.0)));
            }
        }
    }
    Ok(found)
}

fn called(kind: &Kind, object: &DynamicObject) -> String {
    let namespace = object.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {namespace}{}", kind.kind, object.name_any())
}

/// How `kubectl` names it.
fn named(kind: &Kind, object: &DynamicObject) -> String {
    let namespace = object.namespace().map(|namespace| format!("-n {namespace} ")).unwrap_or_default();
    format!("{namespace}{}.{} {}", kind.plural, kind.group, object.name_any())
}

/// W10
pub(super) fn exempt(view: &View<'_>) -> Said {
    let found = terminating(view)?;
    let note = |(kind, object, age): &(&Kind, &DynamicObject, SignedDuration)| {
        let message = format!(
            "{} is being deleted for {}; updates of its metadata and status are not validated, an edit of the rest is",
            called(kind, object),
            span(*age)
        );
        info(message)
    };
    Ok(found.iter().take(NAMED).map(note).collect())
}

/// T1
pub(super) fn stuck(view: &View<'_>) -> Said {
    let patience = i64::try_from(view.snapshot.stuck_after_seconds).unwrap_or(i64::MAX);
    let mut notes = Vec::new();
    for (kind, object, age) in
        terminating(view)?.into_iter().filter(|(_, _, age)| age.as_secs() >= patience).take(NAMED)
    {
        let finalizers: Vec<_> = object.finalizers().iter().filter(|one| *one != FOREGROUND).cloned().collect();
        if finalizers.is_empty() {
            continue;
        }
        let message = format!("{}: {} not removed for {}", called(kind, object), finalizers.join(", "), span(age));
        let fix = format!(
            "see T2, C1 and the controller's log; who owns the finalizer has to run. At last, and losing what it would clean up: \
             kubectl patch {} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
            named(kind, object)
        );
        notes.push(fail(message, fix));
    }
    Ok(notes)
}

/// T2
pub(super) fn blocked(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let terminating = terminating(view)?;
    let mut notes = Vec::new();
    let in_the_way = |entry: &Entry| entry.fails_closed && !entry.exempts_finalizers;
    for (configuration, entry) in snapshot.related(subject).filter(|(_, entry)| in_the_way(entry)) {
        let waiting = terminating.iter().find(|(kind, object, _)| {
            let namespace = object.namespace();
            let elsewhere = entry.restricted_to().is_some_and(|only| namespace.as_deref() != Some(only));
            entry.covers_updates_of(kind) && !object.finalizers().is_empty() && !elsewhere
        });
        let (Some((kind, object, _)), Some(why)) = (waiting, unreachable(view, entry)) else { continue };
        let (name, resource) = (configuration.name(), configuration.resource());
        let patches: Vec<_> = configuration
            .entries
            .iter()
            .enumerate()
            .map(|(index, _)| {
                format!("{{\"op\":\"replace\",\"path\":\"/webhooks/{index}/failurePolicy\",\"value\":\"Ignore\"}}")
            })
            .collect();
        let message = format!("{name}/{} blocks finalizer removal of {}: {why}", entry.name, called(kind, object));
        let fix = format!(
            "restore the operator, or let its webhooks fail open for now: kubectl patch {resource} {name} --type=json -p '[{}]' \
             (and afterwards: {})",
            patches.join(","),
            subject.apply("webhooks")
        );
        notes.push(fail(message, fix));
    }
    if notes.is_empty() {
        let events = snapshot.events.known()?.items.iter();
        let said = events.filter_map(|event| event.message.as_deref().map(|message| (event, message)));
        let blocked = said.filter(|(event, message)| {
            let about = terminating.iter().any(|(_, object, _)| event.involved_object.name == object.metadata.name);
            about && message.contains("failed calling webhook")
        });
        notes.extend(
            blocked
                .take(NAMED)
                .map(|(_, message)| warn(format!("an event says: {message}"), "see the C and X checks for why")),
        );
    }
    Ok(notes)
}

/// T3
pub(super) fn invalid(view: &View<'_>) -> Said {
    let mut notes = Vec::new();
    for (kind, object, age) in terminating(view)? {
        let conditions = object.data.pointer("/status/conditions").and_then(|conditions| conditions.as_array());
        let invalid = conditions.into_iter().flatten().any(|one| one["type"] == "Valid" && one["status"] == "False");
        if invalid && !object.finalizers().is_empty() {
            let message = format!(
                "{} is invalid (condition Valid) and being deleted for {}: its controller may refuse it before it gets to its finalizer",
                called(kind, object),
                span(age)
            );
            notes.push(warn(
                message,
                format!("make it valid so that its controller goes on: kubectl edit {}", named(kind, object)),
            ));
        }
    }
    notes.truncate(NAMED);
    Ok(notes)
}

/// T4
pub(super) fn orphans(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    snapshot.configurations.known()?;
    let mut notes = Vec::new();
    for configuration in snapshot.family(subject) {
        let gone = configuration.entries.iter().find_map(|entry| {
            let place = entry.service()?;
            let service = snapshot.services.get(&place)?.seen()?;
            service.is_none().then_some(place)
        });
        // The one of this installation is W4's: there its Service is put back, not the configuration taken away.
        let own = configuration.name() == subject.configuration(configuration.kind);
        let Some((namespace, name)) = gone.filter(|_| !own) else { continue };
        let closed = configuration.entries.iter().any(|entry| entry.fails_closed);
        let effect = if closed { ": every write that it matches is refused" } else { "" };
        let message = format!("{} points to deleted Service {namespace}/{name}{effect}", configuration.name());
        notes.push(fail(message, format!("kubectl delete {} {}", configuration.resource(), configuration.name())));
    }
    Ok(notes)
}

/// T5
pub(super) fn foreground(view: &View<'_>) -> Said {
    let patience = i64::try_from(view.snapshot.stuck_after_seconds).unwrap_or(i64::MAX);
    let only = |object: &DynamicObject| {
        object.finalizers().iter().all(|one| one == FOREGROUND) && !object.finalizers().is_empty()
    };
    let found = terminating(view)?.into_iter().filter(|(_, object, age)| only(object) && age.as_secs() >= patience);
    let note = |(kind, object, age): (&Kind, &DynamicObject, SignedDuration)| {
        let message = format!(
            "{} waits for its dependents for {}: only {FOREGROUND} is left of its finalizers",
            called(kind, object),
            span(age)
        );
        let uid = object.uid().unwrap_or_default();
        warn(
            message,
            format!(
                "find what it owns (metadata.ownerReferences with uid {uid}) and what keeps that from being deleted"
            ),
        )
    };
    Ok(found.take(NAMED).map(note).collect())
}
