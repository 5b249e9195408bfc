//! The headers that mirror a Modern request's body (SEP-2243): their values, and keeping them true after a change.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;

use crate::error_body::{ErrorBody, code};
pub use crate::message::name_member;
use crate::message::{Members, string};
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

/// The most `Mcp-Param-*` headers of one request: as many as a tool's marked arguments that are looked at.
pub const MAX_PARAMS: usize = 64;

/// Headers that a request must not have with its body: answer HTTP 400 with [`HeaderError::body`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A header that mirrors the body says something else.
    #[error("{header} does not match the body")]
    Mismatch {
        /// The header's name.
        header: HeaderName,
        /// The beginning of the header's text; `None` when it cannot be decoded.
        said: Option<String>,
        /// The beginning of the body's text; `None` when the body says nothing of the kind.
        truth: Option<String>,
    },
    /// There are more `Mcp-Param-*` than [`MAX_PARAMS`].
    #[error("the request has {0} Mcp-Param-* headers; send at most {MAX_PARAMS}")]
    TooManyParams(usize),
}

impl HeaderError {
    pub(crate) fn mismatch(header: HeaderName, said: Option<&str>, truth: Option<&str>) -> Self {
        Self::Mismatch { header, said: said.map(beginning), truth: truth.map(beginning) }
    }

    /// The JSON-RPC error body, to be sent with HTTP 400.
    pub fn body(&self, id: Option<Id<'_>>) -> Vec<u8> {
        let message = self.to_string();
        match self {
            Self::Mismatch { header, said, truth } => {
                let data = serde_json::json!({"header": header.as_str(), "headerValue": said, "bodyValue": truth});
                ErrorBody::new(code::HEADER_MISMATCH, &message).id(id).data(&data.to_string()).encode()
            }
            Self::TooManyParams(_) => ErrorBody::new(code::INVALID_REQUEST, &message).id(id).encode(),
        }
    }
}

/// As much of a text as an error shows: the body's may be megabytes long.
pub(crate) fn beginning(text: &str) -> String {
    text.chars().take(256).collect()
}

/// Refuses a request one of whose mirroring headers says something else than its body: who acts on the header would do
/// what nobody judged. Every value of a repeated header counts; headers that are absent are not asked for. More than [`MAX_PARAMS`]
/// `Mcp-Param-*` are refused too.
pub fn check(headers: &HeaderMap, message: &Message<'_>) -> Result<(), HeaderError> {
    let params = headers.iter().filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX)).count();
    if params > MAX_PARAMS {
        return Err(HeaderError::TooManyParams(params));
    }
    let target = message.target().ok().flatten();
    for (header, truth) in [(METHOD, message.method()), (NAME, target.as_deref())] {
        for value in headers.get_all(&header) {
            let said = decode(value);
            if said.is_none() || said.as_deref() != truth {
                return Err(HeaderError::mismatch(header, said.as_deref(), truth));
            }
        }
    }
    Ok(())
}

/// As [`check`], and refuses a Modern request that leaves out a header which MCP 2026-07-28 demands: `Mcp-Method` always, `Mcp-Name` where
/// the method acts on something named.
pub fn check_required(headers: &HeaderMap, message: &Message<'_>) -> Result<(), HeaderError> {
    check(headers, message)?;
    if !headers.contains_key(METHOD) {
        return Err(HeaderError::mismatch(METHOD, None, message.method()));
    }
    let named = matches!(message.method(), Some("tools/call" | "prompts/get" | "resources/read"));
    if named && !headers.contains_key(NAME) {
        return Err(HeaderError::mismatch(NAME, None, message.target().ok().flatten().as_deref()));
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
    let paths = mirrored(&params, headers, &Arguments::read(old)?);
    let values = scalars_at(new, &paths)?;
    for (header, value) in params.into_iter().zip(values) {
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

/// The paths of the arguments that `params` mirror, each empty where it cannot be told. The headers' values are the index, and each argument
/// is looked up in it once.
fn mirrored<'a>(params: &[HeaderName], headers: &HeaderMap, arguments: &Arguments<'a>) -> Vec<Vec<Cow<'a, str>>> {
    let wanted = |header: &HeaderName| {
        let mut values = headers.get_all(header).iter();
        let (value, None) = (decode(values.next()?)?, values.next()) else { return None };
        Some((Comparable::of(value), header.as_str().strip_prefix(PARAM_PREFIX)?.to_owned()))
    };
    let wanted: Vec<_> = params.iter().map(wanted).collect();
    let mut index: HashMap<&Comparable<'_>, Equal<'_>> = HashMap::new();
    for (value, suffix) in wanted.iter().flatten() {
        index.entry(value).or_default().named.insert(suffix, Single::None);
    }
    for (at, argument) in arguments.0.iter().enumerate() {
        let Some(text) = scalar(argument.raw) else { continue };
        let Some(equal) = index.get_mut(&Comparable::of(text)) else { continue };
        equal.all.add(at);
        if let Some(named) = equal.named.get_mut(&*argument.name.to_ascii_lowercase()) {
            named.add(at);
        }
    }
    let path = |(value, suffix): &(Comparable<'_>, String)| {
        let equal = index.get(value)?;
        let at = equal.all.get().or_else(|| equal.named.get(suffix.as_str())?.get())?;
        Some(arguments.path(arguments.0.get(at)?))
    };
    wanted.iter().map(|wanted| wanted.as_ref().and_then(path).unwrap_or_default()).collect()
}

/// A value as it is compared: as text, integers by their number (MCP 2026-07-28, "Custom headers").
#[derive(PartialEq, Eq, Hash)]
enum Comparable<'a> {
    Integer(i64),
    Text(Cow<'a, str>),
}

impl<'a> Comparable<'a> {
    fn of(text: Cow<'a, str>) -> Self {
        text.parse().map_or(Self::Text(text), Self::Integer)
    }
}

/// The arguments of one value.
#[derive(Default)]
struct Equal<'a> {
    all: Single,
    /// Arguments named like a header of this value, by that name in lower case.
    named: HashMap<&'a str, Single>,
}

/// The position of the one argument of its sort.
#[derive(Clone, Copy, Default)]
enum Single {
    #[default]
    None,
    At(usize),
    Several,
}

impl Single {
    fn add(&mut self, at: usize) {
        *self = if matches!(self, Self::None) { Self::At(at) } else { Self::Several };
    }

    fn get(self) -> Option<usize> {
        if let Self::At(at) = self { Some(at) } else { None }
    }
}

/// Whether the values are the same to a reader.
pub(crate) fn same(a: &str, b: &str) -> bool {
    Comparable::of(a.into()) == Comparable::of(b.into())
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

/// The header texts of the arguments at `paths`, `None` for an empty path. Each object on the way is read once, for all of them.
pub(crate) fn scalars_at<'a, P: AsRef<str>>(
    arguments: Option<&'a RawValue>,
    paths: &[Vec<P>],
) -> Result<Vec<Option<Cow<'a, str>>>, MessageError> {
    let mut found = vec![None; paths.len()];
    let mut next: Vec<_> = arguments.map(|raw| (0, raw, (0..paths.len()).collect::<Vec<_>>())).into_iter().collect();
    while let Some((depth, raw, through)) = next.pop() {
        let mut wanted: HashMap<&str, Vec<usize>> = HashMap::new();
        for at in through {
            match paths[at].get(depth) {
                Some(name) => wanted.entry(name.as_ref()).or_default().push(at),
                None if depth > 0 => found[at] = scalar(raw),
                None => {}
            }
        }
        if wanted.is_empty() || !raw.get().starts_with('{') {
            continue;
        }
        let members: Members<'a> = serde_json::from_str(raw.get())?;
        let onwards = members.0.into_iter().filter_map(|(name, raw)| Some((depth + 1, raw, wanted.remove(&*name)?)));
        next.extend(onwards);
    }
    Ok(found)
}

/// The header text of a string, number or boolean.
fn scalar(raw: &RawValue) -> Option<Cow<'_, str>> {
    match raw.get().as_bytes().first()? {
        b'"' => string(raw),
        b'n' | b'{' | b'[' => None,
        _ => Some(Cow::Borrowed(raw.get())),
    }
}
