//! The SDK behind spans and metrics, without exporters.

use mcp_middleware::{BuildContext, BuildError};
use mcp_runconfig::TelemetryConfig;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use crate::instruments::SCOPE;

/// Makes spans and metrics.
pub(crate) struct Pipeline {
    /// `None` without a collector for spans.
    pub(crate) tracer: Option<SdkTracer>,
    pub(crate) meters: SdkMeterProvider,
}

/// Starts the pipeline of a document; `scrape` reads its metrics.
#[expect(clippy::unused_async, reason = "exporters read files")]
pub(crate) async fn start<R: MetricReader>(
    config: &TelemetryConfig,
    _context: &BuildContext,
    scrape: Option<R>,
) -> Result<Pipeline, BuildError> {
    let attributes = config.custom_attributes.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    let resource =
        Resource::builder_empty().with_service_name(config.service_name.clone()).with_attributes(attributes).build();
    let tracer = (config.tracing_enabled && !config.endpoint.is_empty()).then(|| {
        let rate = config.sampling_rate.parse().unwrap_or(0.05);
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(rate)));
        SdkTracerProvider::builder().with_sampler(sampler).with_resource(resource.clone()).build().tracer(SCOPE)
    });
    let meters = SdkMeterProvider::builder().with_resource(resource);
    let meters = match scrape {
        Some(scrape) => meters.with_reader(scrape),
        None => meters,
    };
    Ok(Pipeline { tracer, meters: meters.build() })
}

impl Pipeline {
    /// Ends them.
    #[expect(clippy::unused_async, reason = "exporters write what they hold")]
    pub(crate) async fn close(&self) {
        let _ = self.meters.shutdown();
    }
}
