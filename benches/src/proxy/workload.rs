//! The calls that are measured, and the answer that each must have.

use std::fmt::Write as _;
use std::sync::LazyLock;

use anyhow::{Result, ensure};

/// Events of a stream before its result.
pub const EVENTS: usize = 20;

/// How long an SSE answer is, as real servers send it, in bytes.
const SSE_BYTES: usize = 328;
/// How long the text of a large call is, in each direction, in bytes.
const LARGE_BYTES: usize = 256 << 10;

/// A kind of call. The server answers by the name of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// A small call, answered with JSON.
    Json,
    /// A small call, answered with one event of 328 bytes.
    Sse,
    /// 256 KiB there and back, as JSON.
    Large,
    /// A stream of 20 events, a millisecond apart, and a result.
    Stream,
    /// A list of 1,000 tools.
    List,
}

impl Workload {
    /// Name of the tool.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Sse => "sse",
            Self::Large => "large",
            Self::Stream => "stream",
            Self::List => "list",
        }
    }

    fn text(self, id: u64) -> String {
        let padding = match self {
            Self::Json | Self::Stream | Self::List => 0,
            Self::Sse => SSE_BYTES - 130,
            Self::Large => LARGE_BYTES,
        };
        format!("Ada {id:09}{}", "x".repeat(padding))
    }

    /// The body of call `id`.
    pub fn call(self, id: u64) -> String {
        if self == Self::List {
            return format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        }
        let (tool, text) = (self.tool(), self.text(id));
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"name":"{text}"}}}}}}"#
        )
    }

    /// Checks the body of the answer to call `id`, whole: `sse` says whether it is an event stream.
    pub fn check(self, id: u64, answer: &[u8], sse: bool) -> Result<()> {
        let id_text = id.to_string();
        let result = if self == Self::List { list(&id_text) } else { result(&id_text, &self.text(id)) };
        let answer = std::str::from_utf8(answer)?;
        if !sse {
            ensure!(answer == result, "call {id} got {answer}");
            return Ok(());
        }
        let mut data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
        ensure!(data.next_back() == Some(result.as_str()), "call {id} got {answer}");
        let before = if self == Self::Stream { EVENTS } else { 0 };
        ensure!(data.count() == before, "call {id} got another number of events: {answer}");
        Ok(())
    }
}

/// The result of a call with this `id`, as it stands in the call, that greets `name`.
pub fn result(id: &str, name: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"Hi {name}"}}]}}}}"#)
}

/// The list of tools, in the answer to a request with this `id`.
pub fn list(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{}]}}}}"#, *TOOLS)
}

static TOOLS: LazyLock<String> = LazyLock::new(|| {
    let mut tools = String::new();
    for at in 0..1000 {
        let comma = if at == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(
            tools,
            r#"{comma}{{"name":"tool-{at}","description":"{}","inputSchema":{{"type":"object","properties":{{"name":{{"type":"string"}}}}}}}}"#,
            "d".repeat(120)
        );
    }
    tools
});
