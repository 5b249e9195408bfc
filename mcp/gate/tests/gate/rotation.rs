//! Keys and certificates that change under a running gate.

use std::time::{Duration, Instant};

use portcullis_pki::Usage;
use serde_json::json;

use crate::endpoint::{Call, Endpoint, Reply};
use crate::support::{CALL, Files, Log, Proxy, authority, chain, entry, issue, local_server, server, webhook};

fn proxy(files: &Files, endpoint: &Endpoint, more: serde_json::Value) -> Proxy {
    Proxy::new(files, chain(vec![entry("validating-webhook", vec![webhook(&endpoint.url, "fail", more)])]))
}

/// Calls until the status is `status`, for files are looked at once a second.
async fn becomes(proxy: &Proxy, status: u16) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let answer = proxy.post(CALL).await;
        if answer.status == status {
            return;
        }
        assert!(Instant::now() < deadline, "still {answer:?}, wanted {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_new_hmac_key_signs_the_next_call() {
    let (files, ca) = (Files::new(), authority("ours"));
    files.write("/ca.crt", ca.cert_pem());
    files.write("/hmac", "one");
    let endpoint = Endpoint::start(Some(local_server(&ca)), |_| Reply::allow()).await;
    let proxy = proxy(&files, &endpoint, json!({"hmac_secret_ref": "/hmac"}));
    let signed_with = |call: &Call, key: &str| {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key.as_bytes());
        let timestamp = call.headers["x-toolhive-timestamp"].as_bytes();
        let tag = aws_lc_rs::hmac::sign(&key, &[timestamp, b".", &call.body].concat());
        let hex: Vec<_> = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        call.headers["x-toolhive-signature"] == format!("sha256={}", hex.concat())
    };
    // A newline at the end is part of the key.
    for key in ["one", "two\n"] {
        files.write("/hmac", key);
        assert_eq!(proxy.post(CALL).await.status, 200);
        let call = endpoint.calls().pop().unwrap();
        assert!(signed_with(&call, key), "{key:?}");
    }
    // Without a usable key there is no call.
    files.write("/hmac", "");
    assert_eq!(proxy.post(CALL).await.status, 403);
    assert_eq!(endpoint.calls().len(), 2);
}

#[tokio::test]
async fn a_request_does_not_pass_a_webhook_that_could_not_be_called_whatever_the_failure_policy() {
    let (files, ca) = (Files::new(), authority("ours"));
    files.write("/ca.crt", ca.cert_pem());
    let endpoint = Endpoint::start(Some(local_server(&ca)), |_| Reply::allow()).await;
    for policy in ["fail", "ignore"] {
        for (kind, status, message) in
            [("validating-webhook", 403, "Request denied by policy"), ("mutating-webhook", 500, "Webhook error")]
        {
            files.write("/hmac", "key");
            let hook = webhook(&endpoint.url, policy, json!({"hmac_secret_ref": "/hmac"}));
            let proxy = Proxy::new(&files, chain(vec![entry(kind, vec![hook])]));
            assert_eq!(proxy.post(CALL).await.status, 200, "{policy} {kind}");
            let calls = endpoint.calls().len();
            files.write("/hmac", "");
            let log = Log::capture();
            let answer = proxy.post(CALL).await;
            assert_eq!(answer.status, status, "{policy} {kind}: {answer:?}");
            assert!(answer.text.contains(message), "{policy} {kind}: {answer:?}");
            assert!(log.text().contains("local error: HMAC key"), "{}", log.text());
            assert_eq!((endpoint.calls().len(), proxy.forwarded().len()), (calls, 1), "{policy} {kind}");
        }
    }
}

#[tokio::test]
async fn a_new_authority_is_trusted_and_the_old_no_longer() {
    let (files, old, new) = (Files::new(), authority("old"), authority("new"));
    files.write("/ca.crt", old.cert_pem());
    let endpoint = Endpoint::start(Some(local_server(&old)), |_| Reply::allow()).await;
    let proxy = proxy(&files, &endpoint, json!({}));
    assert_eq!(proxy.post(CALL).await.status, 200);
    files.write("/ca.crt", new.cert_pem());
    becomes(&proxy, 403).await;
    endpoint.serve(local_server(&new));
    becomes(&proxy, 200).await;
}

#[tokio::test]
async fn a_new_client_pair_is_shown_and_a_bad_one_leaves_the_old_in_use() {
    let (files, ca, clients) = (Files::new(), authority("ours"), authority("clients"));
    let (stranger, later) = (authority("stranger"), authority("later"));
    files.write("/ca.crt", ca.cert_pem());
    let write = |pair: &portcullis_pki::Pair| {
        files.write("/tls.crt", &pair.cert_pem);
        files.write("/tls.key", &pair.key_pem);
    };
    write(&issue(&stranger, Usage::Client, [127, 0, 0, 1]));
    let serve = |issuer| server(&issue(&ca, Usage::Server, [127, 0, 0, 1]), Some(issuer));
    let endpoint = Endpoint::start(Some(serve(&clients)), |_| Reply::allow()).await;
    let log = Log::capture();
    let tls = json!({"ca_bundle_path": "/ca.crt", "client_cert_path": "/tls.crt", "client_key_path": "/tls.key"});
    let proxy = proxy(&files, &endpoint, json!({"tls_config": tls}));
    assert_eq!(proxy.post(CALL).await.status, 403);
    write(&issue(&clients, Usage::Client, [127, 0, 0, 1]));
    becomes(&proxy, 200).await;

    // A certificate without its key: the calls go on as before, and the log says what is wrong.
    let next = issue(&later, Usage::Client, [127, 0, 0, 1]);
    files.write("/tls.crt", &next.cert_pem);
    let deadline = Instant::now() + Duration::from_mins(1);
    while !log.text().contains("the former ones stay in use") {
        assert!(Instant::now() < deadline, "{}", log.text());
        assert_eq!(proxy.post(CALL).await.status, 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(log.text().contains("/tls.key"), "{}", log.text());
    assert_eq!(proxy.post(CALL).await.status, 200);

    // The key follows: the new pair is shown from then on.
    files.write("/tls.key", &next.key_pem);
    becomes(&proxy, 403).await;
    endpoint.serve(serve(&later));
    becomes(&proxy, 200).await;
}
