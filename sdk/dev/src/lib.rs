//! A development session: the admission webhooks of a cluster, served from this machine.
//!
//! Everything that a session puts into the cluster carries a mark: its owner, the session, the time of its end. It goes
//! when the session ends, however it ends; what a killed one leaves goes at the next start. The installed operator and
//! what belongs to it stay as they are: CRDs, Leases and the operator's own configurations are never written.

mod cluster;
mod entries;
mod flags;
mod host;
mod mark;
mod probe;
mod rights;
mod session;
mod text;

use std::cell::Cell;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use backon::{ExponentialBuilder, Retryable as _};
use jiff::Timestamp;
use kube::Client;
use portcullis_manifest::Installation;
use portcullis_webhook::{BoxError, Webhooks};
use rustls::crypto::CryptoProvider;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use cluster::Cluster;
pub use flags::Flags;
use mark::Mark;
use session::Session;
use text::say;

/// API servers may go on calling for so long after the configurations are gone.
const LINGER: Duration = Duration::from_secs(1);
/// Answers under way may take so long to end.
const SHUTDOWN: Duration = Duration::from_secs(10);
/// Removing the objects is tried for so long.
const REMOVE: Duration = Duration::from_secs(30);
/// Said when a session cannot put the cluster in order.
const LEFT: &str = "what was put into the cluster may still be there; remove it with: dev --sweep";
/// The pause between looks at the clock, which runs on while this machine sleeps.
const CLOCK: Duration = Duration::from_secs(5);

/// The webhooks that are served, and the cluster that they are served to.
#[derive(Clone)]
pub struct Development {
    /// The webhooks of the operator. Its conversions are not used.
    pub webhooks: Webhooks,
    /// The installation whose release, namespace and overrides they have.
    pub installation: Installation,
    /// The cluster, with the rights of the developer.
    pub client: Client,
    /// Address of its API server.
    pub url: http::Uri,
    /// Name of the kubeconfig's context, by which local clusters are known; empty within a cluster.
    pub context: String,
    /// Cryptography for the throw-away certificate.
    pub provider: Arc<CryptoProvider>,
}

impl std::fmt::Debug for Development {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Development").field("url", &self.url).field("context", &self.context).finish_non_exhaustive()
    }
}

impl Development {
    /// Runs a session until its time is over, a word such as the name of a signal arrives in `ends`, or `beside` ends.
    /// A second word ends it at once. Progress is written to standard output, for people.
    ///
    /// `beside` is the work that the webhooks read from. It is to end when `answered` is cancelled, which this does
    /// after the last of their answers.
    ///
    /// # Errors
    /// When the API server cannot call this machine or refuses an object, when the user lacks rights, when `beside`
    /// ends early or fails, and when the objects of the session could not be removed. The text says what to do.
    pub async fn run(
        self,
        flags: &Flags,
        ends: mpsc::Receiver<&'static str>,
        answered: CancellationToken,
        beside: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) -> Result<(), BoxError> {
        let beside = async move { beside.await.map_err(anyhow::Error::from_boxed) };
        self.hold(flags, Ends(ends), answered, beside).await.map_err(Into::into)
    }

    async fn hold(
        self,
        flags: &Flags,
        mut ends: Ends,
        answered: CancellationToken,
        beside: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> anyhow::Result<()> {
        let (cluster, session) = tokio::select! {
            prepared = self.prepare(flags) => prepared?,
            _ = ends.next() => return Ok(()),
        };
        tokio::select! {
            swept = sweep(&cluster, flags.sweep) => swept?,
            name = ends.next() => bail!("{name} during cleanup; go on with: dev --sweep"),
        }
        let Some(mut session) = session else { return Ok(()) };

        let (stop, serving, mut tasks) = (CancellationToken::new(), CancellationToken::new(), JoinSet::new());
        let served = session.serve(&self.webhooks, &serving)?;
        tasks.spawn(async move {
            let _last = answered.drop_guard();
            served.await;
            Ok(())
        });
        tasks.spawn(beside);
        let opening = session.open(&self.webhooks, &stop);
        tokio::pin!(opening);
        let opened = tokio::select! {
            opened = &mut opening => Some(opened),
            _ = ends.next() => None,
        };
        let cut_off = opened.is_none();
        let result = match opened {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(opened)) => {
                opened.print(&self.context, &self.url);
                tokio::select! {
                    name = ends.next() => { say(&format!("\n{name}: ending")); Ok(()) }
                    () = until(opened.expires) => { say("\nThe time is over: ending"); Ok(()) }
                    Some(ended) = tasks.join_next() => {
                        ended.context("a task of the session panicked").flatten().and_then(|()| bail!("a task of the session ended early"))
                    }
                }
            }
        };
        stop.cancel();
        let left = Cell::new(LEFT);
        let ending = async {
            // A step that puts an object into the cluster is not cut off half-way: it would be unknown then what is
            // there.
            if cut_off {
                let _ = opening.await;
            }
            remove(&cluster).await.context(LEFT)?;
            left.set("all is removed");
            sleep(LINGER).await;
            serving.cancel();
            let rest = async { while tasks.join_next().await.is_some() {} };
            let _ = timeout(SHUTDOWN, rest).await;
            anyhow::Ok(())
        };
        let ended = tokio::select! {
            ended = ending => ended,
            name = ends.next() => Err(anyhow!("{name} once more: ended at once; {}", left.get())),
        };
        match (result, ended) {
            (Err(error), Err(left)) => Err(left.context(error)),
            (result, ended) => result.and(ended),
        }
    }

    /// Does everything that can fail before anything is put into the cluster. There is no session where former ones are
    /// only swept.
    async fn prepare(&self, flags: &Flags) -> anyhow::Result<(Cluster, Option<Session>)> {
        let Self { webhooks, installation, client, .. } = self;
        let registered = webhooks.manifests()?;
        ensure!(
            !registered.is_empty() && installation.webhooks.is_on(),
            "{} has no admission webhooks to serve; its controllers run with: run --webhooks off --leader-elect off",
            installation.release
        );
        let owner = flags.owner.as_deref().and_then(mark::owner);
        let owner = owner
            .context("no user name is known for you: give --owner NAME, which names what is put into the cluster")?;
        rights::check(client).await?;
        let me = Mark {
            of: installation.release.clone(),
            owner,
            session: session::id(&self.provider)?,
            expires: Some(Timestamp::now() + flags.ttl),
        };
        let cluster = Cluster { client: client.clone(), me };
        let session = if flags.sweep { None } else { Some(Session::prepare(cluster.clone(), self, flags).await?) };
        Ok((cluster, session))
    }
}

/// Removes the objects of former sessions, and says so.
async fn sweep(cluster: &Cluster, only: bool) -> anyhow::Result<()> {
    let (done, alive) = cluster.sweep().await?;
    for line in &done {
        say(line);
    }
    if let Some(other) = alive {
        let does = if only { "removed what belongs to" } else { "this session takes the place of" };
        say(&format!(
            "Note: {does} a session of {} that may be at work: it is called no longer, end it. To run both, give one of \
             them --owner NAME",
            other.description()
        ));
    }
    if only && done.is_empty() {
        say(&format!(
            "nothing to remove: neither sessions of {} nor expired ones of others have left webhooks of {}",
            cluster.me.owner, cluster.me.of
        ));
    }
    Ok(())
}

/// Tries to remove the objects of this session, until that succeeds or is of no use.
async fn remove(cluster: &Cluster) -> anyhow::Result<()> {
    let begun = Instant::now();
    let pauses = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .without_max_times();
    let done = (|| cluster.remove())
        .retry(pauses)
        .sleep(sleep)
        .when(|_| begun.elapsed() < REMOVE)
        .notify(|error, _| say(&format!("not removed yet, trying again: {error:#}")))
        .await?;
    for line in &done {
        say(line);
    }
    Ok(())
}

/// Waits for a time of the clock on the wall.
async fn until(time: Timestamp) {
    while let Ok(left) = Duration::try_from(time.duration_since(Timestamp::now())) {
        if left.is_zero() {
            return;
        }
        sleep(left.min(CLOCK)).await;
    }
}

/// The words that end a session from outside.
struct Ends(mpsc::Receiver<&'static str>);

impl Ends {
    async fn next(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(word) => word,
            None => pending().await,
        }
    }
}
