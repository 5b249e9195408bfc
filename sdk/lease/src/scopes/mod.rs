//! What a cluster-wide operator needs: who owns which namespace.

mod driver;
mod installations;
mod timing;
mod view;

pub use driver::{Scopes, ScopesDriver, ScopesHealth};
pub use installations::Earlier;
pub use timing::ScopeTiming;
pub use view::{Claim, ScopeView};
