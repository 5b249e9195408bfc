//! The program that `build.sh` calls.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// The parts of 'make images' that are no shell
#[derive(Parser, Debug)]
enum Command {
    /// Write Mozilla's root certificates to stdout, as PEM
    Roots,
    /// Complete an SBOM of 'cargo cyclonedx', from stdin to stdout
    Sbom {
        /// The folder of the sources, which its references shall not name
        #[arg(long)]
        folder: String,
        /// The package URL of a component that is no crate of the binary
        #[arg(long)]
        component: Vec<String>,
    },
    /// Check an archive that pack.sh wrote, against the image specification and what our images promise
    Check {
        /// The archive
        archive: PathBuf,
        /// Megabytes that the archive may have at most
        #[arg(long)]
        limit: u64,
        /// A file of the image, beside the binary
        #[arg(long)]
        file: Vec<String>,
    },
}

fn main() -> ExitCode {
    let said = match Command::parse() {
        Command::Roots => portcullis_images::write_roots(&mut io::stdout().lock()).map_err(|error| error.to_string()),
        Command::Sbom { folder, component } => io::read_to_string(io::stdin())
            .map_err(|error| error.to_string())
            .and_then(|sbom| portcullis_images::complete_sbom(&sbom, &folder, &component))
            .and_then(|sbom| io::stdout().write_all(sbom.as_bytes()).map_err(|error| error.to_string())),
        Command::Check { archive, limit, file } => portcullis_images::check(&archive, limit, &file)
            .map(|image| drop(writeln!(io::stdout(), "{image}")))
            .map_err(|problem| format!("{}: {problem}", archive.display())),
    };
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let _ = writeln!(io::stderr(), "{problem}");
            ExitCode::FAILURE
        }
    }
}
