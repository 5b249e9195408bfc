//! The binary: `run`, and `generate` for what to install.

use std::process::ExitCode;

use kettle_operator::{controller, rules, v1};
use kube::CustomResourceExt as _;
use portcullis::operator::Operator;

fn main() -> ExitCode {
    Operator::new("kettle-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crds(vec![v1::Kettle::crd()])
        .webhooks(rules::webhooks())
        .controller(controller::controller(), controller::reconcile)
        .main()
}
