//! Sessions from their start to their end.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::DeleteParams;

use super::fixture::{cluster, configurations, entities, generate, judged, start, try_create};
use super::process::ENTITIES;

// K6
#[tokio::test]
async fn a_session_serves_until_it_ends_and_leaves_nothing_behind() {
    let cluster = cluster().await;
    for (owner, signal) in [("term", "-TERM"), ("int", "-INT"), ("hup", "-HUP")] {
        let team = cluster.namespace("team").await;
        let entities = entities(cluster, &team);
        let only = ["--only-namespace", &team];
        let mut dev = start(cluster, ENTITIES, owner, &only);
        dev.open().await;
        let mut found = configurations(cluster, owner).await;
        found.sort();
        let name = |what: &str| format!("entity-operator-dev-{owner}-{what}");
        assert_eq!(found, [name("mutating"), name("validating")]);
        // A session that is killed leaves webhooks without a server: finalizers can go even so.
        let installed: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin());
        let entry = installed.get(&name("validating")).await.unwrap().webhooks.unwrap().remove(0);
        let conditions: Vec<_> = entry.match_conditions.into_iter().flatten().map(|one| one.name).collect();
        assert_eq!(conditions, ["portcullis.dev/exclude-finalizer-removal"]);

        judged(&entities, true).await;
        let refusal = try_create(&entities, "forbidden").await.unwrap_err();
        assert!(refusal.ends_with("name may not be 'forbidden'"), "{refusal}");
        assert_eq!(try_create(&entities, "Mary").await.unwrap().data["spec"]["nickname"], "M");

        let said = dev.end(signal).await;
        assert_eq!(configurations(cluster, owner).await, [""; 0], "{said}");
        judged(&entities, false).await;
        assert!(!said.contains("PRIVATE KEY"));
    }
}

#[tokio::test]
async fn a_session_prints_its_webhooks_address_and_end() {
    let cluster = cluster().await;
    let mut dev = start(cluster, ENTITIES, "Told.By", &["--ttl", "30m", "--only-namespace", "nobody-s"]);
    dev.open().await;
    let said = dev.said();
    for words in [
        &format!("({}/) are served from this machine", cluster.url()),
        "https://127.0.0.1:",
        "on the route to the API server",
        "ValidatingWebhookConfiguration entity-operator-dev-told-by-validating",
        "dev.username.entities.demo.example  /validate/username",
        "dev.defaults.entities.demo.example  /mutate/defaults",
        "nobody-s only",
        "requests pass unvalidated",
        "Ends at 20",
        "Ctrl-C",
    ] {
        assert!(said.contains(words), "'{words}' is not said:\n{said}");
    }
    let said = dev.end("-INT").await;
    assert!(said.contains("removed ValidatingWebhookConfiguration entity-operator-dev-told-by-validating"), "{said}");
}

#[tokio::test]
async fn a_session_ends_by_itself_when_its_time_is_over() {
    let cluster = cluster().await;
    let mut dev = start(cluster, ENTITIES, "timed", &["--ttl", "3s", "--only-namespace", "nobody-s"]);
    assert_eq!(dev.ended().await.code(), Some(0), "{}", dev.said());
    assert!(dev.said().contains("The time is over"), "{}", dev.said());
    assert_eq!(configurations(cluster, "timed").await, [""; 0]);
}

#[tokio::test]
async fn other_namespaces_are_left_alone_even_if_the_machine_is_gone() {
    let cluster = cluster().await;
    let (team, others) = (cluster.namespace("team").await, cluster.namespace("others").await);
    let mut dev = start(cluster, ENTITIES, "narrow", &["--only-namespace", &team]);
    dev.open().await;
    judged(&entities(cluster, &team), true).await;
    try_create(&entities(cluster, &others), "forbidden").await.unwrap();
    // The machine is gone and does not answer any more.
    dev.signal("-KILL").await;
    dev.ended().await;
    try_create(&entities(cluster, &team), "forbidden").await.unwrap();
    let mut sweep = start(cluster, ENTITIES, "narrow", &["--sweep"]);
    assert_eq!(sweep.ended().await.code(), Some(0), "{}", sweep.said());
    assert_eq!(configurations(cluster, "narrow").await, [""; 0]);
}

#[tokio::test]
async fn a_session_leaves_the_installed_operators_webhooks_in_place() {
    let cluster = cluster().await;
    // They are called for no namespace: nothing serves them here, and others share this cluster.
    let nobody = ["--namespace-selector", "nobody=here"];
    let installed = generate(ENTITIES, &[&["webhooks", "--release", "installed"], &nobody[..]].concat()).await;
    let before = cluster.apply(&installed).await;
    let only = ["--release", "installed", "--only-namespace", "nobody-s"];
    let mut dev = start(cluster, ENTITIES, "beside", &only);
    dev.open().await;
    let note = "the installed operator's ValidatingWebhookConfiguration installed-validating is called too";
    assert!(dev.said().contains(note), "{}", dev.said());
    dev.end("-TERM").await;
    let after = cluster.apply(&installed).await;
    let versions = |objects: &[kube::core::DynamicObject]| {
        objects.iter().map(|object| object.metadata.resource_version.clone()).collect::<Vec<_>>()
    };
    assert_eq!(versions(&after), versions(&before));
    for object in after {
        let kind = kube::core::GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let api: Api<kube::core::DynamicObject> =
            Api::all_with(cluster.admin(), &kube::core::ApiResource::from_gvk(&kind));
        api.delete(object.metadata.name.as_ref().unwrap(), &DeleteParams::default()).await.unwrap();
    }
}
