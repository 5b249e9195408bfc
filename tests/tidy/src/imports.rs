use std::collections::{BTreeMap, BTreeSet};

use crate::{Source, sources};

/// Segments of a path in the module tree of a crate; empty for its root.
type Module = Vec<String>;
/// Modules of one folder: which names which, with one import that shows it.
type Level = BTreeMap<String, BTreeMap<String, String>>;

/// Which module of a crate names which, by `use` and by paths that begin with `crate` or `super`. Tests are left out. A
/// name that a module re-exports counts as that of the module where it comes from.
///
/// Modules that are written inside of a file belong to that file, and what comes by a glob to the module that is named.
#[derive(Debug, Default)]
pub struct Imports {
    edges: BTreeSet<(Module, Module)>,
}

impl Imports {
    /// Reads the sources of the crate in this folder of the repository.
    pub fn of_crate(folder: &str) -> std::io::Result<Self> {
        let src = format!("{folder}/src/");
        let inside = |path: &str| path.strip_prefix(&src).and_then(|path| path.strip_suffix(".rs")).map(str::to_owned);
        let library = |path: &str| path != "main" && !path.starts_with("bin/") && !path.ends_with("tests");
        let files = sources(|path| inside(path).is_some_and(|path| library(&path)))?;
        Ok(Self::between(files.iter().map(|source| (inside(&source.path).unwrap_or_default(), source))))
    }

    /// Reads files, each with its path in `src/` without the extension.
    fn between<'a>(files: impl Iterator<Item = (String, &'a Source)>) -> Self {
        let files: BTreeMap<Module, Names> = files.map(|(path, source)| (module(&path), Names::read(source))).collect();
        let tree = Tree { files: &files };
        let mut edges = BTreeSet::new();
        for (from, names) in &files {
            for path in names.used.iter().map(|(path, _)| path).chain(&names.inline) {
                let Some(to) = tree.resolve(from, path, 0) else { continue };
                if !to.starts_with(from) && !from.starts_with(&to) {
                    edges.insert((from.clone(), to));
                }
            }
        }
        Self { edges }
    }

    /// Every import between two modules that are neither parent nor child of each other, as their paths.
    pub fn edges(&self) -> impl Iterator<Item = (String, String)> {
        self.edges.iter().map(|(from, to)| (from.join("::"), to.join("::")))
    }

    /// The circles of modules of one folder, each taken with all that is below it: empty where imports go in one
    /// direction. A circle is described by its imports.
    pub fn circles(&self) -> Vec<String> {
        let mut levels: BTreeMap<&[String], Level> = BTreeMap::new();
        for (from, to) in &self.edges {
            let common = from.iter().zip(to).take_while(|(from, to)| from == to).count();
            let shown = format!("{} names {}", from.join("::"), to.join("::"));
            let level = levels.entry(&from[..common]).or_default();
            level.entry(from[common].clone()).or_default().entry(to[common].clone()).or_insert(shown);
        }
        let circles = levels.values().flat_map(|level| {
            level.keys().filter_map(|start| {
                let circle = way(level, start, start)?;
                // Each circle is found from each of its modules; it is reported once.
                (circle.iter().min() == Some(start)).then(|| described(level, &circle))
            })
        });
        circles.collect()
    }
}

/// The shortest way from `start` to `end` over at least one import, without `end`.
fn way(level: &Level, start: &str, end: &str) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut ways = vec![vec![start.to_owned()]];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in way.last().and_then(|last| level.get(last)).into_iter().flat_map(BTreeMap::keys) {
                if next == end {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push([&way[..], std::slice::from_ref(next)].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

fn described(level: &Level, circle: &[String]) -> String {
    let next = circle.iter().cycle().skip(1);
    circle.iter().zip(next).map(|(from, to)| level[from][to].as_str()).collect::<Vec<_>>().join("; ")
}

/// `workload/mod` and `workload` are the same module; `lib` is the root.
fn module(path: &str) -> Module {
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').filter(|part| *part != "lib").map(str::to_owned).collect()
}

/// The paths that a file names.
struct Names {
    /// The paths of its `use` items, each with the name that it has here.
    used: Vec<(Vec<String>, String)>,
    /// The paths within its code, from `crate` or `super`.
    inline: Vec<Vec<String>>,
}

impl Names {
    fn read(source: &Source) -> Self {
        let (mut used, mut code) = (Vec::new(), String::new());
        let shipped = source.shipped_code();
        let mut lines = shipped.lines();
        while let Some(line) = lines.next() {
            let statement = line.trim_start();
            let imported = statement.split_once("use ").filter(|(before, _)| {
                matches!(*before, "" | "pub ") || (before.starts_with("pub(") && before.ends_with(") "))
            });
            let Some((_, first)) = imported else {
                code.push_str(line);
                code.push('\n');
                continue;
            };
            let mut tree = first.to_owned();
            while !tree.contains(';') {
                let Some(more) = lines.next() else { break };
                tree.push_str(more.trim());
            }
            expand(&[], tree.split(';').next().unwrap_or_default(), &mut used);
        }
        Self { used, inline: inline(&code) }
    }
}

/// Takes a use tree apart: `a::{b, c as d}` is `a::b`, known as `b`, and `a::c`, known as `d`.
fn expand(before: &[String], tree: &str, into: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    if let Some((path, rest)) = tree.split_once('{') {
        let before = [before, &segments(path)].concat();
        let list = rest.strip_suffix('}').unwrap_or(rest);
        let (mut depth, mut start) = (0_usize, 0);
        for (at, letter) in list.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    expand(&before, &list[start..at], into);
                    start = at + 1;
                }
                _ => {}
            }
        }
        expand(&before, &list[start..], into);
    } else if !tree.is_empty() {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let mut path = [before, &segments(path)].concat();
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.map(str::to_owned).or_else(|| path.last().cloned()).unwrap_or_default();
        into.push((path, name));
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The paths from `crate` or `super` that code names where it stands.
fn inline(code: &str) -> Vec<Vec<String>> {
    let part_of_path = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | ':');
    let paths = code.split(|letter| !part_of_path(letter));
    paths.filter(|path| path.starts_with("crate::") || path.starts_with("super::")).map(segments).collect()
}

struct Tree<'a> {
    files: &'a BTreeMap<Module, Names>,
}

impl Tree<'_> {
    /// The module that has what `path` names in the file of `from`; none for another crate's.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(self.descend(Module::new(), rest, depth)),
            "self" => Some(self.descend(from.to_vec(), rest, depth)),
            "super" => {
                let above = &from[..from.len().checked_sub(1)?];
                if rest.first().is_some_and(|next| next == "super") {
                    return self.resolve(above, rest, depth);
                }
                Some(self.descend(above.to_vec(), rest, depth))
            }
            _ => {
                let child = [from, std::slice::from_ref(first)].concat();
                self.files.contains_key(&child).then(|| self.descend(child, rest, depth))
            }
        }
    }

    /// Goes from a module down to its children, and to what it re-exports, wherever in the crate that is.
    fn descend(&self, module: Module, path: &[String], depth: usize) -> Module {
        let Some((first, rest)) = path.split_first() else { return module };
        let child = [&module[..], std::slice::from_ref(first)].concat();
        if self.files.contains_key(&child) {
            return self.descend(child, rest, depth);
        }
        // A name may be re-exported by its like; no chain of them is this long.
        if depth == 10 {
            return module;
        }
        let mut imported = self.files.get(&module).into_iter().flat_map(|names| &names.used);
        let found = imported.find(|(_, name)| name == first);
        let there = found.and_then(|(path, _)| self.resolve(&module, &[path, rest].concat(), depth + 1));
        there.unwrap_or(module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths and texts.
    type Files<'a> = &'a [(&'a str, &'a str)];

    fn circles(files: Files<'_>) -> Vec<String> {
        let source = |(path, text): &(&str, &str)| Source { path: (*path).to_owned(), text: (*text).to_owned() };
        let files: Vec<_> = files.iter().map(|file| (file.0.to_owned(), source(file))).collect();
        Imports::between(files.iter().map(|(path, source)| (path.clone(), source))).circles()
    }

    #[test]
    fn a_circle_of_modules_is_found_however_it_is_written() {
        let there = "a names b; b names a";
        let table: [(Files<'_>, &[&str]); 11] = [
            (&[("a", "use crate::b::B;"), ("b", "use std::fmt;")], &[]),
            (&[("a", "use crate::b::B;"), ("b", "pub use super::a::A;")], &[there]),
            (
                &[("a", "use crate::{\n    x::Y,\n    b::{self, B as C},\n};"), ("b", "fn f() { crate::a::f() }")],
                &[there],
            ),
            (&[("a", "// use crate::b;\n"), ("b", "use crate::a;")], &[]),
            (&[("a", "#[cfg(test)]\nmod tests {\n    use crate::b;\n}"), ("b", "use crate::a;")], &[]),
            // A parent and its children are one.
            (&[("a/mod", "mod b;\npub use b::B;"), ("a/b", "use super::A;")], &[]),
            // Siblings that know each other by what their parent re-exports.
            (
                &[("a/mod", "pub use b::B;\nuse c::C;"), ("a/b", "use super::C;"), ("a/c", "use crate::a::B;")],
                &["a::b names a::c; a::c names a::b"],
            ),
            // An item that a module re-exports from elsewhere in the crate is not its own.
            (
                &[("a", "pub use crate::b::B;"), ("b", "use crate::c;"), ("c", "use crate::a::B;")],
                &["b names c; c names b"],
            ),
            (&[("a", "pub use crate::b::B;\nuse crate::c;"), ("b", ""), ("c", "use crate::a::B;")], &[]),
            // Folders are compared with all that is in them.
            (
                &[("a/mod", ""), ("a/b", "use crate::c::d::D;"), ("c/mod", "use crate::a;"), ("c/d", "")],
                &["a::b names c::d; c names a"],
            ),
            (
                &[("a", "use crate::b::B;"), ("b", "use crate::c::C;"), ("c", "use super::a::A;")],
                &["a names b; b names c; c names a"],
            ),
        ];
        for (files, expected) in table {
            assert_eq!(circles(files), expected, "{files:?}");
        }
    }
}
