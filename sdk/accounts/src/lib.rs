//! Clients of the Kubernetes API server that act under a ServiceAccount, in a process that has another account.
//!
//! With its own account, the process requests a token for each [`Account`] (TokenRequest, `authentication.k8s.io/v1`).
//! [`Credentials`] hold that token and renew it before it expires; [`Credentials::client`] adds it to every request. The
//! API server then checks each request against the rights of that account, and the audit log names it. A token is
//! requested for an hour.
//!
//! ```no_run
//! use kube::config::{AuthInfo, Config};
//! use kube::Client;
//! use portcullis_accounts::{Account, Credentials};
//! use portcullis_metrics::Metrics;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut own = Config::infer().await?;
//! own.default_retry = false;
//! let mut anonymous = own.clone();
//! anonymous.auth_info = AuthInfo::default();
//! let account = Account {
//!     controller: "orders".to_owned(),
//!     namespace: "shop-system".to_owned(),
//!     name: "shop-orders".to_owned(),
//! };
//! let (own, anonymous) = (Client::try_from(own)?, Client::try_from(anonymous)?);
//! let credentials = Credentials::new(account, &own, &anonymous, &Metrics::new());
//! let renewed = credentials.clone();
//! tokio::spawn(async move { renewed.renew().await });
//! credentials.ready().await;
//! let client = credentials.client();
//! # Ok(())
//! # }
//! ```

mod client;
mod credentials;
mod metrics;
#[cfg(test)]
mod tests;
mod token;

pub use credentials::{Account, Credentials, NoToken};
