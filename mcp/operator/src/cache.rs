//! What the controllers see of the cluster: one watch per kind (and namespace), shared by all of them, reduced on
//! arrival to what a plan or the apply engine reads. Reconciling reads nothing but these stores.

mod feed;
mod store;

pub use feed::{Feeds, Scope, paged};
pub use store::{Change, Store, Stored};
