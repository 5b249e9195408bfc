//! One conversion review, from its body to its answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use portcullis_convert::{ConvertError, Converted, Engine, Review};
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::debug_span;
use tracing::field::{Empty, display};

use super::Settings;
use super::pool::{Pool, Stopped, Waiting, in_order};
use super::record::Records;
use crate::memory::Memory;
use crate::rejected::Rejected;
use crate::routes::{Budget, Call, Endpoint, HttpError, RouteLimits};
use portcullis_metrics::Metrics;

/// The API server waits this long for conversions, always.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Reviews of one kind under way at the same time. Reading a single object is a review, too.
const CONCURRENT: usize = 256;
/// Reviews that are estimated to take no longer than this are answered on the thread that read them; it answers
/// no other call meanwhile.
const HERE: Duration = Duration::from_millis(1);
/// The time per KiB that is assumed before the first measurement.
const USUAL: Duration = Duration::from_micros(4);

/// The state that the conversions of all kinds share.
#[derive(Clone)]
pub(super) struct Shared {
    pool: Pool,
    bodies: Budget,
    /// The limit of one body in bytes.
    largest: usize,
}

impl Shared {
    /// `largest` is the most that one body may have as far as kinds say.
    pub(super) fn new(largest: usize, memory: Memory) -> Self {
        let largest = largest.min(memory.largest);
        // A body of the largest size must fit when there is no other.
        Self { pool: Pool::new(), bodies: Budget::of(memory.conversion.max(largest)), largest }
    }
}

/// The conversion of one kind at its path.
pub(super) struct ConversionCalls {
    body: usize,
    work: Arc<Work>,
    shared: Shared,
}

/// The part of a conversion that any thread can run.
struct Work {
    name: String,
    engine: Engine,
    strict: bool,
    records: Records,
    pace: Pace,
}

/// An object that fails its review.
struct Unconverted {
    /// The version it is in, as far as that is known.
    from: String,
    /// The problem.
    problem: String,
    /// The converter's error, for the log alone.
    error: Option<String>,
    /// Whether the review is part of a write that would lose data.
    refused: bool,
}

/// Time per KiB of a review, in nanoseconds, averaged over the last few: converters are the user's, and may be slow.
struct Pace(AtomicU64);

impl Pace {
    fn expect(&self, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Duration::from_nanos(self.0.load(Ordering::Relaxed).saturating_mul(bytes) / 1024)
    }

    fn learn(&self, bytes: usize, took: Duration) {
        let measured = took.as_nanos().saturating_mul(1024) / (bytes.max(1) as u128);
        let measured = u64::try_from(measured).unwrap_or(u64::MAX);
        // A lost update loses one measurement.
        let known = self.0.load(Ordering::Relaxed);
        self.0.store((known - known / 8).saturating_add(measured / 8), Ordering::Relaxed);
    }
}

impl ConversionCalls {
    pub(super) fn new(engine: Engine, settings: &Settings, metrics: &Metrics, shared: Shared) -> Self {
        let Settings { name, body, strict, .. } = settings;
        let records = Records::new(&engine, metrics);
        let pace = Pace(AtomicU64::new(u64::try_from(USUAL.as_nanos()).unwrap_or(u64::MAX)));
        let work = Work { name: name.clone(), engine, strict: *strict, records, pace };
        Self { body: (*body).min(shared.largest), work: Arc::new(work), shared }
    }

    /// A small review, on this thread.
    fn here(&self, body: &[u8], call: Call) -> Result<Bytes, HttpError> {
        let halt = || call.deadline <= Instant::now();
        let answer = AssertUnwindSafe(|| self.work.answer(body, call, 1, &halt));
        std::panic::catch_unwind(answer).unwrap_or_else(|_| Err(crashed()))
    }

    /// A large review, on threads that may be busy for a while.
    async fn aside(&self, body: Bytes, call: Call) -> Result<Bytes, HttpError> {
        let Some(threads) = self.shared.pool.threads(call.deadline).await else { return Err(late(call)) };
        let (waiting, work) = (Waiting::default(), Arc::clone(&self.work));
        let gone = waiting.gone();
        let answer = spawn_blocking(move || {
            let halt = || gone() || call.deadline <= Instant::now();
            work.answer(&body, call, threads.num_permits(), &halt)
        });
        answer.await.unwrap_or_else(|_| Err(crashed()))
    }
}

impl Endpoint for ConversionCalls {
    fn limits(&self) -> RouteLimits {
        RouteLimits { body: self.body, timeout: TIMEOUT, concurrent: CONCURRENT, budget: self.shared.bodies.clone() }
    }

    fn answer(&self, body: Bytes, call: Call) -> BoxFuture<'_, Result<Bytes, HttpError>> {
        async move {
            if self.work.pace.expect(body.len()) <= HERE {
                self.here(&body, call)
            } else {
                self.aside(body, call).await
            }
        }
        .boxed()
    }
}

impl Work {
    /// The answer to a review. A bad object is an error only where [`super::Convert::fail_on_bad_objects`] says so.
    fn answer(
        &self,
        body: &[u8],
        call: Call,
        threads: usize,
        halt: &(impl Fn() -> bool + Sync),
    ) -> Result<Bytes, HttpError> {
        let review = Review::parse(body).map_err(|error| HttpError::malformed(error.to_string()))?;
        // Debug, as for admission.
        let span = debug_span!("review", webhook = self.name, uid = &*review.uid, trace = Empty);
        if let Some(trace) = call.trace {
            span.record("trace", display(trace));
        }
        let desired = &*review.desired_api_version;
        let to = desired.rsplit('/').next().unwrap_or_default();
        let begin = Instant::now();
        // Converters may log, on whatever thread.
        let convert = |object: &&RawValue| span.in_scope(|| self.convert(object, desired));
        let result = in_order(&review.objects, threads, halt, &convert);
        let used = u32::try_from(threads).unwrap_or(u32::MAX);
        self.pace.learn(body.len(), begin.elapsed().saturating_mul(used));
        let took = call.began.elapsed();
        let _entered = span.enter();
        match result {
            Ok(converted) => {
                self.records.converted(to, &converted, threads, took);
                Ok(review.success(&converted).into())
            }
            Err(Stopped::At(_, Unconverted { from, problem, refused: true, .. })) => {
                self.records.refused(&from, to, &problem, took);
                Ok(review.failure(&problem).into())
            }
            Err(Stopped::At(index, Unconverted { from, problem, error, .. })) => {
                let problem = format!("object {index} of {}: {problem}", review.objects.len());
                self.records.failed(&from, to, &problem, error.as_deref(), took);
                Ok(review.failure(&problem).into())
            }
            Err(Stopped::Halted) => Err(late(call)),
        }
    }

    /// One object, or the reason why there is none.
    fn convert(&self, object: &RawValue, desired: &str) -> Result<Converted, Unconverted> {
        let unanswered = |error: ConvertError| {
            let problem = error.to_string();
            let (from, refused) = match error {
                ConvertError::LeftOut { from, .. } | ConvertError::NoRoom { from, .. } => (from, true),
                _ => (String::new(), false),
            };
            Unconverted { from, problem, error: None, refused }
        };
        let converted = self.engine.convert(object, desired).map_err(unanswered)?;
        match &converted.problem {
            Some(problem) if self.strict && !converted.partial => {
                let Converted { from, namespace, name, .. } = &converted;
                let place = if namespace.is_empty() { "" } else { "/" };
                let said = format!("{namespace}{place}{name} cannot be converted from {from}: {problem}");
                Err(Unconverted { from: from.clone(), problem: said, error: problem.error.clone(), refused: false })
            }
            _ => Ok(converted),
        }
    }
}

fn late(call: Call) -> HttpError {
    let waited: Duration = call.deadline - call.began;
    HttpError::failed(Rejected::Timeout, format!("conversion did not finish within {} ms", waited.as_millis()))
}

/// The panic hook has printed the message, which may contain secrets.
fn crashed() -> HttpError {
    HttpError::failed(Rejected::Panic, "conversion failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_converters_do_not_run_on_the_serving_threads() {
        let pace = Pace(AtomicU64::new(4_000));
        assert_eq!(pace.expect(10 * 1024), Duration::from_micros(40));
        assert!(pace.expect(512 * 1024) > HERE);
        pace.learn(1024, Duration::from_millis(100));
        assert!(pace.expect(1024) > HERE);
        // A single slow review, on a busy machine, does not count.
        for _ in 0..40 {
            pace.learn(1024, Duration::from_micros(4));
        }
        assert!(pace.expect(10 * 1024) < HERE);
    }

    #[test]
    fn the_largest_review_fits_into_the_memory_of_all() {
        let memory = Memory::of(None);
        let fits = |largest: usize, bytes: usize| Shared::new(largest, memory).bodies.share().grow(bytes);
        let all = memory.conversion;
        assert!(fits(1, all) && !fits(1, all + 1));
        assert!(fits(2 * all, 2 * all) && !fits(2 * all, 2 * all + 1));
        // A limited process limits its reviews, too.
        let memory = Memory::of(Some(128 << 20));
        let shared = Shared::new(128 << 20, memory);
        assert_eq!((shared.largest, shared.bodies.share().grow(memory.conversion + 1)), (memory.conversion, false));
    }
}
