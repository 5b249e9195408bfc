//! CONTRIBUTING.md on words: a comment is a sentence that begins with its subject, a test's name a short one.

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
const AT_MOST: [(&str, usize); 1] = [("mcp", 427)];

/// The longest name of a test, and of any other function.
const LONGEST_NAME: usize = 60;

/// The most functions of a top-level folder whose names are longer; none in those that are not here.
const LONG_NAMES_AT_MOST: [(&str, usize); 1] = [("mcp", 416)];

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

/// The name of the function that a line declares.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
    (before.is_empty() || before.ends_with(' ')).then_some(name)
}

fn assert_at_most(at_most: &[(&str, usize)], find: impl Fn(&Source) -> Vec<String>) {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources(rust).unwrap() {
        let folder = source.path.split('/').next().unwrap_or_default().to_owned();
        let findings = find(&source).into_iter().map(|finding| format!("{}: {finding}", source.path));
        found.entry(folder).or_default().extend(findings);
    }
    for (folder, found) in found {
        let most = at_most.iter().find(|(name, _)| *name == folder).map_or(0, |(_, most)| *most);
        assert!(found.len() <= most, "{folder}: {} where {most} were:\n{}", found.len(), found.join("\n"));
    }
}

#[test]
fn no_folder_gets_more_comments_without_a_subject() {
    assert_at_most(&AT_MOST, |source| {
        openings(source).filter(|opening| is_headless(opening)).map(str::to_owned).collect()
    });
}

#[test]
fn no_folder_gets_more_names_of_over_sixty_characters() {
    assert_at_most(&LONG_NAMES_AT_MOST, |source| {
        let names = source.text.lines().filter_map(function);
        names.filter(|name| name.len() > LONGEST_NAME).map(str::to_owned).collect()
    });
}
