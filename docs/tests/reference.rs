//! The generated pages are as they would be generated.

#![allow(clippy::unwrap_used, reason = "what cannot be generated fails the test")]

#[test]
fn the_reference_of_the_command_line_is_what_the_command_line_says() {
    let page = include_str!("../src/reference/cli.md");
    let says = portcullis_docs::reference();
    for (line, (written, generated)) in page.lines().zip(says.lines()).enumerate() {
        assert_eq!(written, generated, "line {} of reference/cli.md differs; 'make generate' writes it", line + 1);
    }
    assert_eq!(page.len(), says.len(), "reference/cli.md differs; 'make generate' writes it");
}

#[test]
fn the_reference_of_the_charts_values_is_what_their_schemas_say() {
    let page = include_str!("../src/reference/values.md");
    assert_eq!(page, portcullis_docs::values().unwrap(), "reference/values.md differs; 'make generate' writes it");
}

#[test]
fn every_command_is_in_the_reference() {
    let page = portcullis_docs::reference();
    for command in ["run", "generate", "certs", "dev", "doctor", "migrate-storage"] {
        assert!(page.contains(&format!("\n## {command}\n")), "{command} is not in the reference");
    }
}
