//! The operator's binary; what it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcp_operator::registration::operator().main()
}
