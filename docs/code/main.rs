//! Writes the generated pages of the book: `cargo run -p portcullis-docs`. With `--check` it writes nothing, and fails when one differs.

use std::path::Path;
use std::process::ExitCode;

fn main() -> std::io::Result<ExitCode> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reference/cli.md");
    if std::env::args().any(|argument| argument == "--check") {
        let same = std::fs::read_to_string(page)? == portcullis_docs::reference();
        return Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    std::fs::write(page, portcullis_docs::reference())?;
    Ok(ExitCode::SUCCESS)
}
