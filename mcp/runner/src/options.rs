//! What the command line and the environment say.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use mcp_runconfig::duration;

/// The proxy beside one MCP server.
///
/// In a pod it needs no flag: the RunConfig is found where the operator mounts it. The flags place it outside of a cluster without
/// touching that document.
#[derive(Clone, Debug, Parser)]
#[command(name = "mcp-runner", version)]
pub struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGTERM, SIGINT or SIGQUIT.
    Run(RunOptions),
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// The RunConfig document [default: the first of /etc/runconfig/runconfig.json, /etc/toolhive/runconfig.json and
    /// ./runconfig.json that exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on [default: host and port of the RunConfig]. Port 0 takes a free one, which the log names.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// The streamable-HTTP MCP server [default: http://mcp-<name>:<target_port>].
    #[arg(long, value_name = "URL")]
    pub(crate) backend: Option<String>,
    /// Read the files that the RunConfig names (secrets, certificates) from below this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) files_root: Option<PathBuf>,
    /// Log more.
    #[arg(long)]
    pub(crate) debug: bool,
    /// Accepted because operators pass it; the workload belongs to the operator, so it has no effect.
    #[arg(long, value_name = "JSON", hide = true)]
    pub(crate) k8s_pod_patch: Option<String>,
    /// The MCP server's image. Accepted because operators pass it; it has no effect here.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// The MCP server's command, started and spoken to over standard input and output.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "backend")]
    pub(crate) server: Vec<OsString>,
}

/// The environment variables that matter.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `TOOLHIVE_DEBUG`.
    pub debug: bool,
    /// `TOOLHIVE_PROXY_REQUEST_TIMEOUT`, a Go duration: how long an answer of a stdio server may take.
    pub answer_timeout: Option<Duration>,
    /// `UNSTRUCTURED_LOGS=false`: log JSON.
    pub json_logs: bool,
    /// `USER`: the local user whom requests are attributed to where nobody has to log in.
    pub user: Option<String>,
    /// `TOOLHIVE_RUNCONFIG_CHECKSUM`: SHA-256 of the RunConfig in hex. The proxy does not start on another document.
    pub run_config_checksum: Option<String>,
    /// `RUST_LOG`: a filter in the syntax of tracing-subscriber.
    pub log_filter: Option<String>,
}

impl Environment {
    /// Reads this process's environment. What does not parse counts as unset, as upstream has it.
    pub fn of_process() -> Self {
        let text = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let is = |name, word: &str| text(name).is_some_and(|text| text.eq_ignore_ascii_case(word));
        let timeout = text("TOOLHIVE_PROXY_REQUEST_TIMEOUT").and_then(|text| duration::parse(&text).ok());
        Self {
            debug: is("TOOLHIVE_DEBUG", "true") || is("TOOLHIVE_DEBUG", "1"),
            answer_timeout: timeout
                .and_then(|nanos| u64::try_from(nanos).ok())
                .filter(|nanos| *nanos > 0)
                .map(Duration::from_nanos),
            json_logs: is("UNSTRUCTURED_LOGS", "false"),
            user: text("USER"),
            run_config_checksum: text("TOOLHIVE_RUNCONFIG_CHECKSUM"),
            log_filter: text("RUST_LOG"),
        }
    }
}
