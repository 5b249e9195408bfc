//! The controller of configurations, whatever the kind.

use std::sync::Arc;

use portcullis::controller::{Cleanup, ControllerError, Leaving, Next, Pass};

use super::Stores;
use crate::{
    config::{ConfigInputs, ConfigKind, plan_config},
    settings::Settings,
};

/// Keeps the status of configurations.
pub(super) struct ConfigController {
    stores: Arc<Stores>,
    settings: Settings,
}

// === impl ConfigController ===

impl ConfigController {
    pub(super) fn new(stores: Arc<Stores>, settings: Settings) -> Self {
        Self { stores, settings }
    }

    /// Writes the status.
    pub(super) async fn reconcile<K: ConfigKind>(&self, pass: Pass<K>) -> Result<Next, ControllerError> {
        self.settle(&pass).await?;
        Ok(Next::Wait)
    }

    /// A configuration stays until nobody refers to it any more.
    pub(super) async fn clean_up<K: ConfigKind>(&self, leaving: Leaving<K>) -> Result<Cleanup, ControllerError> {
        let may_go = match leaving.pass {
            Ok(pass) => self.settle(&pass).await?,
            Err(_) => self.stores.referrers(&K::kind(&()), &leaving.key).is_empty(),
        };
        Ok(if may_go { Cleanup::Done } else { Cleanup::Waits(Next::Wait) })
    }

    /// Returns whether it may go. Nobody reads the status of what is about to be gone.
    async fn settle<K: ConfigKind>(&self, pass: &Pass<K>) -> Result<bool, ControllerError> {
        let referrers = self.stores.referrers(&K::kind(&()), &pass.key);
        let inputs = ConfigInputs {
            config: &*pass.object,
            referrers: &referrers,
            settings: &self.settings,
            now: jiff::Timestamp::now(),
        };
        let plan = plan_config(&inputs);
        if !plan.may_go && pass.status(&K::status_of(plan.report)).await? {
            pass.publish(&plan.events).await;
        }
        Ok(plan.may_go)
    }
}
