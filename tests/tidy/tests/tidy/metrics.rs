//! The tables of metrics, in the book and in the documentation of portcullis-metrics, are of the metrics that the code registers.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_tidy::{Source, sources};

/// The code before a metric's name, where it is registered.
const REGISTERED_BY: [&str; 3] = [".register(", ".encode_descriptor(", "each("];

fn read(path: &str) -> Vec<Source> {
    let found = sources(|file| file.starts_with(path)).unwrap();
    assert!(!found.is_empty(), "{path} is gone: say here where it went");
    found
}

/// The name, with the suffix that the format gives counters.
fn exposed(source: &str, name: &str, after: &str) -> String {
    let field = after.split(".clone()").next().and_then(|before| before.rsplit('.').next()).unwrap_or_default();
    let of_type = source.split(&format!("    {field}: ")).nth(1).and_then(|rest| rest.lines().next());
    let counter = after.contains("ConstCounter") || of_type.is_some_and(|of_type| of_type.contains("Counter"));
    format!("portcullis_{name}{}", if counter { "_total" } else { "" })
}

/// Every metric of the crates in `sdk/`.
fn registered() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let registers = |source: &Source| source.path.contains("/src/") && source.text.contains("prometheus_client::");
    for source in read("sdk/").into_iter().filter(registers) {
        let text = &source.text;
        let mut starts: Vec<usize> = REGISTERED_BY
            .iter()
            .flat_map(|call| text.match_indices(call).map(|(at, _)| at + call.len()))
            .filter(|start| text[*start..].trim_start().starts_with('"'))
            .collect();
        starts.sort_unstable();
        for (index, start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(text.len());
            let (name, after) = text[*start..end].trim_start()[1..].split_once('"').unwrap();
            names.insert(exposed(text, name, after));
        }
    }
    names
}

/// By name, the labels with their values, of each row of the one table of metrics in a text.
fn table(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().filter_map(|line| line.trim_start_matches("//! ").strip_prefix("| `portcullis_"));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells.map(|cells| (format!("portcullis_{}", cells[0].trim_end_matches('`')), cells[1].to_owned())).collect()
}

#[test]
fn every_metric_is_documented_with_its_labels() {
    let code = registered();
    assert!(code.len() > 15, "{code:?}; has registering another form?");
    let book = table(&read("docs/src/reference/metrics.md").remove(0).text);
    let documentation = table(&read("sdk/metrics/src/lib.rs").remove(0).text);
    assert_eq!(book.keys().cloned().collect::<BTreeSet<_>>(), code, "reference/metrics.md");
    assert_eq!(book, documentation, "reference/metrics.md and the table in sdk/metrics/src/lib.rs");
}

/// The values of a label are what an enum can say.
#[test]
fn the_values_of_labels_are_those_that_the_code_gives_them() {
    let book = table(&read("docs/src/reference/metrics.md").remove(0).text);
    for (metric, label, file, of) in [
        ("admission_requests_total", "decision", "webhook/src/metrics/admission.rs", "Decided"),
        ("webhook_rejected_total", "reason", "webhook/src/rejected.rs", "Rejected"),
        ("conversion_objects_total", "outcome", "webhook/src/metrics/conversion.rs", "ObjectOutcome"),
        ("reconciles_total", "result", "controller/src/metrics.rs", "Reconciled"),
    ] {
        let source = read(&format!("sdk/{file}")).remove(0).text;
        let block = source.split(&format!("impl {of} {{")).nth(1).unwrap().split("\n}").next().unwrap();
        let values = block.split("=> \"").skip(1).map(|rest| format!("`{}`", rest.split('"').next().unwrap()));
        let said = format!("`{label}` ({})", values.collect::<Vec<_>>().join(", "));
        let labels = &book[&format!("portcullis_{metric}")];
        assert!(labels.contains(&said), "{metric} has the labels {labels}, and not {said}");
    }
}

/// Every metric that a page names exists.
#[test]
fn every_metric_that_a_page_names_exists() {
    let code = registered();
    for page in sources(|path| path.starts_with("docs/src/") && path.rsplit('.').next() == Some("md")).unwrap() {
        for (at, _) in page.text.match_indices("portcullis_") {
            let name: String = page.text[at..]
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')
                .collect();
            // Other names that begin so are crates or modules.
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let known = code.contains(&name) || of_histogram.is_some_and(|name| code.contains(name));
            let family = [
                "admission",
                "webhook",
                "conversion",
                "certificate",
                "ca",
                "lease",
                "scope",
                "reconcile",
                "reconciles",
            ];
            let metric = family.iter().any(|family| name.starts_with(&format!("portcullis_{family}_")));
            assert!(known || !metric, "{} names {name}, which nothing registers", page.path);
        }
    }
}
