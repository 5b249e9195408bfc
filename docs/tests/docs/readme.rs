//! The rule with which the READMEs begin holds for updates too.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use portcullis::webhooks::{Context, Validate, Verdict, Webhooks};
use portcullis_testing::admission::Reviews;
use serde_json::json;

const PAGES: [&str; 5] = [
    "../README.md",
    "../sdk/portcullis/README.md",
    "../sdk/portcullis/src/lib.rs",
    "../sdk/webhook/README.md",
    "src/introduction.md",
];

async fn no_passwords(new: Arc<ConfigMap>, _: Context) -> Verdict {
    if new.data.iter().flatten().any(|(key, _)| key.contains("password")) {
        return Verdict::deny("passwords belong in Secrets").code(422).cause("data", "holds a password");
    }
    Verdict::allow()
}

#[tokio::test]
async fn the_rule_of_the_readmes_refuses_an_update() {
    let webhook = Validate::<ConfigMap>::new("no-passwords").on_create_or_update(no_passwords);
    let this = include_str!("readme.rs");
    let (_, rule) = this.split_once("\n\nasync fn").unwrap();
    let (rule, rest) = rule.split_once("\n}\n").unwrap();
    let (_, registration) = rest.split_once("let webhook = ").unwrap();
    let (registration, _) = registration.split_once(";\n").unwrap();
    for page in PAGES {
        let text = std::fs::read_to_string(page).unwrap().replace("//! ", "");
        assert!(
            text.contains(rule) && text.contains(registration),
            "{page} has another rule, or registers it otherwise"
        );
    }

    let reviews = Reviews::new(&Webhooks::new().validate(webhook)).unwrap();
    let map = |key: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {key: "?"}});
    let answer = reviews.update(&map("color"), &map("password")).validate("no-passwords").await;
    answer.assert_denied(422, "passwords belong in Secrets");
    reviews.update(&map("color"), &map("size")).validate("no-passwords").await.assert_allowed();
}
