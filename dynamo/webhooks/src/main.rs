//! The binary: `dynamo-webhooks run`, `generate …` and what every operator has; or Dynamo's flags by themselves.

use std::io::Write as _;
use std::process::ExitCode;

use dynamo_webhooks::command_line::translate;
use dynamo_webhooks::operator;

/// Go's exit code for a command line that it does not understand.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    match translate(std::env::args_os(), std::env::var_os("KUBERNETES_CLUSTER_DOMAIN")) {
        Ok(line) => operator(line.without_effect).main_with_args(line.words),
        Err(problem) => {
            // Nothing is left to do when standard error is closed.
            let _ = writeln!(std::io::stderr(), "{problem}");
            ExitCode::from(MISUSED)
        }
    }
}
