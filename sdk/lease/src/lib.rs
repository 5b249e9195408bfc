//! Leases that say who acts: leader election among the replicas of one operator, and namespace scopes among operators.
//!
//! | you want | take |
//! |---|---|
//! | one of several replicas to act | [`LeaseElection::leader_election`] |
//! | an operator that owns one namespace, beside a cluster-wide one | [`LeaseElection::scope`] in that namespace |
//! | a cluster-wide operator that leaves such namespaces alone | [`Scopes`] |
//! | one of several cluster-wide installations to act | [`ScopesDriver::among`], and [`LeaseElection::label`] |
//! | to decide yourself | [`decide`], or the state machines [`Elector`] and [`ScopeView`]: no IO, no clock |
//!
//! ```
//! use std::time::Duration;
//!
//! use futures::StreamExt as _;
//! use kube::Client;
//! use portcullis_lease::{LeaseElection, LeaseError, ScopeTiming, Scopes, Vouchers};
//!
//! /// The restricted operator of namespace `team-a`: reconciles while it holds the scope.
//! async fn restricted(client: Client, pod: &str, stop: impl Future<Output = ()>) -> Result<(), LeaseError> {
//!     let vouchers = Vouchers::new("entity-operator", "entity-operator-scope");
//!     let election = LeaseElection::scope("team-a", "entity-operator-scope", pod)?.vouched_by(vouchers);
//!     let (lease, driver) = election.with(client);
//!     let work = async {
//!         while let Some(hold) = lease.acquired().await {
//!             tokio::select! {
//!                 () = reconcile_everything(hold.epoch) => {}
//!                 () = lease.lost(hold.epoch) => {}
//!             }
//!         }
//!     };
//!     // The lease is given back when `stop` ends: by then, the work has to have ended.
//!     tokio::select! { result = driver.run(stop) => result, () = work => Ok(()) }
//! }
//!
//! /// The cluster-wide operator: asks at the entry of each webhook and each reconcile.
//! async fn cluster_wide(client: Client, stop: impl Future<Output = ()>) -> Result<(), LeaseError> {
//!     let vouchers = Vouchers::new("entity-operator", "entity-operator-scope");
//!     let (scopes, driver) = Scopes::new(client, &["entity-operator-scope"], vouchers, ScopeTiming::DEFAULT)?;
//!     let work = async {
//!         scopes.synced(Duration::from_secs(30)).await?;
//!         let mut changes = scopes.changes();
//!         while let Some(change) = changes.next().await {
//!             println!("look again at {change:?}");
//!             if scopes.owns("team-a").may_write() { /* reconcile */ }
//!             if scopes.owns("team-a").must_check() { /* validate */ }
//!         }
//!         Ok(())
//!     };
//!     tokio::select! { () = driver.run(stop) => Ok(()), result = work => result }
//! }
//! # use std::future::Future;
//! # async fn reconcile_everything(_: portcullis_lease::Epoch) {}
//! ```
//!
//! # What is promised
//!
//! Expiry is timed by our own monotonic clock from when *we* saw a record change, as client-go does it. `renewTime` of
//! another machine is never compared with anything, so clocks may be any time apart. Writes are conditional: created if
//! absent, else merged on the resource version that was read. A holder that could not renew stops acting at its
//! deadline, before the duration after which others begin; what it began on a check has the margin between the two to
//! end. Clocks may differ in rate by as much as that margin allows (1 % is tested).
//!
//! A cluster-wide operator has no lease of its own for each namespace: it writes where it knows that nobody holds. What
//! it knows counts for [`ScopeTiming::freshness`], and a new restricted operator [settles](Timing::settle) for longer
//! than that before it acts, so that neither a slow watch nor a dead one lets two write.
//!
//! A Lease alone hands nothing over, because every editor of a namespace can write one: it counts where a
//! [voucher](Vouchers) stands for the namespace, which only an administrator can make. A restricted operator reads its own
//! voucher before each write of its Lease, holds under that one alone, and stops without it. A cluster-wide operator that sees a
//! voucher go leaves the namespace to nobody for duration, grace and freshness, and checks there from that moment on. One that
//! starts, or has not known for a while what vouches, lists the Leases of scopes once and does the same where somebody
//! holds one; otherwise, while there is no voucher, it reads none.
//!
//! Of several cluster-wide installations, the one whose leader's Lease was created first acts. A later one acts on a view
//! that is fresh and shows none that was there before it. One that comes back acts on a view that shows its own new hold,
//! and gives those that it finds at work [`ScopeTiming::settle`] to find out.
//!
//! # How a dead watch is noticed
//!
//! | what is watched | what shows that the watch lives | for how long what was seen counts |
//! |---|---|---|
//! | the Leases of leaders | our own renewals, every 2 s, which it brings in order with all others | [`ScopeTiming::hearing`]: 4 s from the beginning of the last one that came back |
//! | vouchers | a list every 6 s ([`ScopeTiming::confirm`]) | [`ScopeTiming::freshness`]: 12 s from the beginning of the last list |
//! | Leases of scopes, while a voucher stands | the same | the same |
//!
//! A renewal that is not back after 1 s has the Leases of leaders listed and watched anew; where all is well they are listed only when a
//! watch ends, every 290 s. Who does not lead has no renewals: its watch is believed for those 290 s, and nothing depends on it until
//! it leads. The simulation knows these bounds (`tests/simulated`). Who stands back goes on checking: many may
//! write a Lease that looks like another installation's.
//!
//! Each hold has an [`Epoch`], later than all before. Stamp what you write with it; who is refused because a later one
//! was there calls [`LeaseHandle::fence`].
//!
//! # Windows
//!
//! For how long two write, or none does, with [`Timing::SCOPE`] (25 s, deadline 20 s, renewal every 8 s, 15 s to settle)
//! and [`ScopeTiming::DEFAULT`] (5 s of grace, 12 s of freshness). Each line is measured in `tests/simulated`, with walls
//! up to five minutes apart; clocks run unless it says otherwise. Longest cases; requests come on top.
//!
//! | what happens | two write | none writes |
//! |---|---|---|
//! | a restricted operator starts, or its voucher comes; watches work or are dead | 0 | 15 s |
//! | its voucher is taken away; watches work or are dead | 0 | 42 s, and 6 s more with dead ones |
//! | it crashes, no other replica | 0 | 30 s after its last renewal |
//! | it crashes, another replica runs | 0 | 42 s: 25, a look every 2, 15 to settle; no turn of the cluster-wide one |
//! | rolling update ([`End::HandOver`]) | 0 | until the new pod runs, and 15 s; no turn of the cluster-wide one within 30 s |
//! | handed over, and nobody comes | 0 | 30 s |
//! | released for good ([`End::Release`]) | 0 | 6 s |
//! | its process is frozen (SIGSTOP) | 0 | 30 s after its last renewal |
//! | it is cut off from the API server | 0 | 10 s: it stops 20 s after its last renewal, the other begins 30 s after it |
//! | its Lease is deleted by somebody | 0 | 15 s from its next renewal |
//! | its machine is stopped *with its clock* | 8 s, until its next renewal | 30 s after its last renewal |
//! | the cluster-wide process is frozen, or starts beside a dead lease | 0 | 30 s once, for that namespace |
//! | the cluster-wide machine is stopped *with its clock* | 6 s, until its next list | |
//! | the cluster-wide operator is cut off | 0 | while it is; its webhooks go on checking |
//! | any two clocks five minutes apart | as above | as above |
//!
//! In leader election ([`Timing::LEADER`]) none acts for 17 s after a crash and 2 s after a graceful end; two do for 2 s
//! after a machine was stopped with its clock. And two may act when somebody deletes the Lease *and* a candidate that
//! never saw it starts before the holder's next renewal: do not delete Leases of running operators.
//!
//! Of two cluster-wide installations (15 s for a leader, 5 s of grace, 5 s to settle), none writes for 20 s after the last
//! renewal of a first that crashed, 6 s in its rolling update, 5 s when it comes back, 2 s when its Lease is deleted, and
//! 20 s at a start beside the Lease of one that is gone. Two write in none of these.
//!
//! The same faults with real processes (`sdk/operator/tests/scopes`: SIGKILL, SIGSTOP, a cut connection, SIGTERM beside
//! a successor; timings of 3 s, deadline 2 s, renewal 0.4 s, settling 3.6 s, grace 1 s, freshness 3 s): two wrote in none of them. Nobody
//! did for 3.6 s at a start, 3.9 s after a crash or a pause (4 at most), 2.0 s when cut off, 3.8 s in a rolling update,
//! 3.0 s after a leader's crash or pause. In admission nobody checked for 0.1 s at a start, and two did for less than can
//! be measured by asking every 50 ms; after a crash, none checks until the cluster-wide operator resumes where the
//! configuration says `Ignore`, and all is refused where it says `Fail`, until that configuration is taken away.
//!
//! An operator of another make that neither settles nor stops at a deadline is left alone as soon as it is seen; what it
//! does before that, and after its lease ended, is not ours to bound.
//!
//! # Rights
//!
//! On `leases` of `coordination.k8s.io`: `create` in the namespace, `get` and `patch` there narrowed to the name; for
//! [`Scopes`], `list` and `watch` in all namespaces narrowed to the name, and not narrowed for [`ScopesDriver::among`], since nobody
//! knows the names of others' leaders. On `validatingadmissionpolicies` and `validatingadmissionpolicybindings` of
//! `admissionregistration.k8s.io`: `get` narrowed to the name for [`LeaseElection::vouched_by`]; for [`Scopes`], `list` and `watch` on both and on
//! `validatingwebhookconfigurations`, whose names nobody knows before they are there.

mod changes;
mod decide;
mod election;
mod elector;
mod error;
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
mod vouchers;

pub use changes::{Change, Changes};
pub use decide::{Candidate, Decision, Hold, Reason, Role, decide};
pub use election::{LeaseElection, LeaseElectionDriver, LeaseHandle, LeaseHealth};
pub use elector::{Elector, End, Step, Write};
pub use error::LeaseError;
#[doc(hidden)]
pub use law::decisions_hold;
pub use leadership::Leadership;
pub use metrics::ScopeMetrics;
pub use ownership::Ownership;
pub use record::{Epoch, Observation, Record};
pub use scope::Scope;
pub use scopes::{Claim, Earlier, ScopeTiming, ScopeView, Scopes, ScopesDriver, ScopesHealth};
pub use time::{Clock, Moment, SystemClock};
pub use timing::Timing;
pub use vouchers::Vouchers;
