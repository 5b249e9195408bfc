//! Reads the metrics of the SDK: for their export, and for `/metrics` with the labels and names that OpenTelemetry's exporters for Prometheus
//! give them.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, HistogramDataPoint, Metric, MetricData, ResourceMetrics, SumDataPoint,
};
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, Temporality};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;

/// Reads the metrics of an SDK whenever it is asked. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader(Arc<ManualReader>);

type Labels = Vec<(String, String)>;

impl MetricReader for Reader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

impl Collector for Reader {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut metrics = ResourceMetrics::default();
        // An SDK that has been shut down has nothing to tell any more.
        if self.0.collect(&mut metrics).is_err() {
            return Ok(());
        }
        let resource = distinct(metrics.resource().iter().map(|(key, value)| label(key.as_str(), &value.as_str())));
        encoder.encode_descriptor("target", "Target metadata", None, MetricType::Info)?.encode_info(&resource)?;
        for scope in metrics.scope_metrics() {
            for metric in scope.metrics() {
                encode(&mut encoder, scope.scope(), metric)?;
            }
        }
        Ok(())
    }
}

/// Encodes a metric of one of the kinds that the instruments have.
fn encode(encoder: &mut DescriptorEncoder<'_>, scope: &InstrumentationScope, metric: &Metric) -> fmt::Result {
    let (name, unit) = (sanitized(metric.name()), (metric.unit() == "s").then_some(Unit::Seconds));
    let kind = match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(_)) => MetricType::Counter,
        AggregatedMetrics::I64(MetricData::Sum(_)) => MetricType::Gauge,
        AggregatedMetrics::F64(MetricData::Histogram(_)) => MetricType::Histogram,
        _ => return Ok(()),
    };
    let mut encoder = encoder.encode_descriptor(&name, metric.description(), unit.as_ref(), kind)?;
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            for (labels, point) in sorted(scope, sum.data_points(), SumDataPoint::attributes) {
                let mut encoder = encoder.encode_family(&labels)?;
                encoder.encode_counter(&point.value(), None::<&Exemplar<NoLabelSet, f64>>)?;
            }
        }
        AggregatedMetrics::I64(MetricData::Sum(sum)) => {
            for (labels, point) in sorted(scope, sum.data_points(), SumDataPoint::attributes) {
                encoder.encode_family(&labels)?.encode_gauge(&point.value())?;
            }
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            for (labels, point) in sorted(scope, histogram.data_points(), HistogramDataPoint::attributes) {
                let bounds = point.bounds().chain([f64::INFINITY]);
                let buckets: Vec<_> = bounds.zip(point.bucket_counts()).collect();
                let mut encoder = encoder.encode_family(&labels)?;
                encoder.encode_histogram::<NoLabelSet>(point.sum(), point.count(), &buckets, None)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The points in the order of their labels, which are sorted too.
fn sorted<'a, P, A: Iterator<Item = &'a KeyValue>>(
    scope: &InstrumentationScope,
    points: impl Iterator<Item = &'a P>,
    attributes: impl Fn(&'a P) -> A,
) -> Vec<(Labels, &'a P)> {
    let of_scope = [
        ("otel_scope_name", scope.name()),
        ("otel_scope_schema_url", scope.schema_url().unwrap_or_default()),
        ("otel_scope_version", scope.version().unwrap_or_default()),
    ];
    let mut points: Vec<(Labels, &P)> = points
        .map(|point| {
            let own = attributes(point).map(|KeyValue { key, value, .. }| label(key.as_str(), &value.as_str()));
            let mut labels: Labels =
                own.chain(of_scope.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
            labels.sort_unstable();
            (labels, point)
        })
        .collect();
    points.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
    points
}

/// The labels in order, each name once: a scraper takes nothing of a report in which one stands twice. As OpenTelemetry's exporters do it, the
/// values of names that become the same are in one label.
fn distinct(labels: impl Iterator<Item = (String, String)>) -> Labels {
    let mut labels: Labels = labels.collect();
    labels.sort_unstable();
    labels.dedup_by(|(later, value), (name, values)| {
        let is_same = later == name;
        if is_same {
            values.push(';');
            values.push_str(value);
        }
        is_same
    });
    labels
}

fn label(name: &str, value: &str) -> (String, String) {
    (sanitized(name), value.to_owned())
}

/// A name with the characters that names of Prometheus may have, and none of its digits first.
fn sanitized(name: &str) -> String {
    let prefix = if name.starts_with(|c: char| c.is_ascii_digit()) { "key_" } else { "" };
    let rest = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' });
    prefix.chars().chain(rest).collect()
}
