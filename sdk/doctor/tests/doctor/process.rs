//! The operator of `examples/shop_operator.rs` as a process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Nothing in these tests takes longer on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

fn command(arguments: &[&str]) -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let binary = profile.join("examples").join("shop_operator");
    assert!(binary.is_file(), "{} is missing: run `cargo build --workspace --examples`", binary.display());
    let mut command = Command::new(binary);
    command.args(arguments).kill_on_drop(true).stdin(Stdio::null());
    for variable in ["KUBECONFIG", "POD_NAMESPACE", "RUST_LOG", "RUST_BACKTRACE", "HOME", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command
}

/// Exit code, standard output and standard error.
pub(crate) async fn output(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = command(arguments);
    command.envs(environment.iter().copied());
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The objects that `generate` prints.
pub(crate) async fn generate(arguments: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = output(&[&["generate"], arguments].concat(), &[]).await;
    assert_eq!(code, 0, "{stderr}");
    serde_saphyr::from_multiple(&stdout).unwrap()
}

/// Starts it, and returns when it is ready. It is killed with the value.
pub(crate) async fn run(arguments: &[&str]) -> Child {
    let fixed = ["run", "--log", "info", "--health-bind", "127.0.0.1:0"];
    let mut child = command(&[&fixed, arguments].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready = async {
        let mut log = String::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            log.push_str(&line);
            log.push('\n');
            if line.contains("ready: the CA is published, and our own listener answers under it") {
                return;
            }
        }
        panic!("it ended before it was ready:\n{log}");
    };
    tokio::time::timeout(PATIENCE, ready).await.unwrap();
    // A full pipe would stop it.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    child
}
