//! The few numbers that say how the proxy does.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http::StatusCode;
use mcp_listener::{Given, Places, Use};
use mcp_middleware::{Chain, Metrics as Registry};
use mcp_store::Bound;
use mcp_transport::Transport;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Code {
    code: String,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Name {
    bound: &'static str,
}

/// The counters of one process.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Answers by the first digit of their status.
    classes: [Counter; 5],
    /// Requests whose answer is not complete.
    pub(crate) in_flight: Gauge,
    /// Checks of the server that failed.
    pub(crate) failed_checks: Counter,
    misrouted: Family<Reason, Counter>,
    /// Headers of clients that were removed for the characters in their names.
    pub(crate) removed_headers: Counter,
    backend_up: Gauge,
    connections: Gauge,
    connections_at_work: Gauge,
    streams: Gauge,
    sessions: Gauge,
    bounds: Family<Name, Gauge<f64, AtomicU64>>,
    places: Places,
    /// The counts of what was given up, as the last report had them.
    given: [Counter; Given::ALL.len()],
}

impl Metrics {
    /// Counts in `registry`, from nothing; `places` are those of the listener.
    pub(crate) fn new(places: Places, registry: Registry) -> Self {
        let requests = Family::<Code, Counter>::default();
        let help = "Requests but for those of the proxy's own paths, by class of the answer's status";
        registry.register("requests", help, requests.clone());
        let classes = [1, 2, 3, 4, 5].map(|class| requests.get_or_create_owned(&Code { code: format!("{class}xx") }));
        let gauge = |name, help| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let in_flight = gauge("requests_in_flight", "Requests whose answer is not complete");
        let connections = gauge("connections", "Open connections");
        let connections_at_work =
            gauge("connections_at_work", "Connections with a request under way, streams included");
        let streams = gauge("streams", "Streams that clients have open to listen");
        let sessions = gauge("sessions", "Sessions that are remembered");
        let backend_up = gauge("backend_up", "1 while the MCP server answered its last check");
        let failed_checks = Counter::default();
        registry.register("backend_failed_checks", "Checks that the MCP server failed", failed_checks.clone());
        let misrouted = Family::<Reason, Counter>::default();
        let help = "Requests that were refused since guards judge messages and no MCP is served at their path or by their method";
        registry.register("requests_misrouted", help, misrouted.clone());
        let removed_headers = Counter::default();
        let help =
            "Headers of clients that were not forwarded: their names have other characters than letters, digits and -";
        registry.register("removed_headers", help, removed_headers.clone());
        let evictions = Family::<Kind, Counter>::default();
        registry.register(
            "evictions",
            "Connections that gave way to those of other clients, by kind",
            evictions.clone(),
        );
        let given = Given::ALL.map(|kind| evictions.get_or_create_owned(&Kind { kind: kind.as_str() }));
        let bounds = Family::<Name, Gauge<f64, AtomicU64>>::default();
        let help = "The part of a bound that clients share which is in use, from 0 to 1";
        registry.register("bound_used_ratio", help, bounds.clone());
        Self {
            registry,
            classes,
            in_flight,
            failed_checks,
            misrouted,
            removed_headers,
            backend_up,
            connections,
            connections_at_work,
            streams,
            sessions,
            bounds,
            places,
            given,
        }
    }

    pub(crate) fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.classes.get(class) {
            counter.inc();
        }
    }

    /// Counts a request that is for no endpoint.
    pub(crate) fn misrouted(&self, reason: &'static str) {
        self.misrouted.get_or_create(&Reason { reason }).inc();
    }

    /// The report of the proxy of `chain` and `backend`; `up` says whether the server answered its last check.
    pub(crate) fn report(&self, chain: &Chain, backend: &dyn Transport, up: bool) -> String {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let Use { open, at_work, streams } = self.places.usage();
        self.connections.set(number(open));
        self.connections_at_work.set(number(at_work));
        self.streams.set(number(streams));
        for (kind, counter) in Given::ALL.into_iter().zip(&self.given) {
            counter.inner().store(self.places.given(kind), Relaxed);
        }
        for Bound { name, used, limit } in chain.bounds().chain(backend.bounds()).chain([self.places.heads()]) {
            #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more")]
            self.bounds.get_or_create(&Name { bound: name }).set(used as f64 / limit as f64);
        }
        self.sessions.set(number(backend.sessions()));
        self.backend_up.set(up.into());
        self.registry.encode()
    }
}
