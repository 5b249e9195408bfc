//! The file with the authorities of callers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::crypto::CryptoProvider;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::input::read_regular;
use portcullis_listener::ClientCa;

/// How often the file is read. A kubelet takes a minute or so to bring a changed ConfigMap.
const LOOK: Duration = Duration::from_secs(2);
/// Authorities take no more.
const LARGEST: u64 = 1024 * 1024;

/// Whose certificates callers of admission are asked for.
pub(super) struct ClientCaFile {
    path: PathBuf,
    authorities: Arc<ClientCa>,
    /// What the file held when it was read last; nothing where it could not be read.
    last: Option<Vec<u8>>,
}

impl ClientCaFile {
    pub(super) fn open(path: &Path, provider: Arc<CryptoProvider>) -> anyhow::Result<Self> {
        let unusable = || format!("cannot use --client-ca {}", path.display());
        let pem = read_regular(path, LARGEST).with_context(unusable)?;
        let authorities = Arc::new(ClientCa::new(provider, &pem).with_context(unusable)?);
        Ok(Self { path: path.to_owned(), authorities, last: Some(pem) })
    }

    pub(super) fn authorities(&self) -> Arc<ClientCa> {
        Arc::clone(&self.authorities)
    }

    /// Takes up a file that changes, until `stop`. One that cannot be used leaves what was in it before in force.
    pub(super) async fn follow(mut self, stop: CancellationToken) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.look();
        }
    }

    fn look(&mut self) {
        let file = self.path.display();
        let read = read_regular(&self.path, LARGEST);
        let found = read.as_ref().ok();
        if found == self.last.as_ref() {
            return;
        }
        let taken = match &read {
            Ok(pem) => self.authorities.replace(pem).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match taken {
            Ok(()) => info!(%file, "reloaded the client CAs"),
            Err(error) => warn!(%file, error, "cannot reload the client CAs: the previous ones stay in force"),
        }
        self.last = found.cloned();
    }
}
