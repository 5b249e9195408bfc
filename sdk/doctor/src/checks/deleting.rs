//! T: objects that are being deleted.

use std::cmp::Reverse;

use jiff::SignedDuration;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use portcullis_pki::Certificate;
use serde_json::Value;

use super::{Note, Verdict, fail, warn};
use crate::configuration::{Configuration, Entry};
use crate::lookups::is_external_name;
use crate::parts::View;
use crate::subject::Kind;
use crate::trust::span;

/// A finalizer of the API server itself: dependents are deleted first.
const FOREGROUND: &str = "foregroundDeletion";
/// The type or the reason of a condition by which a controller says that it holds a deletion on purpose.
const HELD: &str = "DeletionBlocked";
/// The most objects that one check names.
const NAMED: usize = 10;

/// An object that is being deleted.
struct Terminating<'a> {
    kind: &'a Kind,
    object: &'a DynamicObject,
    age: SignedDuration,
}

fn terminating(view: View<'_>) -> impl Iterator<Item = Terminating<'_>> {
    view.objects().iter().filter_map(move |(crd, object)| {
        let kind = view.subject.kinds.iter().find(|kind| kind.crd == *crd)?;
        let since = object.metadata.deletion_timestamp.as_ref()?;
        Some(Terminating { kind, object, age: view.snapshot.now.duration_since(since.0) })
    })
}

impl Terminating<'_> {
    fn label(&self) -> String {
        let namespace = self.object.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{} {namespace}{}", self.kind.kind, self.object.name_any())
    }

    /// The arguments by which `kubectl` finds it.
    fn arguments(&self) -> String {
        let namespace = self.object.namespace().map(|namespace| format!("-n {namespace} ")).unwrap_or_default();
        format!("{namespace}{}.{} {}", self.kind.plural, self.kind.group, self.object.name_any())
    }

    /// The message of the condition by which its controller says that it holds the deletion on purpose, if it does.
    fn held_for(&self) -> Option<&str> {
        let conditions = self.object.data.pointer("/status/conditions")?.as_array()?;
        let is = |condition: &Value, member: &str, text: &str| condition[member] == text;
        let holds = |it: &&Value| is(it, "reason", HELD) || is(it, "type", HELD) && is(it, "status", "True");
        conditions.iter().find(holds)?["message"].as_str()
    }

    /// Whether calls of this entry are made before one of its finalizers can be removed.
    fn waits_for(&self, entry: &Entry) -> bool {
        let namespace = self.object.namespace();
        let elsewhere = entry.restricted_to().is_some_and(|only| namespace.as_deref() != Some(only));
        entry.covers_updates_of(self.kind) && !self.object.finalizers().is_empty() && !elsewhere
    }
}

/// T1
pub(super) fn stuck(view: View<'_>) -> Vec<Note> {
    let patience = i64::try_from(view.snapshot.options.stuck_after.as_secs()).unwrap_or(i64::MAX);
    let late = terminating(view).filter(|one| one.age.as_secs() >= patience);
    let note = |one: Terminating<'_>| {
        let finalizers: Vec<_> = one.object.finalizers().iter().filter(|one| *one != FOREGROUND).cloned().collect();
        if finalizers.is_empty() {
            return None;
        }
        if let Some(why) = one.held_for() {
            let message = format!("{}: {HELD} for {}: {why}", one.label(), span(one.age));
            let fix = "remove what it names; the controller then removes its finalizer. If nothing of it is left, see C1 and the \
                       controller's log";
            return Some(Note::new(Verdict::Info, message, Some(fix.to_owned())));
        }
        let message = format!("{}: {} not removed for {}", one.label(), finalizers.join(", "), span(one.age));
        let fix = format!(
            "see T2, C1 and the controller's log; who owns the finalizer has to run. At last, and losing what it would clean up: \
             kubectl patch {} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
            one.arguments()
        );
        Some(fail(message, fix))
    };
    let mut notes: Vec<_> = late.filter_map(note).collect();
    notes.sort_by_key(|note| Reverse(note.verdict));
    notes.truncate(NAMED);
    notes
}

/// T2
pub(super) fn blocked(view: View<'_>) -> Vec<Note> {
    let in_the_way = |entry: &Entry| entry.fails_closed && !entry.exempts_finalizers;
    let mut notes = Vec::new();
    for (configuration, entry) in view.related().filter(|(_, entry)| in_the_way(entry)) {
        let waiting = terminating(view).find(|one| one.waits_for(entry));
        let (Some(waiting), Some(why)) = (waiting, unreachable(view, entry)) else { continue };
        let name = configuration.name();
        let message = format!("{name}/{} blocks finalizer removal of {}: {why}", entry.name, waiting.label());
        let fix = format!(
            "restore the operator, or let its webhooks fail open for now: {} (and afterwards: {})",
            fail_open(configuration),
            view.subject.apply("webhooks")
        );
        notes.push(fail(message, fix));
    }
    if notes.is_empty() {
        let events = view.events().iter().filter(|event| {
            let about = event.involved_object.name.as_ref();
            terminating(view).any(|one| one.object.metadata.name.as_ref() == about)
        });
        let failed =
            events.filter_map(|event| event.message.as_deref().filter(|it| it.contains("failed calling webhook")));
        let note = |message: &str| warn(format!("an event says: {message}"), "see the C and X checks for why");
        notes.extend(failed.take(NAMED).map(note));
    }
    notes
}

/// The command after which no entry of the configuration refuses a request that it was not asked about.
fn fail_open(configuration: &Configuration) -> String {
    let operation =
        |index| format!("{{\"op\":\"replace\",\"path\":\"/webhooks/{index}/failurePolicy\",\"value\":\"Ignore\"}}");
    let operations: Vec<_> = (0..configuration.entries.len()).map(operation).collect();
    let (resource, name) = (configuration.resource(), configuration.name());
    format!("kubectl patch {resource} {name} --type=json -p '[{}]'", operations.join(","))
}

/// The reason why calls of this entry fail, as far as its Service and its bundle show it.
fn unreachable(view: View<'_>, entry: &Entry) -> Option<String> {
    let place = entry.service()?;
    let (namespace, name) = &place;
    let Some(service) = view.service_at(&place)? else {
        return Some(format!("Service {namespace}/{name} is gone"));
    };
    if !is_external_name(service) && view.ready_endpoints(&place) == Some(0) {
        return Some(format!("Service {namespace}/{name} has no ready endpoints"));
    }
    let Some(bundle) = entry.bundle() else { return Some("its caBundle is empty".to_owned()) };
    Certificate::all_from_pem(bundle).err().map(|why| format!("its caBundle is not PEM: {why}"))
}
