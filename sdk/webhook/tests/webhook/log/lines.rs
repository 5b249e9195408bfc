//! Log lines, for tests that read them.

use std::future::Future;
use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Subscriber, dispatcher};
use tracing_subscriber::fmt::MakeWriter;

/// Everything that a subscriber has written since it was last taken.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// As long as there are others, tracing asks every subscriber whether it wants a line. With a single one it asks the
/// thread that comes to the line first, and remembers for all threads when that thread has none.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::new())));

/// Runs a test whose subscriber gets what all threads of its runtime log, and nothing that other tests do.
#[allow(clippy::mem_forget, reason = "the subscriber stays a thread's until that ends")]
pub(crate) fn heard_by(subscriber: impl Subscriber + Send + Sync + 'static, test: impl Future<Output = ()>) {
    LazyLock::force(&OTHERS);
    let subscriber = Dispatch::new(subscriber);
    let _guard = dispatcher::set_default(&subscriber);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Large reviews are converted on threads of their own, which end with the runtime.
        .on_thread_start(move || std::mem::forget(dispatcher::set_default(&subscriber)))
        .build();
    runtime.unwrap().block_on(test);
}
