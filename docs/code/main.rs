//! Writes the generated pages of the book: `cargo run -p portcullis-docs`. With `--check` it writes nothing, and fails when one differs.

use std::path::Path;
use std::process::ExitCode;

fn main() -> std::io::Result<ExitCode> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let troubles = std::fs::read_to_string(folder.join("how-to/troubleshoot.md"))?;
    let troubles = portcullis_docs::troubleshoot(&troubles);
    let troubles = troubles.ok_or_else(|| std::io::Error::other("troubleshoot.md has no place for the checks"))?;
    let pages = [
        ("reference/cli.md", portcullis_docs::reference()),
        ("reference/values.md", portcullis_docs::values()?),
        ("how-to/troubleshoot.md", troubles),
    ];
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
