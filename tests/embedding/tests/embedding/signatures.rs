//! The compiler's messages about the handlers and converters in `signatures/` name the right signature.

use std::fs;
use std::path::Path;

use portcullis_embedding::{output_of_cargo, repository};

/// A program, and parts of what the compiler says about it. Whether a type has its path there depends on the program.
struct Case {
    name: &'static str,
    program: &'static str,
    says: &'static [&'static str],
}

const CASES: [Case; 3] = [
    Case {
        name: "returned",
        program: include_str!("signatures/returned.rs"),
        says: &["this must return `", "Verdict` or a `Result` of it, and returns `bool`"],
    },
    Case {
        name: "validator",
        program: include_str!("signatures/validator.rs"),
        says: &["`Quota` does not validate `", "Secret> for Quota`"],
    },
    Case {
        name: "converter",
        program: include_str!("signatures/converter.rs"),
        says: &["this must return `", "v1::HorizontalPodAutoscaler` or a `Result` of it, and returns `"],
    },
];

fn write(folder: &Path) {
    let webhook = repository("sdk/webhook");
    // The features of examples/webhook-server, so that one build serves both.
    let manifest = format!(
        r#"
            [package]
            name = "signatures"
            version = "0.1.0"
            edition = "2024"

            [dependencies]
            portcullis-webhook = {{ path = "{}" }}
            k8s-openapi = {{ version = "0.29", default-features = false, features = ["schemars", "v1_33"] }}

            [workspace]
        "#,
        webhook.display(),
    );
    let programs = folder.join("src/bin");
    fs::create_dir_all(&programs).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    for Case { name, program, .. } in CASES {
        fs::write(programs.join(name).with_extension("rs"), program).unwrap();
    }
}

#[tokio::test]
async fn errors_of_the_compiler_name_the_signature() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    for Case { name, says, .. } in CASES {
        let output = output_of_cargo(folder.path(), &["build", "--bin", name]).await;
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(says.iter().all(|part| told.contains(part)), "{name}: {told}");
    }
}
