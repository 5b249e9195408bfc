//! An object that ToolHive's operator or runner made is a child where its owner reference says so, and never by its labels.

use std::collections::BTreeSet;

use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject},
};
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::{
    Place,
    support::{Objects, children_of},
};

/// Goldens, each with the name of its server.
const GOLDENS: [(&str, &str); 4] = [
    ("01-minimal", "minimal"),
    ("02-streamable", "streamable"),
    ("03-sse-secrets-volumes", "sse"),
    ("04-overrides", "overrides"),
];

/// Reads the documents of a golden's file, for the namespace of these objects.
fn documents(objects: &Objects, case: &str, file: &str) -> Vec<Value> {
    let path = format!("{}/tests/golden/{case}/{file}", env!("CARGO_MANIFEST_DIR"));
    let yaml = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let yaml = yaml.replace("namespace: golden", &format!("namespace: {}", objects.namespace));
    yaml.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Creates what ToolHive leaves of every golden. `owned` says whether an object of this kind keeps its owner reference.
/// Returns what was created, by the name of its server.
async fn plant(objects: &Objects, owned: impl Fn(&str) -> bool) -> Vec<(&'static str, Vec<DynamicObject>)> {
    let mut all = Vec::new();
    for (case, server) in GOLDENS {
        for input in documents(objects, case, "input.yaml") {
            objects.create(input).await;
        }
        let mut uids = vec![("MCPServer".to_owned(), objects.servers().get(server).await.unwrap().uid().unwrap())];
        let mut planted = Vec::new();
        // In this order a StatefulSet comes before the Services that name it as their owner.
        for mut object in documents(objects, case, "objects.yaml") {
            let kind = object["kind"].as_str().unwrap().to_owned();
            if kind == "MCPServer" {
                continue;
            }
            object.as_object_mut().unwrap().remove("status");
            if !owned(&kind) {
                object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
            }
            for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
                let uid = uids.iter().find(|(kind, _)| owner["kind"] == **kind).map(|(_, uid)| uid.clone());
                owner["uid"] = json!(uid.unwrap());
            }
            let created = objects.try_create(object.clone()).await.unwrap_or_else(|error| panic!("{error}: {object}"));
            uids.push((kind, created.uid().unwrap()));
            planted.push(created);
        }
        all.push((server, planted));
    }
    all
}

fn kind_of(object: &DynamicObject) -> &str {
    &object.types.as_ref().unwrap().kind
}

/// Returns the children that the server of a golden gets.
fn wanted(server: &str) -> Vec<(ChildKind, String)> {
    let mut all = children_of(server);
    match server {
        "minimal" | "overrides" => {
            all.retain(|(kind, name)| *kind != ChildKind::Service || name.ends_with("-proxy"));
            all.push((ChildKind::Role, format!("{server}-proxy-runner")));
            all.push((ChildKind::RoleBinding, format!("{server}-proxy-runner")));
        }
        "sse" => all.retain(|(_, name)| name != "sse-sa"),
        _ => {}
    }
    all
}

/// Waits until every child of the server is applied, with the server as its only owner. Returns their kinds, names and uids.
async fn children(objects: &Objects, server: &str) -> BTreeSet<(&'static str, String, String)> {
    let uid = objects.servers().get(server).await.unwrap().uid().unwrap();
    let mut all = BTreeSet::new();
    for (kind, name) in wanted(server) {
        let child = objects.child(kind, &name, "to be the server's", |child| {
            let owners = child["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
            let digest = &child["metadata"]["annotations"]["portcullis.dev/applied-digest"];
            owners.len() == 1 && owners[0]["uid"] == *uid && owners[0]["controller"] == true && digest.is_string()
        });
        let child = child.await;
        assert!(child["metadata"]["deletionTimestamp"].is_null(), "{child}");
        all.insert((kind.as_str(), name, child["metadata"]["uid"].as_str().unwrap().to_owned()));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn toolhives_objects_with_our_owner_are_taken_over() {
    let place = Place::new("toolhive-owned").await;
    let objects = &place.objects;
    let planted = plant(objects, |_| true).await;
    let operator = place.operator();
    for (server, planted) in &planted {
        let children = children(objects, server).await;
        for object in planted {
            let found = children.iter().find(|(kind, name, _)| *kind == kind_of(object) && *name == object.name_any());
            let kept = found.is_some_and(|(.., uid)| *uid == object.uid().unwrap());
            // A stdio server's Deployment cannot change its strategy, and the others need no rights.
            let stdio = matches!(*server, "minimal" | "overrides");
            let remade = match kind_of(object) {
                "Deployment" => stdio,
                "Role" | "RoleBinding" => !stdio,
                _ => false,
            };
            assert_eq!(kept, !remade, "{} {}", kind_of(object), object.name_any());
        }
        objects.phase(server, "Pending").await;
    }
    operator.idle(place.cluster).await;
    for (server, _) in &planted {
        let events = objects.events("MCPServer", server).await;
        assert!(!events.contains(&"Warning NameTaken".to_owned()), "{server}: {events:?}");
    }
}

/// Anybody may write these labels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_with_toolhives_labels_alone_are_not_adopted() {
    let place = Place::new("toolhive-labels").await;
    let objects = &place.objects;
    let planted = plant(objects, |_| false).await;
    let operator = place.operator();
    for (server, planted) in &planted {
        let refused = objects.phase(server, "Failed").await.status.unwrap();
        let ready = refused.conditions.iter().flatten().find(|it| it.type_ == "Ready").unwrap().clone();
        assert_eq!((&*ready.status, &*ready.reason), ("False", "NameTaken"), "{server}");
        let (_, line) = ready.message.split_once(&format!("kubectl delete -n {} ", place.namespace())).unwrap();
        let named: BTreeSet<&str> = line.split(' ').collect();
        let stdio = matches!(*server, "minimal" | "overrides");
        let in_the_way = planted.iter().filter(|object| match kind_of(object) {
            "StatefulSet" => false,
            "Role" | "RoleBinding" => stdio,
            _ => true,
        });
        let in_the_way: BTreeSet<String> = in_the_way
            .map(|object| {
                let version = object.types.as_ref().unwrap().api_version.split_once('/');
                let group = version.map(|(group, _)| format!(".{group}")).unwrap_or_default();
                format!("{}{group}/{}", kind_of(object).to_lowercase(), object.name_any())
            })
            .collect();
        assert_eq!(named, in_the_way.iter().map(String::as_str).collect(), "{server}");
        assert_eq!(refused.url, None, "{server}");
    }
    operator.idle(place.cluster).await;
    for (server, planted) in &planted {
        for object in planted {
            let kind = ChildKind::ALL.into_iter().find(|kind| kind.as_str() == kind_of(object)).unwrap();
            let now = objects.get(kind, &object.name_any()).await;
            let (uid, version) = (object.uid().unwrap(), object.resource_version().unwrap());
            assert_eq!(now["metadata"]["uid"], *uid, "{server}: {kind:?}");
            let written = now["metadata"]["managedFields"].to_string().contains("portcullis");
            assert!(!written, "{server}: {kind:?} of version {version} is written: {now}");
            if kind != ChildKind::StatefulSet {
                objects.children(kind).delete(&object.name_any(), &DeleteParams::background()).await.unwrap();
            }
        }
        children(objects, server).await;
    }
}

/// ToolHive's runner made it, and its operator did not come to put its owner reference on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_of_toolhives_without_owner_is_made_anew() {
    let place = Place::new("toolhive-set").await;
    let objects = &place.objects;
    let planted = plant(objects, |kind| kind != "StatefulSet").await;
    let operator = place.operator();
    for (server, planted) in &planted {
        let set = planted.iter().find(|object| kind_of(object) == "StatefulSet").unwrap();
        let children = children(objects, server).await;
        let (.., uid) = children.iter().find(|(kind, ..)| *kind == "StatefulSet").unwrap();
        assert_ne!(*uid, set.uid().unwrap(), "{server}");
    }
    operator.idle(place.cluster).await;
    for (server, _) in &planted {
        let events = objects.events("MCPServer", server).await;
        assert!(!events.contains(&"Warning NameTaken".to_owned()), "{server}: {events:?}");
    }
}

/// It is somebody's own: only the name is ToolHive's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_without_toolhives_label_is_left_alone() {
    let place = Place::new("toolhive-none").await;
    let objects = &place.objects;
    let mut set = documents(objects, "02-streamable", "objects.yaml");
    set.retain(|object| object["kind"] == "StatefulSet");
    let mut set = set.remove(0);
    set["metadata"]["labels"] = json!({"toolhive": "false"});
    set["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    objects.create(set).await;
    let before = objects.get(ChildKind::StatefulSet, "streamable").await;
    let _operator = place.operator();
    objects.create(documents(objects, "02-streamable", "input.yaml").remove(0)).await;
    let refused = objects.phase("streamable", "Failed").await.status.unwrap().message.unwrap();
    let line = format!("kubectl delete -n {} statefulset.apps/streamable", place.namespace());
    assert!(refused.ends_with(&line), "{refused}");
    let after = objects.get(ChildKind::StatefulSet, "streamable").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"], before["spec"]);
}
