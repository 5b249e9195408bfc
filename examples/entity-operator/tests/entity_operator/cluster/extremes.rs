//! Objects as large as Kubernetes lets them be, under the memory limit of the generated Deployment.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, VersionMatch};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use crate::cluster::installation::Installation;

const OBJECTS: usize = 40;
/// Kubernetes allows so many bytes for names and values of all annotations of an object.
const ANNOTATIONS: usize = 256 * 1024;
const SPEC: usize = 1024 * 1024;
const FIELDS: usize = 3000;
/// The time for 80 conversions, on a busy machine.
const CATCH_UP: Duration = Duration::from_mins(5);
/// The memory limit of the generated Deployment, in MiB.
const MEMORY: usize = 512;

/// The name of an annotation.
fn key(index: usize) -> String {
    format!("n{index:04}")
}

/// An entity with annotations that leave 20 bytes, 1 MiB of spec, and 3,000 managed fields.
fn extreme(home: &Installation, name: &str) -> Value {
    let (each, free) = (ANNOTATIONS / FIELDS - key(0).len(), 20);
    let mut annotations: Vec<_> = (0..FIELDS).map(|index| (key(index), "x".repeat(each))).collect();
    annotations[0].1 += &"x".repeat(ANNOTATIONS % FIELDS - free);
    let annotations: Value = annotations.into_iter().map(|(key, text)| (key, Value::from(text))).collect();
    json!({
        "apiVersion": "demo.example/v3", "kind": "Entity",
        "metadata": { "name": name, "namespace": home.namespace, "annotations": annotations },
        "spec": {
            "firstname": "Ada", "lastname": "Lovelace", "username": "u".repeat(SPEC), "birthday": "1815-12-10",
        },
    })
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
    let (api, gitops) = (home.entities("v3"), PatchParams::apply("gitops"));
    let names: Vec<_> = (0..OBJECTS).map(|number| format!("extreme-{number:02}")).collect();
    for name in &names {
        api.patch(name, &gitops, &Patch::Apply(extreme(&home, name))).await.unwrap();
    }
    let now = api.list_metadata(&ListParams::default().limit(1)).await.unwrap().metadata.resource_version.unwrap();
    // The API server has each object converted for the cache of each version. A list that waits for them may outlast its minute for a request.
    let caught_up = ListParams::default().at(&now).matching(VersionMatch::NotOlderThan).limit(1);
    for version in ["v1", "v2"] {
        let entities = home.entities(version);
        wait_until(&format!("the cache of {version}"), CATCH_UP, || async {
            entities.list_metadata(&caught_up).await.ok()
        })
        .await;
    }
    // Three from the cache, as clients list that know nothing; and one from etcd, every object converted for the list.
    let exact = format!("?resourceVersion={now}&resourceVersionMatch=Exact");
    for (version, query) in [("v1", ""), ("v2", ""), ("v3", ""), ("v1", exact.as_str())] {
        let path = format!("/apis/demo.example/{version}/namespaces/{}/entities{query}", home.namespace);
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        // 57 MB, in which the members are counted.
        let list =
            home.cluster.admin().request_text(request).await.unwrap_or_else(|error| panic!("{version}: {error}"));
        let count = |words: &str| list.matches(words).count();
        let listed: Vec<_> = list.match_indices(r#""name":"extreme-"#).map(|(at, _)| &list[at + 8..at + 18]).collect();
        assert_eq!(listed, names, "{version}");
        assert_eq!(count(&format!(r#""username":"{}""#, "u".repeat(SPEC))), OBJECTS, "{version}");
        assert_eq!(count(r#""birthday":"1815-12-10""#), if version == "v3" { OBJECTS } else { 0 });
        for field in (0..FIELDS).step_by(500) {
            assert_eq!(count(&format!(r#""f:{}":{{}}"#, key(field))), OBJECTS, "{version}");
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
