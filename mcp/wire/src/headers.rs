//! The headers that mirror a Modern request's body (SEP-2243): their values, and keeping them true after a change.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;

use crate::error_body::{ErrorBody, code};
pub use crate::message::name_member;
use crate::message::{Members, member, string};
use crate::{Id, Message, MessageError};

/// `MCP-Protocol-Version`.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Mcp-Session-Id`.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `Mcp-Method`: the JSON-RPC method.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// `Mcp-Name`: the tool, prompt, resource or task the request acts on.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// `Mcp-Param-`, in lower case: an argument that the tool's schema marks with `x-mcp-header`.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// The method whose answer is a stream that goes on until one side ends it (MCP 2026-07-28, Subscriptions).
const LISTEN: &str = "subscriptions/listen";

/// Whether the answer to a request with these headers is a stream that belongs to no call.
pub fn opens_stream(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::GET || headers.get(METHOD).is_some_and(|method| method == LISTEN)
}

/// Removes a client's headers whose names hold something else than letters, digits and `-`, and says how many names those were.
///
/// Servers that read headers as CGI variables (WSGI, Rack, PHP) take such a name for another: `Mcp_Session_Id` for `Mcp-Session-Id`, which alone is
/// checked. `Mcp-Param-*` stays: MCP lets these names hold what the names of arguments hold.
pub fn remove_ambiguous(headers: &mut HeaderMap) -> usize {
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    remove_where(headers, |name| !is_plain(name) && !name.starts_with(PARAM_PREFIX))
}

/// Removes the headers whose names are `unwanted`, and says how many names those were. Names are in lower case.
pub fn remove_where(headers: &mut HeaderMap, unwanted: impl Fn(&str) -> bool) -> usize {
    let names: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name.as_str())).cloned().collect();
    for name in &names {
        headers.remove(name);
    }
    names.len()
}

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// A header value for `text`: as it is where that is safe, else `=?base64?…?=`. An empty text is not safe: clients and proxies drop
/// headers without a value.
pub fn encode(text: &str) -> HeaderValue {
    let padded = text.starts_with(' ') || text.ends_with(' ');
    let marked = text.starts_with(OPEN) && text.ends_with(CLOSE);
    let plain = !text.is_empty() && !padded && !marked && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if plain && let Ok(value) = HeaderValue::from_str(text) {
        return value;
    }
    let wrapped = format!("{OPEN}{}{CLOSE}", STANDARD.encode(text));
    // Base64 and the marks around it are visible ASCII, which is always a header value.
    HeaderValue::from_str(&wrapped).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The text of a header value; `None` when it is not visible ASCII, or its base64 does not decode to UTF-8.
pub fn decode(value: &HeaderValue) -> Option<Cow<'_, str>> {
    let text = value.to_str().ok()?;
    match text.strip_prefix(OPEN).and_then(|inner| inner.strip_suffix(CLOSE)) {
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(text)),
    }
}

/// A header that mirrors the body and says something else: answer HTTP 400 with [`Mismatch::body`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{header} does not match the body")]
pub struct Mismatch {
    header: HeaderName,
    /// What the header says; `None` when it cannot be decoded.
    said: Option<String>,
    /// What the body says; `None` when it says nothing of the kind.
    truth: Option<String>,
}

impl Mismatch {
    pub(crate) fn new(header: HeaderName, said: Option<&str>, truth: Option<&str>) -> Self {
        Self { header, said: said.map(str::to_owned), truth: truth.map(str::to_owned) }
    }

    /// The JSON-RPC error body, to be sent with HTTP 400.
    pub fn body(&self, id: Option<Id<'_>>) -> Vec<u8> {
        let Self { header, said, truth } = self;
        let data = serde_json::json!({"header": header.as_str(), "headerValue": said, "bodyValue": truth}).to_string();
        ErrorBody::new(code::HEADER_MISMATCH, &self.to_string()).id(id).data(&data).encode()
    }
}

/// Refuses a request one of whose mirroring headers says something else than its body: who acts on the header would do
/// what nobody judged. Every value of a repeated header counts; headers that are absent are not asked for.
pub fn check(headers: &HeaderMap, message: &Message<'_>) -> Result<(), Mismatch> {
    let target = message.target().ok().flatten();
    for (header, truth) in [(METHOD, message.method()), (NAME, target.as_deref())] {
        for value in headers.get_all(&header) {
            let said = decode(value);
            if said.is_none() || said.as_deref() != truth {
                let said = said.map(Cow::into_owned);
                return Err(Mismatch { header, said, truth: truth.map(str::to_owned) });
            }
        }
    }
    Ok(())
}

/// As [`check`], and refuses a Modern request that leaves out a header which MCP 2026-07-28 demands: `Mcp-Method` always, `Mcp-Name` where
/// the method acts on something named.
pub fn check_required(headers: &HeaderMap, message: &Message<'_>) -> Result<(), Mismatch> {
    check(headers, message)?;
    if !headers.contains_key(METHOD) {
        return Err(Mismatch::new(METHOD, None, message.method()));
    }
    let named = matches!(message.method(), Some("tools/call" | "prompts/get" | "resources/read"));
    if named && !headers.contains_key(NAME) {
        return Err(Mismatch::new(NAME, None, message.target().ok().flatten().as_deref()));
    }
    Ok(())
}

/// Makes the mirroring headers that the request carries true again after its body changed from `before` to `after`.
///
/// `Mcp-Method` and `Mcp-Name` follow the new body. Which argument an `Mcp-Param-*` mirrors is said by the tool's schema,
/// which a proxy has not got: it is taken to be the argument that had the header's value before, the one named like the header
/// where several had. A header whose argument cannot be told, or went away, is dropped: a backend that needs it refuses.
/// A request without any of these headers gets none.
pub fn update(headers: &mut HeaderMap, before: &Message<'_>, after: &Message<'_>) -> Result<(), MessageError> {
    if headers.contains_key(METHOD) {
        set(headers, METHOD, after.method());
    }
    // A change of method may make a name necessary that was not before, so the method's header asks for it too.
    if headers.contains_key(NAME) || headers.contains_key(METHOD) {
        set(headers, NAME, after.target()?.as_deref());
    }
    let params: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(PARAM_PREFIX)).cloned().collect();
    if params.is_empty() {
        return Ok(());
    }
    let (old, new) = (before.param("arguments")?, after.param("arguments")?);
    let old = Arguments::read(old)?;
    for header in params {
        let value = match mirrored(&header, headers, &old) {
            Some(path) => new.map_or(Ok(None), |new| scalar_at(new, &path))?,
            None => None,
        };
        set(headers, header, value.as_deref());
    }
    Ok(())
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    match value {
        Some(value) => {
            headers.insert(name, encode(value));
        }
        None => {
            headers.remove(name);
        }
    }
}

/// The path of the argument that `header` mirrors.
fn mirrored<'a>(header: &HeaderName, headers: &HeaderMap, arguments: &Arguments<'a>) -> Option<Vec<Cow<'a, str>>> {
    let mut values = headers.get_all(header).iter();
    let (value, None) = (decode(values.next()?)?, values.next()) else { return None };
    let suffix = header.as_str().strip_prefix(PARAM_PREFIX)?;
    let equal = || arguments.0.iter().filter(|argument| scalar(argument.raw).is_some_and(|text| same(&text, &value)));
    let named = || equal().filter(|argument| argument.name.eq_ignore_ascii_case(suffix));
    single(equal()).or_else(|| single(named())).map(|argument| arguments.path(argument))
}

fn single<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    found.next().filter(|_| found.next().is_none())
}

/// Values are compared as text, integers by their number (MCP 2026-07-28, "Custom headers").
pub(crate) fn same(a: &str, b: &str) -> bool {
    a == b || matches!((a.parse::<i64>(), b.parse::<i64>()), (Ok(a), Ok(b)) if a == b)
}

/// Deepest object in which a mirrored argument is looked for.
const ARGUMENT_DEPTH: usize = 16;

/// The members of the arguments and of the objects in them, each with the position of the object it stands in.
struct Arguments<'a>(Vec<Argument<'a>>);

struct Argument<'a> {
    object: Option<usize>,
    depth: usize,
    name: Cow<'a, str>,
    raw: &'a RawValue,
}

impl<'a> Arguments<'a> {
    fn read(raw: Option<&'a RawValue>) -> Result<Self, MessageError> {
        let mut found = Vec::new();
        let mut next = raw.map(|raw| (None, 0, raw));
        let mut at = 0;
        while let Some((object, depth, raw)) = next {
            if raw.get().starts_with('{') && depth < ARGUMENT_DEPTH {
                let members: Members<'a> = serde_json::from_str(raw.get())?;
                found.extend(members.0.into_iter().map(|(name, raw)| Argument { object, depth: depth + 1, name, raw }));
            }
            next = found.get(at).map(|argument: &Argument<'a>| (Some(at), argument.depth, argument.raw));
            at += 1;
        }
        Ok(Self(found))
    }

    fn path(&self, argument: &Argument<'a>) -> Vec<Cow<'a, str>> {
        let mut path = vec![argument.name.clone()];
        let mut object = argument.object;
        while let Some(parent) = object.and_then(|at| self.0.get(at)) {
            path.push(parent.name.clone());
            object = parent.object;
        }
        path.reverse();
        path
    }
}

pub(crate) fn scalar_at<'a>(
    arguments: &'a RawValue,
    path: &[impl AsRef<str>],
) -> Result<Option<Cow<'a, str>>, MessageError> {
    let mut at = arguments;
    for name in path {
        let Some(next) = member(at, name.as_ref())? else { return Ok(None) };
        at = next;
    }
    Ok(scalar(at))
}

/// The header text of a string, number or boolean.
fn scalar(raw: &RawValue) -> Option<Cow<'_, str>> {
    match raw.get().as_bytes().first()? {
        b'"' => string(raw),
        b'n' | b'{' | b'[' => None,
        _ => Some(Cow::Borrowed(raw.get())),
    }
}
