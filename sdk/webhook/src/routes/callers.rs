//! Who may have admission reviews answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::request::Parts;
use tokio::time::Instant;
use tracing::warn;

use portcullis_listener::ClientCertificate;

/// Interval between log lines about callers without a certificate, who can call often.
const SAID: Duration = Duration::from_mins(1);

/// Everybody, or only those that showed a certificate.
#[derive(Clone, Default)]
pub(super) struct Callers(Option<Arc<Demand>>);

/// A certificate is demanded; when a call without one was told last.
#[derive(Default)]
struct Demand(Mutex<Option<Instant>>);

impl Callers {
    pub(super) fn demanding() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether this request is answered.
    pub(super) fn admits(&self, head: &Parts) -> bool {
        let Some(Demand(said)) = self.0.as_deref() else { return true };
        if head.extensions.get::<ClientCertificate>().is_some() {
            return true;
        }
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= SAID) {
            *said = Some(Instant::now());
            warn!(
                path = head.uri.path(),
                "a call without a client certificate is refused (401); if it was the API server's, give it one: \
                 --admission-control-config-file with a kubeConfigFile"
            );
        }
        false
    }
}
