//! Automatic certificates.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::api::DeleteParams;
use portcullis::certificates::Automatic;
use portcullis_pki::bundle_fingerprints;
use portcullis_testing::{Stopwatch, wait_until};
use serde_json::{Value, json};

use super::Installation;
use crate::PATIENCE;
use crate::operator_cli::process::Running;

// D3: what hook Jobs of an installation run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ensure_creates_the_secrets_and_publish_writes_the_ca() {
    let place = Installation::new().await;
    let shown = place.shown(&[]).await;
    assert_eq!(
        shown["problems"],
        json!([
            format!("Secret {}-webhook-tls does not exist", place.name),
            format!("Secret {}-webhook-tls-ca does not exist", place.name),
            "'certs ensure' makes and repairs what is missing",
        ])
    );
    assert_eq!(shown["published"][0]["problem"], json!("it is not installed; see 'generate webhooks'"));

    let said = place.says(&["ensure"]).await;
    let server = format!("{0}-webhook.{0}.svc", place.name);
    assert!(
        said.starts_with(&format!("Secret {0}/{0}-webhook-tls: a certificate for {server}, ", place.name)),
        "{said}"
    );
    let made = (place.secret("").await, place.secret("-ca").await);
    let mark = place.cluster.audit().mark();
    assert_eq!(place.says(&["ensure"]).await, said);
    assert_eq!((place.secret("").await, place.secret("-ca").await), made);
    let writes = place.cluster.audit().writes(mark).await;
    assert!(writes.iter().all(|write| write.namespace != place.name), "{writes:?}");

    let missing = place.fails(&["publish", "--timeout", "3"]).await;
    let wanted = format!(
        "error: timed out after 3 s waiting for the CA to be published in ValidatingWebhookConfiguration {}-validating: it is not \
         installed; see 'generate webhooks'",
        place.name
    );
    assert_eq!(missing.trim(), wanted);
    place.install(&["webhooks"]).await;
    let said = place.says(&["publish"]).await;
    let published = format!(
        "published: ValidatingWebhookConfiguration {}-validating, username.entities.demo.example\n",
        place.name
    );
    assert!(said.contains(&published) && said.contains("MutatingWebhookConfiguration"), "{said}");
    let ca = String::from_utf8(made.0["ca.crt"].0.clone()).unwrap();
    assert_eq!(place.bundles().await, [Some(ca)]);

    let shown = place.shown(&[]).await;
    assert!(shown.get("problems").is_none() && shown["published"][0].get("problem").is_none(), "{shown:#}");
    assert!(shown["phase"].as_str().unwrap().starts_with("steady"));
    assert_eq!(shown["certificates"][0]["role"], "leaf");
    let text = place.says(&["show"]).await;
    for part in [
        &*format!("Secret {0}/{0}-webhook-tls: steady", place.name),
        "  leaf         ",
        "  ca           ",
        "  ok Validating",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("PRIVATE"));

    place.fill(&[("ca.crt", "damaged")]).await;
    let shown = place.shown(&[]).await;
    assert_eq!(shown["problems"][0], "ca.crt beside the certificate is not the bundle of the stored CAs", "{shown:#}");
    assert!(shown.get("phase").is_none(), "{shown:#}");
    place.fill(&[("tls.crt", "damaged")]).await;
    let said = place.fails(&["show"]).await;
    assert_eq!(said, "error: something is wrong with the certificates or where they are published: see above\n");
    place.says(&["ensure"]).await;
    assert!(place.shown(&[]).await.get("problems").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotate_begins_one_rotation_that_the_replicas_carry_out() {
    let place = Installation::of("rotation_operator").await;
    place.install(&["webhooks"]).await;
    place.says(&["ensure"]).await;
    let before = bundle_fingerprints(&place.secret("").await["ca.crt"].0).unwrap();
    let said = place.says(&["rotate"]).await;
    assert!(said.starts_with(&format!("{}: a rotation has begun: publishing", place.name)), "{said}");
    assert!(said.ends_with("none running? start the operator\n"), "{said}");
    let next = place.secret("-ca").await["next.crt"].clone();
    let said = place.says(&["rotate"]).await;
    assert!(said.starts_with(&format!("{}: a rotation is under way already: publishing", place.name)), "{said}");
    assert_eq!(place.secret("-ca").await["next.crt"], next);
    let roles = place.shown(&[]).await["certificates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["role"].clone())
        .collect::<Vec<_>>();
    assert_eq!(roles, ["leaf", "ca", "next ca"]);

    let arguments = [
        "--kubeconfig",
        &place.kubeconfig,
        "--namespace",
        &place.name,
        "--release",
        &place.name,
        "--ca-settle",
        "300",
        "--ca-drain",
        "3000",
    ];
    // Its CA is in their conversion, too.
    place.install(&["crds"]).await;
    let _replica = Running::run(place.example, &arguments);
    let steady = || async {
        let shown: Value = serde_json::from_slice(&place.certs(&["show", "--output", "json"]).await.stdout).ok()?;
        shown["phase"].as_str()?.starts_with("steady").then_some(())
    };
    wait_until("the rotation to end", PATIENCE, steady).await;
    let after = bundle_fingerprints(&place.secret("").await["ca.crt"].0).unwrap();
    assert!(before.is_disjoint(&after) && after.len() == 1);
}

// A hook Job that waits for a configuration while the operator rotates its CA.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publish_writes_the_ca_that_is_stored_at_the_end() {
    let place = Installation::new().await;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let names = vec![format!("{0}-webhook.{0}.svc", place.name)];
    let secret = format!("{}-webhook-tls", place.name);
    let automatic = Automatic::new(place.cluster.admin(), &place.name, secret, names, provider);
    automatic.ensure().await.unwrap();
    let arguments = ["--kubeconfig", &place.kubeconfig, "--namespace", &place.name, "--release", &place.name];
    let begun = place.secret("").await["ca.crt"].clone();
    place.install(&["webhooks"]).await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(place.cluster.admin());
    mutating.delete(&format!("{}-mutating", place.name), &DeleteParams::default()).await.unwrap();
    let mut job = Running::spawn("controller", &[&["certs", "publish"], &arguments[..]].concat());
    let published = || async { (place.bundles().await[0].is_some()).then_some(()) };
    wait_until("the first bundle", Duration::from_mins(1), published).await;

    automatic.rotate().await.unwrap();
    let stored = place.secret("").await["ca.crt"].clone();
    assert_ne!(stored, begun);
    let both = || async {
        let bundle = place.bundles().await.swap_remove(0)?;
        (bundle.as_bytes() == stored.0).then_some(())
    };
    wait_until("the bundle of both CAs", Duration::from_mins(1), both).await;
    place.install(&["webhooks"]).await;
    assert!(job.ended().await.success(), "{}", job.log());
    let webhooks = mutating.get(&format!("{}-mutating", place.name)).await.unwrap().webhooks.unwrap();
    assert_eq!(webhooks[0].client_config.ca_bundle, Some(stored));
}

// A hook Job of an installation runs under the operator's own account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_own_rights_are_enough_for_every_command() {
    let mut place = Installation::new().await;
    for manifests in ["rbac", "webhooks", "crds"] {
        place.install(&[manifests]).await;
    }
    let account = format!("system:serviceaccount:{0}:{0}", place.name);
    place.kubeconfig = place.cluster.kubeconfig_as(&account, &["system:serviceaccounts"]).display().to_string();
    // The API server takes up new roles a little later.
    let granted = || async { place.certs(&["ensure"]).await.status.success().then_some(()) };
    wait_until("the rights to be in force", Duration::from_mins(1), granted).await;
    for command in ["publish", "show", "rotate"] {
        place.says(&[command]).await;
    }
}

// It accepts connections and says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_exceeds_its_timeout_on_a_silent_api_server() {
    let mute = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "mute",
        "clusters": [{ "name": "mute", "cluster": { "server": format!("http://{}", mute.local_addr().unwrap()) } }],
        "users": [{ "name": "mute", "user": {} }],
        "contexts": [{ "name": "mute", "context": { "cluster": "mute", "user": "mute" } }],
    });
    let mut place = Installation::new().await;
    let file = std::env::temp_dir().join(format!("{}.kubeconfig", place.name));
    std::fs::write(&file, config.to_string()).unwrap();
    place.kubeconfig = file.display().to_string();
    for what in ["show", "ensure", "publish", "rotate"] {
        let begun = Stopwatch::start();
        let said = place.fails(&[what, "--timeout", "1"]).await;
        assert!(said.contains("the API server did not answer within 1 s"), "{what}: {said}");
        assert!(begun.elapsed() < Duration::from_mins(1), "{what}: {:?}", begun.elapsed());
    }
    std::fs::remove_file(file).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flag_that_would_do_nothing_is_refused() {
    let place = Installation::new().await;
    for arguments in
        [&["rotate", "--output", "json"][..], &["ensure", "--output", "json"], &["publish", "--output", "json"]]
    {
        let output = place.certs(arguments).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(&format!("unexpected argument '{}' found", arguments[1])), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timing_that_renews_at_once_is_refused_for_good() {
    let place = Installation::new().await;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let names = vec!["webhook.certs.svc".to_owned()];
    let mut automatic = Automatic::new(place.cluster.admin(), &place.name, "pair", names, provider);
    automatic.timing.leaf_left = automatic.timing.leaf_validity;
    for error in [automatic.ensure().await.unwrap_err(), automatic.rotate().await.unwrap_err()] {
        let expected = "leaf_validity (8760h) must be longer than leaf_left (8760h): what is made would be replaced at once, for ever";
        assert_eq!((error.to_string().as_str(), error.is_permanent()), (expected, true));
    }
    assert!(place.secrets().get_opt("pair").await.unwrap().is_none());
}
