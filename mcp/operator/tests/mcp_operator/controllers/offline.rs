//! D1: `--webhooks off` runs the same validators before every reconcile.

use kube::api::DeleteParams;
use portcullis_testing::wait_until;
use serde_json::json;

use super::{
    Place,
    support::{DEADLINE, Operator, children_of, labelled, webhook_config},
};

type Conditions = Option<Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>>;

fn valid(conditions: &Conditions) -> Option<(&str, &str, &str)> {
    let found = conditions.iter().flatten().find(|condition| condition.type_ == "Valid")?;
    Some((&found.status, &found.reason, &found.message))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_webhooks_the_operator_says_in_the_status_what_admission_would_have_said() {
    let place = Place::new("offline").await;
    let flags = ["--watch-namespace", place.namespace(), "--webhooks", "off", "--leader-elect", "on"];
    let operator = Operator::start_with(&place.user, place.namespace(), &flags);
    let objects = &place.objects;
    objects.create(labelled("web", json!({"image": "a b"}))).await;
    let server = objects.server("web", "the verdict", |it| {
        it.status.as_ref().is_some_and(|status| valid(&status.conditions).is_some())
    });
    let server = server.await;
    let status = server.status.unwrap();
    let (verdict, reason, message) = valid(&status.conditions).unwrap();
    assert_eq!((verdict, reason), ("False", "ValidationFailed"));
    assert!(message.starts_with("Validation failed: ") && message.contains("spec.image"), "{message}");
    operator.logged("MCPServer is invalid, not reconciling until spec is fixed").await;

    objects.create(webhook_config("gate", json!({"url": "http://plain.example"}))).await;
    let configs = objects.configs();
    let refused = portcullis_testing::wait_for_object(&configs, "gate", "the verdict", DEADLINE, |it| {
        it.status
            .as_ref()
            .is_some_and(|status| valid(&status.conditions).is_some() && status.observed_generation == Some(1))
    });
    let message = refused.await.status.unwrap();
    assert!(valid(&message.conditions).unwrap().2.contains("https"), "{message:?}");
    // An invalid object goes when it is deleted.
    configs.delete("gate", &DeleteParams::default()).await.unwrap();
    wait_until("the configuration to go", DEADLINE, || async {
        configs.get_opt("gate").await.unwrap().is_none().then_some(())
    })
    .await;

    operator.idle(place.cluster).await;
    let events = objects.events("MCPServer", "web").await;
    assert_eq!(events, ["Warning ValidationFailed"]);

    objects.edit("web", json!({"image": "example.com/fetch:1"})).await;
    objects.has_children("web", &children_of("web")).await;
    let mended = objects.server("web", "to be valid", |it| {
        let conditions = it.status.as_ref().map(|status| &status.conditions);
        conditions.is_some_and(|all| valid(all).is_some_and(|found| found.0 == "True"))
    });
    let status = mended.await.status.unwrap();
    assert_eq!(valid(&status.conditions).unwrap().1, "ValidationPassed");
    operator.terminate().await;
}
