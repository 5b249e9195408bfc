//! Ownership of namespaces, as a cluster-wide operator sees it.

mod driver;
mod timing;
mod view;

pub use driver::{Scopes, ScopesDriver};
pub use timing::ScopeTiming;
pub(crate) use view::ScopeView;
