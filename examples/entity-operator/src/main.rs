//! The binary: `entity-operator run`, `generate …`, and the other commands of an operator.

use std::process::ExitCode;

use entity_operator::controller;
use portcullis::operator::Operator;

fn main() -> anyhow::Result<ExitCode> {
    let operator = Operator::new("entity-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crds(vec![entity_operator::crd()?])
        .webhooks(entity_operator::webhooks())
        .controller(controller::controller(), controller::reconcile);
    Ok(operator.main())
}
