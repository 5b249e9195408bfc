//! The members of a query, by the names that servers know them by.

use std::borrow::Cow;

use form_urlencoded::parse;

/// What ends a member of a query; some servers end it at a semicolon too.
pub(crate) const ENDS: [char; 2] = ['&', ';'];

/// Name and value of a member of a query. Two names that differ in case are one to some servers (those on ASP.NET): compare them without it.
pub(crate) fn member(member: &str) -> Option<(String, Cow<'_, str>)> {
    let (name, value) = parse(member.as_bytes()).next()?;
    Some((known_name(&name), value))
}

/// What PHP makes of a name: `[]` behind it makes a list of it, NUL ends it, blanks before it are nothing, and a blank, a dot and a bracket that does
/// not close are underscores.
fn known_name(name: &str) -> String {
    let name = name.split('\0').next().unwrap_or_default().trim_start_matches(' ');
    let name = match name.split_once('[') {
        Some((list, rest)) if rest.contains(']') => list,
        _ => name,
    };
    name.replace([' ', '.', '['], "_")
}
