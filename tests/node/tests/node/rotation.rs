//! Keys and certificates between proxy and webhook, and their rotation.

use jiff::{SignedDuration, Timestamp};
use portcullis_node::{DEADLINE, Namespace, Node, POD_IMAGE, greeter, install_operator};
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

fn validity() -> (Timestamp, Timestamp) {
    let now = Timestamp::now();
    (now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(24))
}

fn authority(name: &str) -> Ca {
    let (not_before, not_after) = validity();
    Ca::generate(name, not_before, not_after).unwrap()
}

fn issue(ca: &Ca, name: &str, dns_names: &[String], usage: Usage) -> Pair {
    let (not_before, not_after) = validity();
    ca.issue(&CertificateParams {
        common_name: name,
        organizations: &[],
        dns_names,
        ip_addresses: &[],
        not_before,
        not_after,
        usage,
    })
    .unwrap()
}

fn secret(name: &str, pair: &Pair, authorities: &str, hmac: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "stringData": { "tls.crt": pair.cert_pem, "tls.key": pair.key_pem, "ca.crt": authorities, "hmac": hmac },
    })
}

/// Returns when the webhook has printed this.
async fn webhook_says(namespace: &Namespace, text: &str) {
    wait_until(&format!("the webhook to say '{text}'"), DEADLINE, || async {
        let pods = namespace.pods("policy").await;
        namespace.log(pods.first()?).await.contains(text).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_proxy_uses_rotated_keys_without_a_failed_call() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("rotation").await;
    let host = format!("policy.{}.svc.cluster.local", namespace.name);
    let (old, new) = (authority("old authority"), authority("new authority"));
    let both = format!("{}{}", old.cert_pem(), new.cert_pem());
    let names = [host.clone()];
    let server = issue(&old, "old server", &names, Usage::Server);
    let client = issue(&old, "old client", &[], Usage::Client);
    namespace
        .apply([secret("server", &server, old.cert_pem(), "one"), secret("client", &client, old.cert_pem(), "one")])
        .await;
    let files = ["-certificate", "/secret/tls.crt", "-key", "/secret/tls.key", "-client-ca", "/secret/ca.crt"];
    let arguments = [&["webhook", "-hmac", "/secret/hmac"], &files[..]].concat();
    let listens = json!({ "tcpSocket": { "port": 8443 } });
    namespace.serve_with("policy", POD_IMAGE, &arguments, 8443, listens, Some("server")).await;
    let key = |key: &str| json!({ "name": "client", "key": key });
    namespace
        .apply([json!({
            "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": { "name": "policy" },
            "spec": { "mutating": [{
                "name": "policy", "url": format!("https://{host}:8443/mutate"), "failurePolicy": "fail",
                "hmacSecretRef": key("hmac"),
                "tlsConfig": {
                    "caSecretRef": key("ca.crt"),
                    "clientCertSecretRef": key("tls.crt"), "clientKeySecretRef": key("tls.key"),
                },
            }] },
        })])
        .await;
    let url = greeter::start(&namespace, json!({ "webhookConfigRef": { "name": "policy" } })).await;
    let before = namespace.pods(greeter::NAME).await;
    let caller = namespace.caller("stateless", 10, &url, "bob").await;
    caller.next("an answer", |outcome| outcome.answers("Hi Robert")).await;
    let begun = caller.outcomes().len();
    webhook_says(&namespace, "signed with key 1 of 1 by old client").await;

    // The webhook knows old and new before the proxy shows the new; the proxy trusts both before the webhook shows the new.
    namespace.apply([secret("server", &server, &both, "one two")]).await;
    webhook_says(&namespace, "signed with key 1 of 2").await;
    let client = issue(&new, "new client", &[], Usage::Client);
    namespace.apply([secret("client", &client, &both, "two")]).await;
    webhook_says(&namespace, "signed with key 2 of 2 by new client").await;
    let server = issue(&new, "new server", &names, Usage::Server);
    namespace.apply([secret("server", &server, new.cert_pem(), "two")]).await;
    webhook_says(&namespace, "signed with key 1 of 1 by new client").await;
    let client = issue(&new, "newest client", &[], Usage::Client);
    namespace.apply([secret("client", &client, new.cert_pem(), "two")]).await;
    webhook_says(&namespace, "by newest client").await;
    webhook_says(&namespace, "showing new server").await;

    let outcomes = caller.finish().await;
    let failed: Vec<_> = outcomes[begun..].iter().filter(|outcome| !outcome.answers("Hi Robert")).collect();
    assert!(failed.is_empty(), "{} of {} calls failed: {failed:?}", failed.len(), outcomes.len() - begun);
    assert_eq!(namespace.pods(greeter::NAME).await, before, "the rotation replaced the proxy's pod");
}
