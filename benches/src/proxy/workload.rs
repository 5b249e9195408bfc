//! The calls that are measured, and the answer that each must have.

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
}

impl Workload {
    /// Name of the tool.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Sse => "sse",
            Self::Large => "large",
            Self::Stream => "stream",
        }
    }

    fn text(self, id: u64) -> String {
        let padding = match self {
            Self::Json | Self::Stream => 0,
            Self::Sse => SSE_BYTES - 130,
            Self::Large => LARGE_BYTES,
        };
        format!("Ada {id:09}{}", "x".repeat(padding))
    }

    /// The body of call `id`.
    pub fn call(self, id: u64) -> String {
        let (tool, text) = (self.tool(), self.text(id));
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"name":"{text}"}}}}}}"#
        )
    }

    /// Checks the body of the answer to call `id`, whole: `sse` says whether it is an event stream.
    pub fn check(self, id: u64, answer: &[u8], sse: bool) -> Result<()> {
        let result = result(&id.to_string(), &self.text(id));
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
