//! What a cluster-wide operator needs: who owns which namespace.

mod driver;
mod timing;
mod view;

pub use driver::{Scopes, ScopesDriver};
pub use timing::ScopeTiming;
pub(crate) use view::ScopeView;
