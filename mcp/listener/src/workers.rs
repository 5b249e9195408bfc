//! Threads that each serve their share of the connections.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

/// Number of connections that a thread gets before the next one gets any. One thread takes what several connections have for
/// it in one go; the same calls over two threads cost half as much again.
const FILL: usize = 16;

/// Threads that each run a single-threaded runtime. A connection stays on its thread, since waking another thread costs
/// more than a proxy's work for a request. Dropping this stops the threads and aborts their tasks.
#[derive(Debug)]
pub struct Workers {
    /// The runtime that started the others is the first.
    workers: Vec<Worker>,
    _end: DropGuard,
}

/// One thread, and a reference for each of its connections.
#[derive(Debug)]
struct Worker {
    /// `None` for the runtime that accepts connections.
    runtime: Option<Handle>,
    load: Arc<()>,
}

impl Worker {
    fn connections(&self) -> usize {
        Arc::strong_count(&self.load) - 1
    }
}

impl Workers {
    /// Starts `count` threads, counting the calling one, whose runtime should be single-threaded too.
    ///
    /// # Errors
    /// When the operating system cannot start a thread.
    pub fn start(count: usize) -> io::Result<Self> {
        let end = CancellationToken::new();
        let mut workers = vec![Worker { runtime: None, load: Arc::default() }];
        for number in 1..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            workers.push(Worker { runtime: Some(runtime.handle().clone()), load: Arc::default() });
            let end = end.clone();
            thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                runtime.block_on(end.cancelled());
                runtime.shutdown_background();
            })?;
        }
        Ok(Self { workers, _end: end.drop_guard() })
    }

    /// The first thread with few connections, else the one with the fewest.
    fn choose(&self) -> Option<&Worker> {
        let few = self.workers.iter().find(|worker| worker.connections() < FILL);
        few.or_else(|| self.workers.iter().min_by_key(|worker| worker.connections()))
    }

    /// Spawns `serve` on one of the threads, where `stream` then belongs.
    pub(crate) fn spawn<F>(
        &self,
        tasks: &mut JoinSet<F::Output>,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) where
        F: Future<Output: Default + Send> + Send + 'static,
    {
        let Some(worker) = self.choose() else { return };
        let load = Arc::clone(&worker.load);
        let Some(runtime) = &worker.runtime else {
            tasks.spawn(async move {
                let done = serve(stream).await;
                drop(load);
                done
            });
            return;
        };
        // Its readiness is told by the runtime that it is registered with.
        let moved = stream.into_std();
        let serving = async move {
            let done = match moved.and_then(TcpStream::from_std) {
                Ok(stream) => serve(stream).await,
                Err(error) => {
                    warn!(%error, "cannot move a connection to another thread");
                    F::Output::default()
                }
            };
            drop(load);
            done
        };
        tasks.spawn_on(serving, runtime);
    }
}
