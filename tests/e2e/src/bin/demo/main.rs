//! `make demo`: both gates at work, start to end, on a control plane of its own; `CLUSTER=current make demo`: in the
//! cluster of the kubeconfig, as a guest; `CLUSTER=node make demo`: with real pods. Every claim it prints was checked
//! first; the first that does not hold ends it with an error.

mod admission;
mod children;
mod login;
mod node;
mod objects;
mod requests;
mod say;
mod tools;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::Client;
use portcullis_e2e::current::Guest;
use portcullis_e2e::runner::Everything;
use portcullis_e2e::stage::Stage;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::admission::{refusals, warning};
use self::children::children;
use self::login::login;
use self::node::on_node;
use self::requests::gated;
use self::say::{UNHEARD, chapter, say, step};
use self::tools::filtered;

#[tokio::main]
async fn main() -> ExitCode {
    let start = Instant::now();
    let error = match Box::pin(perform()).await {
        Ok(()) => {
            say(&format!("\nEverything was ended and removed. It took {} s.\n{NEXT}", start.elapsed().as_secs()));
            return ExitCode::SUCCESS;
        }
        Err(error) => format!("\nThe demo stops here: {error:#}"),
    };
    // The error names objects that are left in the cluster, so print it where a person may still read it.
    if writeln!(std::io::stdout(), "{error}").is_err() {
        let _ = writeln!(std::io::stderr(), "{error}");
    }
    ExitCode::FAILURE
}

async fn perform() -> Result<()> {
    let mut ends = Ends::new()?;
    match std::env::args().nth(1).as_deref() {
        None | Some("own") => alone(ends).await,
        Some("current") => as_guest(ends).await,
        Some("node") => {
            say(
                "Portcullis: MCP servers on Kubernetes behind two gates, on a cluster of one real node on this machine.",
            );
            ends.unless(Box::pin(on_node())).await
        }
        Some(other) => Err(anyhow::anyhow!(
            "CLUSTER={other} is none of 'own', a control plane of the demo's own, 'current', your kubeconfig's, and 'node', a real node"
        )),
    }
}

/// The signals that end the demo early. It listens to them from start to end, so that none cuts off the clean-up.
struct Ends {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Ends {
    fn new() -> std::io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate?, hangup: hangup? })
    }

    /// Does the work until a signal comes. A signal to the whole process group may end a child first, and so make the
    /// work fail: then, too, the signal is reported.
    async fn unless<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let failed = tokio::select! {
            biased;
            why = self.any() => anyhow::bail!(why),
            result = work => match result {
                Ok(done) => return Ok(done),
                Err(error) => error,
            },
        };
        match tokio::time::timeout(SIGNAL_BEHIND_CHILD, self.any()).await {
            Ok(why) => anyhow::bail!(why),
            Err(_) => Err(failed),
        }
    }

    async fn any(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "terminated",
            _ = self.hangup.recv() => "the terminal is closed",
            () = UNHEARD.notified() => "its output is closed",
        }
    }
}

/// The time after the end of a child within which the signal that ended it is noticed.
const SIGNAL_BEHIND_CHILD: Duration = Duration::from_millis(100);

const NEXT: &str = "
How to go on:
  examples/          the manifests that were applied; examples/entity-operator/README.md is an operator of your own, step by step with kubectl
                     (it is compiled with other features than the demo: ten minutes the first time, seconds after that)
  README.md          what there is, beside others, and what comes next
  docs/src/          the book: policies, rate limits, audit and telemetry, which the demo does not show, among it
  ARCHITECTURE.md    the way of an object through the admission gate, and of a call through the request gate
  make test          the promises, each with a test";

/// On a control plane of its own.
async fn alone(mut ends: Ends) -> Result<()> {
    say("Portcullis: MCP servers on Kubernetes behind two gates. Nothing here needs, or touches, a cluster of yours.");
    let shown = ends.unless(Box::pin(async {
        chapter("A control plane, and the operator on it");
        let stage = Stage::start(step).await?;
        let namespace = stage.cluster.namespace("demo").await;
        Box::pin(show(&stage.cluster.admin(), &namespace, &stage.folder)).await?;
        stage.stop().await
    }));
    shown.await.map_err(|error| anyhow::anyhow!("{error:#}\nEverything this demo started is ended and removed."))
}

/// In the cluster of the kubeconfig.
async fn as_guest(mut ends: Ends) -> Result<()> {
    say(
        "Portcullis: MCP servers on Kubernetes behind two gates. In your cluster, as a guest: all of it is removed at the end.",
    );
    let mut guest = ends.unless(Guest::look()).await?;
    let shown = ends.unless(Box::pin(async {
        chapter("Your cluster, and the operator beside it");
        guest.settle(step).await?;
        Box::pin(show(&guest.client, &guest.namespace, &guest.folder())).await
    }));
    let shown = shown.await;
    chapter("Everything is put in order");
    let left = guest.leave(step).await;
    match (shown, left) {
        (Err(error), Err(left)) => Err(anyhow::anyhow!("{error:#}\n{left:#}")),
        (Err(error), Ok(())) => Err(anyhow::anyhow!("{error:#}\nEverything this demo started is ended and removed.")),
        (Ok(()), left) => left,
    }
}

/// Shows the demo, on either cluster.
async fn show(client: &Client, namespace: &str, folder: &Path) -> Result<()> {
    chapter("The admission gate: what may enter the cluster");
    refusals(client, namespace).await?;
    warning(client, namespace).await?;

    chapter("What an admitted server becomes");
    children(client, namespace).await?;

    chapter("The request gate: which calls may pass, and in what form");
    step(
        "no pods are needed (a control plane without nodes runs none): the MCP server and its proxy are started as processes on this machine",
    );
    step("starting a real MCP server that is not ours: `everything` of the official Go SDK");
    let everything = Everything::start(folder).await?;
    gated(client, namespace, everything.address, folder).await?;

    chapter("A tool filter: which tools clients see, and under which names");
    filtered(client, namespace, everything.address, folder).await?;

    chapter("A login: who may call");
    login(client, namespace, everything.address, folder).await?;
    everything.stop().await
}
