//! The three examples of the guide, with its inputs and its messages (K7).

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use portcullis_testing::AuditEvent;
use serde_json::json;

use crate::cluster::installation::Installation;

/// The API server's error for a webhook's denial with this message.
fn denied(message: &str) -> String {
    format!("admission webhook \"username.entities.demo.example\" denied the request: {message}")
}

/// `Fail("name may not be 'forbidden'.", 422)` on create, and without a code, which means 400, on update.
#[tokio::test]
async fn a_forbidden_name_gets_422_on_create_and_400_on_update() {
    let home = Installation::new().await;
    let old = |username: &str| json!({"name": "Ada Lovelace", "username": username});
    let new = |username: &str| json!({"firstname": "Ada", "lastname": "Lovelace", "username": username});

    // The API server converts the object for the webhook, so the version does not matter.
    for (version, spec) in [("v1", old("forbidden")), ("v2", new("forbidden")), ("v3", new("forbidden"))] {
        let refused = home.create(version, "ada", &spec).await.unwrap_err();
        assert_eq!(refused, (422, denied("name may not be 'forbidden'.")), "{version}");
    }
    home.create("v1", "ada", &old("ada")).await.unwrap();
    for version in ["v1", "v2", "v3"] {
        let refused = home.change(version, "ada", &json!({"username": "forbidden"})).await.unwrap_err();
        assert_eq!(refused, (400, denied("name may not be 'forbidden'.")), "{version}");
    }
    assert_eq!(home.change("v2", "ada", &json!({"username": "countess"})).await.unwrap(), new("countess"));
}

#[tokio::test]
async fn overwrite_is_replaced_on_create_and_kept_on_update() {
    let home = Installation::new().await;
    for version in ["v1", "v3"] {
        let spec = match version {
            "v1" => json!({"name": "Plato", "username": "overwrite"}),
            _ => json!({"firstname": "Plato", "lastname": "", "username": "overwrite"}),
        };
        let made = home.create(version, &format!("plato-{version}"), &spec).await.unwrap();
        assert_eq!(made["username"], "random overwritten");
    }
    let changed = home.change("v3", "plato-v1", &json!({"username": "overwrite"})).await.unwrap();
    assert_eq!(changed["username"], "overwrite");
}

#[tokio::test]
async fn entities_are_converted_through_v3_by_splitting_the_name() {
    let home = Installation::new().await;
    for (name, written, firstname, lastname) in [
        ("two", "Ada Lovelace", "Ada", "Lovelace"),
        ("four", "Ada King of Lovelace", "Ada", "King of Lovelace"),
        ("one", "Plato", "Plato", ""),
        ("open", "Plato ", "Plato", ""),
    ] {
        home.create("v1", name, &json!({"name": written, "username": name})).await.unwrap();
        let parts = json!({"firstname": firstname, "lastname": lastname, "username": name});
        assert_eq!(home.spec("v2", name).await, parts);
        assert_eq!(home.spec("v3", name).await, parts);
        assert_eq!(home.spec("v1", name).await["name"], written);
    }
    // From one spoke to the other, and one list with all of them.
    home.create("v2", "grace", &json!({"firstname": "Grace", "lastname": "Hopper", "username": "grace"}))
        .await
        .unwrap();
    let listed = home.entities("v1").list(&ListParams::default()).await.unwrap().items;
    let names: Vec<_> = listed.iter().map(|entity| entity.data["spec"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Ada King of Lovelace", "Grace Hopper", "Plato", "Plato ", "Ada Lovelace"]);
}

/// CEL refuses, with or without webhooks; what the older versions cannot say is none of their business.
#[tokio::test]
async fn a_birthday_can_be_added_but_not_changed() {
    let home = Installation::new().await;
    home.create("v1", "ada", &json!({"name": "Ada Lovelace", "username": "ada"})).await.unwrap();
    home.change("v3", "ada", &json!({"birthday": "1815-12-10"})).await.unwrap();
    let (code, message) = home.change("v3", "ada", &json!({"birthday": "1815-12-11"})).await.unwrap_err();
    assert_eq!(code, 422);
    assert!(
        message.contains("spec.birthday: Invalid value") && message.contains("a birthday does not change"),
        "{message}"
    );
    home.change("v1", "ada", &json!({"name": "Augusta Ada King"})).await.unwrap();
    assert_eq!(
        home.spec("v3", "ada").await,
        json!({"firstname": "Augusta", "lastname": "Ada King", "username": "ada", "birthday": "1815-12-10"})
    );
}

/// D8: the API server names the rule that is broken; the webhook names the field, in words, beside it.
#[tokio::test]
async fn a_refused_change_of_the_birthday_comes_with_a_warning() {
    let home = Installation::new().await;
    let spec = json!({"firstname": "Ada", "lastname": "", "username": "ada", "birthday": "1815-12-10"});
    home.create("v3", "ada", &spec).await.unwrap();
    let path = format!("/apis/demo.example/v3/namespaces/{}/entities/ada", home.namespace);
    let change = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(json!({"spec": {"birthday": "1815-12-11"}}).to_string().into_bytes().into())
        .unwrap();
    let answer = home.cluster.admin().send(change).await.unwrap();
    assert_eq!(answer.status(), 422);
    let warning = answer.headers()["warning"].to_str().unwrap();
    assert_eq!(warning, "299 - \"spec.birthday is immutable: the API server refuses this change\"");
}

/// K5: everything above ran with the generated rights; none was missing, and nothing else was asked for.
#[tokio::test]
async fn the_generated_rights_are_enough() {
    let home = Installation::new().await;
    home.create("v1", "ada", &json!({"name": "Ada", "username": "ada"})).await.unwrap();
    home.spec("v2", "ada").await;
    let operator = home.operator;
    let own = home.cluster.audit().writes_by(&operator.user, operator.began).await;
    // A status may come too early: while no operator converts yet, writing it fails and is tried again.
    let early = |write: &AuditEvent| write.code >= 500 && write.subresource == "status";
    // The object of another test may be gone.
    let gone = |write: &AuditEvent| write.code == 404 && write.namespace != home.namespace;
    let fine = |write: &AuditEvent| write.code < 300 || write.code == 409 || early(write) || gone(write);
    assert!(!own.is_empty() && own.iter().all(fine), "{own:#?}");
    for line in operator.log().lines() {
        // kube's client logs every 5xx as an error, those of an early status too.
        let error = line.contains("\"level\":\"ERROR\"") && !line.contains("\"target\":\"kube_client");
        assert!(!line.contains("is forbidden") && !error, "{line}");
    }
    // The CA's key and the server's are in two Secrets, and nowhere else.
    let secrets: Api<Secret> = Api::namespaced(home.cluster.admin(), &operator.namespace);
    assert_eq!(secrets.list(&ListParams::default()).await.unwrap().items.len(), 2);
    assert!(!operator.log().contains("PRIVATE KEY"));
}
