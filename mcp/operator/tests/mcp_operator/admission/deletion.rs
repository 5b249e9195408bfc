//! D9: of objects that are being deleted, metadata and status are not validated, so that finalizers can go; the rest is.

use kube::api::DeleteParams;
use portcullis_testing::wait_until;
use serde_json::json;

use super::{
    Gate,
    support::{DEADLINE, labelled, webhook_config},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_being_deleted_takes_no_forbidden_value_and_its_finalizers_go_also_without_an_operator() {
    let gate = Gate::new("finalizers").await;
    // Stored while only warnings were given; whoever cleans up meets an operator that refuses.
    let lenient = gate.serving(&["--admission", "warn"]).await;
    let mut server = labelled("web", json!({"image": "a b"}));
    server["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let mut config = webhook_config("gate", json!({"url": "ftp://nowhere"}));
    config["metadata"]["finalizers"] = json!(["example.com/hold"]);
    gate.objects.create(server).await;
    gate.objects.create(config).await;
    gate.objects.phase("web", "Failed").await;
    lenient.terminate().await;
    let strict = gate.serving(&[]).await;
    let refused = gate.objects.patch("MCPServer", "web", json!({"spec": {"image": "c d"}})).await;
    assert_eq!(refused.code, 422, "the webhook is in the way: {}", refused.body);

    gate.objects.servers().delete("web", &DeleteParams::default()).await.unwrap();
    gate.objects.configs().delete("gate", &DeleteParams::default()).await.unwrap();
    let elsewhere = webhook_config("gate", json!({"url": "ftp://elsewhere"}));
    let edits = [
        ("MCPServer", "web", json!({"spec": {"image": "e f"}})),
        ("MCPWebhookConfig", "gate", json!({"spec": elsewhere["spec"]})),
    ];
    for (kind, name, edit) in &edits {
        let refused = gate.objects.patch(kind, name, edit.clone()).await;
        assert_eq!(refused.code, 422, "{kind}: {}", refused.body);
        let labelled = gate.objects.patch(kind, name, json!({"metadata": {"labels": {"a": "b"}}})).await;
        assert_eq!(labelled.code, 200, "{kind}: {}", labelled.body);
    }
    strict.terminate().await;
    for (kind, name, edit) in &edits {
        let refused = gate.objects.patch(kind, name, edit.clone()).await;
        assert_eq!(refused.code, 500, "nobody answers: {kind}: {}", refused.body);
        let released = gate.objects.patch(kind, name, json!({"metadata": {"finalizers": null}})).await;
        assert!([200, 404].contains(&released.code), "{kind}: {}", released.body);
    }
    wait_until("both to go", DEADLINE, || async {
        let server = gate.objects.servers().get_opt("web").await.unwrap();
        let config = gate.objects.configs().get_opt("gate").await.unwrap();
        (server.is_none() && config.is_none()).then_some(())
    })
    .await;
}
