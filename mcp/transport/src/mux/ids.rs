//! The names under which a server knows calls.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// Gives out ids that no other proxy gives out and that this one did not give out before a restart: a random prefix and a number. On
/// the wire they are JSON strings, which every server must echo as they are.
#[derive(Debug)]
pub(super) struct Ids {
    /// With the quotation mark before it.
    prefix: Box<str>,
    next: AtomicU64,
}

impl Ids {
    pub(super) fn new() -> Self {
        let random = Uuid::new_v4().simple().to_string();
        Self { prefix: format!("\"{random}-").into(), next: AtomicU64::new(0) }
    }

    /// The number of a call, which no call has had.
    pub(super) fn fresh(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The id of call `number` as JSON text.
    pub(super) fn text(&self, number: u64) -> String {
        format!("{}{number}\"", self.prefix)
    }

    /// The number of the call with this id; `None` when the id is none of ours.
    pub(super) fn number(&self, raw: &str) -> Option<u64> {
        raw.strip_prefix(&*self.prefix)?.strip_suffix('"')?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_proxies_on_one_pipe_do_not_give_out_the_same_id() {
        let (one, two) = (Ids::new(), Ids::new());
        let (first, second) = (one.fresh(), two.fresh());
        assert_eq!(first, second);
        assert_ne!(one.text(first), two.text(second));
        assert_eq!(one.number(&one.text(first)), Some(first));
        assert_eq!(two.number(&one.text(first)), None);
        assert!(serde_json::from_str::<String>(&one.text(7)).unwrap().ends_with("-7"));
        for foreign in ["7", "\"7\"", "null", &one.text(7)[1..]] {
            assert_eq!(one.number(foreign), None, "{foreign}");
        }
    }
}
