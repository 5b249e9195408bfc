//! What a process works at beside answering the API server: the same for an installed replica and for a session of a
//! developer.

use tokio_util::sync::CancellationToken;

use super::controllers::Controllers;
use super::health::Health;
use super::leases::Leases;
use super::tasks::Tasks;
use super::{Parts, Runtime};
use crate::scopes::Leadership;

/// What it works with, and when its parts end: first the controllers, then the Lease is given back, then what the
/// webhooks read from.
pub(super) struct Work {
    /// What each part is given. The controllers end with its `stop`.
    pub(super) runtime: Runtime,
    /// Who owns what, and who leads.
    pub(super) leases: Leases,
    /// Learns when the leases are known.
    pub(super) health: Health,
    /// Ends when the webhooks are not served any more: until then they ask the leases whose a namespace is.
    pub(super) serving: CancellationToken,
    /// Ends when their last call is answered: what they read from is as much a part of them as what they call.
    pub(super) answered: CancellationToken,
}

impl Work {
    /// Starts all of it. The controllers wait for `first`, and then for this process to lead.
    ///
    /// What runs everywhere is given the scope of one who follows, whoever leads: it never writes. The Lease is given
    /// back when the controllers have ended, whether they were asked to, failed, panicked or were dropped: whoever
    /// takes it begins at once, so nothing may be written here any more; and while somebody renews it in vain, nobody
    /// else begins.
    pub(super) fn start(self, parts: Parts, first: impl Future<Output = ()> + Send + 'static, tasks: &mut Tasks) {
        let Self { mut runtime, leases, health, serving, answered } = self;
        let working = runtime.stop.clone();
        runtime.scope = leases.scope.clone();
        runtime.leadership = Leadership::follower();
        for (name, task) in parts.everywhere {
            let scope = runtime.scope.led_by(Leadership::follower());
            tasks.spawn(name, &answered, task(Runtime { scope, stop: answered.clone(), ..runtime.clone() }));
        }
        let election = leases.election.clone();
        let controllers = Controllers { controllers: parts.controllers, runtime };
        let give_back = CancellationToken::new();
        let ended = give_back.clone().drop_guard();
        tasks.adopt(async move {
            working.run_until_cancelled(first).await;
            let result = controllers.lead(election, working).await;
            drop(ended);
            result
        });
        let work = leases.work(health, give_back, serving.clone());
        tasks.spawn("the leases", &serving, work);
    }
}
