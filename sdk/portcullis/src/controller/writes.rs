//! Which of the changes that a watch delivers are our own writes.
//!
//! A watch may deliver a write before its answer comes. So a change of an object that is being written wakes nobody at
//! first: the answer tells the version that is ours, and what is newer is somebody else's.

use std::collections::HashMap;
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
    /// The newest version that is ours.
    ours: u64,
    /// The newest version that the watch delivered meanwhile.
    delivered: u64,
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
        self.lock().entry(object.clone()).or_default().under_way += 1;
        Write { writes: self, object, queue, owner }
    }

    /// Takes a change that a watch delivered, with its version; that of a deletion is `None`. Returns whether it is ours,
    /// or will be known when the write under way is answered. One that does not `count` wakes nobody then.
    pub(super) fn takes(&self, object: &Key, version: Option<u64>, counts: bool) -> bool {
        let mut all = self.lock();
        let Some(written) = all.get_mut(object) else { return false };
        // A deletion is newer than every write, and never ours alone: the object waits for nothing of us any more.
        let version = version.unwrap_or(u64::MAX);
        if written.under_way > 0 {
            if counts {
                written.delivered = written.delivered.max(version);
            }
            return true;
        }
        let ours = version <= written.ours;
        if version >= written.ours {
            all.remove(object);
        }
        ours
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
            written.ours = written.ours.max(version);
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
        let Written { ours, delivered, .. } = *written;
        // Otherwise the watch is behind: it will deliver what is ours.
        if ours == 0 || delivered >= ours {
            all.remove(&self.object);
        } else {
            written.delivered = 0;
        }
        drop(all);
        if delivered > ours {
            self.queue.add(self.owner.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        Begin,
        Delivered(u64),
        Deleted,
        Unimportant(u64),
        Answered(u64),
        Failed,
    }
    use Step::{Answered, Begin, Deleted, Delivered, Failed, Unimportant};

    /// Which of the changes wake the owner at once, and whether the end of the writes does.
    type Woken = (Vec<u64>, bool);

    fn run(steps: &[Step]) -> Woken {
        let (writes, queue, key) = (Writes::default(), Queue::default(), Key::new("ns", "a"));
        let (mut under_way, mut woke) = (Vec::new(), Vec::new());
        for step in steps {
            let mut delivered = |version: Option<u64>, counts| {
                if !writes.takes(&key, version, counts) && counts {
                    woke.push(version.unwrap_or(u64::MAX));
                }
            };
            match step {
                Begin => under_way.push(writes.begin(key.clone(), &queue, &key)),
                Delivered(version) => delivered(Some(*version), true),
                Unimportant(version) => delivered(Some(*version), false),
                Deleted => delivered(None, true),
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
            ("a late one before ours", vec![Begin, Answered(9), Delivered(7), Delivered(9)], (vec![], false)),
            ("ours was skipped", vec![Begin, Answered(9), Delivered(12)], (vec![12], false)),
            ("gone meanwhile", vec![Begin, Deleted, Answered(9)], (vec![], true)),
            ("gone afterwards", vec![Begin, Answered(9), Deleted], (vec![u64::MAX], false)),
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
    fn nothing_is_kept_once_the_watch_has_come_past_a_write() {
        let (writes, queue, key) = (Writes::default(), Queue::default(), Key::new("ns", "a"));
        writes.begin(key.clone(), &queue, &key).answered(9);
        assert_eq!(writes.lock().len(), 1);
        writes.takes(&key, Some(9), true);
        writes.begin(key.clone(), &queue, &key);
        assert_eq!(writes.lock().len(), 0);
    }
}
