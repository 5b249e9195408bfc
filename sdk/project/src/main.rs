//! `portcullis generate project NAME`: creates the crate of a new operator.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use portcullis_project::{Project, ProjectError};

/// Create operators on the portcullis SDK.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version)]
enum Cli {
    /// Write the crate of a new operator
    #[command(subcommand)]
    Generate(Generate),
}

#[derive(Debug, Subcommand)]
enum Generate {
    /// A crate with a kind, a rule for it, a controller, and tests
    Project {
        /// Name of the operator and of its crate, as in beer-operator
        name: String,
        /// The kind that it reconciles [default: after NAME, as in Beer]
        #[arg(long)]
        kind: Option<String>,
        /// API group of the kind
        #[arg(long, default_value = "example.com")]
        group: String,
        /// Folder to create [default: NAME]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Folder `sdk` of a checkout of the SDK
        #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/.."))]
        sdk: PathBuf,
    },
}

fn main() -> ExitCode {
    let Cli::Generate(Generate::Project { name, kind, group, out, sdk }) = Cli::parse();
    let folder = out.unwrap_or_else(|| PathBuf::from(&name));
    match write(&name, kind, group, &folder, &sdk) {
        Ok(()) => {
            // The project is written even if standard output is closed. The order of imports depends on the names.
            let _ = writeln!(
                io::stdout(),
                "{} is written. Then run:\n\n  cd {0}\n  cargo fmt\n  cargo test",
                folder.display()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(name: &str, kind: Option<String>, group: String, folder: &Path, sdk: &Path) -> Result<(), ProjectError> {
    Project::new(name, kind, group, sdk)?.write(folder)
}
