//! A caller that takes up what is published later than others, as the second API server of a cluster may.

use std::collections::VecDeque;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis::certificates::probe;
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep};

/// How late it is: less than a CA settles.
const LAG: Duration = Duration::from_millis(1800);
const EVERY: Duration = Duration::from_millis(20);

#[derive(Clone, Default)]
pub(crate) struct Laggard {
    pub(crate) handshakes: Arc<AtomicUsize>,
    pub(crate) refused: Arc<Mutex<Vec<String>>>,
}

impl Laggard {
    /// Makes handshakes until the test ends, under what `published` said a while ago.
    pub(crate) fn start<R>(
        port: u16,
        server_name: String,
        gate: Arc<RwLock<()>>,
        published: impl Fn() -> R + Send + 'static,
    ) -> Self
    where
        R: Future<Output = Option<String>> + Send,
    {
        let laggard = Self::default();
        let Self { handshakes, refused } = laggard.clone();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        tokio::spawn(async move {
            let mut bundles = VecDeque::new();
            // The cluster ends with the test.
            while let Some(bundle) = published().await {
                bundles.push_back((Instant::now(), bundle));
                while bundles.get(1).is_some_and(|(read, _): &(Instant, String)| read.elapsed() >= LAG) {
                    bundles.pop_front();
                }
                let open = gate.read().await;
                if let Err(error) = probe(Arc::clone(&provider), address, &server_name, &bundles[0].1).await {
                    refused.lock().unwrap().push(error.to_string());
                }
                drop(open);
                handshakes.fetch_add(1, Ordering::Relaxed);
                sleep(EVERY).await;
            }
        });
        laggard
    }
}
