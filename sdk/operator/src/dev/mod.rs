//! `dev`: the webhooks of a cluster, served from this machine.
//!
//! Everything that is put into the cluster carries a mark: whose it is, of which session, until when. It goes when the
//! session ends, however it ends; what a killed one leaves goes at the next start. The installed operator and what
//! belongs to it stay as they are.

mod cluster;
mod election;
mod entries;
mod host;
mod probe;
mod rights;
mod session;
mod session_lease;
mod session_mark;
mod stanza;
mod taken_away;
mod text;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use futures::future::join;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use rustls::crypto::CryptoProvider;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::background::Background;
use super::connect::{self, cluster as connect_to};
use super::health::Health;
use super::installation::{InstallationFlags, label};
use super::leases::{Election, LeaseTiming, duration_within};
use super::shutdown::Signals;
use super::tasks::Tasks;
use super::{Components, Installation, Operator, Runtime};
use cluster::Cluster;
use election::Candidate;
use portcullis_client::Pauses;
use portcullis_lease::Scope;
use rights::Does;
use session::Session;
use session_lease::{SessionLease, Swept};
use session_mark::SessionMark;
use text::say;

/// How long API servers may go on calling after what called us is gone.
const LINGER: Duration = Duration::from_secs(1);
/// How long answers under way and controllers may take to end.
const SHUTDOWN: Duration = Duration::from_secs(10);
/// How long controllers may take of that: then there is time left to give the Lease back.
const CONTROLLERS: Duration = Duration::from_secs(7);
/// How long removing what was put in is tried.
const REMOVE: Duration = Duration::from_secs(30);
/// What a session leaves that cannot put the cluster in order.
const LEFT: &str = "what was put into the cluster may still be there; remove it with: dev --sweep";
/// How often the clock is looked at: one that runs on while this machine sleeps.
const CLOCK: Duration = Duration::from_secs(5);

#[derive(clap::Args, Clone, Debug)]
pub(super) struct DevFlags {
    /// Kubeconfig file [default: KUBECONFIG, then ~/.kube/config, then the cluster that the process runs in]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Namespace that the operator is installed in [default: <release>-system]
    #[arg(long, value_parser = label)]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) installation: InstallationFlags,
    /// Name or address by which the API server reaches this machine [default: found by asking it]
    #[arg(long, value_name = "ADDR", value_parser = host::host, conflicts_with = "public_url")]
    host: Option<String>,
    /// URL of a tunnel that terminates TLS and forwards plain HTTP to --port of this machine
    #[arg(long, value_name = "URL", value_parser = host::public_url)]
    public_url: Option<String>,
    /// CA certificates (PEM) that the tunnel's certificate is checked with [default: those of the API server's system]
    #[arg(long, value_name = "FILE", requires = "public_url")]
    ca_file: Option<PathBuf>,
    /// Port that the webhooks are served on; 0 takes a free one
    #[arg(long, default_value_t = 9443)]
    port: u16,
    /// Longest duration of the session, up to 24h
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = ttl)]
    ttl: SignedDuration,
    /// Serve webhooks and run controllers for this namespace only; may be given several times. CRDs then keep their
    /// conversion
    #[arg(long = "only-namespace", value_name = "NS", value_parser = label)]
    only_namespaces: Vec<String>,
    /// Keep the webhooks' failure policies: with Fail, writes in the cluster depend on this machine
    #[arg(long)]
    fail: bool,
    /// Run the controllers too, with the rights of the kubeconfig's user, while no installed replica leads
    #[arg(long)]
    controllers: bool,
    /// For tests that cannot wait: as of `run`
    #[arg(long, hide = true, value_name = "DURATIONS", requires = "controllers")]
    lease_timing: Option<LeaseTiming>,
    /// Your name, which the objects of the session get
    #[arg(long, env = "USER", value_name = "NAME")]
    owner: Option<String>,
    /// Only remove what earlier sessions left behind
    #[arg(long)]
    sweep: bool,
}

/// From a second to a day.
fn ttl(text: &str) -> Result<SignedDuration, String> {
    SignedDuration::try_from(duration_within(1, 86_400)(text)?).map_err(|error| error.to_string())
}

pub(super) async fn perform<A: clap::Args>(
    operator: &Operator<A>,
    mut components: Components,
    flags: DevFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    let mut ends = Ends::new()?;
    let prepare = prepare(operator, &components, &flags, provider);
    let Prepared { connection, cluster, session, candidate, left } = tokio::select! {
        prepared = prepare => prepared?,
        _ = ends.next() => return Ok(()),
    };
    let order = async {
        let (done, alive) = cluster.sweep().await?;
        for line in &done {
            say(line);
        }
        if let Some(other) = alive {
            say(&may_be_at_work(&other, flags.sweep));
        }
        if flags.sweep && !sweep(left.as_ref()).await && done.is_empty() {
            say(&format!(
                "nothing to remove: neither sessions of {} nor expired ones of others have left webhooks of {}",
                cluster.me.owner, cluster.me.of
            ));
        }
        anyhow::Ok(())
    };
    tokio::select! {
        order = order => order?,
        name = ends.next() => bail!("{name} during cleanup; go on with: dev --sweep"),
    }
    let Some(mut session) = session else { return Ok(()) };

    let Candidate { leases, session_lease, told } = candidate;
    if told.is_none() {
        components.controllers.clear();
    }
    let elected = session_lease.is_some();
    let (stop, serving, mut tasks) = (CancellationToken::new(), CancellationToken::new(), Tasks::default());
    // A restricted session is called for its own namespace alone, and by the probe, which is in none.
    let judged = if leases.stand_back() { leases.scope.clone() } else { Scope::everything() };
    let (served, metrics) = session.serve(&components.webhooks, &judged, &serving)?;
    // What webhooks read goes after the last of their calls.
    let answered = CancellationToken::new();
    let last = answered.clone().drop_guard();
    tasks.spawn("the webhook server", &serving, async move {
        let _last = last;
        served.await
    });
    let opening = session.open(&stop);
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
            opened.tell(&connection, told.as_deref(), leases.stand_back());
            beside(session_lease.clone(), leases.election.clone(), left, &stop, &mut tasks);
            let runtime = Runtime::new(connection.clients.client.clone(), opened.namespace.clone(), stop.clone());
            let (health, serving) = (Health::new("the leases", metrics.clone()), serving.clone());
            let release = cluster.me.of.clone();
            let (runtime, patience) = (Runtime { release, metrics, ..runtime }, CONTROLLERS);
            let only = opened.reach.namespaces.clone();
            let work = Background { runtime, leases, only, health, serving, answered, patience };
            work.start(components, std::future::ready(()), &mut tasks);
            tokio::select! {
                name = ends.next() => { say(&format!("\n{name}: ending")); Ok(()) }
                () = until(opened.expires) => { say("\nThe time is over: ending"); Ok(()) }
                said = taken_away::taken_away(&cluster, &opened) => Err(anyhow!(said)),
                Some(ended) = tasks.next() => ended.map_err(anyhow::Error::from),
            }
        }
    };
    stop.cancel();
    let left = Cell::new(LEFT);
    let ending = async {
        // What puts something into the cluster is not cut off half-way: nobody would know then what is there.
        if cut_off {
            let _ = opening.await;
        }
        remove(&cluster).await.context(LEFT)?;
        left.set(if elected { "all but the Lease, which lapses, is removed" } else { "all is removed" });
        sleep(LINGER).await;
        serving.cancel();
        let rest = async { while tasks.next().await.is_some() {} };
        let _ = timeout(SHUTDOWN, rest).await;
        if let Some(session_lease) = session_lease {
            session_lease.clear().await.unwrap_or_else(|error| say(&format!("left {session_lease}: {error:#}")));
        }
        anyhow::Ok(())
    };
    let ended = tokio::select! {
        ended = ending => ended,
        // A terminal that is closed may say so twice.
        name = ends.signals.next() => Err(anyhow!("{name} once more: ended at once; {}", left.get())),
    };
    match (result, ended) {
        (Err(error), Err(left)) => Err(left.context(error)),
        (result, ended) => result.and(ended),
    }
}

/// Starts what goes on beside the work of a session: says who leads, and takes away what sessions before it `left`.
fn beside(
    session_lease: Option<SessionLease>,
    election: Option<Election>,
    left: Option<SessionLease>,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    let ended = stop.clone();
    tasks.spawn("the rest of the session", stop, async move {
        let told = async {
            if let (Some(session_lease), Some(election)) = (session_lease, election) {
                session_lease.tell(&election).await;
            }
        };
        ended.run_until_cancelled(join(told, sweep(left.as_ref()))).await;
        ended.cancelled().await;
        anyhow::Ok(())
    });
}

/// Takes away the Lease that sessions left. It lapses in any case, so a failure is only said. Returns whether there was
/// anything to say.
async fn sweep(left: Option<&SessionLease>) -> bool {
    let Some(session_lease) = left else { return false };
    match session_lease.sweep().await {
        Ok(swept) => swept != Swept::Nothing,
        Err(error) => {
            say(&format!("left {session_lease}: {error:#}"));
            true
        }
    }
}

/// What people are told when what another session of theirs put in was removed before its time was over.
fn may_be_at_work(other: &SessionMark, only_sweeps: bool) -> String {
    let does = if only_sweeps { "removed what belongs to" } else { "this session takes the place of" };
    format!(
        "Note: {does} a session of {} that may be at work: it then ends. To run both, give one of them --owner NAME",
        other.told()
    )
}

/// What a session begins with.
struct Prepared {
    connection: connect::Cluster,
    cluster: Cluster,
    /// None where former ones are only swept.
    session: Option<Session>,
    candidate: Candidate,
    /// Where sessions may have left their Lease: of those with controllers, whoever comes next takes it over.
    left: Option<SessionLease>,
}

/// Everything that can fail before anything is put into the cluster.
async fn prepare<A: clap::Args>(
    operator: &Operator<A>,
    components: &Components,
    flags: &DevFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<Prepared> {
    let installation = operator.resolve(&flags.installation, flags.namespace.as_deref())?;
    ensure!(
        !components.webhooks.is_empty() && installation.webhooks.is_on(),
        "{} has no webhooks to serve; its controllers alone run with: run",
        installation.release
    );
    if let Some(ours) = &installation.restricted_to
        && let Some(other) = flags.only_namespaces.iter().find(|only| *only != ours)
    {
        bail!(
            "--restrict-to-namespace {ours} has the webhooks called for that namespace alone: omit --only-namespace {other}"
        );
    }
    let owner = flags.owner.as_deref().and_then(session_mark::owner);
    let owner =
        owner.context("nobody knows who you are: give --owner NAME, which names what is put into the cluster")?;
    let connection = connect_to(flags.kubeconfig.as_deref()).await?;
    let crds: Vec<_> = components.webhooks.conversions()?.into_iter().map(|conversion| conversion.crd).collect();
    let controllers = flags.controllers && !flags.sweep && !components.controllers.is_empty();
    let policies = components.webhooks.manifests()?.iter().any(|webhook| !webhook.cel_rules.is_empty());
    let does = Does { conversions: !crds.is_empty(), policies, controllers: controllers.then_some(&installation) };
    rights::check(&connection.clients.client, does).await?;
    let me = SessionMark {
        of: installation.release.clone(),
        owner,
        session: session::id()?,
        expires: Some(Timestamp::now() + flags.ttl),
    };
    let client = &connection.clients.prompt;
    let candidate = if controllers {
        Candidate::of_controllers(client, &installation, &me, flags.lease_timing).await?
    } else if flags.sweep {
        Candidate::none()
    } else {
        Candidate::of_webhooks(client, &installation).await?
    };
    let left = if controllers { None } else { left(client, &installation).await? };
    let cluster = Cluster { client: connection.clients.client.clone(), me, crds, policies };
    let session = if flags.sweep {
        None
    } else {
        Some(Session::prepare(cluster.clone(), &connection, installation, flags, provider).await?)
    };
    Ok(Prepared { connection, cluster, session, candidate, left })
}

/// Where sessions may have left their Lease, if it may be looked at.
async fn left(client: &Client, installation: &Installation) -> anyhow::Result<Option<SessionLease>> {
    let session_lease = SessionLease::new(client, installation);
    let lack = rights::lacks(client, &[rights::to_sweep(&session_lease.namespace)]).await?;
    if let Some(lack) = &lack {
        say(&format!("Leases that killed sessions left are not removed: {lack}"));
    }
    Ok(lack.is_none().then_some(session_lease))
}

/// Tries to remove what the session put in, until that succeeds or is of no use.
async fn remove(cluster: &Cluster) -> anyhow::Result<()> {
    let (begun, mut pauses) = (Instant::now(), Pauses::new(Duration::from_millis(200), Duration::from_secs(5)));
    loop {
        match cluster.remove().await {
            Ok(done) => {
                for line in &done {
                    say(line);
                }
                return Ok(());
            }
            Err(error) if begun.elapsed() > REMOVE => return Err(error),
            Err(error) => say(&format!("not removed yet, trying again: {error:#}")),
        }
        sleep(pauses.next(Instant::now())).await;
    }
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

/// What ends a session from outside: the signals of `run`, and the end of the terminal.
struct Ends {
    signals: Signals,
    hangup: Signal,
}

impl Ends {
    fn new() -> std::io::Result<Self> {
        Ok(Self { signals: Signals::new()?, hangup: signal(SignalKind::hangup())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            name = self.signals.next() => name,
            _ = self.hangup.recv() => {
                self.signals.is_new();
                "SIGHUP"
            }
        }
    }
}
