//! Writes the generated pages of the book: `cargo run -p portcullis-docs`. With `--check` it writes nothing, and fails when one differs.

use std::path::Path;
use std::process::ExitCode;

fn main() -> std::io::Result<ExitCode> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reference");
    let pages = [("cli.md", portcullis_docs::reference()), ("values.md", portcullis_docs::values()?)];
    for (name, text) in pages {
        let page = folder.join(name);
        if !std::env::args().any(|argument| argument == "--check") {
            std::fs::write(page, text)?;
        } else if std::fs::read_to_string(page)? != text {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
