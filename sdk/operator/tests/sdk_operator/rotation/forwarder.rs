//! A stand-in for a Service: one address, which forwards to the ready replicas in turn.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use portcullis_testing::wait_until;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::PATIENCE;

/// Connections to an endpoint that are open now.
type Open = Arc<AtomicUsize>;

#[derive(Clone, Default)]
pub(crate) struct Forwarder {
    endpoints: Arc<Mutex<Vec<(SocketAddr, Open)>>>,
    turn: Arc<AtomicUsize>,
    /// Connections since the start: each begins with a handshake.
    pub(crate) accepted: Arc<AtomicUsize>,
}

impl Forwarder {
    /// Listens on a free port until the test ends.
    pub(crate) async fn start() -> (Self, u16) {
        let forwarder = Self::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = forwarder.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                serving.accepted.fetch_add(1, Ordering::Relaxed);
                let Some((address, open)) = serving.next() else { continue };
                tokio::spawn(async move {
                    open.fetch_add(1, Ordering::SeqCst);
                    if let Ok(mut upstream) = TcpStream::connect(address).await {
                        let _ = copy_bidirectional(&mut stream, &mut upstream).await;
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        (forwarder, port)
    }

    fn next(&self) -> Option<(SocketAddr, Open)> {
        let endpoints = self.endpoints.lock().unwrap();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        endpoints.get(turn.checked_rem(endpoints.len())?).cloned()
    }

    /// This replica is ready.
    pub(crate) fn add(&self, address: SocketAddr) {
        self.endpoints.lock().unwrap().push((address, Open::default()));
    }

    /// This replica is gone; returns when the API server has given up its connections to it.
    pub(crate) async fn remove(&self, address: SocketAddr) {
        let open = {
            let mut endpoints = self.endpoints.lock().unwrap();
            let at = endpoints.iter().position(|(endpoint, _)| *endpoint == address).unwrap();
            endpoints.remove(at).1
        };
        let closed = || async { (open.load(Ordering::SeqCst) == 0).then_some(()) };
        wait_until("the connections to be closed", PATIENCE, closed).await;
    }
}
