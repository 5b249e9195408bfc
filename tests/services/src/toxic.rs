//! A TCP relay that does to connections what networks do.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// An answer in a protocol that the client did not ask for.
const GARBAGE: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";

/// Something that goes wrong between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: bytes pass.
    None,
    /// Connections stay open and are accepted, and their bytes vanish, as when the other end is gone without a word. A
    /// connection that has lost bytes stays so when the fault is over.
    Silent,
    /// Each piece of an answer comes this much later.
    Slow(Duration),
    /// Each piece of an answer is replaced by one of another protocol.
    Garbage,
    /// Connections are closed, the open ones and each new one.
    Closed,
}

/// A relay before one TCP server. Dropping it closes its connections and its port.
#[derive(Debug)]
pub struct Toxic {
    address: SocketAddr,
    target: Arc<Mutex<String>>,
    fault: watch::Sender<Fault>,
    cut: Arc<Notify>,
    accepted: Arc<AtomicUsize>,
    relay: JoinHandle<()>,
}

impl Toxic {
    /// Relays connections on a port of its own, on loopback, to the host and port in `target`.
    pub async fn before(target: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (fault, faults) = watch::channel(Fault::None);
        let (cut, accepted) = (Arc::<Notify>::default(), Arc::<AtomicUsize>::default());
        let target = Arc::new(Mutex::new(target.to_owned()));
        let relay = accept(listener, Arc::clone(&target), faults, Arc::clone(&cut), Arc::clone(&accepted));
        Ok(Self { address, target, fault, cut, accepted, relay: tokio::spawn(relay) })
    }

    /// Its host and port, for clients.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Lets this go wrong from now on.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Leads new connections to the host and port in `target`, as a Service does whose pod is another one.
    pub fn lead_to(&self, target: &str) {
        target.clone_into(&mut self.target.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Closes the connections that are open.
    pub fn cut(&self) {
        self.cut.notify_waiters();
    }

    /// The connections that clients have made.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Toxic {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: Arc<Mutex<String>>,
    faults: watch::Receiver<Fault>,
    cut: Arc<Notify>,
    accepted: Arc<AtomicUsize>,
) {
    // They end with this task.
    let mut relays = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::Relaxed);
        while relays.try_join_next().is_some() {}
        let target = target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut closed, faults, cut) = (faults.clone(), faults.clone(), Arc::clone(&cut));
        relays.spawn(async move {
            tokio::select! {
                _ = closed.wait_for(|fault| *fault == Fault::Closed) => {}
                () = cut.notified() => {}
                _ = relay(client, &target, faults) => {}
            }
        });
    }
}

/// Relays one connection until one of its ends closes it.
async fn relay(client: TcpStream, target: &str, faults: watch::Receiver<Fault>) -> std::io::Result<()> {
    let server = TcpStream::connect(target).await?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let lost = Arc::<AtomicBool>::default();
    let requests = Pump { is_answer: false, faults: faults.clone(), lost: Arc::clone(&lost) };
    let answers = Pump { is_answer: true, faults, lost };
    tokio::select! {
        ended = requests.run(from_client, to_server) => ended,
        ended = answers.run(from_server, to_client) => ended,
    }
}

/// One direction of a connection.
struct Pump {
    is_answer: bool,
    faults: watch::Receiver<Fault>,
    /// Whether bytes of the connection have vanished.
    lost: Arc<AtomicBool>,
}

impl Pump {
    async fn run(self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = from.read(&mut buffer).await?;
            let fault = *self.faults.borrow();
            if fault == Fault::Silent {
                self.lost.store(true, Ordering::Relaxed);
            }
            let lost = self.lost.load(Ordering::Relaxed);
            if length == 0 {
                // The client does not notice that the server has gone.
                return if lost && self.is_answer { pending().await } else { Ok(()) };
            }
            if lost {
                continue;
            }
            match fault {
                Fault::Slow(by) if self.is_answer => sleep(by).await,
                Fault::Garbage if self.is_answer => {
                    to.write_all(GARBAGE).await?;
                    continue;
                }
                _ => {}
            }
            to.write_all(&buffer[..length]).await?;
        }
    }
}
