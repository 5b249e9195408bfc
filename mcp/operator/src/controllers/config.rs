//! The controller of configurations, whatever the kind.

use std::{sync::Arc, time::Duration};

use kube::Client;
use mcp_plan::{reference::Referrer, settings::Settings};
use portcullis::controller::{Action, Cleanup, ControllerError, Deletion, Reconcile};

use super::Stores;
use crate::config::{ConfigInputs, ConfigKind, plan_config};

/// The delay before a blocked deletion is checked again when the references of the blocking object are unknown: its
/// removal enqueues nothing.
const AGAIN: Duration = Duration::from_secs(10);

/// Keeps the status of configurations.
pub(super) struct ConfigController {
    stores: Arc<Stores>,
    settings: Settings,
    client: Client,
}

// === impl ConfigController ===

impl ConfigController {
    /// `client` reads what the stores do not know.
    pub(super) fn new(stores: Arc<Stores>, settings: Settings, client: Client) -> Self {
        Self { stores, settings, client }
    }

    /// Writes the status.
    pub(super) async fn reconcile<K: ConfigKind>(&self, cx: Reconcile<K>) -> Result<Action, ControllerError> {
        let referrers = self.stores.referrers(&K::kind(&()), &cx.key);
        self.settle(&cx, &referrers, true).await?;
        Ok(Action::await_change())
    }

    /// Writes the rest of the status of one that the validators deny, where webhooks are off.
    pub(super) async fn refuse<K: ConfigKind>(&self, cx: Reconcile<K>) -> Result<Action, ControllerError> {
        let referrers = self.stores.referrers(&K::kind(&()), &cx.key);
        self.settle(&cx, &referrers, false).await?;
        Ok(Action::await_change())
    }

    /// A configuration stays until nobody refers to it any more. That nobody does is the API server's to say: what the
    /// stores say last may be old, and a configuration that went too early leaves workloads without their guard.
    pub(super) async fn clean_up<K: ConfigKind>(&self, deletion: Deletion<K>) -> Result<Cleanup, ControllerError> {
        let kind = K::kind(&());
        let mut referrers = self.stores.referrers(&kind, &deletion.key);
        let mut next = Action::await_change();
        if referrers.is_empty() {
            referrers = self.stores.ask_for_referrers(&self.client, &kind, &deletion.key).await?;
            next = Action::requeue(AGAIN);
        }
        if let Ok(cx) = &deletion.reconcile {
            self.settle(cx, &referrers, true).await?;
        }
        Ok(if referrers.is_empty() { Cleanup::Done } else { Cleanup::Pending(next) })
    }

    /// Nobody reads the status of what is about to be gone.
    async fn settle<K: ConfigKind>(
        &self,
        cx: &Reconcile<K>,
        referrers: &[Referrer],
        with_events: bool,
    ) -> Result<(), ControllerError> {
        let inputs =
            ConfigInputs { config: &*cx.object, referrers, settings: &self.settings, now: jiff::Timestamp::now() };
        let plan = plan_config(&inputs);
        if !plan.may_go && cx.apply_status(&K::Status::from(plan.report)).await? && with_events {
            cx.publish_events(&plan.events).await;
        }
        Ok(())
    }
}
