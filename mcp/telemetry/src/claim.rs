//! Names that clients say: whether the server knows them, as its answers tell.

use mcp_store::Client;

/// The methods whose names a server knows or not. Of others, a client may choose any: the name that it says hello with, for one.
const METHODS: [&str; 2] = ["tools/call", "prompts/get"];
/// The part of a frame that is looked at.
const LOOKED_AT: usize = 64 << 10;

/// A name that has no series of its own, and may get one.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) method: &'static str,
    pub(crate) resource: Box<str>,
    pub(crate) client: Client,
}

impl Claim {
    /// The claim of a request with this method and resource; `None` where no answer would prove anything.
    pub(crate) fn new(method: &str, resource: &str, client: impl FnOnce() -> Client) -> Option<Self> {
        let method = METHODS.into_iter().find(|known| *known == method)?;
        Some(Self { method, resource: resource.into(), client: client() })
    }
}

/// Whether an answer with these bytes in it has a result, and no error; `None` where they tell neither. The text of a result has its quotes
/// escaped.
pub(crate) fn proves(frame: &[u8]) -> Option<bool> {
    let frame = frame.get(..LOOKED_AT).unwrap_or(frame);
    let has = |text: &str| frame.windows(text.len()).any(|found| found == text.as_bytes());
    if [r#""error":"#, r#""isError":true"#, r#""isError": true"#].into_iter().any(has) {
        return Some(false);
    }
    has(r#""result":"#).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_proves_and_an_error_does_not() {
        for (frame, proof) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"no \"error\": at all"}]}}"#,
                Some(true),
            ),
            ("event: message\ndata: {\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {}}\n\n", Some(true)),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool"}}"#, Some(false)),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}"#, Some(false)),
            (r#"{"jsonrpc": "2.0", "id": 1, "result": {"content": [], "isError": true}}"#, Some(false)),
            ("id: 1\ndata:\n\n", None),
            (r#"data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#, None),
            ("", None),
        ] {
            assert_eq!(proves(frame.as_bytes()), proof, "{frame}");
        }
    }
}
