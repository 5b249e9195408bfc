//! Sessions from their start to their end.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use portcullis_testing::wait_until;
use serde_json::json;

use super::fixture::{
    PEOPLE, alone, cluster, cluster_with_people, configurations, controllers_alone, entities, entity, generate, judged,
    lasting, object, people, people_crd, start, try_create,
};
use super::process::{Dev, ENTITIES, PATIENCE, VERSIONS};

// K6
#[tokio::test]
async fn a_session_judges_and_defaults_until_it_is_ended_and_leaves_nothing() {
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
        // A session that is killed leaves webhooks that nobody answers: finalizers can go even so.
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
async fn people_are_told_what_is_served_where_until_when_and_how_it_ends() {
    let cluster = cluster().await;
    let mut dev = start(cluster, ENTITIES, "Told.By", &["--ttl", "30m", "--only-namespace", "nobody-s"]);
    dev.open().await;
    let said = dev.said();
    for words in [
        &format!("({}/) are served from this machine", cluster.url()),
        "https://127.0.0.1:",
        "on the route to the API server",
        "ValidatingWebhookConfiguration entity-operator-dev-told-by-validating",
        "username.entities.demo.example  /validate/username",
        "defaults.entities.demo.example  /mutate/defaults",
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
async fn other_namespaces_are_left_alone_and_so_is_everybody_when_the_machine_is_gone() {
    let cluster = cluster().await;
    let (team, others) = (cluster.namespace("team").await, cluster.namespace("others").await);
    let mut dev = start(cluster, ENTITIES, "narrow", &["--only-namespace", &team]);
    dev.open().await;
    judged(&entities(cluster, &team), true).await;
    try_create(&entities(cluster, &others), "forbidden").await.unwrap();
    // A machine that is gone: nobody answers any more.
    dev.signal("-KILL").await;
    dev.ended().await;
    try_create(&entities(cluster, &team), "forbidden").await.unwrap();
    let mut sweep = start(cluster, ENTITIES, "narrow", &["--sweep"]);
    assert_eq!(sweep.ended().await.code(), Some(0), "{}", sweep.said());
    assert_eq!(configurations(cluster, "narrow").await, [""; 0]);
}

// K3, K6
#[tokio::test]
async fn conversion_is_borrowed_and_given_back_as_it_was() {
    let _alone = alone().await;
    let cluster = cluster_with_people().await;
    let before = people_crd(cluster).await;
    let mut dev = start(cluster, VERSIONS, "ann", &[]);
    dev.open().await;
    let made = object("versions.example/v1", "Person", "mary", &json!({ "name": "Mary Poppins" }));
    let made = wait_until("the conversion to be called", PATIENCE, || async {
        people(cluster, "v1").create(&PostParams::default(), &made).await.ok()
    })
    .await;
    assert_eq!(made.data["spec"]["name"], "Mary Poppins");
    let read = people(cluster, "v2").get("mary").await.unwrap();
    assert_eq!(read.data["spec"], json!({ "firstName": "Mary", "lastName": "Poppins" }));
    assert!(dev.said().contains("CustomResourceDefinition people.versions.example"), "{}", dev.said());

    // Another person cannot have it at the same time.
    let refused = start(cluster, VERSIONS, "cora", &[]).fails().await;
    let expected = format!("objects of {PEOPLE} are converted by the session of ann (until ");
    assert!(refused.contains(&expected) && refused.contains("dev --sweep --owner ann"), "{refused}");
    assert_eq!(configurations(cluster, "cora").await, [""; 0]);
    people(cluster, "v1").get("mary").await.unwrap();

    people(cluster, "v3").delete("mary", &DeleteParams::default()).await.unwrap();
    dev.end("-TERM").await;
    assert_eq!(lasting(&people_crd(cluster).await), lasting(&before));
}

#[tokio::test]
async fn an_installed_operator_stands_aside_while_its_conversion_is_borrowed() {
    let _alone = alone().await;
    let cluster = cluster_with_people().await;
    let home = cluster.namespace("home").await;
    for crd in generate(VERSIONS, &["crds", "--namespace", &home]).await {
        cluster.install_crds(&[serde_json::from_value(crd).unwrap()]).await;
    }
    let kubeconfig = cluster.kubeconfig_path();
    let place = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--namespace", &home];
    let listen = ["--bind", "127.0.0.1:0", "--health-bind", "127.0.0.1:0", "--drain-delay", "0s"];
    let run = [&["run"], &place[..], &listen].concat();
    let mut installed = Dev::spawn(VERSIONS, &run);
    installed.says("ready: the CA is published, and our own listener answers under it").await;
    let before = people_crd(cluster).await;

    let mut dev = start(cluster, VERSIONS, "ann", &[]);
    dev.open().await;
    let borrowed = people_crd(cluster).await;
    // One that starts now has nothing to wait for; whatever it wrote, it would have written before it is ready.
    let mut second = Dev::spawn(VERSIONS, &run);
    second.says("ready: the CA is published, and our own listener answers under it").await;
    assert_eq!(people_crd(cluster).await.spec, borrowed.spec);
    let made = object("versions.example/v1", "Person", "jack", &json!({ "name": "Jack Dawkins" }));
    wait_until("the session to be called", PATIENCE, || async {
        people(cluster, "v1").create(&PostParams::default(), &made).await.ok()
    })
    .await;
    people(cluster, "v3").delete("jack", &DeleteParams::default()).await.unwrap();

    dev.end("-TERM").await;
    // Whose bundle it is, is forgotten; which one it is, is not.
    let after = people_crd(cluster).await;
    assert_eq!((after.spec, after.metadata.annotations), (before.spec, before.metadata.annotations));
    second.end("-TERM").await;
    installed.end("-TERM").await;
}

#[tokio::test]
async fn a_session_for_some_namespaces_leaves_the_conversion_of_all_alone() {
    let _alone = alone().await;
    let cluster = cluster_with_people().await;
    let before = people_crd(cluster).await;
    let mut dev = start(cluster, VERSIONS, "ann", &["--only-namespace", "team"]);
    dev.open().await;
    assert!(dev.said().contains(&format!("{PEOPLE} keeps its conversion")), "{}", dev.said());
    assert_eq!(people_crd(cluster).await, before);
    dev.end("-TERM").await;
    assert_eq!(people_crd(cluster).await, before);
}

#[tokio::test]
async fn the_installed_operator_keeps_its_configurations_and_people_are_told_that_they_are_called_too() {
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

#[tokio::test]
async fn controllers_run_where_they_are_asked_for() {
    let (_alone, cluster) = (controllers_alone().await, cluster().await);
    let team = cluster.namespace("team").await;
    let only = ["--only-namespace", &team];
    let (entities, maps) = (entities(cluster, &team), Api::<ConfigMap>::namespaced(cluster.admin(), &team));
    let make = async |username: &str| {
        let mut made = entity(username);
        made.metadata.name = Some(username.to_owned());
        entities.create(&PostParams::default(), &made).await.unwrap();
    };
    let dev = start(cluster, ENTITIES, "both", &[&["--controllers"], &only[..]].concat());
    make("mary").await;
    wait_until("the greeting", PATIENCE, || async { maps.get_opt("mary").await.unwrap() }).await;
    let said = dev.end("-TERM").await;
    assert!(said.contains("run here too, with your rights"), "{said}");
    let mut dev = start(cluster, ENTITIES, "webhooks", &only);
    dev.open().await;
    make("jane").await;
    judged(&entities, true).await;
    dev.end("-TERM").await;
    assert!(maps.get_opt("jane").await.unwrap().is_none(), "nobody asked for controllers");
}
