//! `spec.audit`: a setting, which rolls the proxy and takes nothing down.

use mcp_api::v1beta1::{Audit, MCPRemoteProxy, MCPServer};
use mcp_operator::{subject::Subject as _, workload::Workload};
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::world::{World, checksum, condition, deployment, guards, is_absent, run_config};

fn remote() -> World<MCPRemoteProxy> {
    World::around(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPRemoteProxy",
        "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3},
        "spec": {"remoteUrl": "https://mcp.example.com/mcp", "audit": {"enabled": true}},
    }))
}

/// The member of the document, and the entry of the chain with what stands before and after it.
fn audited<W: Workload>(world: &World<W>) -> (Value, Option<(String, Value, String)>)
where
    W::Status: Clone,
{
    let document: Value = serde_json::from_str(run_config(&world.plan())).unwrap();
    let chain = document["middleware_configs"].as_array().unwrap();
    let kind = |at: usize| chain[at]["type"].as_str().unwrap().to_owned();
    let at = chain.iter().position(|entry| entry["type"] == "audit");
    let entry = at.map(|at| (kind(at - 1), chain[at]["parameters"].clone(), kind(at + 1)));
    (document["audit_config"].clone(), entry)
}

#[test]
fn audit_that_is_enabled_is_upstreams_member_and_entry_and_otherwise_there_is_nothing() {
    let config = json!({"detectApplicationErrors": true, "maxDataSize": 1024});
    let entry = |transport: &str| {
        let parameters = json!({"config_data": config, "transport_type": transport});
        (config.clone(), Some(("bodylimit".to_owned(), parameters, "auth".to_owned())))
    };
    for transport in ["streamable-http", "stdio", "sse"] {
        for (audit, expected) in [
            (json!({"enabled": true}), entry(transport)),
            (json!({"enabled": false}), (Value::Null, None)),
            (json!({}), (Value::Null, None)),
            (Value::Null, (Value::Null, None)),
        ] {
            let world = World::of(json!({"image": "x:1", "transport": transport, "audit": audit}));
            assert_eq!(audited(&world), expected, "{transport}: {audit}");
            assert_eq!(condition(&world.plan(), "UnsupportedFields", "True"), None);
            assert_eq!(world.workload.warnings(&world.settings), Vec::<String>::new());
        }
    }
    assert_eq!(audited(&remote()), entry("streamable-http"));
}

#[test]
fn turning_audit_on_and_off_rolls_a_guarded_server_and_takes_nothing_down() {
    let mut world = World::gated();
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    world.applied(&world.plan());
    for enabled in [true, false] {
        let (before, enforced) = (checksum(&world.plan()).to_owned(), guards(&world.plan()).clone());
        world.workload.spec.audit = Some(Audit { enabled });
        let plan = world.plan();
        assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "{:?}", plan.absent);
        assert_ne!(checksum(&plan), before, "it rolls");
        assert_eq!(guards(&plan), &enforced, "no guard is another");
        // The old pods enforce what is asked for while the new ones come.
        let (reason, _) = condition(&plan, "GuardsEnforced", "True").expect("pods are told by their guards");
        assert_eq!((&*reason, plan.status.phase.unwrap().as_str()), ("Enforced", "Ready"));
        assert!(plan.events.is_empty(), "{:?}", plan.events);
        world.applied(&plan);
    }
}

#[test]
fn an_image_without_audit_gets_a_proxy_without_it_and_the_author_is_told() {
    let audit = json!({"image": "x:1", "transport": "streamable-http", "audit": {"enabled": true}});
    let mut world: World<MCPServer> = World::of(audit);
    world.settings.runner_middleware.retain(|kind| kind != "audit");
    let said = "spec.audit has no effect with the image of the proxy, which does not have it";
    let plan = world.plan();
    assert_eq!(condition(&plan, "UnsupportedFields", "True").unwrap().1, said);
    assert_eq!(world.workload.warnings(&world.settings), [said]);
    assert_eq!(audited(&world), (Value::Null, None));
    assert!(deployment(&plan).is_object());
}
