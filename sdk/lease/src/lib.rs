//! Leader election among the replicas of one operator, and namespace ownership among several operators, with Leases.
//!
//! | you want | use |
//! |---|---|
//! | one of several replicas to lead | [`LeaseElection::leader_election`] |
//! | an operator that owns one namespace, beside a cluster-wide one | [`LeaseElection::scope`] in that namespace |
//! | a cluster-wide operator that leaves such namespaces alone | [`Scopes`] |
//! | the holder's installation to be known | [`LeaseElection::installation`] |
//! | one answer from all of these, for a controller or a webhook | [`Scope`], [`Leadership`] |
//!
//! ```
//! use futures::StreamExt as _;
//! use kube::Client;
//! use portcullis_lease::{LeaseElection, LeaseError, Scope, ScopeTiming, Scopes};
//!
//! /// The restricted operator of namespace `team-a`: reconciles while it holds the scope.
//! async fn restricted(client: Client, pod: &str, stop: impl Future<Output = ()>) -> Result<(), LeaseError> {
//!     let (lease, driver) = LeaseElection::scope("team-a", "entity-operator-scope", pod)?.build(client);
//!     let work = async {
//!         while let Some(epoch) = lease.acquired().await {
//!             tokio::select! {
//!                 () = reconcile_everything(epoch) => {}
//!                 () = lease.lost(epoch) => {}
//!             }
//!         }
//!     };
//!     // The Lease is released when `stop` completes: by then, the work has to have ended.
//!     tokio::select! { result = driver.run(stop) => result, () = work => Ok(()) }
//! }
//!
//! /// The cluster-wide operator: asks at the start of each reconcile.
//! async fn cluster_wide(client: Client, stop: impl Future<Output = ()>) -> Result<(), LeaseError> {
//!     let (scopes, driver) = Scopes::new(client, "entity-operator", "entity-operator-scope", ScopeTiming::DEFAULT)?;
//!     let scope = Scope::cluster_wide(scopes);
//!     let work = async {
//!         let mut changes = scope.changes();
//!         while let Some(change) = changes.next().await {
//!             println!("reconcile again: {change:?}");
//!             if scope.confirm("team-a").await.may_write() { /* reconcile */ }
//!         }
//!     };
//!     tokio::select! { () = driver.run(stop) => Ok(()), () = work => Ok(()) }
//! }
//! # use std::future::Future;
//! # async fn reconcile_everything(_: u32) {}
//! ```
//!
//! # Who owns a namespace
//!
//! A **cluster-wide** operator owns every namespace that no administrator has handed over to a restricted operator
//! which holds a Lease there. A **namespace-restricted** one (`run --restrict-to-namespace team-a`) owns its namespace
//! while that is handed over and it holds the Lease. Of all replicas that share a Lease of leader election, one runs
//! the controllers, and all serve webhooks. A [`Scope`] combines this:
//!
//! | caller | asks | answer |
//! |---|---|---|
//! | a webhook, before its handler | [`Scope::skip_reason`] | checked, unless another operator is known to check |
//! | a controller, at the start of every reconcile and before its writes | [`Scope::confirm`] | [written](Ownership::may_write), if this operator is known to own it |
//!
//! The API server decides which webhooks are called: a review in another operator's namespace is allowed unchecked and
//! unchanged. A controller decides itself, and reconciles again what [`Scope::changes`] yields.
//!
//! # Guarantees
//!
//! Expiry is timed by the local monotonic clock from when *this process* saw a record change, as in client-go.
//! `renewTime` of another machine is never compared with anything, so clocks may be any time apart. Writes are
//! conditional: created if absent, else merged on the resource version that was read. A holder that could not renew
//! stops acting at its deadline, before the duration after which others begin; what it began after a check has the
//! margin between the two to finish. Clocks may differ in rate by as much as that margin allows (1 % is tested).
//!
//! A cluster-wide operator has no Lease of its own for each namespace: it writes where it knows that none is held. A
//! list counts for 12 s ([`ScopeTiming`]), and a new restricted operator [settles](Timing::settle) for longer than that
//! before it acts, so that neither a slow watch nor a dead one lets two write.
//!
//! A Lease alone hands nothing over, because every editor of a namespace can write one: it counts where the namespace
//! is [handed over](handed_over) by a policy with its binding, which only an administrator can create. A restricted
//! operator reads both before each write of its Lease, holds under that pair alone, and stops without it. A
//! cluster-wide operator that sees one of them removed does not write in the namespace for duration, grace and
//! freshness, but validates there from that moment on. One that starts, whose process stood still, or whose lists
//! failed for a while lists the Leases of scopes once and does the same where one is held; otherwise, while no
//! namespace is handed over, it reads no such Leases.
//!
//! # Dead watches
//!
//! A watch that says nothing may be dead. So a view counts for 12 s from the beginning of its last list, and a question
//! that finds it older than 6 s begins another one: of the policies, of the bindings, and of the Leases where a
//! namespace is handed over. Nothing is listed while no reconcile asks, so an idle operator makes no request but its
//! watches. A review that passes unchecked asks, too. A watch ends after 290 s, and the next one begins with a list.
//! While none asks, a dead watch may hide a hand-over that was made and taken back again since the last list.
//!
//! Each hold has an epoch ([`LeaseHandle::held`], [`Leadership::epoch`]), a number greater than all before. Stamp what
//! must not be overwritten with it.
//!
//! # Windows
//!
//! For how long two write, or none does, with [`Timing::SCOPE`] (25 s, deadline 20 s, renewal every 8 s, 15 s to
//! settle) and [`ScopeTiming::DEFAULT`] (5 s of grace, 12 s of freshness). Each line is measured in
//! `tests/lease/simulated`, with walls up to five minutes apart; clocks run unless it says otherwise. These are the
//! longest cases; requests come on top.
//!
//! | what happens | two write | none writes |
//! |---|---|---|
//! | a restricted operator starts, or its policy comes; watches work or are dead | 0 | 15 s |
//! | its policy is deleted; watches work or are dead | 0 | 42 s, and 6 s more with dead ones |
//! | it crashes, no other replica | 0 | 30 s after its last renewal |
//! | it crashes, another replica runs | 0 | 42 s: 25, a read every 2, 15 to settle; the cluster-wide one does not write |
//! | rolling update | 0 | until the new pod runs, and 15 s; the cluster-wide one does not write for 30 s |
//! | the same, and no new pod starts | 0 | 30 s |
//! | released for good, as client-go does | 0 | 6 s |
//! | its process is frozen (SIGSTOP) | 0 | 30 s after its last renewal |
//! | it is cut off from the API server | 0 | 10 s: it stops 20 s after its last renewal, the other begins 30 s after it |
//! | its Lease is deleted | 0 | 15 s from its next renewal |
//! | its machine is stopped *with its clock* | 8 s, until its next renewal | 30 s after its last renewal |
//! | the cluster-wide process is frozen, or starts beside a dead lease | 0 | 30 s once, for that namespace |
//! | the cluster-wide machine is stopped *with its clock* | 6 s, until its next list | |
//! | the cluster-wide operator is cut off | 0 | while it is; its webhooks still validate |
//! | any two clocks five minutes apart | as above | as above |
//!
//! In leader election ([`Timing::LEADER`]) none leads for 17 s after a crash and 2 s after a graceful end; two do for 2
//! s after a machine was stopped with its clock. And two may lead when the Lease is deleted *and* a candidate
//! that never saw it starts before the holder's next renewal: do not delete Leases of running operators.
//!
//! The same faults with real processes (`sdk/operator/tests/sdk_operator/scopes`: SIGKILL, SIGSTOP, a cut connection,
//! SIGTERM beside a successor; timings of 2 s, deadline 1.4 s, renewal 0.3 s, settling 2.4 s, grace 1 s, freshness 2
//! s): two wrote in none of them. None wrote for 2.4 s at a start, 3.0 s after a crash or a pause, 1.9 s when cut off,
//! 2.6 s in a rolling update, 2.0 s after a leader's crash or pause. In admission none validated for 0.1 s at a start,
//! and two did for less than can be measured by asking every 50 ms. After a crash, none validates until the
//! cluster-wide operator resumes where the configuration says `Ignore`, and every request is refused where it says
//! `Fail`, until that configuration is removed.
//!
//! An operator of another implementation that neither settles nor stops at a deadline is left alone as soon as its
//! Lease is seen; what it writes before that, and after its lease has ended, cannot be bounded.
//!
//! # Rights
//!
//! On `leases` of `coordination.k8s.io`: `create` in the namespace, `get` and `patch` there narrowed to the name; for
//! [`Scopes`], `list` and `watch` in all namespaces narrowed to the name. On `validatingadmissionpolicies` and
//! `validatingadmissionpolicybindings` of `admissionregistration.k8s.io`: `get` narrowed to the name for
//! [`LeaseElection::scope`], and `list` and `watch` for [`Scopes`], because their names are not known before they
//! exist.

mod changes;
mod decide;
mod election;
mod elector;
mod error;
mod handovers;
mod law;
mod leadership;
mod limits;
mod metrics;
mod ownership;
mod record;
mod scope;
mod scopes;
mod time;
mod timing;

#[cfg(test)]
#[path = "../tests/lease/main.rs"]
mod tests;

pub use election::{LeaseElection, LeaseElectionDriver, LeaseHandle, LeaseHealth};
pub use error::LeaseError;
pub use handovers::handed_over;
#[doc(hidden)]
pub use law::decisions_hold;
pub use leadership::Leadership;
pub use metrics::ScopeMetrics;
pub use ownership::Ownership;
pub use record::INSTALLATION;
pub use scope::Scope;
pub use scopes::{ScopeTiming, Scopes, ScopesDriver};
pub use timing::Timing;
