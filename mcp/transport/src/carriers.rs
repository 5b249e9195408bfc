//! Where a request names its session: a header and the query (toolhive-0.63 §4.2).

use std::borrow::Cow;

use form_urlencoded::byte_serialize;
use http::Uri;
use http::request::Parts;
use http::uri::PathAndQuery;
use mcp_wire::headers::SESSION_ID;

use crate::query::{self, ENDS};

/// The names of a session's id in a query.
const NAMES: [&str; 3] = ["sessionId", "sessionid", "session_id"];

/// What a request says of its session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Carried<'a> {
    Nothing,
    Id(Cow<'a, str>),
    /// More than one id, the same one twice in one place, or what is no id.
    Conflict,
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
    Some((exact.or_else(|| NAMES.iter().position(|known| known.eq_ignore_ascii_case(&name)))?, value))
}

/// `uri` with `id` where its query names a session, or without these members where there is no `id`. `None` where it names none.
pub(crate) fn rename(uri: &Uri, id: Option<&str>) -> Option<Uri> {
    let query = uri.query()?;
    if !query.split(ENDS).any(|text| member(text).is_some()) {
        return None;
    }
    let mut renamed = String::new();
    for text in query.split_inclusive(ENDS) {
        match (member(text.trim_end_matches(ENDS)), id) {
            (None, _) => renamed.push_str(text),
            (Some(_), None) => {}
            (Some((name, _)), Some(id)) => {
                renamed.extend([NAMES[name], "="].into_iter().chain(byte_serialize(id.as_bytes())));
                renamed.extend(text.ends_with(ENDS).then(|| &text[text.len() - 1..]));
            }
        }
    }
    let (path, query) = (uri.path(), renamed.trim_end_matches(ENDS));
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
            ("/mcp?a&sessionid=x", Some("/mcp?a&sessionid=a%2Fb%26"), Some("/mcp?a")),
            ("http://h/mcp?sessionId=x", Some("http://h/mcp?sessionId=a%2Fb%26"), Some("http://h/mcp")),
        ] {
            let renamed = |id| rename(&uri.parse().unwrap(), id).map(|uri| uri.to_string());
            assert_eq!((renamed(Some("a/b&")).as_deref(), renamed(None).as_deref()), (with, without), "{uri}");
        }
    }
}
