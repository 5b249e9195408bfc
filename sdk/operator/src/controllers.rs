//! The controllers of one process: they run while it leads.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Runtime;
use super::components::LeaderTask;
use super::error::RunError;
use super::leases::Election;
use super::shutdown::CONTROLLERS;
use super::tasks::Tasks;
use portcullis_lease::Leadership;

pub(super) struct Controllers {
    pub(super) by_name: BTreeMap<String, LeaderTask>,
    /// Given to each, with its leadership and its end.
    pub(super) runtime: Runtime,
}

impl Controllers {
    /// Runs them whenever this replica leads, until `stop`.
    pub(super) async fn lead(self, election: Option<Election>, stop: CancellationToken) -> Result<(), RunError> {
        let Some(Election { lease, name, margin }) = election else {
            return self.term(Leadership::always(), std::future::pending(), Duration::MAX, &stop).await;
        };
        while let Some(Some(epoch)) = stop.run_until_cancelled(lease.acquired()).await {
            let term = Leadership::term(lease.clone(), epoch);
            info!(lease = name, %epoch, "leading: this replica runs the controllers");
            self.term(term.clone(), term.ended(), margin, &stop).await?;
            if !stop.is_cancelled() {
                let why = lease.health().ended;
                warn!(lease = name, %epoch, why, "not leading any more: the controllers have ended");
            }
        }
        Ok(())
    }

    /// Runs them once, until `lost` ends, `stop` is cancelled, or one of them fails.
    async fn term(
        &self,
        leadership: Leadership,
        lost: impl Future<Output = ()>,
        margin: Duration,
        stop: &CancellationToken,
    ) -> Result<(), RunError> {
        let end = stop.child_token();
        let scope = self.runtime.scope.with_leadership(leadership.clone());
        let runtime = Runtime { scope, leadership, stop: end.clone(), ..self.runtime.clone() };
        let mut tasks = Tasks::default();
        for (name, controller) in &self.by_name {
            tasks.spawn(format!("controller {name}"), &end, (controller.run)(runtime.clone()));
        }
        let (mut result, limit) = tokio::select! {
            // The others end too, and the process with them: no reconcile goes on here.
            Some(ended) = tasks.next() => (ended, CONTROLLERS),
            () = stop.cancelled() => (Ok(()), CONTROLLERS),
            () = lost => (Ok(()), margin),
        };
        end.cancel();
        let rest = async {
            while let Some(ended) = tasks.next().await {
                result = std::mem::replace(&mut result, Ok(())).and(ended);
            }
        };
        if timeout(limit, rest).await.is_err() {
            // Another replica may lead from now on, so a controller that does not end is aborted.
            warn!(
                seconds = limit.as_secs(),
                "controllers did not stop in time and are aborted: a reconcile under way may have written only a part"
            );
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::client::Body;
    use portcullis_manifest::Access;
    use tokio::time::Instant;

    use super::*;
    use crate::components::Task;
    use portcullis_client::error_chain;

    /// Other replicas wait for the Lease: if it were kept, no replica would reconcile.
    #[tokio::test(start_paused = true)]
    async fn a_failed_controller_ends_the_term_even_if_another_hangs() {
        let nowhere =
            tower::service_fn(|_: Request<Body>| pending::<Result<Response<Body>, std::convert::Infallible>>());
        let stop = CancellationToken::new();
        let runtime = Runtime::new(kube::Client::new(nowhere, "default"), "default", stop.clone());
        let controller = |run: Task| LeaderTask { access: Access::default(), run };
        let fails = controller(Arc::new(|_| Box::pin(async { Err("no luck".into()) })));
        let hangs = controller(Arc::new(|_| Box::pin(pending())));
        let by_name = BTreeMap::from([("fails".to_owned(), fails), ("hangs".to_owned(), hangs)]);
        let controllers = Controllers { by_name, runtime };
        let begun = Instant::now();
        let term = controllers.term(Leadership::always(), pending(), Duration::MAX, &stop);
        let error = timeout(Duration::from_mins(5), term).await.expect("the term ends").unwrap_err();
        assert_eq!(error_chain(&error), "controller fails failed: no luck");
        assert!(begun.elapsed() <= CONTROLLERS + Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
