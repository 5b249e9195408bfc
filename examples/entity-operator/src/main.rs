//! The binary: `entity-operator run`, `generate …`, and the other commands of an operator.

use std::process::ExitCode;

use entity_operator::controller;
use portcullis::operator::{Components, NoArgs, Operator};

fn main() -> anyhow::Result<ExitCode> {
    let operator = Operator::named("entity-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crds(vec![entity_operator::crd()?])
        .setup(|_: &NoArgs| {
            let components = Components::new(entity_operator::webhooks());
            Ok(components.controller(controller::controller(), controller::reconcile))
        });
    Ok(operator.main())
}
