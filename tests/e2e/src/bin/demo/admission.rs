//! The admission gate: what may enter the cluster.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use portcullis_e2e::apply::{Refusal, apply};
use portcullis_e2e::gate::in_namespace;
use portcullis_e2e::stage::settled;

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
        let applied =
            apply(client, &object).await?.map_err(|refusal| anyhow::anyhow!("refused: {}", refusal.message))?;
        ensure!(!applied.warnings.is_empty(), "no warning came with {}", object["metadata"]["name"]);
        step(&format!("{} {} is admitted, with a warning:", text(&object["kind"]), text(&object["metadata"]["name"])));
        applied.warnings.iter().for_each(|warning| shown(warning));
        status(client, namespace, text(&object["metadata"]["name"])).await?;
    }
    Ok(())
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
