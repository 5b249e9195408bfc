//! Which versions make an engine.

use portcullis_convert::{GraphError, Hub};

use crate::kinds::entity::{self, engine, v1, v2, v3};
use crate::kinds::nasty;

#[test]
fn an_engine_says_what_it_converts() {
    let engine = engine();
    assert_eq!(
        (engine.group(), engine.kind(), engine.plural(), engine.hub()),
        ("demo.example", "Entity", "entities", "v3")
    );
    assert_eq!(engine.versions().collect::<Vec<_>>(), ["v3", "v1", "v2"]);
    assert_eq!(format!("{engine:?}"), r#"Engine { kind: "Entity", versions: ["v3", "v1", "v2"], .. }"#);
}

#[test]
fn a_version_without_converters_does_not_go_unnoticed() {
    assert_eq!(engine().cover(["v1", "v2", "v3"]), Ok(()));
    let cover = |versions: &[&str]| engine().cover(versions.iter().copied()).unwrap_err().to_string();
    assert_eq!(
        cover(&["v1", "v2", "v3", "v4"]),
        "version v4 of Entity has no converters; add .spoke() for it or remove it from the CRD"
    );
    assert_eq!(
        cover(&["v1", "v3"]),
        "version v2 of Entity has converters, but the CRD lacks it; add it there or remove the converters"
    );
    assert!(matches!(engine().cover([]), Err(GraphError::NotInCrd { .. })));
}

#[test]
fn a_version_is_registered_once_and_of_one_kind() {
    let twice = Hub::<v3::Entity>::new()
        .spoke(entity::v1_to_v3, entity::v3_to_v1)
        .spoke(entity::v1_to_v3, entity::v3_to_v1)
        .build();
    assert_eq!(
        twice.unwrap_err().to_string(),
        "version v1 of Entity is registered twice; register one type for each version"
    );
    let hub = Hub::<v3::Entity>::new().spoke(|v3: v3::Entity| v3, |v3| v3).build();
    assert!(matches!(hub, Err(GraphError::DuplicateVersion { version, .. }) if version == "v3"));
    let other = Hub::<v2::Entity>::new()
        .spoke(
            |_: nasty::v1::Nasty| {
                v2::Entity::new("", v2::EntitySpec { firstname: String::new(), lastname: String::new() })
            },
            |_| nasty::v1::Nasty::new("", nasty::v1::NastySpec::default()),
        )
        .build();
    assert_eq!(
        other.unwrap_err().to_string(),
        "spoke v1 is Nasty of group \"demo.example\", but the hub is Entity of group \"demo.example\"; all versions \
         share group and kind"
    );
    assert!(Hub::<v1::Entity>::default().build().unwrap().cover(["v1"]).is_ok());
}
