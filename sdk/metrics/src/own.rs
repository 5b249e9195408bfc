//! Metrics of an application.

use std::collections::BTreeSet;

use prometheus_client::registry::{Metric, Registry};

/// A metric name that cannot be used. Choose another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetricNameError {
    /// The name is not valid in Prometheus.
    #[error("{0:?} cannot name a metric: use letters, digits and '_', and begin with a letter")]
    Malformed(String),
    /// The prefix `portcullis_` is reserved for metrics of this library.
    #[error("metric {0} begins with portcullis_, as the metrics of this library do: begin with your operator's name")]
    Reserved(String),
    /// Another metric has the same name; Prometheus would reject the whole scrape.
    #[error("two metrics are named {0}: give one of them another name, or a label that tells them apart")]
    Taken(String),
}

/// Metrics of an application, collected before there is a [`Metrics`](crate::Metrics).
#[derive(Debug, Default)]
pub struct CustomMetrics {
    names: BTreeSet<String>,
    pub(super) registries: Vec<Registry>,
}

impl CustomMetrics {
    /// Registers a metric.
    ///
    /// # Errors
    /// When the name is not a valid metric name, begins with `portcullis_`, or is taken.
    pub fn register(&mut self, name: &str, help: &str, metric: impl Metric) -> Result<(), MetricNameError> {
        self.take(name)?;
        if self.registries.is_empty() {
            self.registries.push(Registry::default());
        }
        if let Some(registry) = self.registries.first_mut() {
            registry.register(name, help, metric);
        }
        Ok(())
    }

    /// Adds the metrics of another collection.
    pub(super) fn adopt(&mut self, others: Self) -> Result<(), MetricNameError> {
        let Self { names, registries } = others;
        for name in names {
            self.take(&name)?;
        }
        self.registries.extend(registries);
        Ok(())
    }

    fn take(&mut self, name: &str) -> Result<(), MetricNameError> {
        let fits = |at: usize, c: char| c.is_ascii_alphabetic() || c == '_' || (at > 0 && c.is_ascii_digit());
        if name.is_empty() || !name.char_indices().all(|(at, c)| fits(at, c)) {
            return Err(MetricNameError::Malformed(name.to_owned()));
        }
        if name.starts_with("portcullis_") {
            return Err(MetricNameError::Reserved(name.to_owned()));
        }
        if !self.names.insert(name.to_owned()) {
            return Err(MetricNameError::Taken(name.to_owned()));
        }
        Ok(())
    }
}
