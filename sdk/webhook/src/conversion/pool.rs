//! Processes lists in parallel and in order, on at most as many threads as there are cores.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Objects that a thread takes at a time.
const CHUNK: usize = 16;

/// The threads that all lists share.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    free: Arc<Semaphore>,
    size: usize,
}

impl Pool {
    pub(super) fn new() -> Self {
        let size = std::thread::available_parallelism().map_or(2, NonZero::get);
        Self { free: Arc::new(Semaphore::new(size)), size }
    }

    /// Takes at least one thread, once there is one, and the others that are free now. `None` when there is none by
    /// `deadline`.
    pub(super) async fn threads(&self, deadline: Instant) -> Option<OwnedSemaphorePermit> {
        let first = tokio::time::timeout_at(deadline, Arc::clone(&self.free).acquire_owned()).await;
        let mut threads = first.ok()?.ok()?;
        for _ in 1..self.size {
            let Ok(another) = Arc::clone(&self.free).try_acquire_owned() else { break };
            threads.merge(another);
        }
        Some(threads)
    }
}

/// Stops work when the caller that waits for it has gone.
#[derive(Debug, Default)]
pub(super) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// Whether no caller waits any more.
    pub(super) fn gone(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let gone = Arc::clone(&self.0);
        move || gone.load(Ordering::Relaxed)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The reason why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stopped<E> {
    /// The first item that failed, and why.
    At(usize, E),
    /// `halt` returned true.
    Halted,
}

/// Does `work` on every item, on this thread and on others up to `threads`; the results are in the order of the items.
/// Asks `halt` before each item.
pub(super) fn in_order<I: Sync, O: Send, E: Send>(
    items: &[I],
    threads: usize,
    halt: &(impl Fn() -> bool + Sync),
    work: &(impl Fn(&I) -> Result<O, E> + Sync),
) -> Result<Vec<O>, Stopped<E>> {
    let (next, halted, failed) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(usize::MAX));
    // Chunks are handed out in order: those before a failed one are done by some thread, so the first failure is always
    // found.
    let take = || {
        let (mut done, mut failure) = (Vec::new(), None);
        loop {
            let begin = next.fetch_add(CHUNK, Ordering::Relaxed);
            let Some(rest) = items.get(begin..).filter(|rest| !rest.is_empty()) else { break };
            if begin > failed.load(Ordering::Relaxed) || halted.load(Ordering::Relaxed) {
                break;
            }
            let mut chunk = Vec::with_capacity(rest.len().min(CHUNK));
            for (index, item) in (begin..).zip(rest.iter().take(CHUNK)) {
                if halt() {
                    halted.store(true, Ordering::Relaxed);
                    break;
                }
                match work(item) {
                    Ok(output) => chunk.push(output),
                    Err(error) => {
                        failed.fetch_min(index, Ordering::Relaxed);
                        failure = Some((index, error));
                        break;
                    }
                }
            }
            done.push((begin, chunk));
            if failure.is_some() {
                break;
            }
        }
        (done, failure)
    };
    let others = threads.min(items.len().div_ceil(CHUNK)).saturating_sub(1);
    let taken: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> = (0..others).map(|_| scope.spawn(take)).collect();
        let mine = take();
        let joined = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        std::iter::once(mine).chain(others.into_iter().map(joined)).collect()
    });
    let (mut done, mut first): (Vec<_>, Option<(usize, E)>) = (Vec::new(), None);
    for (chunks, failure) in taken {
        done.extend(chunks);
        if let Some((index, error)) = failure
            && first.as_ref().is_none_or(|(other, _)| index < *other)
        {
            first = Some((index, error));
        }
    }
    if halted.into_inner() {
        return Err(Stopped::Halted);
    }
    if let Some((index, error)) = first {
        return Err(Stopped::At(index, error));
    }
    done.sort_unstable_by_key(|(begin, _)| *begin);
    Ok(done.into_iter().flat_map(|(_, chunk)| chunk).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_with_any_number_of_threads() {
        for (items, threads) in [(0, 4), (1, 1), (15, 4), (16, 2), (17, 8), (1000, 1), (1000, 3)] {
            let items: Vec<usize> = (0..items).collect();
            let doubled = in_order(&items, threads, &|| false, &|item| Ok::<_, ()>(item * 2));
            assert_eq!(doubled.unwrap(), items.iter().map(|item| item * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_item_that_fails_is_the_one_that_is_named() {
        let items: Vec<usize> = (0..500).collect();
        for _ in 0..50 {
            let failed = in_order(&items, 4, &|| false, &|item| if item % 100 == 37 { Err("no") } else { Ok(()) });
            assert_eq!(failed.unwrap_err(), Stopped::At(37, "no"));
        }
    }

    #[test]
    fn work_stops_when_no_caller_waits_for_it() {
        let (waiting, items) = (Waiting::default(), [(); 1000]);
        let (gone, done) = (waiting.gone(), AtomicUsize::new(0));
        let waiting = std::sync::Mutex::new(Some(waiting));
        let stopped = in_order(&items, 1, &gone, &|()| {
            if done.fetch_add(1, Ordering::Relaxed) == 10 {
                waiting.lock().unwrap().take();
            }
            Ok::<_, ()>(())
        });
        assert_eq!((stopped.unwrap_err(), done.into_inner()), (Stopped::Halted, 11));
    }

    #[tokio::test]
    async fn lists_share_the_threads_and_each_gets_one() {
        let pool = Pool { free: Arc::new(Semaphore::new(3)), size: 3 };
        let now = Instant::now();
        let all = pool.threads(now).await.unwrap();
        assert_eq!(all.num_permits(), 3);
        assert!(pool.threads(now).await.is_none());
        drop(all);
        assert_eq!(pool.threads(now).await.unwrap().num_permits(), 3);
    }
}
