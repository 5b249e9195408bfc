//! M6: policies that a workload tries guard nothing, and become a guard by one edit.

use mcp_api::v1beta1::{MCPRemoteProxy, MCPServer};
use mcp_operator::workload::Workload;
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::{
    webhooks::{edit, open},
    world::{World, authz_config, checksum, child, condition, deployment, guards, is_absent, run_config},
};

const PERMIT: &str = "permit(principal, action, resource);";
const FORBID: &str = "forbid(principal, action, resource == Tool::\"write\");";

fn rules(policies: &[&str]) -> Value {
    json!({"type": "cedarv1", "config": {"policies": policies}})
}

/// A workload that tries the policies of `stricter`.
fn trying<W: Workload>(change: &Value) -> World<W>
where
    W::Status: Clone,
{
    let mut spec = json!({"shadowPoliciesRef": {"name": "stricter"}});
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let mut world = open(&spec);
    world.has(authz_config("stricter", rules(&[PERMIT, FORBID])));
    world.has(authz_config("rules", rules(&[PERMIT])));
    world
}

fn document<W: Workload>(world: &World<W>) -> Value
where
    W::Status: Clone,
{
    serde_json::from_str(run_config(&world.plan())).unwrap()
}

fn settings<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = open::<W>(&json!({}));
    world.applied(&world.plan());
    let before = checksum(&world.plan()).to_owned();
    edit(&mut world, &json!({"shadowPoliciesRef": {"name": "stricter"}}));

    // While they are missing the proxy serves without them.
    let plan = world.plan();
    let (reason, message) = condition(&plan, "ShadowPoliciesRefValidated", "False").unwrap();
    let missing = "spec.shadowPoliciesRef: MCPAuthzConfig \"stricter\" does not exist; create it";
    assert_eq!((&*reason, &*message), ("ShadowPoliciesRefNotFound", missing));
    assert!(!is_absent(&plan, ChildKind::Deployment, "fetch") && checksum(&plan) == before, "nothing rolls");

    world.has(authz_config("stricter", rules(&[PERMIT, FORBID])));
    let plan = world.plan();
    assert!(condition(&plan, "ShadowPoliciesRefValidated", "True").is_some());
    assert!(!is_absent(&plan, ChildKind::Deployment, "fetch") && guards(&plan).is_null());
    assert_ne!(checksum(&plan), before, "the proxy rolls");
    let document = document(&world);
    assert_eq!(document["portcullis"]["shadow_policies"]["cedar"]["policies"], json!([PERMIT, FORBID]));
    assert!(document.get("authz_config").is_none());
}

#[test]
fn policies_that_are_tried_roll_the_proxy_and_guard_nothing() {
    settings::<MCPServer>();
    settings::<MCPRemoteProxy>();
}

fn trials<W: Workload>()
where
    W::Status: Clone,
{
    let service = json!({"type": "httpv1", "config": {
        "http": {"url": "https://pdp.example.com"}, "claim_mapping": "standard",
    }});
    for (rules, reason) in [
        (None, "ShadowPoliciesRefNotFound"),
        (Some(rules(&["permit(principal"])), "ShadowPoliciesRefNotValid"),
        (Some(service), "ShadowPoliciesRefNotValid"),
    ] {
        let mut world = trying::<W>(&json!({}));
        world.applied(&world.plan());
        let (mut new, mut spoilt) =
            (trying::<W>(&json!({})), trying::<W>(&json!({"authzConfigRef": {"name": "rules"}})));
        for world in [&mut world, &mut new, &mut spoilt] {
            world.configs.retain(|(_, name), _| name != "stricter");
            if let Some(rules) = &rules {
                world.has(authz_config("stricter", rules.clone()));
            }
        }
        for (world, why) in [(&world, "one that tried them"), (&new, "a new one"), (&spoilt, "one with a guard")] {
            let plan = world.plan();
            assert_eq!(condition(&plan, "ShadowPoliciesRefValidated", "False").unwrap().0, reason, "{why}");
            assert!(!is_absent(&plan, ChildKind::Deployment, "fetch") && deployment(&plan).is_object(), "{why}");
            assert!(document(world)["portcullis"].get("shadow_policies").is_none(), "{why}");
        }
        assert!(run_config(&spoilt.plan()).contains("authz_config"), "the guard stays");

        // It may be there in a moment: the proxy does not roll twice.
        world.unseen = true;
        let plan = world.plan();
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{reason}");
    }
}

#[test]
fn a_trial_that_cannot_be_made_takes_no_workload_down() {
    trials::<MCPServer>();
    trials::<MCPRemoteProxy>();
}

fn services<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = trying::<W>(&json!({}));
    let http = json!({"url": "https://pdp.example.com"});
    world.has(authz_config(
        "stricter",
        json!({"type": "httpv1", "config": {"http": http, "claim_mapping": "standard"}}),
    ));
    let (reason, message) = condition(&world.plan(), "ShadowPoliciesRefValidated", "False").unwrap();
    assert!(reason == "ShadowPoliciesRefNotValid" && message.contains("only Cedar policies can be tried"), "{message}");
}

#[test]
fn a_decision_service_is_not_tried_and_the_status_says_so() {
    services::<MCPServer>();
    services::<MCPRemoteProxy>();
}

fn enforcement<W: Workload>()
where
    W::Status: Clone,
{
    // Where there was no guard, open pods go first.
    let mut world = trying::<W>(&json!({}));
    world.applied(&world.plan());
    let one_edit = json!({"shadowPoliciesRef": null, "authzConfigRef": {"name": "stricter"}});
    edit(&mut world, &one_edit);
    let first = world.plan();
    assert!(is_absent(&first, ChildKind::Deployment, "fetch"), "no pod serves without the policies");
    assert!(child(&first, ChildKind::Deployment, "fetch").is_none());
    world.applied(&first);
    let second = world.plan();
    assert!(guards(&second).as_str().unwrap().starts_with("MCPAuthzConfig/stricter/"));
    assert!(deployment(&second).is_object());
    let document = document(&world);
    assert_eq!(document["authz_config"]["cedar"]["policies"], json!([PERMIT, FORBID]));
    assert!(document["portcullis"].get("shadow_policies").is_none());

    // Policies that go into the configuration that is enforced are an edit of a guard, which takes nothing down.
    let mut world = trying::<W>(&json!({"authzConfigRef": {"name": "rules"}}));
    world.applied(&world.plan());
    world.has(authz_config("rules", rules(&[PERMIT, FORBID])));
    let plan = world.plan();
    assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"));
    assert!(run_config(&plan).contains("authz_config"));
}

#[test]
fn one_edit_makes_policies_that_were_tried_a_guard() {
    enforcement::<MCPServer>();
    enforcement::<MCPRemoteProxy>();
}

fn images_without_shadows<W: Workload>()
where
    W::Status: Clone,
{
    let mut world = trying::<W>(&json!({}));
    world.settings.runner_middleware.retain(|ability| ability != "shadow-authorization");
    let plan = world.plan();
    let (reason, message) = condition(&plan, "UnsupportedFields", "True").unwrap();
    assert!(reason == "FieldsHaveNoEffect" && message.contains("spec.shadowPoliciesRef has no effect"), "{message}");
    // They guard nothing: without them the proxy is none with less.
    assert!(!run_config(&plan).contains("shadow_policies"));
}

#[test]
fn an_image_that_tries_no_policies_gets_none_and_the_status_says_so() {
    images_without_shadows::<MCPServer>();
    images_without_shadows::<MCPRemoteProxy>();
}
