//! The reference of the charts' values, from the schemas that helm checks them by.

use std::fmt::Write as _;

use serde_json::Value;

const HEAD: &str = "\
# Values of the charts

The values of `helm install` and `helm upgrade` ([how](../how-to/install.md)). An unknown value is refused, and so is one of another type. This page is
generated from the schemas of the charts: `make generate` writes it.
";

/// A chart: its name, its schema and its values.
type Chart = (&'static str, &'static str, &'static str);

const CHARTS: [Chart; 3] = [
    (
        "portcullis",
        include_str!("../../charts/portcullis/values.schema.json"),
        include_str!("../../charts/portcullis/values.yaml"),
    ),
    (
        "portcullis-crds",
        include_str!("../../charts/portcullis-crds/values.schema.json"),
        include_str!("../../charts/portcullis-crds/values.yaml"),
    ),
    (
        "dynamo-webhooks",
        include_str!("../../charts/dynamo-webhooks/values.schema.json"),
        include_str!("../../charts/dynamo-webhooks/values.yaml"),
    ),
];

/// The page, as Markdown.
///
/// # Errors
/// When a schema is no JSON, or values are no YAML.
pub fn values() -> std::io::Result<String> {
    let mut page = HEAD.to_owned();
    for (name, schema, values) in CHARTS {
        let mut schema: Value = serde_json::from_str(schema)?;

        let mut values: Value = serde_saphyr::from_str(values).map_err(std::io::Error::other)?;
        // Some builds keep members in their order, and others do not.
        [&mut schema, &mut values].into_iter().for_each(Value::sort_all_objects);
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {name}\n\n| value | default | what |\n|---|---|---|\n");
        rows(&mut page, &schema, &values, "");
    }
    Ok(page)
}

/// A row for each value that is described, in the order of the schema; `global` belongs to none.
fn rows(page: &mut String, schema: &Value, values: &Value, path: &str) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let Some(value) = values.get(name) else { continue };
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        // A value with a description has one row, and its parts have none.
        match property["description"].as_str() {
            Some(description) => {
                let description = description.replace('|', "\\|").replace('<', "&lt;");
                let _ = writeln!(page, "| `{path}` | `{value}` | {description} |");
            }
            None => rows(page, property, value, &path),
        }
    }
}
