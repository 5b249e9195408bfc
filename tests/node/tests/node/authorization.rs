//! Policies change under clients at fifty calls a second, and at each moment some policies decide: one client is never answered.

use mcp_api::v1beta1::MCPServer;
use portcullis_node::greeter::{self, STREAMABLE};
use portcullis_node::{DEADLINE, Namespace, Outcome};
use portcullis_testing::wait_for_object;
use serde_json::{Value, json};

use crate::edits::{Setting, lost_its_session};

/// The client that no version of the policies permits.
const REFUSED: &str = "Eve";

/// Policies that permit all but calls with that name, in two forms.
fn policies() -> [Vec<String>; 2] {
    let named = format!(r#"context has arg_name && context.arg_name == "{REFUSED}""#);
    let permit = |unless: &str| format!("permit(principal, action, resource){unless};");
    let unless = format!(" unless {{ {named} }}");
    [vec![permit(&unless)], vec![permit(""), format!("forbid(principal, action, resource) when {{ {named} }};")]]
}

fn inline(policies: &[String]) -> Value {
    json!({ "authzConfig": { "type": "inline", "inline": { "policies": policies } } })
}

/// A ConfigMap with these policies.
fn map(policies: &[String]) -> Value {
    let document = json!({ "version": "1.0", "type": "cedarv1", "cedar": { "policies": policies } });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "rules" },
        "data": { "authz.json": document.to_string() },
    })
}

/// An MCPAuthzConfig with these policies.
fn config(policies: &[String]) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPAuthzConfig", "metadata": { "name": "rules" },
        "spec": { "type": "cedarv1", "config": { "policies": policies } },
    })
}

/// Edits policies in the spec, has them come from a ConfigMap, and edits the text of that and of an MCPAuthzConfig. Returns the failed calls from the first
/// answer on. (A reference to an MCPAuthzConfig in the place of the others is another guard: pods without it go before new ones come.)
async fn edited_under_load(era: &str) -> Vec<Outcome> {
    let [first, second] = policies();
    let of_map = json!({ "authzConfig": { "type": "configMap", "configMap": { "name": "rules" } } });
    let in_spec = Setting {
        name: "policies",
        beside: vec![map(&first)],
        begins: Some(inline(&first)),
        refused: Some(REFUSED),
        edits: vec![inline(&second), of_map, map(&second)],
    };
    let in_config = Setting {
        name: "policies",
        beside: vec![config(&first)],
        begins: Some(json!({ "authzConfigRef": { "name": "rules" } })),
        refused: Some(REFUSED),
        edits: vec![config(&second)],
    };
    let check = async |namespace: &Namespace, _: &str, edit: &Value| {
        let title = if edit["kind"] == "MCPAuthzConfig" { "MCPAuthzConfig \"rules\"" } else { "spec.authzConfig" };
        let enforced = |server: &MCPServer| {
            let mut conditions = server.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.any(|it| {
                (&*it.type_, &*it.status) == ("GuardsEnforced", "True")
                    && it.message.ends_with(&format!("enforces {title}"))
            })
        };
        let servers = namespace.api::<MCPServer>();
        wait_for_object(&servers, greeter::NAME, &format!("{edit} to be enforced"), DEADLINE, enforced).await;
    };
    let mut failed = in_spec.edited_under_load(&STREAMABLE, era, &check).await;
    failed.extend(in_config.edited_under_load(&STREAMABLE, era, &check).await);
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_policies_loses_no_stateless_call() {
    assert_eq!(edited_under_load("stateless").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_policies_costs_a_legacy_session_one_404_at_most() {
    let failed = edited_under_load("legacy").await;
    assert!(failed.iter().all(lost_its_session), "{failed:?}");
}
