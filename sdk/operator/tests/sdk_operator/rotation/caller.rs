//! A caller that makes a handshake for each call, and takes up what is published as late as it likes: the second API
//! server of a cluster, which may be behind, or one that is not.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis::certificates::probe;
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep};

const EVERY: Duration = Duration::from_millis(20);

#[derive(Clone, Default)]
pub(crate) struct Caller {
    handshakes: Arc<AtomicUsize>,
    refused: Arc<Mutex<Vec<String>>>,
}

/// The calls of one caller.
pub(crate) struct Calls {
    pub(crate) address: SocketAddr,
    pub(crate) server_name: String,
    /// Its delay in learning of a new bundle.
    pub(crate) lag: Duration,
    /// The delay from which no call is guaranteed to succeed. A busy machine may exceed it.
    pub(crate) settle: Duration,
    /// Held for reading by each call under way.
    pub(crate) gate: Arc<RwLock<()>>,
}

impl Caller {
    /// Calls until the test ends, and trusts what `published` said a while ago.
    pub(crate) fn start<R>(calls: Calls, published: impl Fn() -> R + Send + 'static) -> Self
    where
        R: Future<Output = Option<String>> + Send,
    {
        let caller = Self::default();
        let Self { handshakes, refused } = caller.clone();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let Calls { address, server_name, lag, settle, gate } = calls;
        tokio::spawn(async move {
            let mut bundles = VecDeque::new();
            loop {
                let asked = Instant::now();
                // The cluster ends with the test.
                let Some(bundle) = published().await else { return };
                bundles.push_back((asked, bundle));
                while bundles.get(1).is_some_and(|(asked, _): &(Instant, String)| asked.elapsed() >= lag) {
                    bundles.pop_front();
                }
                let open = gate.read().await;
                let (asked, bundle) = &bundles[0];
                let error = probe(Arc::clone(&provider), address, &server_name, bundle).await.err();
                if let Some(error) = error.filter(|_| asked.elapsed() < settle) {
                    refused.lock().unwrap().push(format!("{address}, {lag:?} late: {error}"));
                }
                drop(open);
                handshakes.fetch_add(1, Ordering::Relaxed);
                sleep(EVERY).await;
            }
        });
        caller
    }

    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed)
    }

    /// Handshakes that failed since the last time.
    pub(crate) fn refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.refused.lock().unwrap())
    }
}
