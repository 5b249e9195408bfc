//! The lists in answers of MCP servers (`tools/list` and the like), read once and edited entry by entry.
//!
//! Every byte that no edit concerns stays as it was written. A list that two readers could read differently is an error, and so is a text in
//! which a lenient reader may find a list.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use self_cell::self_cell;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use self::cell::Cell;
use crate::guard::{check_structure, same_name};
use crate::message::{Members, string};

const ENCODING: &str = "it is not UTF-8";
const MALFORMED: &str = "it starts like a message and is not JSON";
const LENIENT: &str = "it is not JSON, and a lenient reader may find a list in it";
const TWO_WAYS: &str = "its list can be read in two ways";
const NO_LIST: &str = "its list is malformed";

/// The kinds of lists that MCP servers answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The result of `tools/list`.
    Tools,
    /// The result of `resources/list`.
    Resources,
    /// The result of `resources/templates/list`.
    ResourceTemplates,
    /// The result of `prompts/list`.
    Prompts,
    /// The result of `skills/list`.
    Skills,
}

/// A list in an answer, with the text that it was read from.
pub struct List(Cell);

/// An entry of a list.
#[derive(Debug)]
pub struct Entry<'a> {
    kind: ListKind,
    /// Its JSON text, which is borrowed until it is edited.
    text: Cow<'a, str>,
    name: Cow<'a, str>,
}

struct Parsed<'a> {
    kind: ListKind,
    text: &'a str,
    result: Members<'a>,
    list: &'a RawValue,
    entries: Vec<Entry<'a>>,
    /// Whether an entry is gone.
    is_shorter: bool,
    /// Whether caches may keep it for the caller alone.
    is_private: bool,
}

#[expect(clippy::mem_forget, reason = "what the macro expands to guards against a panic in the constructor")]
mod cell {
    use super::{Bytes, Parsed, self_cell};

    self_cell!(
        pub(super) struct Cell {
            owner: Bytes,
            #[covariant]
            dependent: Parsed,
        }
    );
}

// === impl ListKind ===

impl ListKind {
    /// The member of a result that holds the list.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
            Self::Skills => "skills",
        }
    }

    /// The member of an entry that names it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources | Self::Skills => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }
}

// === impl List ===

impl List {
    /// Reads the list of one of these `kinds` in `text`, the JSON of an answer; `None` where there is none.
    ///
    /// # Errors
    /// The reason why readers may find another list in it.
    pub fn read(text: Bytes, kinds: &[ListKind]) -> Result<Option<Self>, &'static str> {
        let cell = Cell::try_new(text, |text| {
            let text = std::str::from_utf8(text).map_err(|_| Some(ENCODING))?;
            parse(text, kinds)?.ok_or(None)
        });
        cell.map_or_else(|reason| reason.map_or(Ok(None), Err), |cell| Ok(Some(Self(cell))))
    }

    /// The kind of the list.
    pub fn kind(&self) -> ListKind {
        self.0.borrow_dependent().kind
    }

    /// The entries that are left.
    pub fn entries(&self) -> &[Entry<'_>] {
        &self.0.borrow_dependent().entries
    }

    /// The cursor of the next page; `None` where this is the last one.
    ///
    /// # Errors
    /// Readers may find another one in it.
    pub fn next_cursor(&self) -> Result<Option<Cow<'_, str>>, &'static str> {
        let cursor = member(&self.0.borrow_dependent().result, "nextCursor")?.filter(|cursor| cursor.get() != "null");
        cursor.map(|cursor| string(cursor).ok_or("its cursor is no text")).transpose()
    }

    /// Removes the entries for which `keep`, which may edit them, returns false.
    ///
    /// # Errors
    /// The first of `keep`. The list is of no use then.
    pub fn retain<E>(&mut self, mut keep: impl FnMut(&mut Entry<'_>) -> Result<bool, E>) -> Result<(), E> {
        self.0.with_dependent_mut(|_, Parsed { entries, is_shorter, .. }| {
            let (before, mut kept) = (entries.len(), Ok(()));
            entries.retain_mut(|entry| {
                let keeps = if kept.is_ok() { keep(entry) } else { Ok(false) };
                keeps.unwrap_or_else(|error| {
                    kept = Err(error);
                    false
                })
            });
            *is_shorter |= entries.len() < before;
            kept
        })
    }

    /// Makes what the result says of caching true of a list that depends on who asks (SEP-2549).
    ///
    /// # Errors
    /// Readers may find something else about caching in it.
    pub fn keep_private(&mut self) -> Result<(), &'static str> {
        self.0.with_dependent_mut(|_, parsed| {
            parsed.is_private = true;
            CACHING.iter().try_for_each(|(name, _)| member(&parsed.result, name).map(drop))
        })
    }

    /// The text of the answer with the list as it is now; `None` where nothing was edited.
    pub fn into_text(self) -> Option<Bytes> {
        self.0.borrow_dependent().edited().map(Into::into)
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("kind", &self.kind()).field("entries", &self.entries().len()).finish()
    }
}

/// The members of a result that speak of caching, and what they say of a private one.
const CACHING: [(&str, &str); 2] = [("cacheScope", "\"private\""), ("ttlMs", "0")];

impl Parsed<'_> {
    fn edited(&self) -> Option<Vec<u8>> {
        let is_edited = self.is_shorter || self.entries.iter().any(|entry| matches!(entry.text, Cow::Owned(_)));
        let list = is_edited.then_some((self.list.get(), None));
        let caching = CACHING.iter().filter(|_| self.is_private).filter_map(|(name, value)| {
            let old = member(&self.result, name).ok()??.get();
            (old != *value).then_some((old, Some(*value)))
        });
        let mut edits: Vec<_> = list.into_iter().chain(caching).collect();
        if edits.is_empty() {
            return None;
        }
        edits.sort_unstable_by_key(|(old, _)| old.as_ptr() as usize);
        let entries: usize = self.entries.iter().map(|entry| entry.text.len() + 1).sum();
        // Room for a list without entries, for other values, and for the line break that a pipe needs.
        let mut out = Vec::with_capacity(self.text.len().saturating_sub(self.list.get().len()) + entries + 32);
        let mut at = 0;
        for (old, new) in edits {
            let start = old.as_ptr() as usize - self.text.as_ptr() as usize;
            out.extend_from_slice(&self.text.as_bytes()[at..start]);
            match new {
                Some(new) => out.extend_from_slice(new.as_bytes()),
                None => self.write_list(&mut out),
            }
            at = start + old.len();
        }
        out.extend_from_slice(&self.text.as_bytes()[at..]);
        Some(out)
    }

    fn write_list(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (at, entry) in self.entries.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(entry.text.as_bytes());
        }
        out.push(b']');
    }
}

// === impl Entry ===

impl<'a> Entry<'a> {
    fn read(raw: &'a RawValue, kind: ListKind) -> Result<Self, &'static str> {
        let members = members(raw.get())?;
        // Whoever reads another description than one that was put in place would not notice.
        member(&members, DESCRIPTION)?;
        let name = member(&members, kind.key())?.and_then(string).ok_or(NO_LIST)?;
        Ok(Self { kind, text: raw.get().into(), name })
    }

    /// The kind of the list that it is of.
    pub fn kind(&self) -> ListKind {
        self.kind
    }

    /// The name of the entry: its member [`ListKind::key`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The JSON text of the entry.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value of a member as it is written; `None` where it is absent.
    ///
    /// # Errors
    /// Some reader takes another member for it.
    pub fn member(&self, name: &str) -> Result<Option<&RawValue>, &'static str> {
        member(&members(&self.text)?, name)
    }

    /// Gives the entry another name.
    ///
    /// # Errors
    /// Some reader takes another member for the one that is set.
    pub fn rename(&mut self, name: &str) -> Result<(), &'static str> {
        self.set(self.kind.key(), name)?;
        self.name = name.to_owned().into();
        Ok(())
    }

    /// Gives the entry another description.
    ///
    /// # Errors
    /// Some reader takes another member for the one that is set.
    pub fn describe(&mut self, description: &str) -> Result<(), &'static str> {
        self.set(DESCRIPTION, description)
    }

    /// Puts a text in place of a member's value, or adds the member behind the entry's name.
    ///
    /// # Errors
    /// Some reader takes another member for it.
    fn set(&mut self, name: &str, text: &str) -> Result<(), &'static str> {
        let members = members(&self.text)?;
        let value = Value::from(text).to_string();
        let (old, new) = if let Some(old) = member(&members, name)? {
            (old.get(), value)
        } else {
            let key = member(&members, self.kind.key())?.ok_or(NO_LIST)?.get();
            (key, format!("{key},\"{name}\":{value}"))
        };
        let start = old.as_ptr() as usize - self.text.as_ptr() as usize;
        let edited = [&self.text[..start], &new, &self.text[start + old.len()..]].concat();
        self.text = edited.into();
        Ok(())
    }
}

const DESCRIPTION: &str = "description";

fn parse<'a>(text: &'a str, kinds: &[ListKind]) -> Result<Option<Parsed<'a>>, &'static str> {
    match text.trim_start_matches([' ', '\t', '\r', '\n']).as_bytes().first() {
        Some(b'{') => {
            let Some((kind, result, list)) = find(text, kinds)? else { return Ok(None) };
            check_structure(text).map_err(|_| TWO_WAYS)?;
            let entries: Vec<&RawValue> = serde_json::from_str(list.get()).map_err(|_| NO_LIST)?;
            let entries = entries.into_iter().map(|entry| Entry::read(entry, kind)).collect::<Result<_, _>>()?;
            Ok(Some(Parsed { kind, text, result, list, entries, is_shorter: false, is_private: false }))
        }
        Some(b'[') => {
            let messages: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| MALFORMED)?;
            // Batches are of older revisions, and nobody asked for one.
            for message in messages.iter().filter(|message| message.get().starts_with('{')) {
                if find(message.get(), kinds)?.is_some() {
                    return Err(TWO_WAYS);
                }
            }
            Ok(None)
        }
        _ if may_be_list(text, kinds) => Err(LENIENT),
        _ => Ok(None),
    }
}

/// Finds the one list of these `kinds` in a message, and the result that has it.
fn find<'a>(text: &'a str, kinds: &[ListKind]) -> Result<Option<(ListKind, Members<'a>, &'a RawValue)>, &'static str> {
    let message: Members<'_> = serde_json::from_str(text).map_err(|_| MALFORMED)?;
    let Some(result) = member(&message, "result")?.filter(|result| result.get().starts_with('{')) else {
        return Ok(None);
    };
    let (result, mut found) = (members(result.get())?, None);
    for kind in kinds {
        let list = member(&result, kind.member())?.filter(|list| list.get() != "null");
        if let Some(list) = list
            && found.replace((*kind, list)).is_some()
        {
            return Err(TWO_WAYS);
        }
    }
    Ok(found.map(|(kind, list)| (kind, result, list)))
}

/// Whether a reader that skips what is not JSON may find a list in `text`, its name in any case or escaped.
fn may_be_list(text: &str, kinds: &[ListKind]) -> bool {
    let is_named = || {
        // In capitals, U+017F is an S too.
        let capitals = text.to_uppercase();
        kinds.iter().any(|kind| capitals.contains(&kind.member().to_uppercase()))
    };
    text.contains('{') && (text.contains('\\') || is_named()) && serde_json::from_str::<IgnoredAny>(text).is_err()
}

fn members(text: &str) -> Result<Members<'_>, &'static str> {
    if text.starts_with('{') { serde_json::from_str(text).map_err(|_| NO_LIST) } else { Err(NO_LIST) }
}

/// The one member that some reader takes for `name`.
fn member<'a>(members: &Members<'a>, name: &str) -> Result<Option<&'a RawValue>, &'static str> {
    let mut found = members.0.iter().filter(|(other, _)| same_name(other, name));
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some((spelt, value)), None) if spelt == name => Ok(Some(*value)),
        _ => Err(TWO_WAYS),
    }
}
