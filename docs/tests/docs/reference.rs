//! The generated pages are as they would be generated.

#[test]
fn the_reference_of_the_command_line_is_up_to_date() {
    let page = include_str!("../../src/reference/cli.md");
    let says = portcullis_docs::reference();
    for (line, (written, generated)) in page.lines().zip(says.lines()).enumerate() {
        assert_eq!(written, generated, "line {} of reference/cli.md differs; 'make generate' writes it", line + 1);
    }
    assert_eq!(page.len(), says.len(), "reference/cli.md differs; 'make generate' writes it");
}

#[test]
fn the_reference_of_the_charts_values_is_what_their_schemas_say() {
    let page = include_str!("../../src/reference/values.md");
    assert_eq!(page, portcullis_docs::values().unwrap(), "reference/values.md differs; 'make generate' writes it");
}

#[test]
fn the_table_of_checks_is_the_doctors_catalogue() {
    let page = include_str!("../../src/how-to/troubleshoot.md");
    let written = portcullis_docs::troubleshoot(page);
    assert_eq!(Some(page), written.as_deref(), "how-to/troubleshoot.md differs; 'make generate' writes it");
}

#[test]
fn every_command_is_in_the_reference() {
    let page = portcullis_docs::reference();
    for command in ["run", "generate", "certs", "dev", "doctor", "migrate-storage"] {
        assert!(page.contains(&format!("\n## {command}\n")), "{command} is not in the reference");
    }
}

/// The output of `kubectl get` in the page has the columns that the kinds have now.
#[test]
fn the_columns_that_the_page_of_the_kinds_shows_are_theirs() {
    let page = include_str!("../../src/reference/kinds.md");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = page.lines().map(words).collect();
    let mut kinds = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for document in serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap() {
            if document["kind"] != "CustomResourceDefinition" {
                continue;
            }
            let versions = document["spec"]["versions"].as_array().unwrap();
            let newest = versions.iter().find(|version| version["storage"] == true).unwrap();
            let columns = newest["additionalPrinterColumns"].as_array().unwrap().iter();
            let shown = columns.filter(|column| column["priority"].as_i64().unwrap_or_default() == 0);
            let names = shown.map(|column| column["name"].as_str().unwrap().to_uppercase());
            let header = std::iter::once("NAME".to_owned()).chain(names).collect::<Vec<_>>().join(" ");
            assert!(
                lines.contains(&header),
                "no '{header}' in reference/kinds.md for {}",
                document["metadata"]["name"]
            );
            kinds += 1;
        }
    }
    assert!(kinds >= 6, "{kinds}");
}
