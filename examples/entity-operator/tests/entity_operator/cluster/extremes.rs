//! Objects as large as Kubernetes lets them be, under the memory limit of the generated Deployment.

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, VersionMatch};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use crate::cluster::installation::{Installation, PATIENCE};

const OBJECTS: usize = 40;
/// Kubernetes allows so many bytes for names and values of all annotations of an object.
const ANNOTATIONS: usize = 256 * 1024;
const FIELDS: usize = 3000;
/// What the generated Deployment limits the operator to, in MiB.
const MEMORY: usize = 512;

/// An entity with annotations that leave 20 bytes, 1 MiB of spec, and 3,000 managed fields.
fn extreme(home: &Installation, name: &str) -> Value {
    let key = |index: usize| format!("n{index:04}");
    let (each, free) = (ANNOTATIONS / FIELDS - key(0).len(), 20);
    let mut annotations: Vec<_> = (0..FIELDS).map(|index| (key(index), "x".repeat(each))).collect();
    annotations[0].1 += &"x".repeat(ANNOTATIONS % FIELDS - free);
    let annotations: Value = annotations.into_iter().map(|(key, text)| (key, Value::from(text))).collect();
    json!({
        "apiVersion": "demo.example/v3", "kind": "Entity",
        "metadata": { "name": name, "namespace": home.namespace, "annotations": annotations },
        "spec": {
            "firstname": "Ada", "lastname": "Lovelace", "username": "u".repeat(1024 * 1024), "birthday": "1815-12-10",
        },
    })
}

/// The managed fields of an entity's annotations.
fn managed(entity: &DynamicObject) -> usize {
    let fields = entity.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.fields_v1.as_ref());
    fields.filter_map(|fields| fields.0["f:metadata"]["f:annotations"].as_object()).map(serde_json::Map::len).sum()
}

/// The most memory that a process ever had, in MiB.
fn peak(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
}

#[tokio::test]
async fn a_list_of_40_extreme_objects_is_served_in_every_version() {
    let home = Installation::new().await;
    let (api, gitops, mut uids) = (home.entities("v3"), PatchParams::apply("gitops"), Vec::new());
    for number in 0..OBJECTS {
        let name = format!("extreme-{number:02}");
        let made = api.patch(&name, &gitops, &Patch::Apply(extreme(&home, &name))).await.unwrap();
        uids.push(made.metadata.uid);
    }
    // The controller has written all that it has to say, so that the lists can be compared.
    let told = || async {
        let list = api.list(&ListParams::default()).await.ok()?;
        list.items.iter().all(|entity| !entity.data["status"].is_null()).then_some(list.metadata.resource_version)
    };
    let now = wait_until("each status", PATIENCE, told).await.unwrap();
    // Three from the cache, as clients list that know nothing; and one from etcd, every object converted for the list.
    let exact = ListParams::default().at(&now).matching(VersionMatch::Exact);
    let cached = ["v1", "v2", "v3"].map(|version| (version, ListParams::default()));
    for (version, params) in cached.into_iter().chain([("v1", exact)]) {
        let list = home.entities(version).list(&params).await.unwrap_or_else(|error| panic!("{version}: {error}"));
        let found: Vec<_> = list.items.iter().map(|entity| entity.metadata.uid.clone()).collect();
        assert_eq!(found, uids, "{version}");
        for entity in &list.items {
            let spec = &entity.data["spec"];
            assert_eq!(spec["username"].as_str().map(str::len), Some(1024 * 1024), "{version}");
            assert_eq!(spec.get("birthday").is_some(), version == "v3");
            assert_eq!(entity.metadata.annotations.as_ref().unwrap().len(), FIELDS, "{version}");
            assert_eq!(managed(entity), FIELDS, "{version}");
        }
    }
    // The operator knows that v3 is stored.
    let (code, message) = home.change("v1", "extreme-00", &json!({ "name": "Ada King" })).await.unwrap_err();
    assert_eq!(code, 500);
    assert!(message.contains("extreme-00 is incomplete in v1") && message.contains("update or delete it in v3"));
    let changed = home.change("v3", "extreme-00", &json!({ "lastname": "King" })).await.unwrap();
    assert_eq!((&changed["lastname"], &changed["birthday"]), (&json!("King"), &json!("1815-12-10")));

    let metrics = home.operator.get("/metrics").await.unwrap();
    let rejected = metrics.lines().find(|line| line.contains("rejected_total{") && line.contains("/convert/"));
    assert_eq!(rejected, None, "nothing was shed, too large or late");
    let [process, _] = home.operator.process_ids();
    let most = peak(process);
    eprintln!("the operator took {most} MiB at most");
    assert!(most < MEMORY, "{most} MiB of {MEMORY}");
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
}
