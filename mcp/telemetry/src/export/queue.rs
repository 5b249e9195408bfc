//! Spans that have ended and wait for their export.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcp_middleware::Metrics;
use opentelemetry::{Context, StringValue, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Spans that are held at most, those under way to the collector among them.
const QUEUED: usize = 2048;
/// Spans of one client that may wait.
const OF_CLIENT: usize = QUEUED / 2;
/// Spans of one export at most.
const BATCH: usize = 512;
/// The attribute of a span by which its client is known. No collector gets it.
pub(crate) const CLIENT: &str = "portcullis.client";

/// Spans that wait. What finds no room is counted as lost.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Tells that a batch is full.
    filled: Notify,
    exported: Counter,
    lost: Counter,
}

#[derive(Debug, Default)]
struct State {
    /// Each with its client.
    waiting: Vec<(StringValue, SpanData)>,
    /// The number of each client's among them.
    clients: HashMap<StringValue, usize>,
    /// Spans that are under way to the collector.
    exporting: usize,
    closed: bool,
}

/// Hands spans that have ended to the queue.
#[derive(Debug)]
pub(super) struct Processor(pub(super) Arc<Queue>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: &'static str,
}

impl Queue {
    /// Makes an empty queue, which counts in `metrics`.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let spans = Family::<Labels, Counter>::default();
        metrics.register("telemetry_spans", "Spans for the collector, by what became of them", spans.clone());
        let [exported, lost] = ["exported", "lost"].map(|result| spans.get_or_create_owned(&Labels { result }));
        Self { state: Mutex::default(), filled: Notify::new(), exported, lost }
    }

    fn put(&self, mut span: SpanData) {
        let client = take_client(&mut span);
        let mut state = self.state();
        let has_share = state.clients.get(&client).is_none_or(|waiting| *waiting < OF_CLIENT);
        if state.closed || !has_share || state.waiting.len() + state.exporting >= QUEUED {
            drop(state);
            self.lost.inc();
            return;
        }
        *state.clients.entry(client.clone()).or_default() += 1;
        state.waiting.push((client, span));
        let is_full = state.waiting.len() >= BATCH;
        drop(state);
        if is_full {
            self.filled.notify_one();
        }
    }

    /// Waits until a batch is full, for `delay` at most, and takes what there is of it. With it comes whether it is the
    /// last: there are no more after `ending`.
    pub(super) async fn batch(&self, delay: Duration, ending: &CancellationToken) -> (Vec<SpanData>, bool) {
        tokio::select! {
            () = self.filled.notified() => {}
            () = sleep(delay) => {}
            () = ending.cancelled() => {}
        }
        let mut state = self.state();
        let State { waiting, clients, exporting, closed } = &mut *state;
        let mut batch = Vec::with_capacity(waiting.len().min(BATCH));
        for (client, span) in waiting.drain(..waiting.len().min(BATCH)) {
            batch.push(span);
            if let Entry::Occupied(mut held) = clients.entry(client) {
                *held.get_mut() -= 1;
                if *held.get() == 0 {
                    held.remove();
                }
            }
        }
        *exporting = batch.len();
        *closed = ending.is_cancelled() && waiting.is_empty();
        let (is_last, is_full) = (*closed, waiting.len() >= BATCH);
        drop(state);
        if is_full {
            self.filled.notify_one();
        }
        (batch, is_last)
    }

    /// The batch is no more: the collector has taken all of it but for those that are lost.
    pub(super) fn done(&self, lost: usize) {
        let batch = std::mem::take(&mut self.state().exporting);
        self.lost.inc_by(lost as u64);
        self.exported.inc_by(batch.saturating_sub(lost) as u64);
    }

    /// Counts all that are left as lost, and returns their number.
    pub(super) fn lose_rest(&self) -> usize {
        let mut state = self.state();
        let left = std::mem::take(&mut state.waiting).len() + std::mem::take(&mut state.exporting);
        state.closed = true;
        drop(state);
        self.lost.inc_by(left as u64);
        left
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the client from a span.
fn take_client(span: &mut SpanData) -> StringValue {
    let at = span.attributes.iter().position(|attribute| attribute.key.as_str() == CLIENT);
    match at.map(|at| span.attributes.remove(at).value) {
        Some(Value::String(client)) => client,
        _ => "".into(),
    }
}

impl SpanProcessor for Processor {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.0.put(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _time: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::KeyValue;
    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    #[tokio::test]
    async fn a_client_leaves_places_in_the_queue_to_others() {
        let queue = Arc::new(Queue::new(&Metrics::default()));
        let provider = SdkTracerProvider::builder().with_span_processor(Processor(Arc::clone(&queue))).build();
        let tracer = provider.tracer("t");
        let end = |client: &'static str, count: usize| {
            for _ in 0..count {
                drop(tracer.span_builder("s").with_attributes([KeyValue::new(CLIENT, client)]).start(&tracer));
            }
        };
        end("a", QUEUED);
        assert_eq!(queue.lost.get(), (QUEUED - OF_CLIENT) as u64);
        end("b", OF_CLIENT);
        assert_eq!(queue.lost.get(), (QUEUED - OF_CLIENT) as u64);
        end("c", 1);
        assert_eq!(queue.lost.get(), (QUEUED - OF_CLIENT) as u64 + 1, "no place is left");
        // Spans in flight still take room in the queue, and no client's share.
        let (batch, is_last) = queue.batch(Duration::ZERO, &CancellationToken::new()).await;
        assert_eq!((batch.len(), is_last), (BATCH, false));
        assert!(batch.iter().all(|span| span.attributes.is_empty()), "the collector is not told");
        end("a", 1);
        assert_eq!(queue.lost.get(), (QUEUED - OF_CLIENT) as u64 + 2);
        queue.done(2);
        end("a", 1);
        assert_eq!((queue.exported.get(), queue.lost.get()), (BATCH as u64 - 2, (QUEUED - OF_CLIENT) as u64 + 4));
        assert_eq!(queue.lose_rest(), QUEUED - BATCH + 1);
    }

    #[tokio::test]
    async fn the_last_batch_closes_the_queue() {
        let queue = Arc::new(Queue::new(&Metrics::default()));
        let provider = SdkTracerProvider::builder().with_span_processor(Processor(Arc::clone(&queue))).build();
        let tracer = provider.tracer("t");
        let end = |count: usize| (0..count).for_each(|_| drop(tracer.span_builder("s").start(&tracer)));
        let ending = CancellationToken::new();
        end(BATCH + 1);
        ending.cancel();
        for expected in [(BATCH, false), (1, true)] {
            let (batch, is_last) = queue.batch(Duration::from_hours(1), &ending).await;
            assert_eq!((batch.len(), is_last), expected);
            queue.done(0);
        }
        end(1);
        assert_eq!((queue.exported.get(), queue.lost.get()), (BATCH as u64 + 1, 1));
    }
}
