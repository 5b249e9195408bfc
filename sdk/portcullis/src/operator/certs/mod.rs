//! `certs`.

mod source;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

use super::installation::{InstallationFlags, label};
use super::{Operator, Parts};

#[derive(clap::Args, Clone, Debug)]
pub(super) struct CertsFlags {
    /// Kubeconfig file; without it the in-cluster configuration, or KUBECONFIG, is used
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Namespace that the operator is installed in [default: <release>-system]
    #[arg(long, value_parser = label)]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) installation: InstallationFlags,
}

pub(super) async fn perform<A: clap::Args>(
    operator: &Operator<A>,
    _parts: Parts,
    flags: CertsFlags,
    _provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    let installation = flags.installation.resolve(operator.name, flags.namespace.as_deref())?;
    anyhow::bail!("certs of {} is not there yet", installation.release)
}
