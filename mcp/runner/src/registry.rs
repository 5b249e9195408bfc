//! The middleware that this proxy has.

use mcp_credentials::Provided;
use mcp_middleware::Registry;
use mcp_redis::Clients;

/// All that a document may ask for. Rate limits are counted in one of `clients`; `fail_closed` has calls that are not counted refused. Credentials are
/// got with what is `provided`.
pub(crate) fn registry(clients: &Clients, fail_closed: bool, provided: &Provided) -> Registry {
    let mut registry = mcp_gate::registry();
    mcp_authn::register(&mut registry);
    mcp_telemetry::register(&mut registry);
    mcp_redis::register(&mut registry, clients, fail_closed);
    mcp_credentials::register(&mut registry, provided);
    registry
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mcp_middleware::SecretSource;
    use mcp_runconfig::chain;

    use super::*;

    #[test]
    fn the_proxies_have_every_type_that_the_operator_takes_as_built() {
        let mut built: Vec<_> = chain::built_kinds().collect();
        built.sort_unstable();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = Clients::new(SecretSource::None, None, provider);
        assert_eq!(registry(&clients, false, &Provided::default()).kinds().collect::<Vec<_>>(), built);
    }
}
