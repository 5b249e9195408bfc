//! Shows the objects that an admitted server becomes.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use portcullis_e2e::gate::in_namespace;
use portcullis_e2e::stage::settled;

use crate::objects::{dynamic, expect_taken, run_config, servers};
use crate::say::{shown, step};

const SERVER: &str = include_str!("../../../../../examples/server.yaml");
/// Groups and kinds of the objects of a server, in the order in which the operator writes them: each before what relies
/// on it.
const CHILDREN: [(&str, &str); 6] = [
    ("", "ServiceAccount"),
    ("", "ConfigMap"),
    ("", "Service"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("apps", "StatefulSet"),
    ("apps", "Deployment"),
];

pub(crate) async fn children(client: &Client, namespace: &str) -> Result<()> {
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
        // A ServiceAccount or a Service is not written again, so their versions are in the order of their creation.
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
    step("the RunConfig, which is all of the proxy's configuration:");
    shown(&run_config(client, namespace, "greeter").await?);
    Ok(())
}
