//! The metadata of the published crates, as a registry and its users see it.

use std::fs;
use std::path::Path;

use portcullis_tidy::{published, repository_root};

#[test]
fn every_published_crate_says_what_it_is() {
    let license = fs::read_to_string(repository_root().join("LICENSE")).unwrap();
    for package in published().unwrap() {
        let name = package["name"].as_str().unwrap();
        assert!(package["publish"].is_null(), "{name} lies in sdk/, and cannot be published: it has `publish = false`");
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(
                package[field].as_str().is_some_and(|text| !text.is_empty()),
                "{name} has no {field} in Cargo.toml"
            );
        }
        for list in ["keywords", "categories"] {
            let entries = package[list].as_array().map_or(0, Vec::len);
            assert!((1..=5).contains(&entries), "{name} has {entries} {list}; registries take one to five");
        }
        let file = |file: &str| {
            let path = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name(file);
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let readme = file("README.md");
        let links = readme.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        let relative: Vec<_> = links.filter(|link| !link.starts_with("https://") && !link.starts_with('#')).collect();
        assert!(relative.is_empty(), "README.md of {name} links to {relative:?}, which a registry does not have");
        // A package has what lies in its folder, or what a symbolic link there points at.
        assert!(file("LICENSE") == license, "LICENSE of {name} is not the one of the repository");
        let docs = &package["metadata"]["docs"]["rs"];
        let chosen = docs["all-features"] == true || docs["features"].is_array();
        assert!(
            chosen || package["features"].as_object().unwrap().keys().all(|feature| feature == "default"),
            "{name} has features, and docs.rs would leave out what they add: say `all-features = true` in [package.metadata.docs.rs]"
        );
    }
}
