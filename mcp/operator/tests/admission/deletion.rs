//! D9: objects being deleted are not validated, so that finalizers can go.

use kube::api::DeleteParams;
use portcullis_testing::wait_until;
use serde_json::json;

use crate::{
    Gate,
    support::{DEADLINE, labelled, webhook_config},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_being_deleted_is_not_validated_and_its_finalizers_go() {
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
    let _strict = gate.serving(&[]).await;
    let refused = gate.objects.patch("MCPServer", "web", json!({"spec": {"image": "c d"}})).await;
    assert_eq!(refused.code, 422, "the webhook is in the way: {}", refused.body);

    gate.objects.servers().delete("web", &DeleteParams::default()).await.unwrap();
    gate.objects.configs().delete("gate", &DeleteParams::default()).await.unwrap();
    // Even a change of the spec that keeps it as broken as it was passes now.
    let passed = gate.objects.patch("MCPServer", "web", json!({"spec": {"image": "e f"}})).await;
    assert_eq!(passed.code, 200, "{}", passed.body);
    for kind in ["MCPServer", "MCPWebhookConfig"] {
        let name = if kind == "MCPServer" { "web" } else { "gate" };
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
