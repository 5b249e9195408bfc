//! Which of the changes that a watch delivers are our own writes.
//!
//! A watch may deliver a write before its answer comes. So a change of an object that is being written wakes nobody at
//! first: the answers tell which versions are ours, and every other is somebody else's.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Key, Queue};

/// The writes to objects of one kind.
#[derive(Debug, Default)]
pub(super) struct Writes(Mutex<HashMap<Key, Written>>);

/// What is known of an object that was written, until the watch has come past that.
#[derive(Debug, Default)]
struct Written {
    /// How many writes wait for their answers.
    under_way: usize,
    /// How many were begun since none was under way.
    begun: usize,
    /// The versions that are ours and that the watch has not come past.
    ours: Vec<u64>,
    /// Those that the watch delivered while writes were under way, at most one more than were begun: more cannot be ours.
    delivered: Vec<u64>,
    /// Whom these wake, where they are not ours.
    wakes: BTreeSet<Key>,
}

/// A write that waits for its answer. Dropped without one, nobody knows what of it came to pass: what the watch delivered
/// meanwhile wakes the owner.
pub(super) struct Write<'a> {
    writes: &'a Writes,
    object: Key,
    queue: &'a Queue,
    owner: &'a Key,
}

impl Writes {
    /// A write of `object` begins, which the reconcile of `owner` makes.
    pub(super) fn begin<'a>(&'a self, object: Key, queue: &'a Queue, owner: &'a Key) -> Write<'a> {
        let mut all = self.lock();
        let written = all.entry(object.clone()).or_default();
        written.under_way += 1;
        written.begun += 1;
        drop(all);
        Write { writes: self, object, queue, owner }
    }

    /// Takes a version that a watch delivered, the highest for a deletion and for what a list brings, and whom it wakes
    /// where that is `news`. Returns who is to be woken now: nobody where the version is ours, or where writes are under way.
    /// Their end wakes who is left, when they are answered.
    pub(super) fn takes(&self, object: &Key, version: u64, wakes: Vec<Key>, news: bool) -> Vec<Key> {
        let mut all = self.lock();
        let told = |news: bool| if news { wakes.clone() } else { Vec::new() };
        let Some(written) = all.get_mut(object) else { return told(news) };
        let ours = written.ours.contains(&version);
        if written.under_way > 0 {
            if news && !ours {
                if written.delivered.len() <= written.begun {
                    written.delivered.push(version);
                }
                written.wakes.extend(wakes);
            }
            return Vec::new();
        }
        // A list does not tell what there was before it: it may have skipped somebody else's change.
        let skipped = version == u64::MAX && !written.ours.is_empty();
        written.ours.retain(|ours| *ours > version);
        if written.ours.is_empty() {
            all.remove(object);
        }
        told(skipped || (news && !ours))
    }

    /// Forgets everything: no watch delivers any more.
    pub(super) fn clear(&self) {
        self.lock().retain(|_, written| written.under_way > 0);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Written>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write<'_> {
    /// It was answered with this version.
    pub(super) fn answered(self, version: u64) {
        if let Some(written) = self.writes.lock().get_mut(&self.object) {
            written.ours.push(version);
        }
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        let mut all = self.writes.lock();
        let Some(written) = all.get_mut(&self.object) else { return };
        written.under_way -= 1;
        if written.under_way > 0 {
            return;
        }
        written.begun = 0;
        let (delivered, wakes) = (std::mem::take(&mut written.delivered), std::mem::take(&mut written.wakes));
        let others = delivered.iter().any(|version| !written.ours.contains(version));
        let passed = delivered.into_iter().max().unwrap_or_default();
        // What the watch is behind of, it will deliver.
        written.ours.retain(|ours| *ours > passed);
        if written.ours.is_empty() {
            all.remove(&self.object);
        }
        drop(all);
        if others {
            wakes.into_iter().chain([self.owner.clone()]).for_each(|key| self.queue.add(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        Begin,
        Listed,
        Delivered(u64),
        Deleted,
        Unimportant(u64),
        Answered(u64),
        Failed,
    }
    use Step::{Answered, Begin, Deleted, Delivered, Failed, Listed, Unimportant};

    /// Which of the changes wake the owner at once, and whether the end of the writes does.
    type Woken = (Vec<u64>, bool);

    fn run(steps: &[Step]) -> Woken {
        let (writes, queue, key) = (Writes::default(), Queue::default(), Key::new("ns", "a"));
        let (mut under_way, mut woke) = (Vec::new(), Vec::new());
        for step in steps {
            let mut delivered = |version: u64, news| {
                woke.extend(writes.takes(&key, version, vec![key.clone()], news).into_iter().map(|_| version));
            };
            match step {
                Begin => under_way.push(writes.begin(key.clone(), &queue, &key)),
                Delivered(version) => delivered(*version, true),
                Unimportant(version) => delivered(*version, false),
                Deleted => delivered(u64::MAX, true),
                Listed => delivered(u64::MAX, false),
                Answered(version) => under_way.remove(0).answered(*version),
                Failed => drop(under_way.remove(0)),
            }
        }
        drop(under_way);
        (woke, queue.asked() == [key])
    }

    #[test]
    fn a_change_wakes_unless_it_is_the_write_that_was_answered_whichever_comes_first() {
        let cases: Vec<(&str, Vec<Step>, Woken)> = vec![
            ("the answer first", vec![Begin, Answered(9), Delivered(9)], (vec![], false)),
            ("the watch first", vec![Begin, Delivered(9), Answered(9)], (vec![], false)),
            ("no write", vec![Delivered(9)], (vec![9], false)),
            ("another's after ours", vec![Begin, Answered(9), Delivered(9), Delivered(10)], (vec![10], false)),
            ("another's before the answer", vec![Begin, Delivered(9), Delivered(10), Answered(9)], (vec![], true)),
            ("another's before ours", vec![Begin, Answered(9), Delivered(7), Delivered(9)], (vec![7], false)),
            ("the same, before the answer", vec![Begin, Delivered(7), Answered(9), Delivered(9)], (vec![], true)),
            ("the same, both", vec![Begin, Delivered(7), Delivered(9), Answered(9)], (vec![], true)),
            (
                "two of ours late",
                vec![Begin, Answered(8), Begin, Answered(9), Delivered(8), Delivered(9)],
                (vec![], false),
            ),
            (
                "many of others",
                vec![Begin, Delivered(5), Delivered(6), Delivered(7), Delivered(9), Answered(9)],
                (vec![], true),
            ),
            ("ours was skipped", vec![Begin, Answered(9), Delivered(12)], (vec![12], false)),
            ("gone meanwhile", vec![Begin, Deleted, Answered(9)], (vec![], true)),
            ("gone afterwards", vec![Begin, Answered(9), Deleted], (vec![u64::MAX], false)),
            ("a list that may have skipped one", vec![Begin, Answered(9), Listed], (vec![u64::MAX], false)),
            ("a list of what is known", vec![Begin, Answered(9), Delivered(9), Listed], (vec![], false)),
            ("no answer", vec![Begin, Delivered(9), Failed], (vec![], true)),
            ("no answer and no change", vec![Begin, Failed, Delivered(9)], (vec![9], false)),
            ("what does not count", vec![Begin, Unimportant(10), Answered(9)], (vec![], false)),
            (
                "two at once",
                vec![Begin, Begin, Delivered(9), Answered(9), Delivered(10), Answered(10)],
                (vec![], false),
            ),
        ];
        for (case, steps, expected) in cases {
            assert_eq!(run(&steps), expected, "{case}");
        }
    }

    #[test]
    fn a_change_while_others_write_as_well_wakes_those_whom_it_concerns() {
        let (writes, queue) = (Writes::default(), Queue::default());
        let [child, one, other] = ["child", "one", "other"].map(|name| Key::new("ns", name));
        let (made, refused) = (writes.begin(child.clone(), &queue, &one), writes.begin(child.clone(), &queue, &other));
        for version in [9, 10] {
            assert!(writes.takes(&child, version, vec![one.clone()], true).is_empty());
        }
        made.answered(9);
        drop(refused);
        assert!(queue.asked().contains(&one), "10 is somebody else's: {:?}", queue.asked());
    }

    #[test]
    fn nothing_is_kept_once_the_watch_has_come_past_a_write() {
        let (writes, queue, key) = (Writes::default(), Queue::default(), Key::new("ns", "a"));
        writes.begin(key.clone(), &queue, &key).answered(9);
        assert_eq!(writes.lock().len(), 1);
        writes.takes(&key, 9, Vec::new(), true);
        writes.begin(key.clone(), &queue, &key);
        assert_eq!(writes.lock().len(), 0);
    }
}
