//! The table itself: what it refers to exists.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::guide::symptoms;

/// An instruction of the guide, and the test that keeps it true here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    section: String,
    /// A command, a value of the chart, or what is promised.
    what: String,
    /// Rows of `symptoms.rs`, which do the damage and ask `doctor`.
    #[serde(default)]
    symptoms: Vec<String>,
    /// Tests that do it: a file of the repository and a function in it. Those in `tests/node` run on a node (`make
    /// e2e`).
    #[serde(default)]
    tests: Vec<String>,
    /// Values of the chart, whose tests set each of them.
    #[serde(default)]
    values: Vec<String>,
    /// Why it is otherwise here.
    #[serde(default)]
    note: String,
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("guide.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

#[test]
fn every_instruction_of_the_guide_is_kept_by_a_test_or_a_value() {
    let known: Vec<_> = symptoms::all("somewhere").into_iter().map(|symptom| symptom.name).collect();
    let rows = rows();
    let values = std::fs::read_to_string(root().join("charts/dynamo-webhooks/values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    for row in &rows {
        let said = format!("{}: {}", row.section, row.what);
        let keepers = [row.symptoms.len(), row.tests.len(), row.values.len()];
        assert!(keepers.iter().sum::<usize>() > 0 || !row.note.is_empty(), "nothing keeps {said}");
        for value in &row.values {
            let path = format!("/{}", value.replace('.', "/"));
            assert!(values.pointer(&path).is_some(), "{said}: the chart has no value {value}");
        }
        for symptom in &row.symptoms {
            assert!(known.contains(&&**symptom), "{said}: there is no symptom {symptom:?}");
        }
        for test in &row.tests {
            let (file, function) =
                test.split_once(' ').unwrap_or_else(|| panic!("{said}: FILE FUNCTION, not {test:?}"));
            let text = std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(text.contains(&format!("fn {function}(")), "{said}: {file} has no function {function}");
        }
    }
    for symptom in known {
        assert!(
            rows.iter().any(|row| row.symptoms.iter().any(|it| it == symptom)),
            "the guide says nothing of {symptom}"
        );
    }
}
