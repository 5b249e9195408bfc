//! Writes of the same that another client undoes again and again: each waits longer than the one before, and the log names
//! that client.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::decide::Reason;
use super::{Desired, FieldManager, fields};
use crate::Backoff;
use crate::kind_scope::full_name;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The write of the same for the same reason from which on it is no chance any more.
const FIGHT: u32 = 3;
/// Reasons that are remembered of each object.
const REASONS: usize = 16;

/// The last writes to each child, and of each status, as long as they may slow down the next one.
#[derive(Debug)]
pub(crate) struct Repairs {
    backoff: Backoff,
    objects: Mutex<Objects>,
}

#[derive(Debug)]
struct Objects {
    writes: HashMap<String, Vec<Write>>,
    /// When outdated writes were forgotten last.
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

/// A child that does not stay as it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undone {
    /// A sentence that names the child, the other client and the next write.
    pub(crate) problem: String,
    /// Whether this fight was told of before.
    pub(crate) is_known: bool,
}

impl Repairs {
    pub(crate) fn new(backoff: Backoff) -> Self {
        let objects = Mutex::new(Objects { writes: HashMap::new(), swept: Instant::now() });
        Self { backoff, objects }
    }

    /// Returns the number of this write of `digest` to `object` for this `reason`, or how long it has to wait.
    pub(crate) fn turn(&self, object: &str, digest: &str, reason: &Reason) -> Result<u32, Duration> {
        let now = Instant::now();
        self.with(|objects| {
            let mut writes = objects.writes.get(object).into_iter().flatten();
            let same = |write: &&Write| write.reason == *reason && write.digest == digest;
            let Some(last) = writes.find(same).filter(|last| now < last.at + self.quiet()) else { return Ok(1) };
            let due = last.at + self.next(last.count);
            if now < due { Err(due - now) } else { Ok(last.count + 1) }
        })
    }

    /// Remembers a write that has been done.
    pub(crate) fn wrote(&self, object: &str, digest: &str, reason: Reason, count: u32) {
        let now = Instant::now();
        self.with(|objects| {
            if now >= objects.swept + self.quiet() {
                objects.swept = now;
                objects.writes.retain(|_, writes| {
                    writes.retain(|write| now < write.at + self.quiet());
                    !writes.is_empty()
                });
            }
            let writes = objects.writes.entry(object.to_owned()).or_default();
            writes.retain(|write| write.reason != reason);
            if writes.len() == REASONS {
                writes.remove(0);
            }
            writes.push(Write { reason, digest: digest.to_owned(), at: now, count });
        });
    }

    /// Forgets a child that the controller itself deletes: its next write undoes nothing.
    pub(super) fn forget(&self, object: &str) {
        self.with(|objects| _ = objects.writes.remove(object));
    }

    /// Returns how long the write after number `count` has to wait.
    pub(crate) fn next(&self, count: u32) -> Duration {
        self.backoff.delay(count)
    }

    /// Describes the fight that write `count` of `desired` belongs to, if it is one. `metadata` is the child's before this write.
    pub(super) fn undone(
        &self,
        desired: &Desired,
        reason: &Reason,
        count: u32,
        metadata: Option<&ObjectMeta>,
        manager: &FieldManager,
    ) -> Undone {
        let problem = match (reason, metadata.and_then(|metadata| meddlers(desired, metadata, manager))) {
            (Reason::Absent, _) => "it is deleted again and again, the API server's audit log tells by whom".to_owned(),
            (_, Some((what, managers))) => {
                format!("field manager {} changes {what} again and again", managers.join(", "))
            }
            (Reason::Taken(path), None) => format!("{path} does not stay as it is applied"),
            (Reason::Changed | Reason::Foreign(_), None) => "it does not stay as it is applied".to_owned(),
        };
        let (child, next) = (described(desired), self.next(count));
        let problem = format!("{child}: {problem}; applied {count} times, next in {next:?} at the earliest");
        Undone { problem, is_known: count > FIGHT }
    }

    /// A failure after this time has nothing to do with the writes before.
    fn quiet(&self) -> Duration {
        self.backoff.last * 2
    }

    fn with<R>(&self, body: impl FnOnce(&mut Objects) -> R) -> R {
        body(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether write number `count` of the same is one of a fight.
pub(crate) fn is_fight(count: u32) -> bool {
    count >= FIGHT
}

/// Kind, namespace and name of a child.
pub(super) fn described(desired: &Desired) -> String {
    format!("{} {}", desired.resource().kind, full_name(desired.namespace(), desired.name()))
}

/// The first field of `desired` that `manager` holds no more, and the field managers that hold it; or those that hold what
/// they [must not](FieldManager::exclusive). None where nobody is found.
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
    let what = missing.unwrap_or_else(|| "what nobody else may hold".to_owned());
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
        Desired::new(&ApiResource::erase::<ConfigMap>(&()), document, &FieldManager::of("ours")).unwrap()
    }

    fn taken(path: &str) -> Reason {
        Reason::Taken(path.to_owned())
    }

    /// Writes as soon as it may, and returns how many milliseconds it waited for that.
    async fn write(repairs: &Repairs, desired: &Desired, reason: &Reason) -> u128 {
        let begun = Instant::now();
        loop {
            match repairs.turn("ConfigMap n/c", desired.digest(), reason) {
                Ok(count) => {
                    repairs.wrote("ConfigMap n/c", desired.digest(), reason.clone(), count);
                    return begun.elapsed().as_millis();
                }
                Err(rest) => advance(rest).await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_repair_waits_twice_as_long_each_time_until_it_is_quiet() {
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
        // Nobody undid a deletion of the controller itself.
        repairs.forget("ConfigMap n/c");
        assert_eq!(write(&repairs, &desired("w"), &Reason::Absent).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_writes_that_slow_nothing_down_any_more() {
        let repairs = Repairs::new(Backoff::default());
        for path in 0..100 {
            write(&repairs, &desired("v"), &taken(&path.to_string())).await;
        }
        assert_eq!(repairs.with(|objects| objects.writes["ConfigMap n/c"].len()), REASONS);
        advance(Duration::from_mins(10)).await;
        repairs.wrote("ConfigMap n/d", "digest", Reason::Absent, 1);
        assert_eq!(repairs.with(|objects| objects.writes.len()), 1);
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
            ..FieldManager::of("ours")
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
                "field manager beside changes what nobody else may hold again and again",
            ),
            (&Reason::Absent, json!([]), "it is deleted again and again, the API server's audit log tells by whom"),
        ] {
            let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": entries})).unwrap();
            let repairs = Repairs::new(Backoff::default());
            let undone = repairs.undone(&desired("v"), reason, 3, Some(&metadata), &manager);
            let rest = "; applied 3 times, next in 2s at the earliest";
            assert_eq!(undone, Undone { problem: format!("ConfigMap n/c: {problem}{rest}"), is_known: false });
        }
    }
}
