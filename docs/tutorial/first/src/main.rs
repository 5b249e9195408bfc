//! The binary: `run`, and `generate` for what to install.

use std::process::ExitCode;

use backup_operator::{v1, webhooks};
use kube::CustomResourceExt as _;
use portcullis::operator::Operator;

fn main() -> ExitCode {
    Operator::new("backup-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crds(vec![v1::Backup::crd()])
        .webhooks(webhooks())
        .main()
}
