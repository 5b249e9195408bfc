//! Damage to published bundles, in each way that a user, Helm or a GitOps controller can do it.

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use kube::api::{Patch, PatchParams};
use portcullis_pki::Ca;
use serde_json::{Value, json};

use crate::fixture::Place;
use crate::publish::ca;

const DAY: SignedDuration = SignedDuration::from_hours(24);

type Damage = fn(&mut Vec<Value>, &str);

fn set(webhook: &mut Value, pem: &str) {
    webhook["clientConfig"]["caBundle"] = json!(ByteString(pem.as_bytes().to_vec()));
}

fn damages() -> Vec<(&'static str, Damage)> {
    vec![
        ("deleted", |webhooks, _| {
            for webhook in webhooks {
                webhook["clientConfig"]["caBundle"] = Value::Null;
            }
        }),
        ("deleted in one entry", |webhooks, _| webhooks[1]["clientConfig"]["caBundle"] = Value::Null),
        ("empty", |webhooks, _| set(&mut webhooks[0], "")),
        ("truncated", |webhooks, pem| set(&mut webhooks[0], &pem[..pem.len() / 2])),
        ("a foreign CA", |webhooks, _| set(&mut webhooks[1], &ca("theirs"))),
        ("a foreign CA beside ours", |webhooks, pem| set(&mut webhooks[0], &(pem.to_owned() + &ca("theirs")))),
        ("expired", |webhooks, _| {
            let expired = Ca::generate("old", Timestamp::now() - DAY * 9, Timestamp::now() - DAY).unwrap();
            set(&mut webhooks[0], expired.cert_pem());
        }),
        ("encoded twice", |webhooks, pem| {
            use base64::Engine as _;
            set(&mut webhooks[0], &base64::engine::general_purpose::STANDARD.encode(pem));
        }),
        ("reordered and deleted in one entry", |webhooks, _| {
            webhooks.reverse();
            webhooks[0]["clientConfig"]["caBundle"] = Value::Null;
        }),
        ("bundles of two entries exchanged with another webhook's", |webhooks, _| {
            let mut other = webhooks[0].clone();
            other["name"] = json!("somebody.else.example");
            set(&mut other, &ca("theirs"));
            webhooks.insert(0, other);
            set(&mut webhooks[1], &ca("theirs"));
        }),
    ]
}

// D3, and issues 3, 19 and 20 of the book's list.
#[tokio::test]
async fn a_bundle_damaged_in_any_way_is_repaired_by_name() {
    join_all(damages().into_iter().map(|(what, damage)| is_repaired(what, damage))).await;
}

async fn is_repaired(what: &str, damage: Damage) {
    let place = Place::new().await;
    place.install(&["a", "b"]).await;
    let pem = ca("ours");
    let publisher = place.publish(&pem, &["a", "b"]);
    publisher.published().await;
    let live = place.configuration_api().get(&place.configuration()).await.unwrap();
    let mut webhooks = serde_json::to_value(live.webhooks).unwrap().as_array().unwrap().clone();
    damage(&mut webhooks, &pem);
    let order: Vec<String> = webhooks.iter().map(|webhook| webhook["name"].as_str().unwrap().to_owned()).collect();
    let replaced = Patch::Merge(json!({ "webhooks": webhooks }));
    let rival = PatchParams { field_manager: Some(format!("gitops-{}", place.name)), ..PatchParams::default() };
    place.configuration_api().patch(&place.configuration(), &rival, &replaced).await.unwrap();
    let short = |name: &String| name.split('.').next().unwrap().to_owned();
    let right =
        async || place.bundles().await.iter().all(|(name, held)| (held.as_ref() == Some(&pem)) == (name != "somebody"));
    portcullis_testing::wait_until(what, crate::fixture::PATIENCE, || async { right().await.then_some(()) }).await;
    let after: Vec<_> = place.bundles().await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(after, order.iter().map(short).collect::<Vec<_>>(), "{what}: the order is its owner's");
    publisher.stop().await;
}
