//! Everything that can be said of the webhooks without an API server.

use entity_operator::{crd, v1, v2, v3, webhooks};
use portcullis_testing::admission::{Reviews, assert_idempotent};
use portcullis_testing::conversion::assert_laws;
use serde_json::{Value, json};

fn reviews() -> Reviews {
    Reviews::new(&webhooks()).unwrap()
}

fn entity(spec: Value) -> v3::Entity {
    let whole = json!({"firstname": "Ada", "lastname": "Lovelace", "username": "ada"});
    let members = whole.as_object().unwrap().clone().into_iter().chain(spec.as_object().unwrap().clone());
    v3::Entity::new("ada", serde_json::from_value(members.collect()).unwrap())
}

/// K2
#[tokio::test]
async fn only_an_object_that_asks_for_it_is_overwritten() {
    let reviews = reviews();
    let answer = reviews.create(&entity(json!({"username": "overwrite"}))).mutate("overwrite").await;
    answer.assert_patch(&json!([{"op": "replace", "path": "/spec/username", "value": "random overwritten"}]));
    assert_eq!(answer.patched_as::<v3::Entity>().spec.username, "random overwritten");
    reviews.create(&entity(json!({}))).mutate("overwrite").await.assert_unchanged();
}

/// D10
#[tokio::test]
async fn overwriting_twice_is_overwriting_once() {
    for username in ["overwrite", "ada"] {
        assert_idempotent(&reviews(), "overwrite", &entity(json!({"username": username}))).await;
    }
}

/// D8
#[tokio::test]
async fn a_change_of_the_birthday_is_warned_of() {
    let (reviews, born) = (reviews(), |day: &str| entity(json!({"birthday": day})));
    let change = reviews.update(&born("1815-12-10"), &born("1815-12-11"));
    let answer = change.mutate("immutable").await;
    answer.assert_unchanged().assert_warning("spec.birthday is immutable");

    let added = reviews.update(&entity(json!({})), &born("1815-12-10")).mutate("immutable").await;
    assert_eq!(added.assert_unchanged().warnings(), [""; 0]);
}

/// K3: the guide's split, and the name that has nothing to split.
#[tokio::test]
async fn a_name_is_split_at_the_first_space_and_comes_back_as_it_was() {
    let reviews = reviews();
    for (name, firstname, lastname) in [
        ("Ada Lovelace", "Ada", "Lovelace"),
        ("Ada King of Lovelace", "Ada", "King of Lovelace"),
        ("Ada", "Ada", ""),
        ("Ada ", "Ada", ""),
        (" Ada", "", "Ada"),
        ("Ada  Lovelace", "Ada", " Lovelace"),
        ("", "", ""),
    ] {
        let old = v1::Entity::new("ada", v1::EntitySpec { name: name.into(), username: "ada".into() });
        for version in ["v2", "v3"] {
            let new = reviews.convert(&old, version).await;
            assert_eq!((&new["spec"]["firstname"], &new["spec"]["lastname"]), (&json!(firstname), &json!(lastname)));
            assert_eq!(reviews.convert(&new, "v1").await["spec"], json!({"name": name, "username": "ada"}));
        }
    }
}

/// K3: what the older versions cannot say.
#[tokio::test]
async fn a_birthday_survives_a_new_name_in_an_older_version() {
    let reviews = reviews();
    let stored = entity(json!({"birthday": "1815-12-10"}));
    let mut old = reviews.convert(&stored, "v1").await;
    old["spec"]["name"] = json!("Augusta King");
    let back: v3::Entity = serde_json::from_value(reviews.convert(&old, "v3").await).unwrap();
    assert_eq!(back.spec.birthday.as_deref(), Some("1815-12-10"));
    assert_eq!((back.spec.firstname.as_str(), back.spec.lastname.as_str()), ("Augusta", "King"));

    let middle = v2::Entity::new("ada", v2::EntitySpec { firstname: "Ada".into(), ..v2::EntitySpec::default() });
    assert_eq!(reviews.convert(&middle, "v1").await["spec"]["name"], "Ada");
}

/// K8
#[test]
fn conversion_loses_nothing_and_undoes_nothing() {
    let mut crd = crd().unwrap();
    // The status is the same in all versions: no function has to do with it.
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()).unwrap();
        schema.properties.as_mut().unwrap().remove("status");
    }
    assert_laws(&webhooks(), &crd);
}

/// The README says so.
#[test]
fn the_first_test_is_shorter_than_thirty_lines() {
    assert!(include_str!("first.rs").lines().count() < 30);
}
