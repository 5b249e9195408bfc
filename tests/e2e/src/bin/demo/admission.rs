//! The admission gate: what may enter the cluster.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::DeleteParams;
use portcullis_e2e::apply::{Refusal, apply};
use portcullis_e2e::gate::in_namespace;
use portcullis_e2e::stage::settled;
use serde_json::Value;

use crate::objects::{servers, text};
use crate::say::{shown, step};

const WARNED: &str = include_str!("../../../../../examples/warned.yaml");
const REFUSED: [(&str, &str); 3] = [
    ("an enum of the schema", include_str!("../../../../../examples/refused/by-schema.yaml")),
    ("a CEL rule of the schema", include_str!("../../../../../examples/refused/by-cel.yaml")),
    ("the operator's admission webhook", include_str!("../../../../../examples/refused/by-webhook.yaml")),
];

pub(crate) async fn refusals(client: &Client, namespace: &str) -> Result<()> {
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

pub(crate) async fn warning(client: &Client, namespace: &str) -> Result<()> {
    for object in in_namespace(WARNED, namespace)? {
        let name = text(&object["metadata"]["name"]);
        let warnings = warnings(client, namespace, &object).await?;
        step(&format!("{} {name} is admitted, with a warning:", text(&object["kind"])));
        for warning in &warnings {
            shown(warning);
        }
        status(client, namespace, name).await?;
    }
    Ok(())
}

/// Applies an object that is to be warned of. An operator that has just started warns of nothing that it has not read,
/// so the object is made again until it does.
async fn warnings(client: &Client, namespace: &str, object: &Value) -> Result<Vec<String>> {
    let name = text(&object["metadata"]["name"]);
    let servers = servers(client, namespace);
    settled(&format!("a warning of {name}"), async || {
        let applied = apply(client, object).await?;
        let warnings = applied.map_err(|refusal| anyhow::anyhow!("refused: {}", refusal.message))?.warnings;
        if !warnings.is_empty() {
            return Ok(Some(warnings));
        }
        servers.delete(name, &DeleteParams::default()).await?;
        Ok(None)
    })
    .await
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
