//! The end of the queue at which lines are written.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::calls::Calls;
use super::queue::Queued;

/// Lines that are written with one system call, in bytes.
const BATCH: usize = 64 << 10;

/// The lines that wait for the server, in the order in which they came. It outlives pipes: a line of which a pipe took nothing is for the next.
#[derive(Debug)]
pub(super) struct Outlet {
    lines: mpsc::UnboundedReceiver<Queued>,
    /// Lines that were taken from the queue.
    taken: VecDeque<Queued>,
    /// How many bytes of the first of them the pipe took.
    begun: usize,
}

impl Outlet {
    pub(super) fn new(lines: mpsc::UnboundedReceiver<Queued>) -> Self {
        Self { lines, taken: VecDeque::new(), begun: 0 }
    }

    /// Waits until there are lines to write. Returns false when none comes any more.
    pub(super) async fn wait(&mut self) -> bool {
        if self.taken.is_empty() {
            let Some(first) = self.lines.recv().await else { return false };
            self.taken.push_back(first);
        }
        while let Ok(next) = self.lines.try_recv() {
            self.taken.push_back(next);
        }
        true
    }

    /// The next bytes to write, and whether they ask for an answer: one line, or several short ones. Empty when all are written.
    ///
    /// A call that has failed or was left while it waited here must not be acted on: it is dropped.
    pub(super) fn next(&mut self, calls: &Calls) -> (Bytes, bool) {
        let (mut lines, mut bytes, mut asks) = (0, 0, false);
        while let Some(Queued { line, .. }) = self.taken.get(lines) {
            if lines > 0 && bytes + line.bytes.len() > BATCH {
                break;
            }
            if line.call.is_some_and(|call| !calls.write(call)) {
                self.taken.remove(lines);
                continue;
            }
            (lines, bytes, asks) = (lines + 1, bytes + line.bytes.len(), asks || line.call.is_some());
        }
        let mut chosen = self.taken.iter().take(lines).map(|queued| &queued.line.bytes);
        let text = match (lines, chosen.next()) {
            (1, Some(line)) => line.clone(),
            (_, first) => {
                let mut text = BytesMut::with_capacity(bytes);
                first.into_iter().chain(chosen).for_each(|line| text.extend_from_slice(line));
                text.freeze()
            }
        };
        (text, asks)
    }

    /// Notes that the pipe took `bytes` more.
    pub(super) fn took(&mut self, bytes: usize) {
        self.begun += bytes;
        while let Some(first) = self.taken.front().map(|queued| queued.line.bytes.len())
            && first <= self.begun
        {
            self.taken.pop_front();
            self.begun -= first;
        }
    }

    /// Leaves to the next pipe what this one, which is gone, took nothing of.
    pub(super) fn keep_unwritten(&mut self, calls: &Calls) {
        if std::mem::take(&mut self.begun) > 0 {
            self.taken.pop_front();
        }
        self.taken.iter().filter_map(|queued| queued.line.call).for_each(|call| calls.unwrite(call));
    }

    /// Takes no more lines.
    pub(super) fn close(&mut self) {
        self.lines.close();
    }
}
