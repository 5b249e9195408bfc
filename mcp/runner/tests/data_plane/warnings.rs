//! The lines at the start about a document that guards less than its author may think.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Echo, Runner, document};

const OPEN: &str = "asks for no guard";

async fn log(members: &Value) -> String {
    Runner::http(&Echo::start().await.url(), members).await.log()
}

#[tokio::test]
async fn a_misspelt_guard_is_named_at_the_start() {
    let log = log(&json!({"validating_webhook": [], "authz_conf": {}, "group": "default"})).await;
    let named =
        "members=\"validating_webhook (did you mean validating_webhooks?), authz_conf (did you mean authz_config?)\"";
    let lines = log.lines().filter(|line| line.contains("WARN") && line.contains(named));
    assert_eq!(lines.count(), 1, "{log}");
}

#[tokio::test]
async fn a_proxy_without_guards_says_so_at_the_start() {
    let limit = json!({"middleware_configs": [], "tools_filter": ["echo"]});
    let exchange = json!({"middleware_configs": [], "token_exchange_config": {"token_url": "https://idp.example"}});
    for (members, open) in [(json!({}), true), (limit, false), (exchange, false)] {
        let log = log(&members).await;
        assert_eq!(log.contains(OPEN), open, "{members}: {log}");
        assert!(!log.contains("that are not known"), "{log}");
    }
}

#[test]
fn explain_notes_misspelt_guards_as_well() {
    let files = TempDir::new().unwrap();
    let config = document("streamable-http", &json!({"validating_webhook": []}));
    for (name, text) in [("config", &*config), ("tools", "[]")] {
        std::fs::write(files.path().join(name), text).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-runner"));
    command.args(["explain", "--config", "config", "--tools", "tools"]).current_dir(files.path());
    let output = command.output().unwrap();
    let expected = "warning: validating_webhook (did you mean validating_webhooks?) is not known, and has no effect: \
                    a guard among such members does not guard\n";
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), expected));
}

#[test]
fn the_page_of_the_runner_has_its_flags() {
    let page = include_str!("../../../../docs/src/reference/runner.md");
    let help = Command::new(env!("CARGO_BIN_EXE_mcp-runner")).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let flags: Vec<_> = flags.map(|line| format!("--{}", line.split("  ").next().unwrap())).collect();
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `--")?.split('`').next()).collect();
    let rows: Vec<_> = rows.into_iter().map(|flag| format!("--{flag}")).collect();
    assert_eq!(rows, flags);
}
