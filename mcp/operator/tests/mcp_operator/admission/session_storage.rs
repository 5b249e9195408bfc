//! Refusals and warnings at `kubectl apply` of where sessions are kept.

use serde_json::{Value, json};

use super::{
    Gate, fields,
    support::{labelled, remote_proxy},
};

fn redis(members: Value) -> Value {
    let mut storage = json!({"provider": "redis", "address": "redis:6379"});
    storage.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json!({"sessionStorage": storage})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_no_proxy_could_use_is_refused_with_its_field() {
    let gate = Gate::new("session-storage").await;
    let objects = &gate.objects;
    // Stored before the rule: what else of it changes passes.
    objects.create(labelled("stored", redis(json!({"address": "redis"})))).await;
    let _operator = gate.serving(&[]).await;
    for (members, field) in [
        (json!({"address": "redis"}), "spec.sessionStorage.address"),
        (json!({"address": "redis://redis:6379"}), "spec.sessionStorage.address"),
        (json!({"keyPrefix": "mine"}), "spec.sessionStorage.keyPrefix"),
        (json!({"passwordRef": {"name": "", "key": "k"}}), "spec.sessionStorage.passwordRef"),
    ] {
        for object in [labelled("web", redis(members.clone())), remote_proxy("far", redis(members.clone()))] {
            let answer = objects.post(object, true).await;
            assert!(answer.code == 422 && fields(&answer.body) == [field], "{members}: {}", answer.body);
        }
    }
    let answer = objects.patch("MCPServer", "stored", json!({"spec": {"args": ["--other"]}})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);

    let absent = redis(json!({"keyPrefix": "mine:", "passwordRef": {"name": "absent", "key": "k"}}));
    for object in [labelled("web", absent.clone()), remote_proxy("far", absent)] {
        let answer = objects.post(object, false).await;
        let missing = "spec.sessionStorage.passwordRef: Secret \"absent\" does not exist yet; until then no proxy is made, and one that runs stays as it is";
        assert!(answer.code == 201 && answer.warnings.iter().any(|it| it.contains(missing)), "{:?}", answer.warnings);
    }
    let mut stdio = redis(json!({}));
    stdio["transport"] = json!("stdio");
    let answer = objects.post(labelled("pipe", stdio), false).await;
    assert!(
        answer.warnings.iter().any(|it| it.contains("the sessions of a stdio server stay")),
        "{:?}",
        answer.warnings
    );
}
