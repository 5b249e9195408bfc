//! A Kubernetes object as raw slices: the parts that the engine reads, and its output.

use std::borrow::Cow;
use std::collections::HashSet;

use portcullis_review::MAX_DEPTH;
use portcullis_review::scan::{Member, Scan, extent, unquoted};
use serde_json::{Map, Value};

use crate::json::{Document, write_string};
use crate::problem::Problem;
use crate::{INCOMPLETE, PROBLEM, STASH};

/// The largest object that is decoded, in bytes: 8 MiB. The API server takes no object of more than 3 MiB.
const MAX_LENGTH: usize = 8 * 1024 * 1024;

/// The largest number of values in a document. Each can take a thousand times its bytes in memory.
const MAX_VALUES: usize = 128 * 1024;

/// The most bytes that Kubernetes allows for the names and values of all annotations of an object together: 256 KiB.
/// The API server takes no converted object whose annotations the conversion has changed to more.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The top level of an object.
pub(crate) struct Object<'a> {
    pub(crate) api_version: Cow<'a, str>,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) metadata: Metadata<'a>,
    /// `spec`, `status` and all other members; of a repeated key, the last.
    pub(crate) members: Vec<Member<'a>>,
    /// The whole object.
    json: &'a str,
}

/// The metadata of an object.
pub(crate) struct Metadata<'a> {
    /// The text as it was received.
    pub(crate) raw: &'a str,
    members: Vec<Member<'a>>,
    /// The members of `annotations`, where it is an object.
    annotations: Vec<Member<'a>>,
    /// The members of `labels`, where it is an object.
    labels: Vec<Member<'a>>,
}

/// The annotations and the label that the engine gives an object.
#[derive(Clone, Copy, Default)]
pub(crate) struct OwnMetadata<'m> {
    pub(crate) stash: Option<&'m str>,
    pub(crate) problem: Option<&'m str>,
    pub(crate) incomplete: Option<&'m str>,
}

/// The members of an object that are missing or of a wrong type.
pub(crate) struct Incomplete(pub(crate) &'static str);

impl<'a> Object<'a> {
    /// Reads the top level, the metadata and the keys of annotations and labels, in one pass over the text.
    pub(crate) fn read(json: &'a str) -> Result<Self, Incomplete> {
        let (mut metadata, mut annotations, mut labels) = (None, None, None);
        let mut scan = Scan::of(json);
        let members = scan.members(|scan, key| {
            if key != "metadata" {
                return false;
            }
            (metadata, annotations, labels) = (None, None, None);
            if !scan.at_object() {
                return false;
            }
            metadata = scan.members(|scan, key| {
                let found = match key {
                    "annotations" => &mut annotations,
                    "labels" => &mut labels,
                    _ => return false,
                };
                *found = None;
                if !scan.at_object() {
                    return false;
                }
                *found = scan.members(|_, _| false);
                true
            });
            true
        });
        let members = last_of_each(members.ok_or(Incomplete("members that end"))?);
        let find = |key| members.iter().find(|member| member.key == key);
        let string = |key| find(key).and_then(|member| unquoted(member.value)).ok_or(Incomplete(key));
        // Server-side apply takes the metadata away where a manager owns all of it.
        let raw = find("metadata").map(|member| member.value).filter(|raw| *raw != "null").unwrap_or("{}");
        let metadata = Metadata {
            raw,
            members: metadata.or_else(|| (raw == "{}").then(Vec::new)).ok_or(Incomplete("metadata"))?,
            annotations: annotations.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
        };
        Ok(Self {
            api_version: string("apiVersion")?,
            kind: string("kind")?,
            metadata,
            json,
            members: members.into_iter().filter(|member| !is_engines(&member.key)).collect(),
        })
    }

    /// Larger than any object that the API server takes. A client must not make the engine allocate memory for it.
    pub(crate) fn is_too_large(&self) -> bool {
        self.json.len() > MAX_LENGTH
    }

    /// The members as a document.
    pub(crate) fn document(&self) -> Result<Document, Problem> {
        let (depth, values) = extent(self.json);
        if depth > MAX_DEPTH {
            return Err(Problem::whole(format!("nested deeper than {MAX_DEPTH}")));
        }
        if self.is_too_large() {
            return Err(Problem::whole(format!("larger than {MAX_LENGTH} bytes")));
        }
        if values > MAX_VALUES {
            return Err(Problem::whole(format!("made of more than {MAX_VALUES} values")));
        }
        let mut document = Map::new();
        for member in &self.members {
            let value = serde_json::from_str(member.value).map_err(|_| Problem {
                path: member.key.to_string(),
                ..Problem::whole("holds a number that is out of range".to_owned())
            })?;
            document.insert(member.key.to_string(), value);
        }
        Ok(Value::Object(document))
    }
}

impl<'a> Metadata<'a> {
    fn text(&self, key: &str) -> Cow<'a, str> {
        let member = self.members.iter().rfind(|member| member.key == key);
        member.and_then(|member| unquoted(member.value)).unwrap_or_default()
    }

    /// Empty where there is none.
    pub(crate) fn name(&self) -> Cow<'a, str> {
        self.text("name")
    }

    /// Empty where there is none.
    pub(crate) fn namespace(&self) -> Cow<'a, str> {
        self.text("namespace")
    }

    /// The annotation, where it is a string.
    pub(crate) fn annotation(&self, key: &str) -> Option<Cow<'a, str>> {
        self.annotations.iter().rfind(|member| member.key == key).and_then(|member| unquoted(member.value))
    }

    /// The label that marks data as left out, where it is a string.
    pub(crate) fn incomplete(&self) -> Option<Cow<'a, str>> {
        self.labels.iter().rfind(|member| member.key == INCOMPLETE).and_then(|member| unquoted(member.value))
    }

    /// Whether the object comes from storage or goes there: it has `managedFields`, which the API server stores with
    /// every object, and no `resourceVersion`, which it adds after the conversion and removes before.
    pub(crate) fn is_of_storage(&self) -> bool {
        let has = |key| {
            self.members.iter().any(|member| member.key == key && !matches!(member.value, "null" | "[]" | r#""""#))
        };
        has("managedFields") && !has("resourceVersion")
    }

    /// Whether one of the engine's annotations or its label is there, whatever it holds.
    pub(crate) fn has_own_metadata(&self) -> bool {
        self.annotations.iter().any(|member| is_engines_annotation(&member.key))
            || self.labels.iter().any(|member| member.key == INCOMPLETE)
    }

    /// Bytes that Kubernetes leaves for the engine's annotations, with their names.
    pub(crate) fn room(&self) -> usize {
        if !self.takes("annotations") {
            return 0;
        }
        let others = self.annotations.iter().filter(|member| !is_engines_annotation(&member.key));
        // The API server reads half of a surrogate pair as a character that is shorter than its escape here.
        let length = |value| unquoted(value).map_or(value.len(), |text| text.len());
        let taken: usize = others.map(|member| member.key.len() + length(member.value)).sum();
        MAX_ANNOTATIONS.saturating_sub(taken)
    }

    /// Whether annotations, or labels, can be added: the member is a map or missing.
    fn takes(&self, map: &str) -> bool {
        let member = self.members.iter().rfind(|member| member.key == map);
        member.is_none_or(|member| member.value.starts_with('{') || member.value == "null")
    }

    /// Writes the metadata that converters see: without `managedFields` and the engine's own.
    pub(crate) fn for_converters(&self) -> String {
        let managed = self.members.iter().filter(|member| member.key == "managedFields");
        let managed: usize = managed.map(|member| member.whole.len()).sum();
        let mut out = Vec::with_capacity(self.raw.len().saturating_sub(managed) + 2);
        self.write_without(&mut out, &["managedFields"], OwnMetadata::default());
        into_string(out)
    }

    /// Writes the received metadata, with this metadata of the engine instead of its previous one.
    pub(crate) fn write(&self, out: &mut Vec<u8>, own: OwnMetadata<'_>) {
        let OwnMetadata { stash, problem, incomplete } = own;
        if stash.or(problem).or(incomplete).is_none() && !self.has_own_metadata() {
            out.extend_from_slice(self.raw.as_bytes());
        } else {
            self.write_without(out, &[], own);
        }
    }

    fn write_without(&self, out: &mut Vec<u8>, without: &[&str], own: OwnMetadata<'_>) {
        let annotations = [(PROBLEM, own.problem), (STASH, own.stash)];
        let labels = [(INCOMPLETE, own.incomplete)];
        let maps = [
            OwnMap { name: "annotations", members: &self.annotations, own: &annotations },
            OwnMap { name: "labels", members: &self.labels, own: &labels },
        ];
        let maps = maps.iter().filter(|map| map.changes() && self.takes(map.name));
        out.push(b'{');
        let start = out.len();
        for member in self.members.iter().filter(|member| !without.contains(&&*member.key)) {
            if !maps.clone().any(|map| map.name == member.key) {
                out.extend_from_slice(member.whole.as_bytes());
                out.push(b',');
            }
        }
        maps.for_each(|map| map.write(out));
        if out.len() > start {
            out.pop();
        }
        out.push(b'}');
    }
}

/// Annotations or labels, and those of the engine.
struct OwnMap<'m, 'a> {
    name: &'static str,
    /// The received members.
    members: &'m [Member<'a>],
    /// The engine's members, each with its value; None removes it.
    own: &'m [(&'static str, Option<&'m str>)],
}

impl OwnMap<'_, '_> {
    fn owns(&self, member: &Member<'_>) -> bool {
        self.own.iter().any(|(key, _)| *key == member.key)
    }

    fn changes(&self) -> bool {
        self.own.iter().any(|(_, value)| value.is_some()) || self.members.iter().any(|member| self.owns(member))
    }

    /// Writes the map with a comma behind it; nothing where none is left.
    fn write(&self, out: &mut Vec<u8>) {
        let before = out.len();
        write_string(out, self.name);
        out.extend_from_slice(b":{");
        let start = out.len();
        for member in self.members.iter().filter(|member| !self.owns(member)) {
            out.extend_from_slice(member.whole.as_bytes());
            out.push(b',');
        }
        for (key, value) in self.own.iter().filter_map(|&(key, value)| Some((key, value?))) {
            write_string(out, key);
            out.push(b':');
            write_string(out, value);
            out.push(b',');
        }
        if out.len() == start {
            out.truncate(before);
            return;
        }
        out.pop();
        out.extend_from_slice(b"},");
    }
}

/// Begins an object, up to where the value of `metadata` goes.
pub(crate) fn begin(out: &mut Vec<u8>, api_version: &str, kind: &str) {
    out.extend_from_slice(br#"{"apiVersion":"#);
    write_string(out, api_version);
    out.extend_from_slice(br#","kind":"#);
    write_string(out, kind);
    out.extend_from_slice(br#","metadata":"#);
}

/// Whether the engine writes this member of the top level itself.
pub(crate) fn is_engines(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

fn is_engines_annotation(key: &str) -> bool {
    key == STASH || key == PROBLEM
}

/// Pieces of text and of `serde_json`'s output: always UTF-8.
pub(crate) fn into_string(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap_or_default()
}

fn last_of_each(members: Vec<Member<'_>>) -> Vec<Member<'_>> {
    let mut last: Vec<Member<'_>> = Vec::with_capacity(members.len());
    let mut seen = HashSet::with_capacity(members.len());
    for member in members.into_iter().rev() {
        if seen.insert(member.key.clone()) {
            last.push(member);
        }
    }
    last.reverse();
    last
}
