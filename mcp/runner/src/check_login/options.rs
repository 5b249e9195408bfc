//! Flags of `check-login`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use http::Uri;
use mcp_runconfig::duration;

use crate::check_login::answer::{absolute, origin};

/// Flags of `check-login`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckLoginOptions {
    /// The URL of the MCP server, exactly as its clients have it.
    // Parsed later: clap would print a URL that it does not take, with the password in it.
    #[arg(value_name = "URL")]
    pub(super) url: String,
    /// Call with the access token in this file, and say why the server refuses it.
    #[arg(long, value_name = "FILE", conflicts_with = "client_secret_file")]
    pub(super) token_file: Option<PathBuf>,
    /// The id of a client that is registered at the provider.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(super) client_id: Option<String>,
    /// Get a token by client credentials, with the secret in this file, and call with it.
    #[arg(long, value_name = "FILE", requires_all = ["client_id", "issuer"])]
    pub(super) client_secret_file: Option<PathBuf>,
    /// The issuer of the provider that the secret is for, to the letter. No other gets it, whatever the server names.
    #[arg(long, value_name = "ISSUER", requires = "client_secret_file")]
    pub(super) issuer: Option<String>,
    /// Fail where a client in a browser would (CORS); without this it is a note.
    #[arg(long)]
    pub(super) browser: bool,
    /// The origin of the page that such a client is. The default is MCP Inspector's.
    #[arg(long, value_name = "ORIGIN", default_value = "http://localhost:6274", value_parser = page)]
    pub(super) origin: String,
    /// Trust the root certificates in this file in place of the system's.
    #[arg(long, value_name = "FILE")]
    pub(super) ca_bundle: Option<PathBuf>,
    /// Wait so long for each answer.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = timeout)]
    pub(super) timeout: Duration,
    /// The format of the report.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Text)]
    pub(super) output: Output,
}

/// A format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

fn page(text: &str) -> Result<String, String> {
    let is_origin = |url: &Uri| origin(url) == text;
    match absolute(text).filter(is_origin) {
        Some(_) => Ok(text.to_owned()),
        None => Err("is no origin; write scheme, host and port alone, such as https://app.example.com".to_owned()),
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let nanos = duration::parse(text).map_err(|error| error.to_string())?;
    let time = u64::try_from(nanos).map(Duration::from_nanos).unwrap_or_default();
    if time.is_zero() || time > Duration::from_mins(5) {
        return Err("must be more than 0s and 5m at most".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: CheckLoginOptions,
    }

    #[test]
    fn the_command_lines_and_flags_of_the_page_are_taken() {
        let page = include_str!("../../../../docs/src/how-to/check-login.md");
        let shown = page.lines().filter_map(|line| line.strip_prefix("$ mcp-runner "));
        let inline = page.split('`').filter_map(|code| code.strip_prefix("mcp-runner "));
        let flags = page.split('`').filter(|code| code.starts_with("check-login --"));
        let mut lines = 0;
        for line in shown.chain(inline).chain(flags) {
            // Placeholders become values, and a line without a URL gets one.
            let words = line.split_whitespace().map(|word| match word {
                "URL" | "ORIGIN" => "https://h.example",
                "DURATION" => "5s",
                word => word,
            });
            let url = (!line.contains("http") && !line.contains("URL")).then_some("https://h.example");
            let taken = Line::try_parse_from(words.chain(url));
            assert!(taken.is_ok_and(|line| absolute(&line.options.url).is_some()), "{line}");
            lines += 1;
        }
        assert!(lines > 8, "{lines} command lines are shown; has the page another form?");
    }
}
