//! The credentials of one controller: a token of its account, renewed in the background.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::token::{Token, request};
use crate::connect::Clients;
use crate::token_metrics::TokenMetrics;
use portcullis_client::Pauses;
use portcullis_client::own_sentence;

/// Deadline of one request for a token.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pauses between requests for tokens, whether they fail or what they bring is refused.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a request of a controller waits for a token. What fails then is tried again by whoever made it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The token of one controller's ServiceAccount. Cheap to clone; clones are the same credentials.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(super) kept: Arc<Kept>,
}

/// What clones share.
pub(super) struct Kept {
    controller: String,
    namespace: String,
    account: String,
    /// Under the account of the process.
    accounts: Api<ServiceAccount>,
    /// Under none.
    pub(super) anonymous: Client,
    pub(super) default_namespace: String,
    held: watch::Sender<Held>,
    metrics: TokenMetrics,
}

#[derive(Debug, Default)]
struct Held {
    token: Option<Token>,
    /// How many tokens there were: which one a refusal is about.
    serial: u64,
    /// Whether the API server refused this one.
    refused: bool,
    /// What kept the last request for one from succeeding.
    problem: Option<String>,
}

impl Held {
    fn usable(&self) -> Option<&Token> {
        self.token.as_ref().filter(|token| !self.refused && token.is_good(Instant::now()))
    }
}

/// A request that could not be sent, because nobody would have known who it is from.
#[derive(Debug, thiserror::Error)]
#[error("no token for ServiceAccount {namespace}/{account}: {problem}")]
pub(super) struct NoToken {
    namespace: String,
    account: String,
    problem: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kept { controller, namespace, account, .. } = &*self.kept;
        f.debug_struct("Credentials")
            .field("controller", controller)
            .field("namespace", namespace)
            .field("account", account)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Those of `controller`, whose ServiceAccount is `namespace/account`. Without a token until
    /// [`renew`](Self::renew) brings one.
    pub(super) fn new(
        clients: &Clients,
        controller: &str,
        namespace: &str,
        account: &str,
        metrics: TokenMetrics,
    ) -> Self {
        let kept = Kept {
            controller: controller.to_owned(),
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            accounts: Api::namespaced(clients.prompt.clone(), namespace),
            anonymous: clients.anonymous.clone(),
            default_namespace: clients.client.default_namespace().to_owned(),
            held: watch::Sender::default(),
            metrics,
        };
        Self { kept: Arc::new(kept) }
    }

    /// Waits until there is a token.
    pub(crate) async fn held(&self) {
        // It fails when the sender is gone, which is ours.
        let _ = self.kept.held.subscribe().wait_for(|held| held.usable().is_some()).await;
    }

    /// Asks for tokens for as long as this is polled: before the last one ends, and at once when the API server refuses
    /// it. What fails is tried again; the token before serves as long as it is good.
    pub(super) async fn renew(&self) -> Infallible {
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            self.due().await;
            let answer = self.ask().await;
            self.take(answer);
            sleep(pauses.next(Instant::now())).await;
        }
    }

    /// Asks for a token once.
    ///
    /// # Errors
    /// With what keeps it from being had.
    #[cfg(feature = "dev")]
    pub(super) async fn try_once(&self) -> Result<(), String> {
        let Kept { namespace, account, .. } = &*self.kept;
        let token = self.ask().await.map_err(|problem| format!("{namespace}/{account}: {problem}"))?;
        self.keep(token);
        Ok(())
    }

    /// The token that a request is to carry, and which one of all it is.
    ///
    /// # Errors
    /// When none can be had in time.
    pub(super) async fn token(&self) -> Result<(Token, u64), NoToken> {
        let mut held = self.kept.held.subscribe();
        let usable = held.wait_for(|held| held.usable().is_some());
        if let Ok(Ok(held)) = timeout(PATIENCE, usable).await
            && let Some(token) = &held.token
        {
            return Ok((token.clone(), held.serial));
        }
        let Kept { namespace, account, held, .. } = &*self.kept;
        let problem = held.borrow().problem.clone().unwrap_or_else(|| format!("none within {} s", PATIENCE.as_secs()));
        Err(NoToken { namespace: namespace.clone(), account: account.clone(), problem })
    }

    /// The API server refused this token: its account may have been deleted, or made anew.
    pub(super) fn refused(&self, serial: u64) {
        self.kept.held.send_if_modified(|held| {
            let news = held.serial == serial && !held.refused;
            held.refused |= news;
            news
        });
    }

    /// Waits until a token is to be asked for.
    async fn due(&self) {
        let mut held = self.kept.held.subscribe();
        let renew_at = held.borrow().token.as_ref().map(Token::renew_at);
        if let Some(renew_at) = renew_at {
            let _ = timeout_at(renew_at, held.wait_for(|held| held.refused)).await;
        }
    }

    async fn ask(&self) -> Result<Token, String> {
        let asked = Instant::now();
        let (accounts, request) = (&self.kept.accounts, request());
        let params = PostParams::default();
        let answer = accounts.create_token_request(&self.kept.account, &params, &request);
        let token = match timeout(DEADLINE, answer).await {
            Ok(Ok(answer)) => Token::of(&answer, asked, chance()),
            Ok(Err(error)) => Err(explained(&error)),
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        };
        self.kept.metrics.asked(token.is_ok());
        token
    }

    /// Keeps a new token, or says why there is none.
    fn take(&self, answer: Result<Token, String>) {
        let Kept { controller, namespace, account, held, metrics, .. } = &*self.kept;
        match answer {
            Ok(token) => {
                if self.keep(token) {
                    info!(controller, namespace, account, "the controller acts under its own ServiceAccount");
                }
            }
            Err(problem) => {
                held.send_modify(|held| held.problem = Some(problem.clone()));
                let usable = held.borrow().usable().is_some();
                metrics.held(usable);
                let does = if usable { "keeps using its current token" } else { "waits; others go on" };
                warn!(controller, namespace, account, problem, "cannot get a token: the controller {does}");
            }
        }
    }

    /// Returns whether this is news: there was none that could be used.
    fn keep(&self, token: Token) -> bool {
        let Kept { held, metrics, .. } = &*self.kept;
        let news = held.borrow().usable().is_none();
        held.send_modify(|held| {
            let serial = held.serial + 1;
            *held = Held { token: Some(token), serial, ..Held::default() };
        });
        metrics.held(true);
        news
    }
}

/// What the API server says, and what to do about it.
fn explained(error: &kube::Error) -> String {
    let said = own_sentence(error);
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "{said}; apply the roles that 'generate rbac' writes, or start with --use-service-account-credentials=false"
        ),
        kube::Error::Api(status) if status.code == 404 => {
            format!("{said}; apply the ServiceAccounts that 'generate rbac' writes")
        }
        _ => said,
    }
}

/// Between 0 and 1. Without random numbers controllers ask at the same moment, which does no harm.
fn chance() -> f64 {
    let mut byte = [0];
    aws_lc_rs::rand::fill(&mut byte).map_or(0.0, |()| f64::from(byte[0]) / f64::from(u8::MAX))
}
