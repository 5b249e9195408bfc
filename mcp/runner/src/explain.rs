//! `explain`: who may call which tool, by a RunConfig, the claims of a caller and an answer to `tools/list`. It reads files and calls nobody.

mod input;
mod table;

use std::fmt;
use std::io::{ErrorKind, Read, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use mcp_gate::explain::{Gate, ToolAnswer};
use mcp_middleware::{Identity, ProxySettings};
use mcp_runconfig::ParseError;
use serde::Serialize;

use crate::InputError;
use crate::config::{MAX_DOCUMENT, middleware};
use crate::document::run_config;

/// The longest claims, answer and arguments, in bytes. A token is in a header, and arguments in a body.
const MAX_CLAIMS: u64 = 64 << 10;
const MAX_TOOLS: u64 = 16 << 20;
const MAX_ARGUMENTS: u64 = 8 << 20;

/// Flags of `explain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExplainOptions {
    /// The RunConfig, or the ConfigMap that holds it as kubectl prints it, in JSON or YAML; - is standard input.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The claims of the caller's token, a JSON object; without it nobody has logged in.
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
    /// The MCP server's own answer to tools/list: a JSON-RPC response, its result, or the list of tools.
    #[arg(long, value_name = "FILE")]
    tools: PathBuf,
    /// Explain this tool alone, by the name that clients call it.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// The arguments of a call of that tool, a JSON object.
    #[arg(long, value_name = "FILE", requires = "tool")]
    arguments: Option<PathBuf>,
    /// The form of the answer.
    #[arg(long, value_name = "FORM", value_enum, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people.
    Table,
    /// JSON for programs.
    Json,
}

/// The whole answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    /// `None` is a caller who has not logged in where that is needed.
    caller: Option<Caller>,
    /// Whether the list of tools says that it goes on.
    has_more_pages: bool,
    tools: Vec<ToolAnswer>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Caller {
    subject: String,
    logged_in: bool,
}

/// A flag, and the file that it names.
#[derive(Clone, Copy)]
struct Source<'a> {
    flag: &'static str,
    path: &'a Path,
}

impl Source<'_> {
    fn error(self, source: ParseError) -> InputError {
        InputError { flag: self.flag, path: self.path.to_owned(), source: Box::new(source) }
    }

    fn fail(self, field: &str, problem: impl fmt::Display, fix: &str) -> InputError {
        self.error(ParseError::new(field, problem.to_string(), fix))
    }

    fn read(self, limit: u64) -> Result<String, InputError> {
        let unreadable = |error| {
            self.fail("file", format!("cannot be read: {error}"), "name a readable file, or - for standard input")
        };
        let mut text = String::new();
        let source: Box<dyn Read> = if self.path == Path::new("-") {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(std::fs::File::open(self.path).map_err(unreadable)?)
        };
        match source.take(limit + 1).read_to_string(&mut text) {
            Ok(length) if length as u64 > limit => {
                Err(self.fail("file", format!("is longer than {limit} bytes"), "name the file that the flag asks for"))
            }
            // Some editors write a mark before the text.
            Ok(_) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(self.fail("file", "is no text in UTF-8", "name the file that the flag asks for"))
            }
            Err(error) => Err(unreadable(error)),
        }
    }
}

/// Prints who may call what.
///
/// # Errors
/// An input cannot be used.
pub(crate) fn explain(options: &ExplainOptions) -> Result<(), InputError> {
    let source = |flag, path| Source { flag, path };
    let [config, tools] = [source("config", &*options.config), source("tools", &*options.tools)];
    let claims = options.claims.as_deref().map(|path| source("claims", path));
    let arguments = options.arguments.as_deref().map(|path| source("arguments", path));
    let from_input = [Some(config), Some(tools), claims, arguments].into_iter().flatten();
    if let Some(second) = from_input.filter(|source| source.path == Path::new("-")).nth(1) {
        return Err(second.fail("file", "is standard input, which another flag reads", "write it into a file"));
    }

    let document = run_config(&config.read(MAX_DOCUMENT)?).map_err(|error| config.error(error))?;
    for member in &document.unknown_members {
        let _ = writeln!(
            std::io::stderr(),
            "warning: {member} is not known, and has no effect: a guard among such members does not guard"
        );
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let settings = ProxySettings {
        server_name: document.name.clone(),
        ..ProxySettings::new(SocketAddr::from(([127, 0, 0, 1], 0)), provider)
    };
    let user = settings.local_user.clone();
    let gate = Gate::build(middleware(&document), settings)
        .map_err(|error| config.fail(&error.field, error.problem, &error.fix))?;
    let caller = match claims {
        Some(claims) if !gate.demands_login() => {
            let fix = "leave the flag out, or name a RunConfig with an oidc_config";
            return Err(claims.fail(
                "document",
                "the RunConfig asks for no login, so that everybody is the local user",
                fix,
            ));
        }
        Some(claims) => Some(caller(claims)?),
        None if gate.demands_login() => None,
        None => Some(mcp_authn::local_identity(&user)),
    };
    let list = input::tools(&tools.read(MAX_TOOLS)?).map_err(|error| tools.error(error))?;
    let raw =
        arguments.map(|source| input::arguments(source.read(MAX_ARGUMENTS)?).map_err(|error| source.error(error)));
    let raw = raw.transpose()?;
    let known = options.tool.as_deref().zip(raw.as_deref());
    let explained = gate.explain(&list, caller.as_ref(), known);
    let fix = "name what the MCP server itself answers to tools/list";
    let (mut answers, has_more_pages) = explained.map_err(|problem| tools.fail("result.tools", problem, fix))?;
    if let Some(name) = &options.tool {
        answers.retain(|answer| answer.name == *name);
        // A tool whose name another one has is none that clients call so.
        if answers.iter().any(|answer| answer.server_name != *name) {
            answers.retain(|answer| answer.server_name != *name);
        }
        if answers.is_empty() {
            let problem = format!("has no tool that clients call {name:?}");
            return Err(tools.fail("result.tools", problem, "leave --tool out to see all names"));
        }
    }
    let caller = caller.map(|identity| Caller { subject: identity.subject.clone(), logged_in: identity.logged_in });
    print(&Explained { caller, has_more_pages, tools: answers }, options.output).map_err(|error| {
        let fix = "lead standard output to where there is room";
        source("output", Path::new("-")).fail("answer", format!("cannot be written: {error}"), fix)
    })
}

fn caller(source: Source<'_>) -> Result<Arc<Identity>, InputError> {
    let claims = input::claims(&source.read(MAX_CLAIMS)?).map_err(|error| source.error(error))?;
    let nobody = || {
        source.fail("sub", "is missing or no text: a login refuses such a token", "write the caller's subject there")
    };
    mcp_authn::identity(claims).ok_or_else(nobody)
}

fn print(explained: &Explained, output: Output) -> std::io::Result<()> {
    let text = match output {
        Output::Table => table::table(explained),
        Output::Json => serde_json::to_string_pretty(explained).unwrap_or_default() + "\n",
    };
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that closes the pipe has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
