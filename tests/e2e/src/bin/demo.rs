//! `make demo`: both gates at work, start to end, on a control plane of its own; `CLUSTER=current make demo`: in the cluster of the kubeconfig, as a
//! guest. Every claim it prints was checked first; the first that does not hold ends it with an error.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
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
const FILTERED: &str = include_str!("../../../../examples/tool-filter.yaml");
const WARNED: &str = include_str!("../../../../examples/warned.yaml");
const REFUSED: [(&str, &str); 3] = [
    ("an enum of the schema", include_str!("../../../../examples/refused/by-schema.yaml")),
    ("a CEL rule of the schema", include_str!("../../../../examples/refused/by-cel.yaml")),
    ("the operator's admission webhook", include_str!("../../../../examples/refused/by-webhook.yaml")),
];
const GATED: &str = "gated-greeter";
/// Groups and kinds of the objects of a server, in the order in which the operator writes them: each before what relies on it.
const CHILDREN: [(&str, &str); 6] = [
    ("", "ServiceAccount"),
    ("", "ConfigMap"),
    ("", "Service"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("apps", "StatefulSet"),
    ("apps", "Deployment"),
];
const MUTATING: &str = "mutating-webhook";
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
    step(
        "no pods are needed (a control plane without nodes runs none): the MCP server and its proxy are started as processes on this machine",
    );
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
    let before = chain(client, namespace).await?;
    step("taking the mutating webhook out of MCPWebhookConfig greeting-policy");
    let mut edited = gate.manifests(namespace)?.remove(0);
    edited["spec"].as_object_mut().context("the config has a spec")?.remove("mutating");
    expect_taken(client, &edited).await?;
    rolled(client, namespace, Some(&checksum)).await?;
    let after = chain(client, namespace).await?;
    ensure!(before != after && !after.iter().any(|kind| kind == MUTATING), "the RunConfig did not follow: {after:?}");
    step("the operator wrote the RunConfig again; a call now passes, in order:");
    shown(&format!("before: {}\nafter:  {}", before.join(", "), after.join(", ")));
    step("and put its new checksum on the Deployment's pod template, which rolls the proxy's pods");
    step("a new pod would start now; here the runner is drained and started again on the new bytes");
    runner.stop().await?;
    let runner = Runner::start(client, namespace, GATED, everything.address, folder).await?;
    calls(&runner, Called::Answered("Hi bob".to_owned())).await?;

    runner.stop().await?;

    chapter("A tool filter: which tools clients see, and under which names");
    filtered(client, namespace, everything.address, folder).await?;
    everything.stop().await
}

async fn filtered(client: &Client, namespace: &str, backend: SocketAddr, folder: &Path) -> Result<()> {
    step("applying examples/tool-filter.yaml: it shows `ping`, and `greet` under the name `hello`");
    for object in in_namespace(FILTERED, namespace)? {
        expect_taken(client, &object).await?;
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    settled("the proxy of filtered-greeter", async || Ok(deployments.get_opt("filtered-greeter").await?)).await?;
    let runner = Runner::start(client, namespace, "filtered-greeter", backend, folder).await?;
    step("an MCP client lists the tools, and calls one by its new and by its old name:");
    let mcp = McpClient::connect(&runner.url).await?;
    let mut tools = mcp.tools().await?;
    tools.sort();
    ensure!(tools == ["hello", "ping"], "clients see {tools:?}");
    shown(&format!("tools/list     {}", tools.join(", ")));
    let called = mcp.greet_by("hello", "Ada").await?;
    ensure!(called == Called::Answered("Hi Ada".to_owned()), "hello(Ada) gave {called:?}");
    shown("hello(Ada)     passed:  the tool `greet` answers 'Hi Ada'");
    let Called::Refused { code, message } = mcp.greet("Ada").await? else {
        anyhow::bail!("a tool was called by a name that clients do not see");
    };
    shown(&format!("greet(Ada)     denied:  JSON-RPC error {code}, '{message}'"));
    mcp.close().await?;
    runner.stop().await.map(drop)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn refusals(client: &Client, namespace: &str) -> Result<()> {
    for (by, yaml) in REFUSED {
        for object in in_namespace(yaml, namespace)? {
            let Err(Refusal { code, causes, .. }) = apply(client, &object).await? else {
                anyhow::bail!("{} was not refused", object["metadata"]["name"]);
            };
            step(&format!(
                "{} {} is refused by {by} ({code}):",
                text(&object["kind"]),
                text(&object["metadata"]["name"])
            ));
            ensure!(!causes.is_empty(), "the refusal names no field");
            // The API server adds causes without a field to say that it stopped looking.
            for (field, problem) in causes.iter().filter(|(field, _)| field != "<nil>") {
                shown(&format!("{field}: {problem}"));
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
        status(client, namespace, text(&object["metadata"]["name"])).await?;
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
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    settled("the proxy Deployment of greeter", async || Ok(deployments.get_opt("greeter").await?)).await?;
    let uid = servers(client, namespace).get("greeter").await?.uid().context("greeter has no uid")?;
    let mut made = Vec::new();
    for (group, kind) in CHILDREN {
        let all = dynamic(client, namespace, group, "v1", kind).list(&ListParams::default()).await?;
        let own = all.into_iter().filter(|object| object.owner_references().iter().any(|owner| owner.uid == uid));
        let mut own: Vec<_> = own.collect();
        // Nobody writes a ServiceAccount or a Service again, so their versions are in the order of their creation.
        own.sort_by_key(|object| object.resource_version().and_then(|version| version.parse::<u64>().ok()));
        let own: Vec<_> =
            own.into_iter().map(|object| (kind, object.name_any(), object.creation_timestamp())).collect();
        ensure!(!own.is_empty(), "the operator made no {kind}");
        made.extend(own);
    }
    ensure!(made.is_sorted_by(|(.., before), (.., after)| before <= after), "made in another order: {made:?}");
    step(
        "the operator made, in this order: the NetworkPolicy before the MCP server that it protects, and the proxy last",
    );
    for (kind, name, _) in made {
        let what = match kind {
            "NetworkPolicy" => "  (lets only the proxy reach the MCP server)",
            "StatefulSet" => "  (the MCP server)",
            "Deployment" => "  (the proxy with the request gate)",
            _ => "",
        };
        shown(&format!("{kind:<15} {name}{what}"));
    }
    step("the RunConfig, which is all that the proxy is told:");
    shown(&run_config(client, namespace, "greeter").await?);
    Ok(())
}

fn dynamic(client: &Client, namespace: &str, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

fn servers(client: &Client, namespace: &str) -> Api<DynamicObject> {
    dynamic(client, namespace, "toolhive.stacklok.dev", "v1beta1", "MCPServer")
}

/// The RunConfig that the operator wrote for a server.
async fn run_config(client: &Client, namespace: &str, server: &str) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps.get(&format!("{server}-runconfig")).await?;
    map.data.and_then(|mut data| data.remove("runconfig.json")).context("no runconfig.json")
}

/// The types of the middleware that a call of the gated server passes, in order.
async fn chain(client: &Client, namespace: &str) -> Result<Vec<String>> {
    let document: Value = serde_json::from_str(&run_config(client, namespace, GATED).await?)?;
    let entries = document["middleware_configs"].as_array().context("the RunConfig has no middleware")?;
    Ok(entries.iter().map(|entry| text(&entry["type"]).to_owned()).collect())
}

/// Shows the status of a server that gets no proxy, once the operator has written it.
async fn status(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let servers = servers(client, namespace);
    let status = settled(&format!("the status of {name}"), async || {
        let status = servers.get(name).await?.data["status"].take();
        Ok((status["phase"] == "Failed").then_some(status))
    })
    .await?;
    step(&format!(
        "its status, as `kubectl get mcpserver {name} -o yaml` shows it: phase {}, and the conditions",
        text(&status["phase"])
    ));
    for condition in status["conditions"].as_array().context("the status has no conditions")? {
        let [type_, value, reason, message] = ["type", "status", "reason", "message"].map(|key| text(&condition[key]));
        shown(&format!("{type_}={value} ({reason}): {message}"));
    }
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
