//! The task that exports.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use prost::Message;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::collector::Collector;
use super::queue::Queue;
use super::report::SignalReport;
use super::signal::Signal;
use crate::reader::Reader;

/// The time for which spans are sent again that were not taken.
const RETRIED: Duration = Duration::from_mins(1);

/// The way to the collector for one kind of telemetry.
pub(super) struct Link {
    pub(super) collector: Arc<Collector>,
    pub(super) ending: CancellationToken,
    pub(super) report: SignalReport,
    /// The time between two exports.
    pub(super) delay: Duration,
}

/// Exports spans until the last.
pub(super) async fn export_spans(queue: &Queue, mut link: Link, resource: &Resource) {
    let resource = resource.into();
    loop {
        let (batch, is_last) = queue.batch(link.delay, &link.ending).await;
        if !batch.is_empty() {
            let count = batch.len();
            let request =
                ExportTraceServiceRequest { resource_spans: group_spans_by_resource_and_scope(batch, &resource) };
            queue.done(link.deliver(count, request.encode_to_vec().into()).await);
        }
        if is_last {
            return;
        }
    }
}

/// Exports metrics until the end, and once more then.
pub(super) async fn export_metrics(reader: &Reader, mut link: Link) {
    loop {
        let _ = link.ending.run_until_cancelled(sleep(link.delay)).await;
        let is_last = link.ending.is_cancelled();
        let mut metrics = ResourceMetrics::default();
        if reader.collect(&mut metrics).is_ok() && metrics.scope_metrics().next().is_some() {
            let request = ExportMetricsServiceRequest::from(&metrics);
            // Metrics that are not accepted are in the next export, as all are cumulative.
            match link.collector.send(Signal::Metrics, request.encode_to_vec().into()).await {
                Ok(answer) => link.taken(rejected_points(answer)),
                Err(failure) => link.report.failed(&failure.problem),
            }
        }
        if is_last {
            return;
        }
    }
}

impl Link {
    /// Sends so many spans, again while they may still be taken; returns how many are lost.
    async fn deliver(&mut self, count: usize, message: Bytes) -> usize {
        let started = Instant::now();
        loop {
            let was_last = self.ending.is_cancelled();
            match self.collector.send(Signal::Traces, message.clone()).await {
                Ok(answer) => {
                    let rejected = rejected_spans(answer);
                    self.taken(rejected);
                    return rejected.min(count);
                }
                Err(failure) => {
                    self.report.failed(&failure.problem);
                    if !failure.is_temporary || was_last || started.elapsed() >= RETRIED {
                        return count;
                    }
                }
            }
            let _ = self.ending.run_until_cancelled(sleep(self.delay)).await;
        }
    }

    fn taken(&mut self, rejected: usize) {
        match rejected {
            0 => self.report.succeeded(),
            rejected => self.report.failed(&format!("the collector rejected {rejected} of them")),
        }
    }
}

fn rejected_spans(answer: Bytes) -> usize {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    answer.partial_success.map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0))
}

fn rejected_points(answer: Bytes) -> usize {
    let answer = ExportMetricsServiceResponse::decode(answer).unwrap_or_default();
    answer.partial_success.map_or(0, |partial| usize::try_from(partial.rejected_data_points).unwrap_or(0))
}
