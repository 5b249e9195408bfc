//! The components of a running process, by name.

use std::collections::BTreeMap;
use std::future::Future;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use super::BoxError;
use super::error::RunError;

/// Tasks that run until `stop`. One that fails, panics or ends before that is an error, which names it.
#[derive(Default)]
pub(super) struct Tasks {
    running: JoinSet<Result<(), RunError>>,
    names: BTreeMap<Id, String>,
}

impl Tasks {
    pub(super) fn spawn<E: Into<BoxError> + Send + 'static>(
        &mut self,
        name: impl Into<String>,
        stop: &CancellationToken,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let (name, stop) = (name.into(), stop.clone());
        let component = name.clone();
        let handle = self.running.spawn(async move {
            match task.await {
                Err(error) => Err(RunError::Failed { component, source: error.into() }),
                Ok(()) if !stop.is_cancelled() => Err(RunError::EndedEarly { component }),
                Ok(()) => Ok(()),
            }
        });
        self.names.insert(handle.id(), name);
    }

    /// Runs tasks that name their own components.
    pub(super) fn adopt(&mut self, task: impl Future<Output = Result<(), RunError>> + Send + 'static) {
        let handle = self.running.spawn(task);
        self.names.insert(handle.id(), "a component".to_owned());
    }

    /// Waits for the next task to end; `None` when none is left.
    pub(super) async fn next(&mut self) -> Option<Result<(), RunError>> {
        // The panic hook has printed the message, which may contain secrets.
        Some(match self.running.join_next_with_id().await? {
            Ok((id, result)) => {
                self.names.remove(&id);
                result
            }
            Err(error) => Err(RunError::Panicked { component: self.names.remove(&error.id()).unwrap_or_default() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use portcullis_client::error_chain;

    #[tokio::test]
    async fn a_task_that_fails_panics_or_ends_too_early_is_named() {
        let (stop, mut tasks) = (CancellationToken::new(), Tasks::default());
        tasks.spawn("a", &stop, async { bail!("no luck") });
        assert_eq!(error_chain(&tasks.next().await.unwrap().unwrap_err()), "a failed: no luck");
        tasks.spawn("b", &stop, async { panic!("secret") as Result<(), RunError> });
        assert_eq!(error_chain(&tasks.next().await.unwrap().unwrap_err()), "b panicked");
        tasks.spawn("c", &stop, async { anyhow::Ok(()) });
        assert_eq!(error_chain(&tasks.next().await.unwrap().unwrap_err()), "c ended on its own");
        let stopped = stop.clone();
        tasks.spawn("d", &stop, async move {
            stopped.cancelled().await;
            anyhow::Ok(())
        });
        stop.cancel();
        tasks.next().await.unwrap().unwrap();
        assert!(tasks.next().await.is_none());
    }
}
