//! The JSON-RPC envelope, borrowed from the bytes it came in.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::guard::{Ambiguity, check_case, check_message};
use crate::methods::check_method;

const ENVELOPE: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error"];
/// The members of `params` in MCP's requests and notifications.
const PARAMS: &[&str] = &[
    "_meta",
    "argument",
    "arguments",
    "capabilities",
    "clientInfo",
    "context",
    "cursor",
    "level",
    "name",
    "notifications",
    "progress",
    "progressToken",
    "protocolVersion",
    "reason",
    "ref",
    "requestId",
    "task",
    "taskId",
    "total",
    "uri",
];
/// The members of `_meta` that say which era a request is of.
pub(crate) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const ERROR: &[&str] = &["code", "message", "data"];
/// The members of `params`, and of `_meta` in it, that a strict reading keeps at hand: a long message is not read again for each of them.
const KEPT: &[&str] = &["name", "uri", "taskId", "arguments", "_meta", "protocolVersion", "progressToken", "requestId"];
const KEPT_META: &[&str] =
    &["progressToken", PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, "traceparent", "tracestate"];

/// Why bytes are not one JSON-RPC message. The sender's fault: answer HTTP 400 with [`MessageError::body`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The body is a batch.
    #[error("JSON-RPC batch requests are not supported")]
    Batch,
    /// The bytes are not UTF-8.
    #[error("the message is not UTF-8")]
    Encoding,
    /// Not JSON, or JSON whose members have the wrong types.
    #[error("not a JSON-RPC message: {0}")]
    Json(#[from] serde_json::Error),
    /// The members contradict each other or miss one.
    #[error("not a JSON-RPC message: {0}")]
    Envelope(&'static str),
    /// Two parsers could read different messages from it.
    #[error("ambiguous message: {problem}")]
    Ambiguous {
        /// The difference.
        problem: Ambiguity,
        /// The message's id as JSON text, where its envelope is not ambiguous.
        id: Option<Box<str>>,
    },
    /// A number cannot be read, in a message that is whole otherwise.
    #[error("not a JSON-RPC message: {problem}")]
    Number {
        /// Which number.
        problem: Ambiguity,
        /// The message's id as JSON text.
        id: Option<Box<str>>,
    },
}

impl From<Ambiguity> for MessageError {
    fn from(problem: Ambiguity) -> Self {
        Self::Ambiguous { problem, id: None }
    }
}

/// A JSON-RPC id: a string or a number, kept as it was written.
#[derive(Clone, Copy)]
pub struct Id<'a>(&'a RawValue);

impl<'a> Id<'a> {
    /// The id as JSON text, byte for byte: `7`, `"7"`, `1.0`.
    pub fn raw(&self) -> &'a str {
        self.0.get()
    }

    /// Whether it is a JSON string.
    pub fn is_string(&self) -> bool {
        self.raw().starts_with('"')
    }
}

impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw())
    }
}

impl PartialEq for Id<'_> {
    /// Equal as written; JSON-RPC endpoints echo ids verbatim.
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }
}

impl Eq for Id<'_> {}

/// What a message asks of its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Has a method and an id: wants an answer.
    Request,
    /// Has a method and no id.
    Notification,
    /// Has a result or an error: answers a request.
    Response,
}

/// One JSON-RPC message: the envelope's members, the rest raw.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    id: Option<Id<'a>>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    kept: Option<Kept<'a>>,
}

/// The members of [`KEPT`] and [`KEPT_META`] that a strict reading found.
#[derive(Clone, Debug)]
struct Kept<'a> {
    params: Members<'a>,
    meta: Members<'a>,
}

/// Whether the first byte that is not white space opens an array.
pub fn is_batch(body: &[u8]) -> bool {
    body.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) == Some(&b'[')
}

impl<'a> Message<'a> {
    /// Reads the envelope. Enough for what a backend sends; use [`Message::parse_strict`] for what a client sends.
    ///
    /// A repeated or differently cased envelope member is refused, as are messages that are both request and response.
    pub fn parse(body: &'a [u8]) -> Result<Self, MessageError> {
        Self::parse_text(text(body)?)
    }

    /// Reads the envelope of a message that a policy will judge: as [`Message::parse`], and whatever two parsers could read
    /// differently is refused.
    ///
    /// No object at any depth may have two members of one name, nor two whose names differ only in case unless these are the tool's own, no reserved member of `params` or `error` may
    /// be spelt in another case, every number fits a 64-bit float, every string is text, and the nesting is limited. The id is a string or a signed
    /// 64-bit integer, `params` an object that no response has, and an error has an integer code and a message. A method that differs from one of
    /// MCP's only in case or blanks is refused.
    pub fn parse_strict(body: &'a [u8]) -> Result<Self, MessageError> {
        let text = text(body)?;
        let mut message = Self::parse_text(text)?;
        let named = |problem: Ambiguity| {
            let id = message.id.map(|id| id.raw().into());
            match problem {
                Ambiguity::Number(_) => MessageError::Number { problem, id },
                _ => MessageError::Ambiguous { problem, id },
            }
        };
        check_message(text).map_err(named)?;
        match message.method() {
            Some(method) => check_method(method)?,
            None if message.params.is_some() => {
                return Err(MessageError::Envelope("`params` must not stand beside `result` or `error`"));
            }
            None => {}
        }
        if message.id.is_some_and(|id| !id.is_string() && id.raw().parse::<i64>().is_err()) {
            return Err(MessageError::Envelope("`id` must be a string or a 64-bit integer"));
        }
        if let Some(params) = message.params {
            if !params.get().starts_with('{') {
                return Err(MessageError::Envelope("`params` must be an object"));
            }
            let params: Members<'_> = serde_json::from_str(params.get())?;
            params.0.iter().try_for_each(|(name, _)| check_case(name, PARAMS)).map_err(named)?;
            let meta = params.get("_meta").filter(|meta| meta.get().starts_with('{'));
            let meta =
                meta.map(|meta| serde_json::from_str::<Members<'_>>(meta.get())).transpose()?.unwrap_or_default();
            message.kept = Some(Kept { params: params.only(KEPT), meta: meta.only(KEPT_META) });
        }
        if let Some(error) = message.error {
            check_error(error)?;
        }
        Ok(message)
    }

    fn parse_text(text: &'a str) -> Result<Self, MessageError> {
        let Envelope { jsonrpc, id, method, params, result, error, variant } = serde_json::from_str(text)
            // A member of the wrong type ends the reading: what stands behind it may not even be JSON.
            .map_err(|error| if error.is_data() { syntax(text).err().unwrap_or(error) } else { error })?;
        if let Some(ambiguity) = variant {
            return Err(ambiguity.into());
        }
        if jsonrpc.as_deref() != Some("2.0") {
            return Err(MessageError::Envelope("`jsonrpc` must be \"2.0\""));
        }
        let id = match id.map(RawValue::get) {
            None => None,
            // Only an error that answers an unreadable request may carry a null id (JSON-RPC 2.0 §5).
            Some("null") if method.is_none() && error.is_some() => None,
            Some(raw) if raw.starts_with(['"', '-']) || raw.starts_with(|c: char| c.is_ascii_digit()) => id.map(Id),
            Some(_) => return Err(MessageError::Envelope("`id` must be a string or a number")),
        };
        match (&method, result, error) {
            (Some(method), None, None) if !method.is_empty() => {}
            (Some(_), None, None) => return Err(MessageError::Envelope("`method` must not be empty")),
            (Some(_), ..) => return Err(MessageError::Envelope("`method` must not stand beside `result` or `error`")),
            (None, Some(_), None) if id.is_some() => {}
            (None, Some(_), None) => return Err(MessageError::Envelope("`result` needs an `id`")),
            (None, None, Some(_)) => {}
            (None, Some(_), Some(_)) => {
                return Err(MessageError::Envelope("`result` must not stand beside `error`"));
            }
            (None, None, None) => return Err(MessageError::Envelope("`method`, `result` or `error` is missing")),
        }
        Ok(Self { id, method, params, result, error, kept: None })
    }

    /// What the message asks of its receiver.
    pub fn kind(&self) -> Kind {
        match (&self.method, &self.id) {
            (Some(_), Some(_)) => Kind::Request,
            (Some(_), None) => Kind::Notification,
            (None, _) => Kind::Response,
        }
    }

    /// The id; `None` for notifications, and for errors about a message that could not be read.
    pub fn id(&self) -> Option<Id<'a>> {
        self.id
    }

    /// The method, unescaped; `None` for responses.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// The parameters as they were written.
    pub fn params(&self) -> Option<&'a RawValue> {
        self.params
    }

    /// The result of a response as it was written.
    pub fn result(&self) -> Option<&'a RawValue> {
        self.result
    }

    /// The error of a response as it was written.
    pub fn error(&self) -> Option<&'a RawValue> {
        self.error
    }

    /// `member` of `params` as it was written; `None` when it or `params` is absent or `params` is no object.
    pub fn param(&self, member: &str) -> Result<Option<&'a RawValue>, MessageError> {
        match &self.kept {
            Some(kept) if KEPT.contains(&member) => Ok(kept.params.get(member)),
            _ => self.params.map_or(Ok(None), |params| self::member(params, member)),
        }
    }

    /// `member` of `params._meta` as it was written; `None` when it or one of these is absent or no object.
    pub fn meta(&self, member: &str) -> Result<Option<&'a RawValue>, MessageError> {
        match &self.kept {
            Some(kept) if KEPT_META.contains(&member) => Ok(kept.meta.get(member)),
            _ => self.param("_meta")?.map_or(Ok(None), |meta| self::member(meta, member)),
        }
    }

    /// What the request acts on: `params.name`, `params.uri` or `params.taskId`, by method (SEP-2243).
    ///
    /// `None` where the method names no such member or it is absent or not a string.
    pub fn target(&self) -> Result<Option<Cow<'a, str>>, MessageError> {
        let Some(member) = self.method().and_then(name_member) else { return Ok(None) };
        Ok(self.param(member)?.and_then(string))
    }
}

/// The member of `params` that `Mcp-Name` mirrors for `method`.
pub fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" | "skills/get" => Some("uri"),
        method if method.starts_with("tasks/") => Some("taskId"),
        _ => None,
    }
}

/// `name` of the object `raw`; `None` when it is absent or `raw` is no object.
pub(crate) fn member<'a>(raw: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, MessageError> {
    if !raw.get().starts_with('{') {
        return Ok(None);
    }
    let members: Members<'a> = serde_json::from_str(raw.get())?;
    Ok(members.get(name))
}

/// The unescaped text of a JSON string; `None` for anything else.
pub(crate) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text: Text<'_> = serde_json::from_str(raw.get()).ok()?;
    Some(text.0)
}

fn text(body: &[u8]) -> Result<&str, MessageError> {
    let text = std::str::from_utf8(body).map_err(|_| MessageError::Encoding)?;
    if is_batch(body) {
        syntax(text)?;
        return Err(MessageError::Batch);
    }
    Ok(text)
}

/// Whether `text` is JSON at all.
fn syntax(text: &str) -> serde_json::Result<()> {
    serde_json::from_str::<IgnoredAny>(text).map(drop)
}

/// Checks the error of a response (JSON-RPC 2.0 §5.1).
fn check_error(error: &RawValue) -> Result<(), MessageError> {
    if !error.get().starts_with('{') {
        return Err(MessageError::Envelope("`error` must be an object"));
    }
    let members: Members<'_> = serde_json::from_str(error.get())?;
    members.0.iter().try_for_each(|(name, _)| check_case(name, ERROR))?;
    let value = |name: &str| members.get(name).map(RawValue::get);
    if value("code").is_none_or(|code| code.parse::<i64>().is_err()) {
        return Err(MessageError::Envelope("`error.code` must be an integer"));
    }
    if !value("message").is_some_and(|message| message.starts_with('"')) {
        return Err(MessageError::Envelope("`error.message` must be a string"));
    }
    Ok(())
}

/// A string, borrowed where it holds no escape.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The members of an object in their order, their values as they were written.
#[derive(Clone, Debug, Default)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The value of the first member called `name`.
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find_map(|(key, value)| (key == name).then_some(*value))
    }

    /// These members without those of other names.
    fn only(mut self, names: &[&str]) -> Self {
        self.0.retain(|(name, _)| names.contains(&&**name));
        self.0.shrink_to_fit();
        self
    }
}

#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<Cow<'a, str>>,
    id: Option<&'a RawValue>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    variant: Option<Ambiguity>,
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Text(key)) = map.next_key()? {
                    members.push((key, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Envelope<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC message object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                fn set<T>(slot: &mut Option<T>, variant: &mut Option<Ambiguity>, name: &str, value: T) {
                    if slot.replace(value).is_some() {
                        *variant = Some(Ambiguity::Duplicate(name.to_owned()));
                    }
                }
                let mut envelope = Envelope::default();
                while let Some(Text(key)) = map.next_key()? {
                    let e = &mut envelope;
                    match &*key {
                        "jsonrpc" => set(&mut e.jsonrpc, &mut e.variant, &key, map.next_value::<Text<'de>>()?.0),
                        "method" => set(&mut e.method, &mut e.variant, &key, map.next_value::<Text<'de>>()?.0),
                        "id" => set(&mut e.id, &mut e.variant, &key, map.next_value()?),
                        "params" => set(&mut e.params, &mut e.variant, &key, map.next_value()?),
                        "result" => set(&mut e.result, &mut e.variant, &key, map.next_value()?),
                        "error" => set(&mut e.error, &mut e.variant, &key, map.next_value()?),
                        other => {
                            if let Err(ambiguity) = check_case(other, ENVELOPE) {
                                e.variant = Some(ambiguity);
                            }
                            map.next_value::<&RawValue>()?;
                        }
                    }
                }
                Ok(envelope)
            }
        }
        deserializer.deserialize_map(Object)
    }
}
