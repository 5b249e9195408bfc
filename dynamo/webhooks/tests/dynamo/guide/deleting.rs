//! An object that does not go, because a webhook keeps its finalizer from being removed.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use crate::guide::home::{CONFIGURATION, Home, MODELS, PATIENCE, SERVICE, SERVICE_NAME, VALIDATING, model};

/// One of the two ways out that the guide gives.
pub(crate) enum WayOut {
    DeleteTheConfiguration,
    /// Sets `Ignore` for every entry, as `doctor` prints it: the guide names the first only.
    IgnoreFailures,
}

/// Where Dynamo's own configuration is installed, which does not exempt objects that are being deleted, and its webhook
/// is down.
pub(crate) async fn an_object_that_is_stuck_goes(home: &Home, name: &str, way_out: WayOut) {
    let models = home.models();
    models.create(&PostParams::default(), &model(name, "a", &["example.com/hold"])).await.unwrap();
    models.delete(name, &DeleteParams::default()).await.unwrap();
    let without_exemption = json!([{"op": "remove", "path": format!("/webhooks/{MODELS}/matchConditions")}]);
    home.patch(VALIDATING, CONFIGURATION, without_exemption).await;
    home.delete(SERVICE, SERVICE_NAME).await;
    home.leave_no_connection().await;

    let release = |dry_run| {
        let (models, params) = (models.clone(), PatchParams { dry_run, ..PatchParams::default() });
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        async move { models.patch(name, &params, &patch).await }
    };
    let blocked =
        || async { release(true).await.err().filter(|error| error.to_string().contains("failed calling webhook")) };
    wait_until("the webhook to be in the way", PATIENCE, blocked).await;

    let report = home.doctor(&["--stuck-after", "0", "--in-namespace", &home.team]).await;
    let stuck = report.of("T1", "FAIL");
    assert!(stuck.iter().any(|(message, _)| message.contains("example.com/hold not removed")), "{report:#?}");
    let blocked = report.of("T2", "FAIL");
    let (message, fix) = blocked.first().unwrap_or_else(|| panic!("{report:#?}"));
    assert!(message.contains("vdynamomodel.kb.io blocks finalizer removal of DynamoModel"), "{message}");

    match way_out {
        WayOut::DeleteTheConfiguration => home.delete(VALIDATING, CONFIGURATION).await,
        WayOut::IgnoreFailures => {
            let operations = fix.split('\'').nth(1).unwrap_or_else(|| panic!("no patch: {fix}"));
            let operations: Value = serde_json::from_str(operations).unwrap();
            let paths: Vec<_> = operations.as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
            let every = [0, 1, 2, 3].map(|index| format!("/webhooks/{index}/failurePolicy"));
            assert_eq!(paths, every, "{fix}");
            home.patch(VALIDATING, CONFIGURATION, operations).await;
        }
    }
    let gone = || async {
        let _ = release(false).await;
        models.get_opt(name).await.unwrap().is_none().then_some(())
    };
    wait_until("the object to go", PATIENCE, gone).await;
    home.repair().await;
}
