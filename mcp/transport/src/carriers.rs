//! Where a request names its session: a header and the query (toolhive-0.63 §4.2).

use std::borrow::Cow;

use form_urlencoded::byte_serialize;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use mcp_wire::headers::SESSION_ID;

use crate::query::{self, ENDS};

/// The names of a session's id in a query, as servers write them; other spellings are taken for the one whose letters they have.
const NAMES: [&str; 6] = ["sessionId", "sessionid", "session_id", "session-id", "mcp-session-id", "mcp_session_id"];
/// Names that some servers take for the id of a session, and others use for something else: they name no session here.
const LOOKALIKES: [&str; 3] = ["sid", "session", "mcpsession"];

/// What a request says of its session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Carried<'a> {
    Nothing,
    Id(Cow<'a, str>),
    /// More than one id, the same one twice in one place, or what is no id.
    Conflict,
}

/// The id of the session that a request names; `None` where it names none, or more than one. Whose session that is, only the transport knows.
pub fn named_session(parts: &Parts) -> Option<Cow<'_, str>> {
    match Carried::by(parts) {
        Carried::Id(id) => Some(id),
        Carried::Nothing | Carried::Conflict => None,
    }
}

impl<'a> Carried<'a> {
    pub(crate) fn by(parts: &'a Parts) -> Self {
        let mut values = parts.headers.get_all(SESSION_ID).iter();
        let mut id = match (values.next().map(|value| value.to_str()), values.next()) {
            (None, _) => None,
            (Some(Ok(id)), None) => Some(Cow::Borrowed(id)),
            _ => return Self::Conflict,
        };
        let mut seen = [false; NAMES.len()];
        for (name, value) in parts.uri.query().into_iter().flat_map(|query| query.split(ENDS)).filter_map(member) {
            if std::mem::replace(&mut seen[name], true) || id.as_ref().is_some_and(|id| *id != value) {
                return Self::Conflict;
            }
            id = Some(value);
        }
        id.map_or(Self::Nothing, Self::Id)
    }
}

/// Which of [`NAMES`] a member of a query is, and its value.
fn member(member: &str) -> Option<(usize, Cow<'_, str>)> {
    let (name, value) = query::member(member)?;
    let exact = NAMES.iter().position(|known| *known == name);
    let same = || NAMES.iter().position(|known| letters(known).eq(letters(&name)));
    Some((exact.or_else(same)?, value))
}

fn is_lookalike(member: &str) -> bool {
    let name = query::member(member).map(|(name, _)| name);
    name.is_some_and(|name| LOOKALIKES.iter().any(|known| letters(known).eq(letters(&name))))
}

/// By what a lenient server knows a name.
fn letters(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| !matches!(c, '_' | '-') && !c.is_whitespace()).map(|c| c.to_ascii_lowercase())
}

/// Whether a `Cookie` names a session of MCP. Other names, such as `sessionid` and `session`, are of logins at web applications.
pub(crate) fn is_in_cookie(cookie: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(cookie.as_bytes());
    // Python's standard library ends a cookie at a blank too, and other readers trim more than blanks.
    let mut pairs = text.split([';', ',', ' ', '\t']).filter_map(query::member);
    pairs.any(|(name, _)| {
        let name = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase());
        name.eq("mcpsessionid".chars())
    })
}

/// `uri` with `id` where its query names a session, or without these members where there is no `id`. `None` where it names none.
pub(crate) fn rename(uri: &Uri, id: Option<&str>) -> Option<Uri> {
    edit(uri, |text| match (member(text), id) {
        (None, _) => Edit::Keep,
        (Some(_), None) => Edit::Drop,
        (Some((name, _)), Some(id)) => {
            Edit::Put([NAMES[name], "="].into_iter().chain(byte_serialize(id.as_bytes())).collect())
        }
    })
}

/// `uri` without members of its query by which some server would find a session that nobody has checked. `None` where it has none.
pub(crate) fn without_lookalikes(uri: &Uri) -> Option<Uri> {
    edit(uri, |text| if is_lookalike(text) { Edit::Drop } else { Edit::Keep })
}

/// The outcome of a member of a query.
enum Edit {
    Keep,
    Drop,
    Put(String),
}

/// `uri` with its query edited. `None` where every member stays.
fn edit(uri: &Uri, edit: impl Fn(&str) -> Edit) -> Option<Uri> {
    let query = uri.query()?;
    let (mut edited, mut changed) = (String::new(), false);
    for text in query.split_inclusive(ENDS) {
        let member = text.trim_end_matches(ENDS);
        match edit(member) {
            Edit::Keep => {
                edited.push_str(text);
                continue;
            }
            Edit::Drop => {}
            Edit::Put(put) => {
                edited.push_str(&put);
                edited.push_str(&text[member.len()..]);
            }
        }
        changed = true;
    }
    if !changed {
        return None;
    }
    let (path, query) = (uri.path(), edited.trim_end_matches(ENDS));
    let text = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let mut parts = uri.clone().into_parts();
    // It is made of parts of one.
    parts.path_and_query = Some(text.parse().unwrap_or_else(|_| PathAndQuery::from_static("/")));
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_session_that_is_named_twice_in_one_place_or_in_two_ways_is_none() {
        let id = |id: &'static str| Carried::Id(Cow::Borrowed(id));
        for (headers, target, expected) in [
            (&[][..], "/mcp", Carried::Nothing),
            (&[], "/mcp?a=b&sessionId2=y", Carried::Nothing),
            (&["x"], "/mcp?a=b", id("x")),
            (&["x", "x"], "/mcp", Carried::Conflict),
            (&[], "/mcp?sessionId=x", id("x")),
            (&[], "/mcp?a&sessionid=x&b", id("x")),
            (&["x"], "/mcp?session_id=x", id("x")),
            (&["a/b"], "/mcp?session%5Fid=a%2fb", id("a/b")),
            (&[], "/mcp?sessionId=x&session_id=x&sessionid=x", id("x")),
            (&["x"], "/mcp?sessionId=y", Carried::Conflict),
            (&[], "/mcp?sessionId=x&session_id=y", Carried::Conflict),
            (&[], "/mcp?sessionId=x&sessionId=x", Carried::Conflict),
            (&["x"], "/mcp?a=b;sessionId=y", Carried::Conflict),
            (&["x"], "/mcp?sessionId[]=y", Carried::Conflict),
            (&["x"], "/mcp?SESSION_ID=y", Carried::Conflict),
            (&["x"], "/mcp?%20sessionId=y", Carried::Conflict),
            (&["x"], "/mcp?+session.ID=y", Carried::Conflict),
            (&["x"], "/mcp?session+id=y", Carried::Conflict),
            (&["x"], "/mcp?session%5Bid=y", Carried::Conflict),
            (&["x"], "/mcp?sessionId%00a=y", Carried::Conflict),
            (&["x"], "/mcp?session[id]=y", id("x")),
            (&[], "/mcp?SessionId=x", id("x")),
            (&["x"], "/mcp?sessionId", Carried::Conflict),
            (&["x"], "/mcp?mcp-session-id=y", Carried::Conflict),
            (&["x"], "/mcp?MCP_Session_Id=y", Carried::Conflict),
            (&["x"], "/mcp?mcpSessionId=y", Carried::Conflict),
            (&["x"], "/mcp?session-id=y", Carried::Conflict),
            (&["x"], "/mcp?sessionId%20=y", Carried::Conflict),
            (&["x"], "/mcp?mcp%2Dsession%2Did=y", Carried::Conflict),
            (&[], "/mcp?mcp-session-id=x", id("x")),
            (&["x"], "/mcp?sid=y&session=z", id("x")),
        ] {
            let request = headers.iter().fold(Request::get(target), |request, id| request.header(SESSION_ID, *id));
            let parts = request.body(()).unwrap().into_parts().0;
            assert_eq!(Carried::by(&parts), expected, "{headers:?} {target}");
        }
    }

    #[test]
    fn a_session_gets_another_name_in_the_query_and_all_else_stays() {
        for (uri, with, without) in [
            ("/mcp", None, None),
            ("/mcp?a=b&%zz", None, None),
            ("/mcp?sessionId=x", Some("/mcp?sessionId=a%2Fb%26"), Some("/mcp")),
            ("/mcp?a=%2F;session%5Fid=x&c", Some("/mcp?a=%2F;session_id=a%2Fb%26&c"), Some("/mcp?a=%2F;c")),
            ("/mcp?a&+session.id=x", Some("/mcp?a&session_id=a%2Fb%26"), Some("/mcp?a")),
            ("/mcp?mcp-session-id=x", Some("/mcp?mcp-session-id=a%2Fb%26"), Some("/mcp")),
            ("/mcp?a&sessionid=x", Some("/mcp?a&sessionid=a%2Fb%26"), Some("/mcp?a")),
            ("http://h/mcp?sessionId=x", Some("http://h/mcp?sessionId=a%2Fb%26"), Some("http://h/mcp")),
        ] {
            let renamed = |id| rename(&uri.parse().unwrap(), id).map(|uri| uri.to_string());
            assert_eq!((renamed(Some("a/b&")).as_deref(), renamed(None).as_deref()), (with, without), "{uri}");
        }
    }
    #[test]
    fn a_member_that_may_be_a_session_elsewhere_is_removed() {
        for (uri, left) in [
            ("/mcp", None),
            ("/mcp?sessionId=x&sids=y&sessions=z", None),
            ("/mcp?sid=x", Some("/mcp")),
            ("/mcp?a=%2F&SID=x;b", Some("/mcp?a=%2F&b")),
            ("/mcp?session=x&a", Some("/mcp?a")),
            ("/mcp?session[]=x&+session=y&sess%69on=z&sessionId=w", Some("/mcp?sessionId=w")),
            ("/mcp?mcp-session=x", Some("/mcp")),
        ] {
            let cleaned = without_lookalikes(&uri.parse().unwrap()).map(|uri| uri.to_string());
            assert_eq!(cleaned.as_deref(), left, "{uri}");
        }
    }

    #[test]
    fn a_cookie_that_names_an_mcp_session_is_known() {
        for (cookie, named) in [
            ("mcp-session-id=x", true),
            ("a=b; Mcp_Session_Id=x", true),
            ("a=b;mcpSessionId=x", true),
            ("a=b mcp-session-id=x", true),
            ("a=\"b,mcp%2Dsession-id=x", true),
            ("sessionid=x; session=y; sid=z; a=mcp-session-id", false),
            ("", false),
        ] {
            assert_eq!(is_in_cookie(&HeaderValue::from_static(cookie)), named, "{cookie}");
        }
    }
}
