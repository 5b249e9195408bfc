//! The accounts that controllers act under: a ServiceAccount for each, in one process, as those of
//! kube-controller-manager with `--use-service-account-credentials`.
//!
//! The process itself has one account, that of its Pod. With it, it asks for a token of each controller's account
//! (TokenRequest, `authentication.k8s.io/v1`), and requests of the controller carry that token and nothing else that
//! could say who they are from. The API server then refuses a controller what its own account was not granted, and the
//! audit log tells controllers apart. A token lives for an hour, and is renewed before that.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;

use futures::future::join_all;
use portcullis_accounts::{Account, Credentials};
use portcullis_metrics::Metrics;

use super::connect::Clients;
use super::error::ComponentsError;
use super::{Components, Installation};

/// The credentials of controllers, by name. A controller that has none acts under the account of the process.
#[derive(Debug, Default)]
pub(super) struct Accounts(BTreeMap<String, Credentials>);

impl Accounts {
    /// Of the controllers among `components`; none where the installation has one account for everything. Nothing is
    /// asked for yet.
    ///
    /// # Errors
    /// When the name of a controller cannot be part of the name of a ServiceAccount, and when another release could have one
    /// of the accounts.
    pub(super) fn new(
        clients: &Clients,
        installation: &Installation,
        components: &Components,
        metrics: &Metrics,
    ) -> Result<Self, ComponentsError> {
        components.check_release(&installation.release)?;
        if !installation.use_service_account_credentials {
            return Ok(Self::default());
        }
        let accounts = components.accounts(installation)?.into_iter().map(|(controller, name)| {
            let account = Account { controller: controller.clone(), namespace: installation.namespace.clone(), name };
            (controller, Credentials::new(account, &clients.prompt, &clients.anonymous, metrics))
        });
        Ok(Self(accounts.collect()))
    }

    /// Those of this controller.
    pub(super) fn of(&self, controller: &str) -> Option<Credentials> {
        self.0.get(controller).cloned()
    }

    /// Whether no controller has any.
    #[cfg(feature = "dev")]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a token of each account, for as long as this is polled.
    pub(super) async fn renew(&self) -> Infallible {
        join_all(self.0.values().map(Credentials::renew)).await;
        // There are none.
        pending().await
    }

    /// Asks once for a token of each account.
    ///
    /// # Errors
    /// With what keeps the first of them from being had.
    #[cfg(feature = "dev")]
    pub(super) async fn try_each(&self) -> Result<(), String> {
        for credentials in self.0.values() {
            let answer = credentials.request_once().await;
            answer.map_err(|none| format!("{}/{}: {}", none.namespace, none.account, none.problem))?;
        }
        Ok(())
    }
}
