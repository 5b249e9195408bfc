//! A manifest as lines of YAML with template expressions.

use serde_json::{Value, json};

use crate::YamlError;
use crate::yaml::in_order;

/// What the template has at a place of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// This expression, in place of the generated value.
    Text(String),
    /// The chart value, or the generated one where it is empty.
    Instead(String),
    /// The chart value in place of the generated one, or nothing where it is empty.
    Value(String),
    /// This text, if the chart value (`.` in the text) is not empty.
    Optional(String, String),
    /// An additional item with this text, if the chart value (`.` in the text) is not empty.
    Item(String, String),
    /// The members or items of the chart value, in addition to the generated ones.
    Also(String),
    /// The items that the named template of the chart makes, in addition to the generated ones.
    Include(String),
}

/// Placeholders of names in manifests, each with the expression that replaces it in the template. A placeholder is a
/// valid Kubernetes name that nothing else has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub Vec<(String, String)>);

impl Names {
    /// The text as the template has it. What would begin an expression by itself does not.
    fn fill(&self, text: &str) -> String {
        let escaped = text.replace("{{", "{{ `{{` }}");
        self.0.iter().fold(escaped, |text, (word, expression)| text.replace(word, &format!("{{{{ {expression} }}}}")))
    }
}

/// A line of the template, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Where it stands: only lines of the same place are the same in several modes.
    place: String,
    /// Its text, without the end.
    pub(super) text: String,
}

/// Writes manifests as lines.
pub(super) struct Writer<'a> {
    names: &'a Names,
    slots: &'a [(String, Slot)],
    lines: Vec<Line>,
}

impl<'a> Writer<'a> {
    /// The lines of an object with these slots, each at the place that a JSON pointer names.
    pub(super) fn lines(object: &Value, slots: &'a [(String, Slot)], names: &'a Names) -> Result<Vec<Line>, YamlError> {
        let mut writer = Writer { names, slots, lines: Vec::new() };
        writer.members(object, "", "", 0)?;
        Ok(writer.lines)
    }

    /// The members of an object, a block that may be left out never first: it could not begin an item of a list.
    fn members(&mut self, object: &Value, pointer: &str, place: &str, depth: usize) -> Result<(), YamlError> {
        let mut members: Vec<(&str, Option<&Value>)> =
            in_order(object).map(|(name, value)| (name, Some(value))).collect();
        for (name, _) in self.slots_in(pointer) {
            if !members.iter().any(|(member, _)| *member == name) {
                members.push((name, None));
            }
        }
        members.sort_by_key(|(name, _)| {
            let pointer = format!("{pointer}/{}", escaped(name));
            let slot = self.slots.iter().find(|(at, _)| *at == pointer).map(|(_, slot)| slot);
            matches!(slot, Some(Slot::Instead(_) | Slot::Value(_) | Slot::Optional(..)))
        });
        for (name, value) in members {
            let (pointer, place) = (format!("{pointer}/{}", escaped(name)), format!("{place}/{name}"));
            self.member(name, value, &pointer, &place, depth)?;
        }
        Ok(())
    }

    /// A member, with what its slots make of it.
    fn member(
        &mut self,
        name: &str,
        value: Option<&Value>,
        pointer: &str,
        place: &str,
        depth: usize,
    ) -> Result<(), YamlError> {
        let slots: Vec<&Slot> = self.slots.iter().filter(|(at, _)| at == pointer).map(|(_, slot)| slot).collect();
        // To nothing, nothing can be added.
        let is_empty = |value: &Value| *value == json!([]) || *value == json!({});
        let value = value.filter(|value| !(matches!(slots[..], [Slot::Also(_), ..]) && is_empty(value)));
        let indent = " ".repeat(depth);
        let of_value = |value: &str, otherwise: &str| {
            let inner = depth + 2;
            format!(
                "{{{{- with {value} }}}}\n{indent}{name}:\n{indent}  {{{{- toYaml . | nindent {inner} }}}}\n{otherwise}{{{{- end }}}}"
            )
        };
        match (slots.first(), value) {
            (Some(Slot::Text(text)), _) => self.push(place, format!("{indent}{name}: {text}")),
            (Some(Slot::Optional(value, text)), _) => {
                self.push(place, format!("{{{{- with {value} }}}}\n{indent}{name}: {text}\n{{{{- end }}}}"));
            }
            (Some(Slot::Value(value)), _) | (Some(Slot::Instead(value) | Slot::Also(value)), None) => {
                self.push(place, of_value(value, ""));
            }
            (Some(Slot::Instead(value)), Some(generated)) => {
                let mut otherwise = Writer { names: self.names, slots: &[], lines: Vec::new() };
                otherwise.plain(name, generated, pointer, place, depth)?;
                let lines: Vec<String> = otherwise.lines.into_iter().map(|line| line.text).collect();
                self.push(place, of_value(value, &format!("{{{{- else }}}}\n{}\n", lines.join("\n"))));
            }
            (Some(Slot::Include(_) | Slot::Item(..)) | None, None) => {}
            (Some(Slot::Also(_) | Slot::Include(_) | Slot::Item(..)) | None, Some(generated)) => {
                self.plain(name, generated, pointer, place, depth)?;
                // Items of a list are no deeper than the name of the list.
                let inner = if generated.is_array() { depth } else { depth + 2 };
                for slot in slots {
                    let indent = " ".repeat(inner);
                    let (value, items) = match slot {
                        Slot::Also(value) => (value.clone(), format!("{indent}{{{{- toYaml . | nindent {inner} }}}}")),
                        Slot::Include(template) => {
                            let value = format!("include {template:?} . | trim");
                            (value, format!("{indent}{{{{- . | nindent {inner} }}}}"))
                        }
                        Slot::Item(value, text) => (value.clone(), format!("{indent}- {text}")),
                        _ => continue,
                    };
                    self.push(place, format!("{{{{- with {value} }}}}\n{items}\n{{{{- end }}}}"));
                }
            }
        }
        Ok(())
    }

    /// A member as it was generated, slots within it aside.
    fn plain(&mut self, name: &str, value: &Value, pointer: &str, place: &str, depth: usize) -> Result<(), YamlError> {
        let indent = " ".repeat(depth);
        match value {
            Value::Object(members) if !members.is_empty() => {
                self.push(place, format!("{indent}{}:", key(name)?));
                self.members(value, pointer, place, depth + 2)
            }
            Value::Array(items) if !items.is_empty() => {
                self.push(place, format!("{indent}{}:", key(name)?));
                self.items(items, pointer, place, depth)
            }
            scalar => {
                let text = self.scalar(scalar)?;
                self.push(place, indented(&format!("{}: {text}", key(name)?), depth));
                Ok(())
            }
        }
    }

    fn items(&mut self, items: &[Value], pointer: &str, place: &str, depth: usize) -> Result<(), YamlError> {
        for (index, item) in items.iter().enumerate() {
            let pointer = format!("{pointer}/{index}");
            match item {
                Value::Object(members) if !members.is_empty() => {
                    let (place, first) = (format!("{place}/{}", identity(item)), self.lines.len());
                    self.members(item, &pointer, &place, depth + 2)?;
                    if let Some(line) = self.lines.get_mut(first) {
                        line.text.replace_range(depth..depth + 2, "- ");
                    }
                }
                // JSON is YAML.
                Value::Array(_) => {
                    let text = self.names.fill(&item.to_string());
                    self.push(place, format!("{}- {text}", " ".repeat(depth)));
                }
                scalar => {
                    let text = self.scalar(scalar)?;
                    self.push(place, indented(&format!("- {text}"), depth));
                }
            }
        }
        Ok(())
    }

    /// What has an expression is between single quotes: there, no character of an expression means anything to YAML.
    fn scalar(&self, value: &Value) -> Result<String, YamlError> {
        let Some(text) = value.as_str() else { return Ok(serde_saphyr::to_string(value)?.trim_end().to_owned()) };
        let filled = self.names.fill(text);
        if filled != text && !filled.contains('\n') {
            return Ok(format!("'{}'", filled.replace('\'', "''")));
        }
        Ok(serde_saphyr::to_string(&filled)?.trim_end().to_owned())
    }

    fn push(&mut self, place: &str, text: String) {
        self.lines.push(Line { place: place.to_owned(), text });
    }

    /// Names of the members directly below a pointer that have a slot.
    fn slots_in(&self, pointer: &str) -> Vec<(&'a str, &'a Slot)> {
        let below = |(at, slot): &'a (String, Slot)| {
            let name = at.strip_prefix(pointer)?.strip_prefix('/')?;
            (!name.contains('/')).then_some((name, slot))
        };
        self.slots.iter().filter_map(below).collect()
    }
}

/// By which an item is the same in two modes: its name; and a rule of a role by what it is about, whatever its verbs are.
fn identity(item: &Value) -> String {
    if let Some(name) = item.get("name").and_then(Value::as_str) {
        return name.to_owned();
    }
    let mut about = item.clone();
    if let Some(members) = about.as_object_mut() {
        members.remove("verbs");
    }
    about.to_string()
}

/// A name in a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn key(name: &str) -> Result<String, YamlError> {
    Ok(serde_saphyr::to_string(&name)?.trim_end().to_owned())
}

/// The text with each of its lines so far in, but for empty ones.
fn indented(text: &str, depth: usize) -> String {
    let indent = |line: &str| if line.is_empty() { String::new() } else { format!("{}{line}", " ".repeat(depth)) };
    text.split('\n').map(indent).collect::<Vec<_>>().join("\n")
}
