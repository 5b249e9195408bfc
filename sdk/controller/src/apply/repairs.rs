//! Repeated writes that another client undoes: each waits longer than the one before, and the log names the
//! other client.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::decide::Reason;
use super::{Desired, FieldManager, fields};
use crate::backoff::Backoff;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The number of equal writes for the same reason from which on they count as a conflict.
const FIGHT: u32 = 3;
/// The number of reasons that are remembered of each child.
const REASONS: usize = 16;

/// The last writes of each child, kept while they may delay the next one.
#[derive(Debug)]
pub(super) struct Repairs {
    backoff: Backoff,
    children: Mutex<Children>,
}

#[derive(Debug)]
struct Children {
    writes: HashMap<String, Vec<Write>>,
    /// The time at which outdated writes were removed last.
    swept: Instant,
}

#[derive(Debug)]
struct Write {
    reason: Reason,
    digest: String,
    at: Instant,
    /// The number of writes of this digest for this reason.
    count: u32,
}

/// A child that is changed after each apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undone {
    /// A sentence that names the child, the other client and the next write.
    pub(crate) problem: String,
    /// Whether this conflict was reported before.
    pub(crate) is_known: bool,
}

impl Repairs {
    pub(super) fn new(backoff: Backoff) -> Self {
        let children = Mutex::new(Children { writes: HashMap::new(), swept: Instant::now() });
        Self { backoff, children }
    }

    /// Returns the number of this write of `desired` for this `reason`, or how long it has to wait.
    pub(super) fn turn(&self, desired: &Desired, reason: &Reason) -> Result<u32, Duration> {
        let now = Instant::now();
        self.with(|children| {
            let mut writes = children.writes.get(&name(desired)).into_iter().flatten();
            let same = |write: &&Write| write.reason == *reason && write.digest == desired.digest();
            let Some(last) = writes.find(same).filter(|last| now < last.at + self.quiet()) else { return Ok(1) };
            let due = last.at + self.backoff.delay(last.count);
            if now < due { Err(due - now) } else { Ok(last.count + 1) }
        })
    }

    /// Records a write.
    pub(super) fn wrote(&self, desired: &Desired, reason: Reason, count: u32) {
        let now = Instant::now();
        self.with(|children| {
            if now >= children.swept + self.quiet() {
                children.swept = now;
                children.writes.retain(|_, writes| {
                    writes.retain(|write| now < write.at + self.quiet());
                    !writes.is_empty()
                });
            }
            let writes = children.writes.entry(name(desired)).or_default();
            writes.retain(|write| write.reason != reason);
            if writes.len() == REASONS {
                writes.remove(0);
            }
            writes.push(Write { reason, digest: desired.digest().to_owned(), at: now, count });
        });
    }

    /// Forgets a child that the controller itself deletes: its next write undoes nothing.
    pub(super) fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.with(|children| _ = children.writes.remove(&full_name(kind, namespace, name)));
    }

    /// Describes the conflict that write `count` of `desired` belongs to, if there is one. `metadata` is the child's
    /// before this write.
    pub(super) fn undone(
        &self,
        desired: &Desired,
        reason: &Reason,
        count: u32,
        metadata: Option<&ObjectMeta>,
        manager: &FieldManager,
    ) -> Undone {
        let problem = match (reason, metadata.and_then(|metadata| meddlers(desired, metadata, manager))) {
            (Reason::Absent, _) => {
                "it is deleted again and again; the API server's audit log names the client".to_owned()
            }
            (_, Some((what, managers))) => {
                format!("field manager {} changes {what} again and again", managers.join(", "))
            }
            (Reason::Taken(path), None) => format!("{path} does not stay as it is applied"),
            (Reason::Changed | Reason::Foreign(_), None) => "it does not stay as it is applied".to_owned(),
        };
        let (child, next) = (name(desired), self.backoff.delay(count));
        let problem = format!("{child}: {problem}; applied {count} times, next in {next:?} at the earliest");
        Undone { problem, is_known: count > FIGHT }
    }

    /// A failure after this time has nothing to do with the writes before.
    fn quiet(&self) -> Duration {
        self.backoff.max * 2
    }

    fn with<R>(&self, body: impl FnOnce(&mut Children) -> R) -> R {
        body(&mut self.children.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether write number `count` of the same document belongs to a conflict.
pub(super) fn is_fight(count: u32) -> bool {
    count >= FIGHT
}

fn name(desired: &Desired) -> String {
    full_name(&desired.resource().kind, desired.namespace(), desired.name())
}

fn full_name(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind} {}", crate::kind_scope::full_name(namespace, name))
}

/// The first field of `desired` that `manager` holds no more, and the field managers that hold it; or those that hold
/// what they [must not](FieldManager::exclusive). None where no manager is found.
fn meddlers(desired: &Desired, metadata: &ObjectMeta, manager: &FieldManager) -> Option<(String, Vec<String>)> {
    let kind = &desired.resource().kind;
    let (ours, others) = manager.entries(metadata);
    let missing = fields::first_missing(ours, desired.document());
    let meddles = |theirs: &Value| match &missing {
        Some(path) => fields::first_missing(&union(ours.clone(), theirs), desired.document()).as_ref() != Some(path),
        None => (manager.exclusive)(kind, theirs, ours).is_some(),
    };
    let mut names: Vec<String> =
        others.into_iter().filter(|(_, theirs)| meddles(theirs)).map(|(name, _)| name.to_owned()).collect();
    names.sort();
    names.dedup();
    let what = missing.unwrap_or_else(|| "fields that only we may hold".to_owned());
    (!names.is_empty()).then_some((what, names))
}

/// All fields of two entries.
fn union(mut one: Value, other: &Value) -> Value {
    if !one.is_object() {
        return other.clone();
    }
    for (key, node) in other.as_object().into_iter().flatten() {
        let both = union(one[key].take(), node);
        one[key] = both;
    }
    one
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ApiResource;
    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    fn desired(value: &str) -> Desired {
        let document = json!({"metadata": {"name": "c", "namespace": "n"}, "data": {"k": value, "other": "o"}});
        Desired::new(&ApiResource::erase::<ConfigMap>(&()), document, &FieldManager::new("ours")).unwrap()
    }

    fn taken(path: &str) -> Reason {
        Reason::Taken(path.to_owned())
    }

    /// Writes as soon as that is allowed, and returns the milliseconds that it waited.
    async fn write(repairs: &Repairs, desired: &Desired, reason: &Reason) -> u128 {
        let begun = Instant::now();
        loop {
            match repairs.turn(desired, reason) {
                Ok(count) => {
                    repairs.wrote(desired, reason.clone(), count);
                    return begun.elapsed().as_millis();
                }
                Err(rest) => advance(rest).await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_repair_doubles_its_wait_until_it_is_quiet() {
        let repairs = Repairs::new(Backoff::default());
        let (desired, reason) = (desired("v"), taken("data.k"));
        let mut waits = Vec::new();
        for _ in 0..13 {
            waits.push(write(&repairs, &desired, &reason).await);
        }
        assert_eq!(waits[..5], [0, 500, 1000, 2000, 4000]);
        assert_eq!(waits[12], 300_000);
        advance(Duration::from_mins(10)).await;
        assert_eq!(write(&repairs, &desired, &reason).await, 0);
        assert_eq!(write(&repairs, &desired, &reason).await, 500);
    }

    #[tokio::test(start_paused = true)]
    async fn another_repair_and_another_document_wait_for_nothing() {
        let repairs = Repairs::new(Backoff::default());
        for _ in 0..5 {
            write(&repairs, &desired("v"), &taken("data.k")).await;
        }
        assert_eq!(write(&repairs, &desired("v"), &taken("data.other")).await, 0);
        assert_eq!(write(&repairs, &desired("v"), &Reason::Absent).await, 0);
        assert_eq!(write(&repairs, &desired("w"), &taken("data.k")).await, 0);
        // A deletion by the controller itself is no interference.
        repairs.forget("ConfigMap", "n", "c");
        assert_eq!(write(&repairs, &desired("w"), &Reason::Absent).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_writes_that_slow_nothing_down_any_more() {
        let repairs = Repairs::new(Backoff::default());
        for path in 0..100 {
            write(&repairs, &desired("v"), &taken(&path.to_string())).await;
        }
        assert_eq!(repairs.with(|children| children.writes["ConfigMap n/c"].len()), REASONS);
        advance(Duration::from_mins(10)).await;
        let document = json!({"metadata": {"name": "d", "namespace": "n"}});
        let other = Desired::new(&ApiResource::erase::<ConfigMap>(&()), document, &FieldManager::new("ours")).unwrap();
        write(&repairs, &other, &Reason::Absent).await;
        assert_eq!(repairs.with(|children| children.writes.len()), 1);
    }

    #[test]
    fn a_fight_names_the_child_the_field_and_who_holds_it() {
        let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields});
        let ours = |data: Value| {
            let annotations = json!({"f:annotations": {"f:portcullis.dev/applied-digest": {}}});
            entry("ours", "Apply", json!({"f:metadata": annotations, "f:data": data}))
        };
        let (all, less) = (ours(json!({"f:k": {}, "f:other": {}})), ours(json!({"f:other": {}})));
        let theirs = entry("theirs", "Update", json!({"f:data": {"f:k": {}}}));
        let beside = entry("beside", "Update", json!({"f:data": {".": {}, "f:mine": {}}, "f:metadata": {}}));
        let manager = FieldManager {
            exclusive: |_, theirs, _| theirs.pointer("/f:data/f:mine").map(|_| Value::Null),
            ..FieldManager::new("ours")
        };
        let k = taken("data.k");
        for (reason, entries, problem) in [
            (&k, json!([less, theirs, beside]), "field manager theirs changes data.k again and again"),
            (&k, json!([less, beside]), "data.k does not stay as it is applied"),
            (&Reason::Changed, json!([less, theirs]), "field manager theirs changes data.k again and again"),
            (&Reason::Changed, json!([all]), "it does not stay as it is applied"),
            (
                &Reason::Foreign("digest".to_owned()),
                json!([all, theirs, beside]),
                "field manager beside changes fields that only we may hold again and again",
            ),
            (&Reason::Absent, json!([]), "it is deleted again and again; the API server's audit log names the client"),
        ] {
            let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": entries})).unwrap();
            let repairs = Repairs::new(Backoff::default());
            let undone = repairs.undone(&desired("v"), reason, 3, Some(&metadata), &manager);
            let rest = "; applied 3 times, next in 2s at the earliest";
            assert_eq!(undone, Undone { problem: format!("ConfigMap n/c: {problem}{rest}"), is_known: false });
        }
    }
}
