//! The binary: `run`, and `generate` for what to install.

use std::error::Error;
use std::process::ExitCode;

use backup_operator::{crd, webhooks};
use portcullis::operator::Operator;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    Ok(Operator::new("backup-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crds(vec![crd()?])
        .webhooks(webhooks())
        .main())
}
