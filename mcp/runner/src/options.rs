//! The command line and the environment.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand};
use http::Uri;
use mcp_middleware::{Secret, SecretSource, Secrets};
use mcp_runconfig::endpoint::{DIRECT, Egress, IpNet};
use mcp_runconfig::{chain, duration, environment};

use crate::check_login::CheckLoginOptions;
use crate::explain::ExplainOptions;

/// The proxy beside one MCP server.
///
/// In a pod it needs no flag: the RunConfig is found where the operator mounts it. The flags place it outside of a cluster without
/// touching that document.
#[derive(Clone, Debug, Parser)]
#[command(name = "mcp-runner", version)]
pub struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Flags that were given and are not known.
    #[arg(skip)]
    pub(crate) ignored: Vec<String>,
}

impl Options {
    /// Parses a command line, the program's name first, as ToolHive's binary does (toolhive-runner §1.1): flags may stand
    /// before the subcommand, and flags that are not known are left out, but for other commands than `run`. Ends the process where it cannot be parsed, where a flag
    /// looks like a known one, as another document or address would be taken without it, and where one asks for a guard.
    pub fn of_arguments(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut arguments = arguments.into_iter().peekable();
        let program = arguments.next();
        let is_other = |word: &OsString| word != "run" && Self::command().find_subcommand(word).is_some();
        let is_other = arguments.peek().is_some_and(is_other);
        let arguments = program.into_iter().chain(arguments);
        if is_other {
            return Self::parse_from(arguments);
        }
        let (known, ignored) = known(arguments);
        if let Some(flag) = ignored.iter().find(|flag| asks_for_guard(flag)) {
            let text = format!(
                "the flag --{flag} asks for a guard, and guards are asked for in the RunConfig alone; put it there, and remove the flag"
            );
            Self::command().error(clap::error::ErrorKind::UnknownArgument, text).exit();
        }
        if let Some((given, meant)) = ignored.iter().find_map(|flag| Some((flag, misspelt(flag)?))) {
            let text = format!("unknown flag --{given}; did you mean --{meant}?");
            Self::command().error(clap::error::ErrorKind::UnknownArgument, text).exit();
        }
        Self { ignored, ..Self::parse_from(known) }
    }
}

/// Whether ToolHive's `run` takes a guard by this flag: a login, policies, a filter of tools, webhooks, audit. Such flags are not taken here, and a
/// proxy that left them out would serve whom they keep away.
fn asks_for_guard(flag: &str) -> bool {
    let flag = flag.to_lowercase().replace('_', "-");
    chain::flags().any(|guard| flag.starts_with(guard))
}

/// The known flag that an unknown one looks like: it differs in case or in one or two letters, or only begins like it.
fn misspelt(flag: &str) -> Option<String> {
    let command = Options::command();
    let run = command.find_subcommand("run").unwrap_or(&command);
    let flag = flag.to_lowercase();
    let mut known = run.get_arguments().filter_map(clap::Arg::get_long);
    known.find(|known| flag.starts_with(known) || strsim::damerau_levenshtein(known, &flag) <= 2).map(str::to_owned)
}

/// The command line with the subcommand first and without unknown flags, and these. A word after an unknown flag is its
/// value unless it begins with `-`.
fn known(mut arguments: impl Iterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let command = Options::command();
    let run = command.find_subcommand("run").unwrap_or(&command);
    let mut known: Vec<OsString> = arguments.next().into_iter().collect();
    let (mut flags, mut ignored, mut found) = (Vec::new(), Vec::new(), false);
    let mut arguments = arguments.peekable();
    while let Some(word) = arguments.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            flags.push(word);
            flags.extend(arguments);
            break;
        }
        let Some(flag) = text.strip_prefix("--") else {
            // The first word that is no flag names the subcommand.
            if !found && !text.starts_with('-') {
                known.push(word);
                found = true;
            } else {
                flags.push(word);
            }
            continue;
        };
        let name = flag.split('=').next().unwrap_or_default().to_owned();
        let argument = run.get_arguments().find(|argument| argument.get_long() == Some(&name));
        match argument {
            Some(argument) => {
                let separate = argument.get_action().takes_values() && !argument.is_require_equals_set();
                let value = if separate && !flag.contains('=') { arguments.next() } else { None };
                flags.push(word);
                flags.extend(value);
            }
            None if ["help", "version"].contains(&name.as_str()) => flags.push(word),
            None => {
                let follows = !flag.contains('=')
                    && arguments.peek().is_some_and(|next| !next.as_encoded_bytes().starts_with(b"-"));
                if follows {
                    let _ = arguments.next();
                }
                ignored.push(name);
            }
        }
    }
    known.extend(flags);
    (known, ignored)
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGTERM, SIGINT or SIGQUIT.
    Run(Box<RunOptions>),
    /// Play an MCP client's login against a server; say which step fails, whose side it is, and what to change.
    CheckLogin(CheckLoginOptions),
    /// Say who may call which tool, and why. Nobody is called and nothing is served.
    ///
    /// It ends with status 0 when it has explained, and with 2 when an input cannot be used.
    Explain(ExplainOptions),
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// The RunConfig, or the ConfigMap that holds it as kubectl prints it, in JSON or YAML [default: the first of
    /// /etc/runconfig/runconfig.json, /etc/toolhive/runconfig.json and ./runconfig.json that exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address to listen on [default: host and port of the RunConfig]. Port 0 takes a free one, which the log names.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// The streamable-HTTP MCP server [default: http://mcp-<name>:<target_port>].
    #[arg(long, value_name = "URL")]
    pub(crate) backend: Option<String>,
    /// Read the files that the RunConfig and the environment name (secrets, certificates) from below this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) files_root: Option<PathBuf>,
    /// Networks that the proxy may call as if they were public: remote MCP servers, identity providers and webhooks on a private or a
    /// loopback address, in tests and on a machine of one's own.
    #[arg(long = "allow-endpoint-cidr", value_name = "CIDR", value_delimiter = ',')]
    pub(crate) exempt_endpoints: Vec<IpNet>,
    /// Call https servers through this HTTP proxy: remote MCP servers, identity providers and webhooks. No variable names it.
    #[arg(long, value_name = "URL", value_parser = Egress::proxy)]
    pub(crate) egress_proxy: Option<Uri>,
    /// Hosts that are called directly, by the rules of NO_PROXY: names with their subdomains, addresses, networks, with commas.
    #[arg(long, value_name = "HOSTS", default_value = DIRECT)]
    pub(crate) no_proxy: String,
    /// Trust the root certificates in this file in place of the system's. Read before all else.
    #[arg(long, value_name = "FILE", require_equals = true)]
    pub(crate) ca_bundle: Option<PathBuf>,
    /// Log more.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    pub(crate) debug: bool,
    /// How long to go on serving after SIGTERM while clients learn of it; 15s at most.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = drain_delay)]
    pub(crate) drain_delay: Duration,
    /// How many connections are served at once: fewer in tests.
    #[arg(long, value_name = "COUNT", default_value_t = 6144, hide = true)]
    pub(crate) connections: usize,
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

impl RunOptions {
    pub(crate) fn egress(&self) -> Option<Egress> {
        self.egress_proxy.clone().map(|proxy| Egress { proxy, direct: self.no_proxy.clone() })
    }
}

/// The longest that the listener may go on after SIGTERM: calls under way need time to end after it.
const LONGEST_DRAIN_DELAY: Duration = Duration::from_secs(15);

fn drain_delay(text: &str) -> Result<Duration, String> {
    let nanos = duration::parse(text).map_err(|error| error.to_string())?;
    let delay = u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| "must not be negative".to_owned())?;
    if delay > LONGEST_DRAIN_DELAY {
        return Err(format!("must be {}s at most", LONGEST_DRAIN_DELAY.as_secs()));
    }
    Ok(delay)
}

/// The environment variables that matter.
#[derive(Clone, Default)]
pub struct Environment {
    /// `TOOLHIVE_DEBUG`.
    pub debug: bool,
    /// `TOOLHIVE_PROXY_REQUEST_TIMEOUT`, a Go duration: how long an answer of a stdio server may take.
    pub answer_timeout: Option<Duration>,
    /// `TOOLHIVE_HEALTH_CHECK_INTERVAL`, a Go duration: how often the server is checked.
    pub health_check_interval: Option<Duration>,
    /// `TOOLHIVE_HEALTH_CHECK_PING_TIMEOUT`, a Go duration: how long the server may take to answer a check.
    pub health_check_ping_timeout: Option<Duration>,
    /// `PORTCULLIS_UNREADY_AFTER`, a Go duration: how long the server may be without an answer until the proxy is not ready any more.
    pub unready_after: Option<Duration>,
    /// `TOOLHIVE_REMOTE_HEALTHCHECKS=true`: remote servers are checked as well.
    pub remote_health_checks: bool,
    /// `TOOLHIVE_SECRET_<identifier>`, where `TOOLHIVE_SECRETS_PROVIDER=environment`: the values of secrets that the document names.
    pub secrets: Option<Secrets>,
    /// `UNSTRUCTURED_LOGS=false`: log JSON.
    pub json_logs: bool,
    /// `USER`, outside of a pod: the local user whom requests are attributed to where nobody has to log in.
    pub user: Option<String>,
    /// `TOOLHIVE_OIDC_CLIENT_SECRET`: the proxy's own password at the identity provider.
    pub oidc_client_secret: SecretSource,
    /// `PORTCULLIS_TOKEN_EXCHANGE_CLIENT_SECRET_FILE`, else `TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET`: the secret of the client that exchanges tokens.
    pub token_exchange_secret: SecretSource,
    /// `PORTCULLIS_SESSION_REDIS_PASSWORD_FILE`, else `THV_SESSION_REDIS_PASSWORD`: the password of the Redis that replicas share.
    pub redis_password: SecretSource,
    /// `TOOLHIVE_OTEL_HEADER_NAME`: headers for the collector of traces and metrics.
    pub collector_headers: Vec<(String, Secret)>,
    /// `TOOLHIVE_RUNCONFIG_CHECKSUM`: SHA-256 of the RunConfig in hex. The proxy does not start on another document.
    pub run_config_checksum: Option<String>,
    /// `KUBERNETES_SERVICE_HOST`, which pods have: the address of the Kubernetes API, where no remote server may be. A name there does not count.
    pub kubernetes_api: Option<IpAddr>,
    /// `RUST_LOG`: a filter in the syntax of tracing-subscriber.
    pub log_filter: Option<String>,
}

/// Some of them are secrets.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

impl Environment {
    /// Reads this process's environment. What does not parse counts as unset, as ToolHive has it.
    pub fn of_process() -> Self {
        let text = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let is = |name, word: &str| text(name).is_some_and(|text| text.eq_ignore_ascii_case(word));
        let time = |name| {
            let nanos = text(name).and_then(|text| duration::parse(&text).ok());
            nanos.and_then(|nanos| u64::try_from(nanos).ok()).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
        };
        Self {
            debug: is("TOOLHIVE_DEBUG", "true") || is("TOOLHIVE_DEBUG", "1"),
            answer_timeout: time("TOOLHIVE_PROXY_REQUEST_TIMEOUT"),
            health_check_interval: time("TOOLHIVE_HEALTH_CHECK_INTERVAL"),
            health_check_ping_timeout: time("TOOLHIVE_HEALTH_CHECK_PING_TIMEOUT"),
            unready_after: time("PORTCULLIS_UNREADY_AFTER"),
            remote_health_checks: text(environment::REMOTE_HEALTH_CHECKS).is_some_and(|text| environment::is_on(&text)),
            secrets: is(environment::SECRETS_PROVIDER, "environment").then(secrets),
            json_logs: is("UNSTRUCTURED_LOGS", "false"),
            user: text("USER"),
            oidc_client_secret: text(environment::OIDC_CLIENT_SECRET)
                .map(|text| SecretSource::Given(Secret::new(text)))
                .unwrap_or_default(),
            token_exchange_secret: secret_source(
                environment::TOKEN_EXCHANGE_CLIENT_SECRET_FILE,
                environment::TOKEN_EXCHANGE_CLIENT_SECRET,
            ),
            redis_password: secret_source(
                environment::SESSION_REDIS_PASSWORD_FILE,
                environment::SESSION_REDIS_PASSWORD,
            ),
            collector_headers: collector_headers(),
            // Empty, it is that of no document: somebody took the annotation away that it comes from.
            run_config_checksum: std::env::var(environment::RUN_CONFIG_CHECKSUM).ok(),
            kubernetes_api: text("KUBERNETES_SERVICE_HOST").and_then(|host| host.parse().ok()),
            log_filter: text("RUST_LOG"),
        }
    }
}

fn secrets() -> Secrets {
    variables(environment::SECRET_PREFIX).collect()
}

/// A secret in the file that the variable `file` names, or else in the variable `given`. An empty variable is not the same as none: the Secret that it
/// comes from may lack its value.
fn secret_source(file: &str, given: &str) -> SecretSource {
    let file = std::env::var_os(file).filter(|file| !file.is_empty());
    let given = || Some(SecretSource::Given(Secret::new(std::env::var(given).ok()?)));
    file.map(|file| SecretSource::File(file.into())).or_else(given).unwrap_or_default()
}

fn collector_headers() -> Vec<(String, Secret)> {
    variables(environment::OTEL_HEADER_PREFIX).filter_map(|(name, value)| Some((name, secret(&value)?))).collect()
}

/// The variables whose names begin with `prefix`, without it.
fn variables(prefix: &str) -> impl Iterator<Item = (String, String)> {
    // A value that is no text could be no header.
    let text =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    text.filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), value)))
}

/// A value that comes from a Secret; `None` for a blank one.
fn secret(value: &str) -> Option<Secret> {
    SecretSource::Given(Secret::new(value)).read().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> (RunOptions, Vec<String>) {
        let arguments = ["mcp-runner"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        let (known, ignored) = known(arguments);
        let options = Options::try_parse_from(known).unwrap_or_else(|error| panic!("{line}: {error}"));
        let Command::Run(run) = options.command else { panic!("{line} runs the proxy") };
        (*run, ignored)
    }

    #[test]
    fn a_misspelt_flag_does_not_make_the_proxy_run_another_document() {
        for (flag, meant) in [
            ("confg", Some("config")),
            ("Config", Some("config")),
            ("config-file", Some("config")),
            ("lisen", Some("listen")),
            ("files_root", Some("files-root")),
            ("foreground", None),
            ("transport", None),
            ("proxy-port", None),
            ("from-configmap", None),
            ("run-config", None),
        ] {
            assert_eq!(misspelt(flag).as_deref(), meant, "{flag}");
        }
    }

    #[test]
    fn a_flag_that_asks_for_a_guard_is_told_from_one_that_was_removed() {
        for (flag, guard) in [
            ("oidc-issuer", true),
            ("OIDC_audience", true),
            ("jwks-auth-token-file", true),
            ("authz-config", true),
            ("audit-config", true),
            ("enable-audit", true),
            ("tools", true),
            ("tools-override", true),
            ("webhook-config", true),
            ("token-exchange-url", true),
            ("resource-url", true),
            ("allowed-origins", true),
            ("foreground", false),
            ("transport", false),
            ("otel-endpoint", false),
            ("permission-profile", false),
        ] {
            assert_eq!(asks_for_guard(flag), guard, "{flag}");
        }
    }

    #[test]
    fn the_contracts_command_lines_are_taken_and_unknown_flags_do_not_stop_the_proxy() {
        for (line, debug, image, ignored) in [
            ("run --k8s-pod-patch={} img", false, Some("img"), &[][..]),
            ("run --foreground=true --k8s-pod-patch={} img", false, Some("img"), &["foreground"]),
            ("--debug run img", true, Some("img"), &[]),
            ("--debug=false run img", false, Some("img"), &[]),
            ("--debug=true --removed=x run --gone value img", true, Some("img"), &["removed", "gone"]),
            ("run --gone value img", false, Some("img"), &["gone"]),
            ("run img --gone --debug", true, Some("img"), &["gone"]),
            ("run img -- server --gone --debug", false, Some("img"), &[]),
        ] {
            let (run, left_out) = parse(line);
            assert_eq!((run.debug, run.image.as_deref(), run.connections), (debug, image, 6144), "{line}");
            assert_eq!(left_out, ignored, "{line}");
        }
        let (run, _) = parse("run --gone img -- server --gone");
        assert_eq!((run.image, run.server), (None, ["server", "--gone"].map(OsString::from).to_vec()));
        let (run, _) = parse("run --k8s-pod-patch {} --listen run:1 img");
        assert_eq!((run.listen.as_deref(), run.image.as_deref()), (Some("run:1"), Some("img")));
    }
}
