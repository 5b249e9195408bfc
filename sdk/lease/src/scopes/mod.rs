//! What a cluster-wide operator needs: who owns which namespace.

mod driver;
mod installations;
mod view;

pub use driver::{Scopes, ScopesDriver, ScopesHealth};
pub use installations::Earlier;
pub use view::{Claim, ScopeTiming, ScopeView};
