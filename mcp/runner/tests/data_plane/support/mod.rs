//! What the tests are made of: the runner's process, real servers, the SDK's client, sockets that record.

mod aws;
mod collector;
mod echo;
mod events;
mod issuer;
pub(crate) mod lab;
pub(crate) mod process;
mod recorder;
mod runner;
mod sdk;
mod timers;
mod tls;

use std::time::Duration;

pub(crate) use portcullis_identity::{Signer, encode, unsigned};

pub(crate) use self::aws::{Moto, SESSION, Said, Sts};
pub(crate) use self::collector::{Collector, Protocol, broken_collector, parting_collector, spans, text};
pub(crate) use self::echo::Echo;
pub(crate) use self::events::EventStream;
pub(crate) use self::issuer::{Issuer, exchanged, unavailable};
pub(crate) use self::process::{Server, conformance_server, go, modules, node_server, signal};
pub(crate) use self::recorder::{Recorded, Recorder};
pub(crate) use self::runner::{Answer, Runner, document};
pub(crate) use self::sdk::SdkClient;
pub(crate) use self::timers::Timers;
pub(crate) use self::tls::{TlsFront, server_tls};

/// Nothing in these tests takes longer, on a machine that is busy with other things.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// Waits for `what`, at most [`DEADLINE`].
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, future).await;
    done.unwrap_or_else(|_| panic!("waited {} s for {what}", DEADLINE.as_secs()))
}

/// Asks again until there is an answer.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    within(what, async {
        loop {
            if let Some(value) = ask().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// An `initialize` of the Legacy era.
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
