//! Notifies listeners of namespaces that changed hands, without loss and without growth: a change that was not taken
//! yet is kept once.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use futures::task::AtomicWaker;

/// A namespace whose owner changed; all of them (`None`) when it is known again who owns which.
pub(crate) type Change = Option<String>;

/// A stream of [`Change`]s. A slow reader misses none; repeated ones are merged. It ends with its driver.
#[derive(Debug)]
pub(crate) struct Changes(Arc<Slot>);

impl Changes {
    /// A stream that yields nothing and does not end.
    pub(crate) fn never() -> Self {
        Self(Arc::default())
    }
}

#[derive(Debug, Default)]
struct Slot {
    pending: Mutex<BTreeSet<Change>>,
    ended: AtomicBool,
    waker: AtomicWaker,
}

impl Stream for Changes {
    type Item = Change;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Change>> {
        self.0.waker.register(cx.waker());
        match self.0.pending.lock().unwrap_or_else(PoisonError::into_inner).pop_first() {
            Some(change) => Poll::Ready(Some(change)),
            None if self.0.ended.load(Ordering::Acquire) => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// The listeners, which get every change.
#[derive(Debug, Default)]
pub(crate) struct Hub(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    slots: Vec<Weak<Slot>>,
    ended: bool,
}

impl Hub {
    pub(crate) fn listen(&self) -> Changes {
        let slot = Arc::new(Slot::default());
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.ended.store(listeners.ended, Ordering::Release);
        // There may be no change for weeks, and every reconcile may add a listener.
        listeners.slots.retain(|slot| slot.strong_count() > 0);
        listeners.slots.push(Arc::downgrade(&slot));
        drop(listeners);
        Changes(slot)
    }

    pub(crate) fn notify(&self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.each(|slot| {
                slot.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(change.clone());
            });
        }
    }

    pub(crate) fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.each(|slot| slot.ended.store(true, Ordering::Release));
    }

    fn each(&self, act: impl Fn(&Slot)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).slots.retain(|slot| {
            let Some(slot) = slot.upgrade() else { return false };
            act(&slot);
            slot.waker.wake();
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_slow_reader_gets_each_namespace_once_and_none_is_lost() {
        let hub = Hub::default();
        let changes = hub.listen();
        for namespace in ["b", "a", "b", "a", "b"] {
            hub.notify([Some(namespace.to_owned())]);
        }
        hub.notify([None]);
        hub.end();
        let seen: Vec<Change> = changes.collect().await;
        let expected = [None, Some("a".to_owned()), Some("b".to_owned())];
        assert_eq!(seen, expected);
    }

    #[test]
    fn dropped_listeners_are_forgotten_without_a_change() {
        let hub = Hub::default();
        let stays = hub.listen();
        for _ in 0..1000 {
            drop(hub.listen());
        }
        assert!(hub.0.lock().unwrap().slots.len() <= 2);
        drop(stays);
    }

    #[tokio::test]
    async fn a_listener_after_the_end_gets_the_end() {
        let hub = Hub::default();
        hub.end();
        assert_eq!(hub.listen().next().await, None);
    }
}
