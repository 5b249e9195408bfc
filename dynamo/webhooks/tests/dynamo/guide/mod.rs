//! The guide's instructions on configuration, certificates and troubleshooting (`guide.yaml`), carried out on the
//! binary behind a real API server.

mod deleting;
mod home;
mod symptoms;
mod table;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use portcullis_pki::Certificate;
use portcullis_testing::wait_until;
use serde_json::json;

use deleting::{WayOut, an_object_that_is_stuck_goes};
use home::{CONFIGURATION, Home, PATIENCE, SECRET, SECRET_NAME, SERVICE, SERVICE_NAME, VALIDATING, model};

/// In turn, on a control plane of its own: what is broken is the only cluster-wide installation.
#[tokio::test]
async fn every_symptom_of_the_guide_is_found_with_its_fix() {
    let mut home = Home::new().await;
    what_is_read_reads_well(&home).await;
    the_log_says_who_was_refused_what_and_why(&home).await;
    let wrong = symptoms::compare(&home, symptoms::all(&home.namespace)).await;
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), home.log());
    certificates_are_rotated_by_hand(&home).await;
    an_object_kept_by_a_webhook_is_freed_in_either_way(&home).await;
    connections_are_refused_where_the_process_is_dead(&mut home).await;
}

async fn an_object_kept_by_a_webhook_is_freed_in_either_way(home: &Home) {
    an_object_that_is_stuck_goes(home, "ignored", WayOut::IgnoreFailures).await;
    an_object_that_is_stuck_goes(home, "deleted", WayOut::DeleteTheConfiguration).await;
}

async fn what_is_read_reads_well(home: &Home) {
    let report = home.doctor(&[]).await;
    for id in ["W1", "W2", "W3", "W4", "W5", "C4", "C5", "X1", "X2", "X3", "X4", "X5", "X8"] {
        let verdicts = report.verdicts(id);
        assert!(!verdicts.is_empty() && verdicts.iter().all(|verdict| *verdict == "OK"), "{id}: {report:#?}");
    }
    let bytes = |value: &serde_json::Value| serde_json::from_value::<ByteString>(value.clone()).unwrap().0;
    let configuration = home.read(VALIDATING, CONFIGURATION).await;
    for entry in configuration["webhooks"].as_array().unwrap() {
        let service = &entry["clientConfig"]["service"];
        assert_eq!([&service["name"], &service["namespace"]], [SERVICE_NAME, &*home.namespace], "{entry}");
        let found = Certificate::all_from_pem(&bytes(&entry["clientConfig"]["caBundle"])).unwrap();
        assert!(!found.is_empty(), "{entry}");
    }
    home.read(SERVICE, SERVICE_NAME).await;
    let secret = home.read(SECRET, SECRET_NAME).await;
    let leaf = Certificate::from_pem(&bytes(&secret["data"]["tls.crt"])).unwrap();
    let server = format!("{SERVICE_NAME}.{}.svc", home.namespace);
    assert!(leaf.not_after > Timestamp::now() && leaf.dns_names.contains(&server), "{leaf:?}");
    let log = home.log();
    for line in
        ["Webhooks are enabled - webhooks will validate, controllers will skip validation", "Starting webhook server"]
    {
        assert!(log.contains(line), "{line:?} is not in the log:\n{log}");
    }
}

async fn the_log_says_who_was_refused_what_and_why(home: &Home) {
    let models = home.models();
    models.create(&PostParams::default(), &model("told", "a", &[])).await.unwrap();
    let change = Patch::Merge(json!({"spec": {"modelName": ""}}));
    let refused = models.patch("told", &PatchParams::default(), &change).await.unwrap_err().to_string();
    assert!(refused.contains("spec.modelName is required"), "{refused}");
    let log = home.log();
    for words in [["validate create", "told", "allow"], ["validate update", "told", "spec.modelName is required"]] {
        let said = |line: &str| words.iter().all(|word| line.contains(word)) && line.contains(&home.team);
        assert!(log.lines().any(said), "{words:?} is not in the log:\n{log}");
    }
}

/// Here the owner of the cluster does what hook jobs would do at an upgrade: this operator may not.
async fn certificates_are_rotated_by_hand(home: &Home) {
    let before = home.read(SECRET, SECRET_NAME).await;
    home.delete(SECRET, SECRET_NAME).await;
    for words in [["certs", "ensure"], ["certs", "publish"]] {
        let (code, stdout, stderr) = home.command(&words).await;
        assert_eq!(code, 0, "{words:?}: {stdout}{stderr}");
    }
    assert_ne!(home.read(SECRET, SECRET_NAME).await["data"]["tls.crt"], before["data"]["tls.crt"]);
    let taken_up = || async {
        let report = home.doctor(&[]).await;
        ["X5", "X6"].iter().all(|id| report.verdicts(id).iter().all(|verdict| *verdict == "OK")).then_some(())
    };
    wait_until("the new certificate to be served and trusted", PATIENCE, taken_up).await;
    home.until_told("spec.modelName is required").await;
}

async fn connections_are_refused_where_the_process_is_dead(home: &mut Home) {
    home.kill();
    home.until_told("connect: connection refused").await;
    let report = home.doctor(&[]).await;
    assert!(report.of("C4", "FAIL").iter().any(|(message, _)| message.contains("connection refused")), "{report:#?}");
}
