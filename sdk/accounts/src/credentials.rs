//! The credentials of an account: a token, renewed in the background.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use portcullis_client::{Pauses, own_sentence};
use portcullis_metrics::Metrics;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use crate::metrics::{TokenFamilies, TokenMetrics};
use crate::token::{Token, request};

/// Deadline of one request for a token.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pauses between requests for tokens, whether they fail or what they bring is refused.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a request of a controller waits for a token. What fails then is tried again by whoever made it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The ServiceAccount of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name of the controller, in logs and as a label of metrics.
    pub controller: String,
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub name: String,
}

/// The current token of an [`Account`]. Cheap to clone; clones share the token.
#[derive(Clone)]
pub struct Credentials {
    pub(crate) shared: Arc<Shared>,
}

/// What clones share.
pub(crate) struct Shared {
    account: Account,
    /// Under the account of the process.
    accounts: Api<ServiceAccount>,
    /// Under none.
    pub(crate) anonymous: Client,
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

/// There is no token of an account: a request under it was not sent. Try again later; the message says whether rights or
/// the ServiceAccount are missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token for ServiceAccount {namespace}/{account}: {problem}")]
#[non_exhaustive]
pub struct NoToken {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub account: String,
    /// What the API server said, or that it did not answer. Where rights or the ServiceAccount are missing, also the fix, in
    /// the words of an operator's command line (`generate rbac`).
    pub problem: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("account", &self.shared.account).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Credentials of `account`, without a token until [`renew`](Self::renew) or [`request_once`](Self::request_once)
    /// brings one.
    ///
    /// `own` acts under the account of the process and requests the tokens; the process needs the right to `create`
    /// `serviceaccounts/token` for this account. Build it with [`default_retry`](kube::Config::default_retry) off: a request
    /// that waits for a retry could outlast the token, and [`renew`](Self::renew) repeats failed requests itself.
    /// `anonymous` must have no credentials: a client certificate, for example,
    /// would take precedence over the token.
    pub fn new(account: Account, own: &Client, anonymous: &Client, metrics: &Metrics) -> Self {
        let shared = Shared {
            accounts: Api::namespaced(own.clone(), &account.namespace),
            anonymous: anonymous.clone(),
            held: watch::Sender::default(),
            metrics: metrics.families::<TokenFamilies>().of(&account.controller),
            account,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Waits until there is a valid token.
    pub async fn ready(&self) {
        // It fails when the sender is gone, which is ours.
        let _ = self.shared.held.subscribe().wait_for(|held| held.usable().is_some()).await;
    }

    /// Requests tokens for as long as this is polled: before the current one expires, and at once when the API server
    /// refuses it. Failed requests are repeated; until one succeeds, the current token is used as long as it is valid. Poll
    /// this once for all clones.
    pub async fn renew(&self) -> Infallible {
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            self.due().await;
            let answer = self.ask().await;
            self.take(answer);
            sleep(pauses.next(Instant::now())).await;
        }
    }

    /// Requests a token once.
    ///
    /// # Errors
    /// When the API server does not issue one within ten seconds.
    pub async fn request_once(&self) -> Result<(), NoToken> {
        let token = self.ask().await.map_err(|problem| self.no_token(problem))?;
        self.keep(token);
        Ok(())
    }

    /// The token that a request is to carry, and which one of all it is.
    ///
    /// # Errors
    /// When none can be had in time.
    pub(crate) async fn token(&self) -> Result<(Token, u64), NoToken> {
        let mut held = self.shared.held.subscribe();
        let usable = held.wait_for(|held| held.usable().is_some());
        if let Ok(Ok(held)) = timeout(PATIENCE, usable).await
            && let Some(token) = &held.token
        {
            return Ok((token.clone(), held.serial));
        }
        let problem = self.shared.held.borrow().problem.clone();
        Err(self.no_token(problem.unwrap_or_else(|| format!("none within {} s", PATIENCE.as_secs()))))
    }

    fn no_token(&self, problem: String) -> NoToken {
        let Account { namespace, name, .. } = self.shared.account.clone();
        NoToken { namespace, account: name, problem }
    }

    /// The API server refused this token: its account may have been deleted, or made anew.
    pub(crate) fn refused(&self, serial: u64) {
        self.shared.held.send_if_modified(|held| {
            let news = held.serial == serial && !held.refused;
            held.refused |= news;
            news
        });
    }

    /// Waits until a token is to be asked for.
    async fn due(&self) {
        let mut held = self.shared.held.subscribe();
        let renew_at = held.borrow().token.as_ref().map(Token::renew_at);
        if let Some(renew_at) = renew_at {
            let _ = timeout_at(renew_at, held.wait_for(|held| held.refused)).await;
        }
    }

    async fn ask(&self) -> Result<Token, String> {
        let asked = Instant::now();
        let (accounts, request) = (&self.shared.accounts, request());
        let params = PostParams::default();
        let answer = accounts.create_token_request(&self.shared.account.name, &params, &request);
        let token = match timeout(DEADLINE, answer).await {
            Ok(Ok(answer)) => Token::of(&answer, asked, chance()),
            Ok(Err(error)) => Err(explained(&error)),
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        };
        self.shared.metrics.asked(token.is_ok());
        token
    }

    /// Keeps a new token, or says why there is none.
    fn take(&self, answer: Result<Token, String>) {
        let Shared { account, held, metrics, .. } = &*self.shared;
        let Account { controller, namespace, name: account } = account;
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
        let Shared { held, metrics, .. } = &*self.shared;
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
