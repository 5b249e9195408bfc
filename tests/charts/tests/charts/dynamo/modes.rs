//! All that the chart may be: who makes the certificates, which namespaces are served, and whether there are webhooks.

use std::sync::LazyLock;

use portcullis_charts::{DYNAMO, Helm, chart};
use serde_json::{Value, json};

use super::{NAME, RELEASE};

/// PEM, of which the chart looks at the first words only.
const PEM_IN_BASE64: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// A combination of values, and the flags by which the binary generates the same.
pub(crate) struct Mode {
    pub(crate) values: Value,
    flags: Vec<String>,
}

impl Mode {
    /// Words for `generate`, beside what is generated.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    pub(crate) fn rendered(&self, helm: &Helm) -> Vec<Value> {
        helm.template(&chart(DYNAMO), RELEASE, &self.values).unwrap_or_else(|said| panic!("{}: {said}", self.values))
    }
}

/// Every combination with its objects, rendered once for all tests.
pub(crate) fn all_rendered() -> &'static [(Mode, Vec<Value>)] {
    static RENDERED: LazyLock<Vec<(Mode, Vec<Value>)>> = LazyLock::new(|| {
        let helm = Helm::new();
        let rendered = |mode: Mode| {
            let objects = mode.rendered(&helm);
            (mode, objects)
        };
        all().into_iter().map(rendered).collect()
    });
    &RENDERED
}

/// Every combination.
pub(crate) fn all() -> Vec<Mode> {
    let certificates = [
        ("hooks", json!({})),
        ("automatic", json!({ "rotation": "operator" })),
        ("cert-manager", json!({ "certManager": { "enabled": true } })),
        ("external", json!({ "certificateSecret": { "external": true }, "caBundle": PEM_IN_BASE64 })),
    ];
    let restrictions = [
        (None, json!({})),
        (Some(RELEASE[1]), json!({ "enabled": true })),
        (Some("team"), json!({ "enabled": true, "namespace": "team" })),
    ];
    let mut modes = Vec::new();
    for (certificate, webhook) in &certificates {
        for (namespace, restriction) in &restrictions {
            for enabled in [true, false] {
                let mut webhook = webhook.clone();
                webhook["enabled"] = json!(enabled);
                let names = [
                    format!("--release={NAME}"),
                    format!("--namespace={}", RELEASE[1]),
                    format!("--service-name={NAME}-webhook-service"),
                    "--certificate-secret=webhook-server-cert".to_owned(),
                    format!("--certificates={certificate}"),
                ];
                let restricted = namespace.map(|namespace| format!("--restrict-to-namespace={namespace}"));
                let off = (!enabled).then(|| "--webhooks=off".to_owned());
                modes.push(Mode {
                    values: json!({ "webhook": webhook, "namespaceRestriction": restriction }),
                    flags: names.into_iter().chain(restricted).chain(off).collect(),
                });
            }
        }
    }
    modes
}
