use std::path::PathBuf;

use jiff::SignedDuration;
use portcullis_manifest::names::is_label;

use crate::host::{host, public_url};

/// The flags of a session, for a command line that has the subcommand.
#[derive(clap::Args, Clone, Debug)]
pub struct Flags {
    /// Name or address by which the API server reaches this machine [default: found by asking it]
    #[arg(long, value_name = "ADDR", value_parser = host, conflicts_with = "public_url")]
    pub(crate) host: Option<String>,
    /// URL of a tunnel that terminates TLS and forwards plain HTTP to --port of this machine
    #[arg(long, value_name = "URL", value_parser = public_url)]
    pub(crate) public_url: Option<String>,
    /// CA certificates (PEM) that the tunnel's certificate is checked with [default: those of the API server's system]
    #[arg(long, value_name = "FILE", requires = "public_url")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Port that the webhooks are served on; 0 takes a free one
    #[arg(long, default_value_t = 9443)]
    pub(crate) port: u16,
    /// Longest duration of the session, up to 24h
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = ttl)]
    pub(crate) ttl: SignedDuration,
    /// Serve webhooks for this namespace only; may be given several times
    #[arg(long = "only-namespace", value_name = "NS", value_parser = label)]
    pub(crate) only_namespaces: Vec<String>,
    /// Keep the webhooks' failure policies: with Fail, writes in the cluster depend on this machine
    #[arg(long)]
    pub(crate) fail: bool,
    /// Your name, which the objects of the session get
    #[arg(long, env = "USER", value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Only remove what earlier sessions left behind
    #[arg(long)]
    pub(crate) sweep: bool,
}

/// Parses a duration from a second to a day. A plain number is one of seconds.
fn ttl(text: &str) -> Result<SignedDuration, String> {
    let seconds = text.parse().map(|seconds: u32| SignedDuration::from_secs(seconds.into()));
    let ttl: SignedDuration = seconds
        .or_else(|_| text.parse())
        .map_err(|_| format!("'{text}' is no span of time: write it as in 500ms, 5s or 2m"))?;
    let within = (SignedDuration::from_secs(1)..=SignedDuration::from_hours(24)).contains(&ttl);
    if within { Ok(ttl) } else { Err("give at least 1s and at most 24h".to_owned()) }
}

fn label(text: &str) -> Result<String, &'static str> {
    if is_label(text) { Ok(text.to_owned()) } else { Err("this is not the name of a namespace") }
}
