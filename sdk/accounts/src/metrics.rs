//! Metrics of the tokens under which controllers act.

use std::borrow::Cow;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use portcullis_metrics::{Families, Labels, label};

/// Of all controllers.
#[derive(Default)]
pub(crate) struct TokenFamilies {
    requests: Family<Labels, Counter>,
    held: Family<Labels, Gauge>,
}

/// The handles of one controller.
#[derive(Clone, Debug)]
pub(crate) struct TokenMetrics {
    issued: Counter,
    failed: Counter,
    held: Gauge,
}

impl Families for TokenFamilies {
    fn register(&self, registry: &mut Registry) {
        let help = "Requests for a token of a controller's ServiceAccount, by outcome";
        registry.register("token_requests", help, self.requests.clone());
        registry.register("token_held", "Whether a controller has a token to act with", self.held.clone());
    }
}

impl TokenFamilies {
    pub(crate) fn of(&self, controller: &str) -> TokenMetrics {
        let requests = |outcome: &'static str| {
            let labels = vec![("controller", Cow::Owned(controller.to_owned())), ("outcome", Cow::Borrowed(outcome))];
            self.requests.get_or_create_owned(&labels)
        };
        TokenMetrics {
            issued: requests("issued"),
            failed: requests("failed"),
            held: self.held.get_or_create_owned(&label("controller", controller)),
        }
    }
}

impl TokenMetrics {
    /// A request was answered with a token, or was not.
    pub(crate) fn asked(&self, issued: bool) {
        if issued { &self.issued } else { &self.failed }.inc();
    }

    /// Whether the controller has a token.
    pub(crate) fn held(&self, held: bool) {
        self.held.set(i64::from(held));
    }
}
