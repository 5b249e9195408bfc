//! A JSON document opened only where a patch reaches into it; the rest stays the text it was, so numbers and the order
//! of members survive.

use std::borrow::Cow;
use std::cmp::Ordering;

use mcp_wire::Members;
use serde_json::value::RawValue;

use super::pointer::index;

/// How deep the opened part of a document may get.
const MAX_DEPTH: usize = 128;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Node<'a> {
    /// Not opened: its text.
    Raw(&'a str),
    Object(Vec<(Cow<'a, str>, Self)>),
    Array(Vec<Self>),
}

/// The place a pointer names is not there, or may not be used so.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotThere(pub(crate) &'static str);

const MISSING: NotThere = NotThere("the path does not exist");

impl<'a> Node<'a> {
    pub(crate) fn get(&mut self, path: &[Cow<'_, str>]) -> Result<&mut Self, NotThere> {
        let mut node = self;
        for token in path {
            node = node.child(token)?;
        }
        Ok(node)
    }

    /// Sets a member, or inserts an element before the one named or, with `-`, at the end. The parent must exist.
    pub(crate) fn add(&mut self, path: &[Cow<'a, str>], value: Self) -> Result<(), NotThere> {
        let Some((last, parents)) = path.split_last() else { return Err(MISSING) };
        if path.len() + value.depth() > MAX_DEPTH {
            return Err(NotThere("the document gets too deep"));
        }
        match self.get(parents)?.open()? {
            Self::Object(members) => match members.iter_mut().find(|(name, _)| name == last) {
                Some((_, old)) => *old = value,
                None => members.push((last.clone(), value)),
            },
            Self::Array(elements) => {
                let at = if last == "-" { Some(elements.len()) } else { index(last, elements.len() + 1) };
                elements.insert(at.ok_or(MISSING)?, value);
            }
            Self::Raw(_) => return Err(MISSING),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &[Cow<'_, str>]) -> Result<Self, NotThere> {
        let Some((last, parents)) = path.split_last() else { return Err(MISSING) };
        match self.get(parents)?.open()? {
            Self::Object(members) => {
                let at = members.iter().position(|(name, _)| name == last).ok_or(MISSING)?;
                Ok(members.remove(at).1)
            }
            Self::Array(elements) => Ok(elements.remove(index(last, elements.len()).ok_or(MISSING)?)),
            Self::Raw(_) => Err(MISSING),
        }
    }

    fn child(&mut self, token: &str) -> Result<&mut Self, NotThere> {
        match self.open()? {
            Self::Object(members) => members.iter_mut().find(|(name, _)| name == token).map(|(_, value)| value),
            Self::Array(elements) => index(token, elements.len()).and_then(|at| elements.get_mut(at)),
            Self::Raw(_) => None,
        }
        .ok_or(MISSING)
    }

    /// Opens an object or an array; a scalar stays as it is.
    fn open(&mut self) -> Result<&mut Self, NotThere> {
        if let Self::Raw(text) = self {
            let broken = |_| NotThere("the document is not JSON");
            match text.as_bytes().first() {
                Some(b'{') => {
                    let members: Members<'a> = serde_json::from_str(text).map_err(broken)?;
                    let members = members.0.into_iter().map(|(name, raw)| (name, Node::Raw(raw.get())));
                    *self = Self::Object(members.collect());
                }
                Some(b'[') => {
                    let elements: Vec<&'a RawValue> = serde_json::from_str(text).map_err(broken)?;
                    *self = Self::Array(elements.into_iter().map(|raw| Node::Raw(raw.get())).collect());
                }
                _ => {}
            }
        }
        Ok(self)
    }

    /// How deep it is opened.
    fn depth(&self) -> usize {
        match self {
            Self::Raw(_) => 0,
            Self::Object(members) => 1 + members.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            Self::Array(elements) => 1 + elements.iter().map(Self::depth).max().unwrap_or(0),
        }
    }

    /// Its length as text, about.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Raw(text) => text.len(),
            Self::Object(members) => {
                2 + members.iter().map(|(name, value)| name.len() + 4 + value.size()).sum::<usize>()
            }
            Self::Array(elements) => 2 + elements.iter().map(|value| 1 + value.size()).sum::<usize>(),
        }
    }

    /// Writes it as JSON; what was not opened as it was.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Raw(text) => out.push_str(text),
            Self::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    out.push_str(&serde_json::Value::from(name.as_ref()).to_string());
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
            Self::Array(elements) => {
                out.push('[');
                for (at, value) in elements.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    value.write(out);
                }
                out.push(']');
            }
        }
    }

    /// Whether both stand for one JSON value (RFC 6902 §4.6): numbers by value, members in any order.
    pub(crate) fn same(&mut self, other: &mut Self) -> Result<bool, NotThere> {
        Ok(match (self.open()?, other.open()?) {
            (Self::Object(a), Self::Object(b)) if a.len() == b.len() => {
                for (name, value) in a {
                    let Some((_, other)) = b.iter_mut().find(|(other, _)| other == name) else { return Ok(false) };
                    if !value.same(other)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Array(a), Self::Array(b)) if a.len() == b.len() => {
                for (value, other) in a.iter_mut().zip(b) {
                    if !value.same(other)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Raw(a), Self::Raw(b)) => scalars_equal(a, b),
            _ => false,
        })
    }
}

fn scalars_equal(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let is_number = |text: &str| text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    if is_number(a) && is_number(b) {
        // Two integers of different text differ, however large; a float would round them together.
        let is_float = |text: &str| text.contains(['.', 'e', 'E']) || text == "-0";
        let equal = |(a, b): (f64, f64)| a.partial_cmp(&b) == Some(Ordering::Equal);
        return (is_float(a) || is_float(b)) && a.parse().ok().zip(b.parse().ok()).is_some_and(equal);
    }
    let text = |json: &str| serde_json::from_str::<String>(json).ok();
    text(a).is_some_and(|a| text(b) == Some(a))
}
