//! What of the cluster this operator owns now: several operators beside each other, and several replicas of one.
//!
//! A **cluster-wide** operator owns every namespace that no administrator has handed over to a restricted operator which
//! holds a Lease there. A **namespace-restricted** one (`run --restrict-to-namespace team-a`) owns its namespace while it
//! is handed over and it holds the Lease.
//! Of several cluster-wide ones, the one that was installed first writes; the others stand back, and go on checking.
//! Of the replicas of either, one leads: its controllers run, while webhooks are served by all. The promises, and how
//! long two or none act in each case, are in the documentation of `portcullis-lease`.
//!
//! | | asks | answer |
//! |---|---|---|
//! | a webhook, before its handler | [`Ownership::must_check`] | unless another operator is known to check |
//! | a controller, at the entry of every reconcile | [`Ownership::may_write`] | only what is known to be ours |
//!
//! Webhooks are asked for by the server: a review of another operator's namespace is allowed unchecked, and its object
//! left untouched. Controllers get [`Runtime::scope`](crate::operator::Runtime::scope), and look again at what
//! [`Scope::changes`] tells.
//!
//! ```
//! use futures::StreamExt as _;
//! use portcullis::operator::Runtime;
//! use portcullis::scopes::Change;
//!
//! async fn controller(runtime: Runtime) -> anyhow::Result<()> {
//!     let mut changes = runtime.scope.changes();
//!     loop {
//!         tokio::select! {
//!             () = runtime.stop.cancelled() => return Ok(()),
//!             Some(change) = changes.next() => match change {
//!                 Change::Everywhere => println!("look at every object"),
//!                 Change::Namespace(namespace) => println!("look at every object of {namespace}"),
//!             },
//!         }
//!     }
//! }
//!
//! fn reconcile(runtime: &Runtime, namespace: &str) {
//!     if let Some(epoch) = runtime.scope.owns(namespace).epoch() {
//!         println!("writes what is stamped with epoch {epoch}");
//!     }
//! }
//! ```

mod leadership;
mod metrics;
mod scope;

pub use leadership::Leadership;
pub(crate) use metrics::ScopeMetrics;
pub use portcullis_lease::{Change, Changes, Epoch, LeaseError, Ownership};
pub use scope::Scope;
