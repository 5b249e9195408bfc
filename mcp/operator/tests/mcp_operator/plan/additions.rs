//! Annotations of ours on workloads: what becomes of them in the document, in the guards' digest and in the status.

use serde_json::{Value, json};

use super::world::{World, condition, deployment, run_config};

const MCP: &str = "portcullis.dev/mcp-paths";
const OPEN: &str = "portcullis.dev/open-paths";
const ORIGINS: &str = "portcullis.dev/allowed-origins";

fn annotate<W: kube::ResourceExt>(workload: &mut W, annotations: &[(&str, &str)]) {
    for (key, value) in annotations {
        workload.annotations_mut().insert((*key).to_owned(), (*value).to_owned());
    }
}

fn document(annotations: &[(&str, &str)], for_all: &[&str]) -> Value {
    let mut world = World::tooled();
    annotate(&mut world.workload, annotations);
    world.settings.allowed_origins = for_all.iter().map(|origin| (*origin).to_owned()).collect();
    serde_json::from_str(run_config(&world.plan())).unwrap()
}

#[test]
fn additions_stand_under_one_member_of_the_document() {
    let plain = document(&[], &[]);
    assert_eq!((plain.get("portcullis"), plain.get("allowed_origins")), (None, None));
    let paths = document(&[(MCP, "/api/mcp, /"), (OPEN, "/docs/*")], &[]);
    assert_eq!(paths["portcullis"], json!({"mcp_paths": ["/api/mcp", "/"], "open_paths": ["/docs/*"]}));
    let mut world = World::tooled();
    world.settings.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    let trusting: Value = serde_json::from_str(run_config(&world.plan())).unwrap();
    assert_eq!(trusting["portcullis"], json!({"trusted_proxies": ["10.0.0.0/8"]}));
    let origins = document(&[(ORIGINS, "https://a,https://b")], &["https://b", "https://all"]);
    assert_eq!(origins["allowed_origins"], json!(["https://b", "https://all", "https://a"]));
}

#[test]
fn a_change_of_an_addition_is_a_change_of_the_guards() {
    let mut world = World::tooled();
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    let (reason, message) = condition(&world.plan(), "GuardsEnforced", "True").unwrap();
    assert_eq!((reason.as_str(), message.contains("unjudged")), ("Enforced", false), "{message}");
    for annotation in [(OPEN, "/docs/*"), (MCP, "/api/mcp"), (ORIGINS, "https://a")] {
        let mut world = world.clone();
        annotate(&mut world.workload, &[annotation]);
        let (reason, message) = condition(&world.plan(), "GuardsEnforced", "False").unwrap();
        assert_eq!(reason, "PolicyOutdated", "{annotation:?}: {message}");
        world.applied(&world.plan());
        world.pods = vec![world.pod_of_now("Running", true, None)];
        let (_, message) = condition(&world.plan(), "GuardsEnforced", "True").unwrap();
        assert_eq!(message.ends_with("; requests to /docs/* pass unjudged"), annotation.0 == OPEN, "{message}");
    }
}

#[test]
fn a_runner_that_ignores_an_addition_gets_no_proxy() {
    let mut world = World::tooled();
    annotate(&mut world.workload, &[(OPEN, "/docs/*")]);
    world.settings.runner_middleware.retain(|ability| ability != "mcp-endpoints");
    let plan = world.plan();
    let (reason, message) = condition(&plan, "GuardsEnforced", "False").unwrap();
    assert!(reason == "GuardNotBuilt" && message.starts_with(OPEN), "{reason}: {message}");
    assert!(plan.children.is_empty());
    assert!(plan.events.iter().any(|event| event.reason == "GuardNotBuilt"), "{:?}", plan.events);
    // Without paths of its own, or without a guard that judges messages, the workload asks nothing of it.
    world.workload.metadata.annotations = None;
    assert!(deployment(&world.plan()).is_object());
}
