use serde_json::{Value, json};

use super::{Block, Case, shared};

pub(super) fn cases() -> Vec<Case> {
    let spec = Block::spec("MCPOIDCConfig");
    let cluster = json!({"type": "kubernetesServiceAccount", "inline": null, "kubernetesServiceAccount": {}});
    let mut cases = vec![
        spec.case(
            "",
            "kubernetesServiceAccount must be set when type is 'kubernetesServiceAccount', and must not be set otherwise",
            cluster,
            json!({"type": "kubernetesServiceAccount", "inline": null}),
        ),
        spec.case(
            "",
            "inline must be set when type is 'inline', and must not be set otherwise",
            json!({"type": "inline"}),
            json!({"type": "inline", "inline": Value::Null}),
        ),
    ];
    cases.extend(shared::ca_bundle(&spec.at(".inline")));
    cases
}
