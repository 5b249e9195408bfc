//! Uses of configurations: what a role means for what runs, wherever the configuration stands.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{EnvVar, Pod},
};
use mcp_plan::{
    config::{Config, ConfigUse, Configs, Needs, Origin, Requested, Role, Target, Terms, Uses, Words},
    guards::{Running, Standing, Verdict, judge},
    reference::{Content, Data, SecretVariable},
    settings::Settings,
};
use mcp_runconfig::RunConfig;
use serde_json::{Value, json};

/// A configuration that needs a Secret and tells the proxy of its workload.
#[derive(Debug)]
struct Toy(&'static str);

impl Config for Toy {
    fn hash(&self) -> String {
        self.0.to_owned()
    }

    fn needs(&self, target: &Target, terms: &Terms) -> Needs {
        let secret = SecretVariable {
            name: "TOY_TOKEN".into(),
            secret: "toy".into(),
            key: "token".into(),
            content: Content::Bytes,
        };
        let told = format!("{}/{}/{}", target.namespace, target.name, terms.read::<String>());
        let variable = EnvVar { name: "TOY".to_owned(), value: Some(told), value_from: None };
        Needs { secrets: vec![secret], variables: vec![variable], ..Needs::default() }
    }

    fn render(&self, _: &Target, _: &Terms, _: &mut RunConfig) {}
}

const WORDS: Words = Words {
    condition: "ToyValidated",
    valid: "ToyValid",
    not_found: "ToyNotFound",
    not_valid: "ToyNotValid",
    data_not_found: "ToySecretNotFound",
    data_not_valid: "ToySecretNotValid",
    bundle: None,
};

fn object(role: Role) -> ConfigUse {
    ConfigUse {
        role,
        field: "spec.toyRef",
        origin: Origin::Object { kind: "Toy".into(), name: "t".to_owned() },
        terms: Terms::of(&"as-asked".to_owned()),
        words: Some(WORDS),
        annotation: None,
        middleware: &[],
        mark: None,
    }
}

fn inline(role: Role, content: &'static str) -> ConfigUse {
    ConfigUse::inline(role, "spec.toy", Arc::new(Toy(content)), &[])
}

fn looked_up(uses: Vec<ConfigUse>, exists: bool) -> Uses {
    let mut configs = Configs::new();
    let mut data = Data::default();
    data.secrets.insert("toy".to_owned(), BTreeMap::new());
    if exists {
        configs.insert(("Toy".into(), "t".to_owned()), Arc::new(Toy("1")));
        let entry = mcp_plan::reference::Entry::of(b"x", &mcp_plan::digest::DigestKey::new(b"key"));
        data.secrets.insert("toy".to_owned(), [("token".to_owned(), entry)].into());
    }
    let target = Target {
        name: "fetch".to_owned(),
        namespace: "team".to_owned(),
        url: "http://fetch".to_owned(),
        ..Target::default()
    };
    Uses::look_up(Requested { uses, ..Requested::default() }, target, &configs, &data, &Settings::default())
}

/// Judges a proxy that was made with `made` where `asked` is asked for now.
fn judged(made: &Uses, asked: &Uses) -> Verdict {
    let annotations: Value = made.digest().map_or(json!({}), |digest| json!({"toolhive.stacklok.dev/guards": digest}));
    let template = json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}});
    let deployment: Deployment =
        serde_json::from_value(json!({"metadata": {"name": "fetch"}, "spec": {"selector": {}, "template": template}}))
            .unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "fetch-1", "annotations": annotations}, "status": {"phase": "Running"},
    }))
    .unwrap();
    judge(
        asked,
        &Running {
            deployment: Some(&deployment),
            own: &[&pod],
            serving: &[&pod],
            ending: &[],
            foreign: &[],
            containers: &BTreeMap::new(),
            rendered: None,
            mirrors: &[],
        },
    )
}

#[test]
fn a_new_guard_is_missing_and_a_changed_one_outdated_wherever_it_stands_while_a_setting_is_neither() {
    let none = || looked_up(Vec::new(), true);
    let one = |used| looked_up(vec![used], true);
    for (role, new, changed) in
        [(Role::Guard, Standing::Missing, Standing::Outdated), (Role::Setting, Standing::Current, Standing::Current)]
    {
        assert_eq!(judged(&none(), &one(inline(role, "1"))).standing, new, "{role:?}");
        assert_eq!(judged(&one(inline(role, "1")), &one(inline(role, "2"))).standing, changed, "{role:?}");
        assert_eq!(judged(&one(inline(role, "1")), &one(inline(role, "1"))).standing, Standing::Current);
        assert_eq!(judged(&none(), &one(object(role))).standing, new, "{role:?}");
        let other = ConfigUse { terms: Terms::default(), ..object(role) };
        assert_eq!(judged(&one(other), &one(object(role))).standing, changed, "{role:?}: on other terms");
    }
    let digest = looked_up(vec![inline(Role::Guard, "1"), object(Role::Setting)], true).digest();
    assert_eq!(digest.as_deref(), Some("inline/spec.toy/1"));
}

#[test]
fn a_setting_that_cannot_be_used_is_said_and_weakens_no_guard() {
    for (role, enforced) in [(Role::Guard, false), (Role::Setting, true), (Role::Trial, true)] {
        let uses = looked_up(vec![object(role)], false);
        let said: Vec<_> = uses.conditions().map(|it| (it.type_, it.good, it.reason)).collect();
        assert_eq!(said, [("ToyValidated", false, "ToyNotFound")], "{role:?}");
        assert_eq!(uses.can_be_enforced(), enforced, "{role:?}");
    }
    // `Valid` says it of an inline one without words.
    let uses = looked_up(vec![inline(Role::Setting, "1")], false);
    let said: Vec<_> = uses.conditions().map(|it| (it.type_, it.good, &*it.message)).collect();
    assert_eq!(
        said,
        [("Valid", false, "spec.toy needs what does not exist: spec.toy: Secret \"toy\" has no key \"token\"; add it")]
    );
    assert_eq!(looked_up(vec![inline(Role::Setting, "1")], true).conditions().count(), 0);
}

#[test]
fn the_needs_of_a_configuration_are_told_the_workload_and_the_terms() {
    let uses = looked_up(vec![object(Role::Setting)], true);
    let variables: Vec<_> = uses.variables().into_iter().map(|it| it.value.as_deref().unwrap()).collect();
    assert_eq!(variables, ["team/fetch/as-asked"]);
    assert_eq!(uses.secrets().len(), 1);
}

#[test]
fn a_setting_that_the_proxys_image_does_not_have_changes_nothing_and_a_guard_that_it_does_not_have_closes() {
    for (role, unbuilt) in [(Role::Guard, true), (Role::Setting, false), (Role::Trial, false)] {
        let asked = ConfigUse { middleware: &["toy"], ..object(role) };
        let requested = Requested { uses: vec![asked.clone()], ..Requested::default() };
        assert_eq!(!requested.unbuilt(&Settings::default()).is_empty(), unbuilt, "{role:?}");
        assert_eq!(requested.without_effect(&Settings::default()).is_empty(), unbuilt, "{role:?}");
        let uses = looked_up(vec![asked], true);
        assert_eq!((uses.unbuilt().is_empty(), uses.variables().len()), (!unbuilt, usize::from(unbuilt)), "{role:?}");
    }
}
