//! The binary: `entity-operator run`, `generate crds|webhooks|rbac`, `migrate-storage`.

use std::process::ExitCode;

use portcullis::operator::{NoArgs, Operator, Parts};

fn main() -> anyhow::Result<ExitCode> {
    let operator = Operator::named("entity-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crds(vec![entity_operator::crd()?])
        .setup(|_: &NoArgs| Ok(Parts::new(entity_operator::webhooks()?)));
    Ok(operator.main())
}
