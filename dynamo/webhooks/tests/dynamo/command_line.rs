//! The binary, started as Dynamo's is.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use dynamo_webhooks::command_line::translate;

/// The exit code, and what it said.
fn started(words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dynamo-webhooks"));
    let output = command.args(words).env_clear().stdin(Stdio::null()).output().unwrap();
    let said = format!("{}{}", String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), said)
}

#[test]
fn dynamos_flags_are_accepted_and_unused_ones_named_once() {
    let words = [
        "-enable-webhooks",
        "--restrictedNamespace=team-a",
        "--leader-elect",
        "--leader-election-id=dynamo.nvidia.com",
        "--mpi-run-ssh-secret-name",
        "ssh",
        "--metrics-bind-address=:8080",
        "--health-probe-bind-address=127.0.0.1:0",
        "--kubeconfig=/none/there",
    ];
    let (code, said) = started(&words);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("/none/there"), "it got as far as its cluster: {said}");
    assert_eq!(said.matches("flags without effect").count(), 1, "{said}");
    for flag in ["--leader-election-id", "--mpi-run-ssh-secret-name", "--metrics-bind-address"] {
        assert!(said.contains(flag), "{said}");
    }
    assert!(said.contains("Configuring webhooks for namespace-restricted mode (no lease checking)"), "{said}");
}

#[test]
fn an_unknown_flag_is_refused_with_the_exit_code_of_go() {
    let (code, said) = started(&["--enable-webhooks", "--no-such-flag"]);
    assert!(code == 2 && said.contains("--no-such-flag"), "{code} {said}");
}

#[test]
fn every_command_line_that_the_pages_show_is_one_that_is_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut shown = 0;
    for page in ["README.md", "../../docs/src/how-to/dynamo.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap().replace("\\\n", " ");
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("$ dynamo-webhooks "));
        for line in lines.map(|line| line.split(['|', '#']).next().unwrap_or_default()) {
            // A placeholder becomes a value.
            let words = line.split_whitespace().map(|word| OsString::from(if word == "…" { "x" } else { word }));
            let words = translate([OsString::from("op")].into_iter().chain(words), None).unwrap().words;
            let taken = dynamo_webhooks::operator(Vec::new()).command().try_get_matches_from(words);
            assert!(taken.is_ok(), "{page} shows {line}:\n{}", taken.unwrap_err());
            shown += 1;
        }
    }
    assert!(shown > 5, "{shown} command lines are shown; have the pages another form?");
}
