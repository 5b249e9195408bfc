//! One template from the manifests of all modes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::lines::{Line, Writer};
use super::modes::Set;
use super::{Modes, Names, Slot};
use crate::YamlError;

/// A manifest in one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The manifest, with the placeholders of [`Names`] in it.
    pub object: Value,
    /// What the template fills in, by JSON pointer. Members that are not in the manifest are added to their object,
    /// which must be.
    pub slots: Vec<(String, Slot)>,
    /// The chart value on which the manifest depends.
    pub only_if: Option<String>,
}

/// What is the same document in several modes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    kind: String,
    namespace: String,
    name: String,
}

/// Makes the template that renders to the `documents` of each mode, which are in the order of [`Modes::all`].
///
/// # Errors
/// When a manifest cannot be written as YAML.
pub fn template(modes: &Modes, documents: &[Vec<Document>], names: &Names) -> Result<String, YamlError> {
    let mut order: Vec<(Identity, Set)> = Vec::new();
    let mut contents: BTreeMap<Identity, Vec<(Vec<Line>, Set)>> = BTreeMap::new();
    let mut conditions = BTreeMap::new();
    for (mode, documents) in documents.iter().enumerate() {
        let set = 1 << mode;
        merge(&mut order, documents.iter().map(identity).collect(), set);
        for document in documents {
            let lines = Writer::lines(&document.object, &document.slots, names)?;
            let variants = contents.entry(identity(document)).or_default();
            match variants.iter_mut().find(|(known, _)| *known == lines) {
                Some((_, modes)) => *modes |= set,
                None => variants.push((lines, set)),
            }
            conditions.insert(identity(document), document.only_if.clone());
        }
    }
    let mut text = String::new();
    let mut open = modes.every();
    for (identity, set) in order {
        if set != open {
            close(&mut text, open, modes);
            if set != modes.every() {
                line(&mut text, &format!("{{{{- if {} }}}}", modes.condition(set, modes.every())));
            }
            open = set;
        }
        let only_if = conditions.remove(&identity).flatten();
        if let Some(value) = &only_if {
            line(&mut text, &format!("{{{{- if {value} }}}}"));
        }
        line(&mut text, "---");
        // The longest first: the others then mostly have lines that are there already.
        let mut variants = contents.remove(&identity).unwrap_or_default();
        variants.sort_by_key(|(lines, _)| usize::MAX - lines.len());
        let mut lines = Vec::new();
        for (variant, modes) in variants {
            merge(&mut lines, variant, modes);
        }
        print(&mut text, &lines, set, modes);
        if only_if.is_some() {
            line(&mut text, "{{- end }}");
        }
    }
    close(&mut text, open, modes);
    Ok(text)
}

fn close(text: &mut String, open: Set, modes: &Modes) {
    if open != modes.every() {
        line(text, "{{- end }}");
    }
}

/// Prints lines, those that are not in all of the modes that are `known` to be behind their condition.
fn print(text: &mut String, lines: &[(Line, Set)], known: Set, modes: &Modes) {
    let mut open = known;
    for (content, set) in lines {
        if *set != open {
            if open != known && *set == known & !open {
                line(text, "{{- else }}");
            } else {
                if open != known {
                    line(text, "{{- end }}");
                }
                if *set != known {
                    line(text, &format!("{{{{- if {} }}}}", modes.condition(*set, known)));
                }
            }
            open = *set;
        }
        line(text, &content.text);
    }
    if open != known {
        line(text, "{{- end }}");
    }
}

fn line(text: &mut String, content: &str) {
    let _ = writeln!(text, "{content}");
}

/// A configuration of webhooks is named after the namespace that it is restricted to, and there is one of each kind.
fn identity(document: &Document) -> Identity {
    let word = |pointer: &str| document.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = if document.object.get("webhooks").is_some() { String::new() } else { word("/metadata/name") };
    Identity { kind: word("/kind"), namespace: word("/metadata/namespace"), name }
}

/// Takes the items of some modes into those of others, in the order of both: what both have (the longest common
/// subsequence) becomes one.
fn merge<T: PartialEq>(merged: &mut Vec<(T, Set)>, items: Vec<T>, set: Set) {
    let (rows, columns) = (merged.len(), items.len());
    // How many items the rests from here on have in common.
    let mut common = vec![vec![0_usize; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            common[row][column] = if merged[row].0 == items[column] {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let mut known = std::mem::take(merged).into_iter().peekable();
    let (mut row, mut column) = (0, 0);
    for item in items {
        // What is only in the others comes first as long as that loses nothing.
        while row < rows
            && common[row + 1][column] == common[row][column]
            && known.peek().is_some_and(|(it, _)| *it != item)
        {
            merged.extend(known.next());
            row += 1;
        }
        match known.next_if(|(it, _)| *it == item && common[row][column] == common[row + 1][column + 1] + 1) {
            Some((it, modes)) => {
                merged.push((it, modes | set));
                row += 1;
            }
            None => merged.push((item, set)),
        }
        column += 1;
    }
    merged.extend(known);
}
