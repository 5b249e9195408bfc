//! `make demo`: both gates at work, start to end, on a control plane of its own; `CLUSTER=current make demo`: in the cluster of the kubeconfig, as a
//! guest. Every claim it prints was checked first; the first that does not hold ends it with an error.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use kube::{Api, Client, ResourceExt as _};
use portcullis_e2e::apply::{Refusal, apply};
use portcullis_e2e::client::{Called, McpClient};
use portcullis_e2e::current::Guest;
use portcullis_e2e::gate::{Gate, in_namespace};
use portcullis_e2e::runner::{Everything, Runner};
use portcullis_e2e::stage::{Stage, settled};
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

const SERVER: &str = include_str!("../../../../examples/server.yaml");
const WARNED: &str = include_str!("../../../../examples/warned.yaml");
const REFUSED: [(&str, &str); 3] = [
    ("an enum of the schema", include_str!("../../../../examples/refused/by-schema.yaml")),
    ("a CEL rule of the schema", include_str!("../../../../examples/refused/by-cel.yaml")),
    ("the operator's admission webhook", include_str!("../../../../examples/refused/by-webhook.yaml")),
];
const GATED: &str = "gated-greeter";
const CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";

static CHAPTER: AtomicUsize = AtomicUsize::new(1);

/// That nobody reads any more what the demo says.
static UNHEARD: Notify = Notify::const_new();

fn say(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        UNHEARD.notify_one();
    }
}

fn chapter(title: &str) {
    say(&format!("\n{}. {title}", CHAPTER.fetch_add(1, Ordering::Relaxed)));
}

fn step(what: &str) {
    say(&format!("   - {what}"));
}

fn shown(text: &str) {
    for line in text.lines() {
        say(&format!("       {line}"));
    }
}

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
    // What is left in a cluster is said to whoever still listens.
    if writeln!(std::io::stdout(), "{error}").is_err() {
        let _ = writeln!(std::io::stderr(), "{error}");
    }
    ExitCode::FAILURE
}

async fn perform() -> Result<()> {
    let ends = Ends::new()?;
    match std::env::args().nth(1).as_deref() {
        None | Some("own") => alone(ends).await,
        Some("current") => as_guest(ends).await,
        Some(other) => Err(anyhow::anyhow!(
            "CLUSTER={other} is neither 'own', a control plane of the demo's own, nor 'current', your kubeconfig's"
        )),
    }
}

/// What ends the demo early. Listened to from start to end: no signal cuts off what puts the cluster in order.
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

    /// The work, unless something ends it before.
    async fn unless<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let why = tokio::select! {
            result = work => return result,
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "terminated",
            _ = self.hangup.recv() => "the terminal is closed",
            () = UNHEARD.notified() => "nobody reads what it says",
        };
        Err(anyhow::anyhow!(why))
    }
}

const NEXT: &str = "
How to go on:
  examples/          the manifests that were applied; examples/entity-operator/README.md is an operator of your own, step by step with kubectl
                     (it is compiled with other features than the demo: ten minutes the first time, seconds after that)
  README.md          what works today, and what comes next
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

/// What there is to see, wherever it is.
async fn show(client: &Client, namespace: &str, folder: &Path) -> Result<()> {
    chapter("The admission gate: what may enter the cluster");
    refusals(client, namespace).await?;
    warning(client, namespace).await?;

    chapter("What an admitted server becomes");
    children(client, namespace).await?;

    chapter("The request gate: which calls may pass, and in what form");
    step("starting a request webhook (HTTPS, signatures checked): it calls bob by his full name, and refuses mallory");
    let gate = Gate::start(b"demo-signing-key").await?;
    expect_taken(client, &gate.secret(namespace)?).await?;
    for object in gate.manifests(namespace)? {
        step(&format!("applying {} {}", text(&object["kind"]), text(&object["metadata"]["name"])));
        expect_taken(client, &object).await?;
    }
    let checksum = rolled(client, namespace, None).await?;
    step("starting a real MCP server that is not ours: `everything` of the official Go SDK");
    let everything = Everything::start(folder).await?;
    step(
        "starting mcp-runner in front, on the bytes of the ConfigMap that the operator wrote and the Secrets that its Deployment mounts",
    );
    let runner = Runner::start(client, namespace, GATED, everything.address, folder).await?;
    calls(&runner, Called::Answered("Hi Robert".to_owned())).await?;

    chapter("An edit of the MCPWebhookConfig reaches the running gate");
    step("taking the mutating webhook out of MCPWebhookConfig greeting-policy");
    let mut edited = gate.manifests(namespace)?.remove(0);
    edited["spec"].as_object_mut().context("the config has a spec")?.remove("mutating");
    expect_taken(client, &edited).await?;
    let after = rolled(client, namespace, Some(&checksum)).await?;
    step("the operator rendered the RunConfig again, and its checksum rolls the proxy's pods:");
    shown(&format!("{CHECKSUM}\n  before {checksum}\n  after  {after}"));
    step("a new pod would start now; here the runner is drained and started again on the new bytes");
    runner.stop().await?;
    let runner = Runner::start(client, namespace, GATED, everything.address, folder).await?;
    calls(&runner, Called::Answered("Hi bob".to_owned())).await?;

    runner.stop().await?;
    everything.stop().await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn refusals(client: &Client, namespace: &str) -> Result<()> {
    for (by, yaml) in REFUSED {
        for object in in_namespace(yaml, namespace)? {
            let Err(Refusal { code, message, causes }) = apply(client, &object).await? else {
                anyhow::bail!("{} was not refused", object["metadata"]["name"]);
            };
            step(&format!(
                "{} {} is refused by {by} ({code}):",
                text(&object["kind"]),
                text(&object["metadata"]["name"])
            ));
            shown(&message);
            ensure!(!causes.is_empty(), "the refusal names no field");
            // The API server adds causes without a field to say that it stopped looking.
            for (field, problem) in causes.iter().filter(|(field, _)| field != "<nil>") {
                shown(&format!("  field {field}: {problem}"));
            }
        }
    }
    Ok(())
}

async fn warning(client: &Client, namespace: &str) -> Result<()> {
    for object in in_namespace(WARNED, namespace)? {
        let applied =
            apply(client, &object).await?.map_err(|refusal| anyhow::anyhow!("refused: {}", refusal.message))?;
        ensure!(!applied.warnings.is_empty(), "no warning came with {}", object["metadata"]["name"]);
        step(&format!("{} {} is admitted, with a warning:", text(&object["kind"]), text(&object["metadata"]["name"])));
        applied.warnings.iter().for_each(|warning| shown(warning));
    }
    Ok(())
}

async fn expect_taken(client: &Client, object: &Value) -> Result<()> {
    let refused = apply(client, object).await?.err();
    refused.map_or(Ok(()), |refusal| {
        Err(anyhow::anyhow!("{} is refused: {}", object["metadata"]["name"], refusal.message))
    })
}

async fn children(client: &Client, namespace: &str) -> Result<()> {
    step("applying examples/server.yaml");
    for object in in_namespace(SERVER, namespace)? {
        expect_taken(client, &object).await?;
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = settled("the RunConfig of greeter", async || Ok(maps.get_opt("greeter-runconfig").await?)).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    settled("the proxy Deployment of greeter", async || Ok(deployments.get_opt("greeter").await?)).await?;
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    settled("the StatefulSet of greeter", async || Ok(sets.get_opt("greeter").await?)).await?;
    step("the operator made, in the order of a safe start:");
    let all = kube::api::ListParams::default();
    for account in Api::<ServiceAccount>::namespaced(client.clone(), namespace).list(&all).await? {
        if account.name_any() != "default" {
            shown(&format!("ServiceAccount  {}", account.name_any()));
        }
    }
    shown(
        "ConfigMap       greeter-runconfig\nStatefulSet     greeter  (the MCP server)\nDeployment      greeter  (the proxy with the request gate)",
    );
    for service in Api::<Service>::namespaced(client.clone(), namespace).list(&all).await? {
        shown(&format!("Service         {}", service.name_any()));
    }
    step("the RunConfig, which is all that the proxy is told:");
    shown(map.data.as_ref().and_then(|data| data.get("runconfig.json")).context("no runconfig.json")?);
    Ok(())
}

/// The checksum on the pod template, once it is another than `before`.
async fn rolled(client: &Client, namespace: &str, before: Option<&str>) -> Result<String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    settled("the checksum on the proxy's pod template", async || {
        let deployment = deployments.get_opt(GATED).await?;
        let template = deployment.and_then(|deployment| deployment.spec?.template.metadata);
        let checksum = template.and_then(|metadata| metadata.annotations?.get(CHECKSUM).cloned());
        Ok(checksum.filter(|checksum| Some(checksum.as_str()) != before))
    })
    .await
}

async fn calls(runner: &Runner, bob: Called) -> Result<()> {
    step("an MCP client of the official Rust SDK calls the tool `greet` through the gate:");
    let client = McpClient::connect(&runner.url).await?;
    ensure!(client.tools().await?.iter().any(|tool| tool == "greet"), "the server has no tool `greet`");
    let refused = Called::Refused { code: 403, message: "Request denied by policy".to_owned() };
    for (name, expected) in [("Ada", Called::Answered("Hi Ada".to_owned())), ("bob", bob), ("mallory", refused)] {
        let called = client.greet(name).await?;
        ensure!(
            called == expected,
            "greet({name}) gave {called:?} instead of {expected:?}; the runner's log:\n{}",
            runner.log()
        );
        let outcome = match &called {
            Called::Answered(answer) if answer.ends_with(name) => format!("passed:  the tool answers '{answer}'"),
            Called::Answered(answer) => format!("mutated: the tool saw another argument, and answers '{answer}'"),
            Called::Refused { code, message } => format!("denied:  JSON-RPC error {code}, '{message}'"),
        };
        shown(&format!("greet({name}) {outcome}"));
    }
    client.close().await
}
