//! `mcp-runner check-login URL`: plays an MCP client's login against a server, and names the step that fails, its cause and its cure.
//!
//! `play` makes the calls by way of `requests` and `caller`; the other modules judge the answers, and are pure. The order of the steps and what each demands is that of MCP
//! 2026-07-28 (Authorization), with RFC 9728, RFC 8414 and OpenID Connect Discovery, RFC 7636 and RFC 8707. Nothing is registered, no user logs
//! in, and no redirect is followed.

mod abilities;
mod answer;
mod browser;
mod caller;
mod challenge;
mod clock;
mod initialize;
mod options;
mod play;
mod provider;
mod report;
mod requests;
mod resource;
mod token;
mod verdict;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use form_urlencoded::byte_serialize;
use mcp_authn::basic;
use mcp_http::client::ClientTls;
use mcp_http::file::read_file;
use mcp_middleware::Secret;

use self::answer::{absolute, shown};
use self::caller::Caller;
pub(crate) use self::options::CheckLoginOptions;
use self::options::Output;
use self::play::{Client, Target, play};
use self::report::Report;
use self::token::is_word;

/// Why a check does not end well.
#[derive(Debug)]
pub(crate) enum CheckError {
    /// Nothing was played: a flag names something that cannot be used, or the runtime does not start.
    Input(String),
    /// This step failed; the report has been written.
    Failed(&'static str),
}

/// Plays the login and writes the report to standard output.
///
/// # Errors
/// A step failed, or nothing could be played.
pub(crate) fn check_login(options: CheckLoginOptions) -> Result<(), CheckError> {
    let url = absolute(&options.url).ok_or_else(|| {
        let fix = "write one such as https://mcp.example.com/mcp";
        CheckError::Input(format!("<URL> is no http or https URL with a valid port and without a user name; {fix}"))
    })?;
    let client_secret =
        options.client_secret_file.as_deref().map(|file| secret("--client-secret-file", file)).transpose()?;
    let token = options.token_file.as_deref().map(|file| secret("--token-file", file)).transpose()?;
    if token.as_ref().is_some_and(|token| !is_word(token.reveal())) {
        let problem = "--token-file must hold the token alone, without `Bearer` before it and no JSON around it";
        return Err(CheckError::Input(problem.to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientTls { ca: options.ca_bundle.clone(), ..ClientTls::default() };
    tls.config(&provider).map_err(|error| {
        let file = options.ca_bundle.as_ref().map(|file| format!(": {}:", file.display())).unwrap_or_default();
        CheckError::Input(format!("--ca-bundle{file} {error}"))
    })?;
    let secrets = hidden(options.client_id.as_deref(), client_secret.as_ref(), token.as_ref());
    let target = Target {
        client: options.client_id.map(|id| Client { id, secret: client_secret.zip(options.issuer) }),
        url,
        token,
        origin: options.origin,
        browser: options.browser,
    };
    let mut caller = Caller::new(options.ca_bundle, options.timeout, provider);
    // Timers run between any two events, or a server that sends without end would stretch --timeout.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build();
    let runtime = runtime.map_err(|error| CheckError::Input(format!("the runtime does not start: {error}")))?;
    let (findings, issued) = runtime.block_on(play(&target, &mut caller));
    // A lookup of a name may still hang in a thread.
    runtime.shutdown_background();
    let secrets = secrets.into_iter().chain(issued.map(|token| token.reveal().to_owned())).collect::<Vec<_>>();
    let report = Report::new(shown(&target.url.to_string()), findings, &secrets);
    let text = match options.output {
        Output::Text => report.text(),
        Output::Json => format!("{:#}\n", report.json()),
    };
    // A reader that has gone does not change what was found.
    let _ = std::io::stdout().write_all(text.as_bytes());
    report.failed().map_or(Ok(()), |finding| Err(CheckError::Failed(finding.step.name())))
}

/// A secret in a file. Its last line break belongs to the file.
fn secret(flag: &str, file: &Path) -> Result<Secret, CheckError> {
    let fail = |problem: String| CheckError::Input(format!("{flag}: {problem}"));
    let text = String::from_utf8(read_file(file).map_err(fail)?);
    let text = text.map_err(|_| fail(format!("{} is not UTF-8", file.display())))?;
    let value = text.trim();
    if value.is_empty() || value.contains(char::is_control) {
        return Err(fail(format!("{} must hold one line, and nothing else", file.display())));
    }
    Ok(Secret::new(value))
}

/// The forms in which a server could repeat the secrets.
fn hidden(client: Option<&str>, client_secret: Option<&Secret>, token: Option<&Secret>) -> Vec<String> {
    let plain = [client_secret, token].into_iter().flatten().map(|secret| secret.reveal().to_owned());
    let encoded = client_secret.map(|secret| byte_serialize(secret.reveal().as_bytes()).collect());
    let escaped =
        client_secret.map(|secret| serde_json::Value::from(secret.reveal()).to_string().trim_matches('"').to_owned());
    let basic = client.zip(client_secret).and_then(|(id, secret)| basic(id, secret.reveal()));
    let basic = basic.as_ref().and_then(|value| value.to_str().ok()?.strip_prefix("Basic ").map(str::to_owned));
    plain.chain(encoded).chain(escaped).chain(basic).collect()
}
