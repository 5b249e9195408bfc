//! Replacing a few values of a message and leaving every other byte as it is.

use bytes::Bytes;
use mcp_wire::{Message, MessageError, OwnedMessage, escape_line_breaks, splice};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The members of `params` (or `result`) that a shared pipe makes the front look at.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    pub(crate) meta: Option<Meta<'a>>,
    /// Of `notifications/progress`.
    #[serde(borrow, default, rename = "progressToken")]
    pub(crate) progress_token: Option<&'a RawValue>,
    /// Of `notifications/cancelled`.
    #[serde(borrow, default, rename = "requestId")]
    pub(crate) request_id: Option<&'a RawValue>,
    /// Of the `resources/*` requests and notifications.
    #[serde(default)]
    pub(crate) uri: Option<String>,
}

/// The members of `_meta` that name a call.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    pub(crate) progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/subscriptionId")]
    pub(crate) subscription: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    /// Finds them in a client's request, which was read strictly: no part of it is read again.
    pub(crate) fn of(message: &Message<'a>) -> Result<Self, MessageError> {
        let is_set = |raw: &&RawValue| raw.get() != "null";
        let meta = match message.param("_meta")?.filter(is_set) {
            Some(meta) if !meta.get().starts_with('{') => {
                return Err(MessageError::Envelope("`params._meta` must be an object"));
            }
            Some(_) => Some(Meta { progress_token: message.meta("progressToken")?.filter(is_set), subscription: None }),
            None => None,
        };
        let uri = message.param("uri")?.map(|uri| serde_json::from_str(uri.get())).transpose()?.flatten();
        let param = |name| message.param(name).map(|raw| raw.filter(is_set));
        Ok(Self { meta, progress_token: param("progressToken")?, request_id: param("requestId")?, uri })
    }

    /// Reads them; params that are no object hold none of them.
    pub(crate) fn read(params: Option<&'a RawValue>) -> Result<Self, serde_json::Error> {
        match params {
            Some(params) if params.get().starts_with('{') => serde_json::from_str(params.get()),
            _ => Ok(Self::default()),
        }
    }

    /// As [`Params::read`], for what the server sends: what does not fit holds nothing.
    pub(crate) fn read_loose(params: Option<&'a RawValue>) -> Self {
        Self::read(params).unwrap_or_default()
    }
}

/// The line that asks the server what the client asks, under the id `id` (JSON text), which serves as progress token too.
pub(crate) fn request_line(message: &OwnedMessage, id: &str) -> Bytes {
    let mut edits = Vec::with_capacity(2);
    if let Some(old) = message.id() {
        edits.push((old.raw(), id));
    }
    if let Some(token) = Params::of(message.message()).ok().and_then(|params| params.meta?.progress_token) {
        edits.push((token.get(), id));
    }
    line(message.body(), &mut edits)
}

/// One line from a client's message: `edits` made, line breaks between tokens turned into spaces, a line break at the end.
///
/// Inside strings the line breaks of Unicode are escaped: JSON allows them there, and a server that reads lines as its
/// language sees them (Python's `codecs` and `splitlines`) would take the rest of the string for the next message.
pub(crate) fn line(body: &[u8], edits: &mut [(&str, &str)]) -> Bytes {
    edits.sort_unstable_by_key(|(old, _)| old.as_ptr() as usize);
    let mut line = escape_line_breaks(splice(body, edits));
    for byte in &mut line {
        // In valid JSON these bytes stand between tokens only.
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    Bytes::from(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_id_and_progress_token_change_on_the_way_in() {
        for (body, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":"a\u0062","method":"m","params":{"x":1.0,"_meta":{"progressToken":7,"k":"\u00e9"}}}"#,
                r#"{"jsonrpc":"2.0","id":"p-42","method":"m","params":{"x":1.0,"_meta":{"progressToken":"p-42","k":"\u00e9"}}}"#,
            ),
            // Members in another order, white space and line breaks.
            (
                "{ \"params\" : { \"_meta\":{ \"progressToken\" : \"t\" } },\r\n \"method\":\"m\",\n\t\"id\":7 ,\"jsonrpc\":\"2.0\" }",
                "{ \"params\" : { \"_meta\":{ \"progressToken\" : \"p-42\" } },   \"method\":\"m\", \t\"id\":\"p-42\" ,\"jsonrpc\":\"2.0\" }",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":null}}}"#,
                r#"{"jsonrpc":"2.0","id":"p-42","method":"m","params":{"_meta":{"progressToken":null}}}"#,
            ),
        ] {
            let message = OwnedMessage::read(body.into()).unwrap();
            let line = request_line(&message, "\"p-42\"");
            assert_eq!(String::from_utf8_lossy(&line), format!("{expected}\n"));
        }
    }

    #[test]
    fn no_line_break_of_any_kind_is_left_in_a_line() {
        let body = "{\"a\":\"\u{2028}{}\u{2029}{}\u{85}€Âé\",\n\"b\":1}";
        let line = line(body.as_bytes(), &mut []);
        assert_eq!(String::from_utf8_lossy(&line), "{\"a\":\"\\u2028{}\\u2029{}\\u0085€Âé\", \"b\":1}\n");
        assert_eq!(String::from_utf8_lossy(&line).lines().count(), 1);
    }

    #[test]
    fn a_repeated_member_that_the_front_acts_on_is_an_error() {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1,"progressToken":2}}}"#;
        let message = Message::parse(body).unwrap();
        assert!(Params::read(message.params()).is_err());
    }
}
