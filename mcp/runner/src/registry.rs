//! The middleware that this proxy has.

use mcp_middleware::Registry;

/// All that a document may ask for.
pub(crate) fn registry() -> Registry {
    let mut registry = mcp_gate::registry();
    mcp_authn::register(&mut registry);
    mcp_telemetry::register(&mut registry);
    registry
}

#[cfg(test)]
mod tests {
    use mcp_runconfig::chain;

    use super::*;

    #[test]
    fn the_proxies_have_every_type_that_the_operator_takes_as_built() {
        let mut built: Vec<_> = chain::built_kinds().collect();
        built.sort_unstable();
        assert_eq!(registry().kinds().collect::<Vec<_>>(), built);
    }
}
