//! CONTRIBUTING.md: a comment is a sentence that begins with its subject.

use std::collections::BTreeMap;

use portcullis_tidy::{Source, sources};

use crate::sources::rust;

/// The first words of a clause without a subject. Help texts of flags are comments too.
const HEADLESS: [&str; 14] = [
    "What",
    "Whatever",
    "Who",
    "Whom",
    "Whose",
    "Whoever",
    "How",
    "Those",
    "That which",
    "Of",
    "By which",
    "By whom",
    "To whom",
    "For whom",
];

/// The most comments of a top-level folder that begin so; none in those that are not here. Lower a number with what you
/// rewrite; none may rise.
const AT_MOST: [(&str, usize); 1] = [("mcp", 750)];

/// The first line of each block of comment lines.
fn openings(source: &Source) -> impl Iterator<Item = &str> {
    let comment = |line: &'_ str| -> Option<usize> {
        let line = line.trim_start();
        line.starts_with("//").then(|| line.len() - line.trim_start_matches(['/', '!']).len())
    };
    let before = std::iter::once("").chain(source.text.lines());
    before.zip(source.text.lines()).filter_map(move |(before, line)| {
        let begins = comment(line)? > 0 && comment(before) != comment(line);
        begins.then(|| line.trim_start().trim_start_matches(['/', '!']).trim_start())
    })
}

fn is_headless(opening: &str) -> bool {
    HEADLESS.iter().any(|word| opening.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', ',', ':'])))
}

#[test]
fn no_folder_gets_more_comments_without_a_subject() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources(rust).unwrap() {
        let folder = source.path.split('/').next().unwrap_or_default().to_owned();
        let headless = openings(&source).filter(|opening| is_headless(opening));
        found.entry(folder).or_default().extend(headless.map(|opening| format!("{}: {opening}", source.path)));
    }
    for (folder, found) in found {
        let most = AT_MOST.iter().find(|(name, _)| *name == folder).map_or(0, |(_, most)| *most);
        assert!(found.len() <= most, "{folder}: {} where {most} were:\n{}", found.len(), found.join("\n"));
    }
}
