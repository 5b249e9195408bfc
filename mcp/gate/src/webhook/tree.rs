//! A JSON document opened only where a patch reaches into it; the rest stays the text it was, so numbers and the order
//! of members survive.

use std::borrow::Cow;
use std::cmp::Ordering;

use mcp_wire::Members;
use serde_json::value::RawValue;

use super::pointer::index;

/// The greatest depth of the opened part of a document.
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

/// More than any review needs: some tens of milliseconds.
const MAX_VISITS: usize = 1 << 23;
/// The approximate number of bytes that are parsed in the time of one visit.
const BYTES_PER_VISIT: usize = 16;

/// The work that is left for a document: visits to members and elements.
#[derive(Debug)]
pub(crate) struct Work(usize);

impl Default for Work {
    fn default() -> Self {
        Self(MAX_VISITS)
    }
}

impl Work {
    fn spend(&mut self, visits: usize) -> Result<(), NotThere> {
        self.0 = self.0.checked_sub(visits).ok_or(NotThere("the patch asks for too much work"))?;
        Ok(())
    }
}

impl<'a> Node<'a> {
    pub(crate) fn get(&mut self, path: &[Cow<'_, str>], work: &mut Work) -> Result<&mut Self, NotThere> {
        let mut node = self;
        for token in path {
            node = node.child(token, work)?;
        }
        Ok(node)
    }

    /// Sets a member, or inserts an element before the one named or, with `-`, at the end. The parent must exist.
    pub(crate) fn add(&mut self, path: &[Cow<'a, str>], value: Self, work: &mut Work) -> Result<(), NotThere> {
        let Some((last, parents)) = path.split_last() else { return Err(MISSING) };
        if path.len() + value.depth(work)? > MAX_DEPTH {
            return Err(NotThere("the document gets too deep"));
        }
        match self.get(parents, work)?.open(work)? {
            Self::Object(members) => {
                work.spend(members.len())?;
                match members.iter_mut().find(|(name, _)| name == last) {
                    Some((_, old)) => *old = value,
                    None => members.push((last.clone(), value)),
                }
            }
            Self::Array(elements) => {
                let at = if last == "-" { Some(elements.len()) } else { index(last, elements.len() + 1) };
                let at = at.ok_or(MISSING)?;
                work.spend(elements.len() - at)?;
                elements.insert(at, value);
            }
            Self::Raw(_) => return Err(MISSING),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &[Cow<'_, str>], work: &mut Work) -> Result<Self, NotThere> {
        let Some((last, parents)) = path.split_last() else { return Err(MISSING) };
        match self.get(parents, work)?.open(work)? {
            Self::Object(members) => {
                work.spend(members.len())?;
                let at = members.iter().position(|(name, _)| name == last).ok_or(MISSING)?;
                Ok(members.remove(at).1)
            }
            Self::Array(elements) => {
                let at = index(last, elements.len()).ok_or(MISSING)?;
                work.spend(elements.len() - at)?;
                Ok(elements.remove(at))
            }
            Self::Raw(_) => Err(MISSING),
        }
    }

    fn child(&mut self, token: &str, work: &mut Work) -> Result<&mut Self, NotThere> {
        match self.open(work)? {
            Self::Object(members) => {
                work.spend(members.len())?;
                members.iter_mut().find(|(name, _)| name == token).map(|(_, value)| value)
            }
            Self::Array(elements) => index(token, elements.len()).and_then(|at| elements.get_mut(at)),
            Self::Raw(_) => None,
        }
        .ok_or(MISSING)
    }

    /// Opens an object or an array; a scalar stays as it is.
    fn open(&mut self, work: &mut Work) -> Result<&mut Self, NotThere> {
        if let Self::Raw(text) = self {
            work.spend(text.len() / BYTES_PER_VISIT)?;
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

    /// The depth to which it is opened.
    fn depth(&self, work: &mut Work) -> Result<usize, NotThere> {
        work.spend(1)?;
        let mut deepest = 0;
        match self {
            Self::Raw(_) => return Ok(0),
            Self::Object(members) => {
                for (_, value) in members {
                    deepest = deepest.max(value.depth(work)?);
                }
            }
            Self::Array(elements) => {
                for value in elements {
                    deepest = deepest.max(value.depth(work)?);
                }
            }
        }
        Ok(1 + deepest)
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

    /// Whether both stand for one JSON value (RFC 6902 §4.6): numbers by value, members in any order. Those of `other` are sorted.
    pub(crate) fn same(&mut self, other: &mut Self, work: &mut Work) -> Result<bool, NotThere> {
        Ok(match (self.open(work)?, other.open(work)?) {
            (Self::Object(a), Self::Object(b)) if a.len() == b.len() => {
                b.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                for (name, value) in a {
                    work.spend(1)?;
                    let other = b.binary_search_by(|(other, _)| other.cmp(name)).ok().and_then(|at| b.get_mut(at));
                    let Some((_, other)) = other else { return Ok(false) };
                    if !value.same(other, work)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Array(a), Self::Array(b)) if a.len() == b.len() => {
                for (value, other) in a.iter_mut().zip(b) {
                    work.spend(1)?;
                    if !value.same(other, work)? {
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
